#!/usr/bin/env python3
"""Checks a model folder against transformers: class, chat template, token ids, logits, greedy text."""
import argparse
import json
from pathlib import Path

import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

import chat
import corpus
from decode import Branch, decode, run_prefix
from export import load_hf


def openai_messages(messages):
    """The same messages in the form that chat templates take."""
    out = []
    for m in messages:
        if "call" in m:
            call = {"type": "function", "function": {"name": m["call"][0], "arguments": m["call"][1]}}
            out.append({"role": m["role"], "content": "", "tool_calls": [call]})
        else:
            out.append({"role": m["role"], "content": m["content"]})
    return out


def check_text(folder, dialogues, tools):
    """Template and tokenizer of transformers give the training text and ids."""
    theirs, ours = AutoTokenizer.from_pretrained(folder), Tokenizer.from_file(str(folder / "tokenizer.json"))
    for d in dialogues:
        listed = [t for s in d["services"] for t in tools[s]]
        text = "".join(t for t, _ in chat.pieces(d["messages"], listed))
        rendered = theirs.apply_chat_template(openai_messages(d["messages"]), tools=listed, tokenize=False)
        assert rendered == text, f"dialogue {d['id']}: the template renders another text than training used"
        ids = ours.encode(text, add_special_tokens=False).ids
        assert theirs(text, add_special_tokens=False)["input_ids"] == ids, f"dialogue {d['id']}: other token ids"
        assert ours.decode(ids, skip_special_tokens=False) == text, f"dialogue {d['id']}: decoding changes the text"
    return ours


@torch.no_grad()
def check_numbers(folder, tokenizer, dialogues, tools, turns):
    """Logits and greedy text of Lfm2ForCausalLM equal those of the training module, both in fp32."""
    theirs, ours = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval(), load_hf(folder)
    assert type(theirs).__name__ == "Lfm2ForCausalLM", type(theirs).__name__
    end, worst, same = tokenizer.token_to_id(chat.END), 0.0, 0
    for n in range(turns):
        d = dialogues[n % len(dialogues)]
        listed = [t for s in d["services"] for t in tools[s]]
        at = [i for i, m in enumerate(d["messages"]) if m["role"] == "assistant"][n % 3]
        ids = tokenizer.encode(chat.prompt(d["messages"][:at], listed), add_special_tokens=False).ids
        prefix = run_prefix(ours, ids)
        worst = max(worst, (theirs(torch.tensor([ids])).logits[0] - ours.logits(prefix.hidden)).abs().max().item())
        branch = Branch(prefix, len(ids))
        decode(ours, [branch], end, 64)
        generated = theirs.generate(torch.tensor([ids]), max_new_tokens=64, do_sample=False)[0, len(ids):].tolist()
        same += generated == branch.tokens
    assert worst < 1e-3, f"logits differ by {worst}"
    return worst, same


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--turns", type=int, default=10)
    options = parser.parse_args()
    dialogues, tools = corpus.load("sgd-valid")[:20], corpus.load_tools()
    tokenizer = check_text(options.folder, dialogues, tools)
    worst, same = check_numbers(options.folder, tokenizer, dialogues, tools, options.turns)
    print(json.dumps({"max_logit_difference": worst, "greedy_equal": same, "greedy_prompts": options.turns}))


if __name__ == "__main__":
    main()
