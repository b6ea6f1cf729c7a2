#!/usr/bin/env python3
"""Greedy answers of transformers (fp32 arithmetic on the stored weights) to held-out prompts, as a fixture.

Usage: demo_greedy.py MODEL_DIR OUT.jsonl [--count 40] [--tokens 64]

One line a prompt: {"prompt_ids", "ids", "min_gap": {"gap", "position"}}: the generated ids, the end token
included, and the smallest difference of the two best logits with the generated position (from 0) where it
occurs. Half of the prompts are answered with a call in the reference; none is longer than 1,200 tokens.
"""
import argparse
import json
import random
import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, DynamicCache  # noqa: F401

sys.path.insert(0, str(Path(__file__).parents[1] / "train"))
import chat  # noqa: E402
import corpus  # noqa: E402
from evaluate import split_by_services  # noqa: E402


def prompts(tokenizer, count, seed=40):
    known, unknown = split_by_services()
    rng, tools = random.Random(seed), corpus.load_tools()
    dialogues = known + unknown[:len(known) // 3]
    rng.shuffle(dialogues)
    wanted, out = {True: count // 2, False: count - count // 2}, []
    for d in dialogues:
        turns = [i for i, m in enumerate(d["messages"]) if m["role"] == "assistant"]
        i = rng.choice(turns)
        kind = "call" in d["messages"][i]
        if not wanted[kind]:
            continue
        listed = [t for s in d["services"] for t in tools[s]]
        ids = tokenizer.encode(chat.prompt(d["messages"][:i], listed), add_special_tokens=False).ids
        if len(ids) <= 1200:
            wanted[kind] -= 1
            out.append(ids)
    return out


@torch.no_grad()
def greedy(model, ids, ends, limit):
    out, gap, at = [], float("inf"), 0
    step = model(torch.tensor([ids]), use_cache=True)
    while True:
        best = step.logits[0, -1].topk(2)
        difference = (best.values[0] - best.values[1]).item()
        if difference < gap:
            gap, at = difference, len(out)
        out.append(best.indices[0].item())
        if out[-1] in ends or len(out) == limit:
            return {"prompt_ids": ids, "ids": out, "min_gap": {"gap": round(gap, 5), "position": at}}
        step = model(torch.tensor([[out[-1]]]), past_key_values=step.past_key_values, use_cache=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--tokens", type=int, default=64)
    options = parser.parse_args()
    tokenizer = Tokenizer.from_file(str(options.model / "tokenizer.json"))
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32).eval()
    ends = json.loads((options.model / "generation_config.json").read_text())["eos_token_id"]
    with open(options.output, "w") as out:
        for ids in prompts(tokenizer, options.count):
            out.write(json.dumps(greedy(model, ids, ends, options.tokens)) + "\n")
    print(f"{options.output}: {options.count} prompts")


if __name__ == "__main__":
    main()
