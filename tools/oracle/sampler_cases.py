"""Writes tests/fixtures/sampler/cases.json: what transformers' logits processors leave of random logits.

Repetition penalty, temperature, top-k, top-p and min-p are transformers' own classes in the engine's order; logit bias and the
OpenAI penalties, which transformers lacks, are three lines of numpy here. Logits are distinct, so ties play no part.
Run: python tools/oracle/sampler_cases.py
"""
import json
import pathlib
import random

import torch
from transformers.generation.logits_process import (
    MinPLogitsWarper, RepetitionPenaltyLogitsProcessor, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper)

OUT = pathlib.Path(__file__).resolve().parents[2] / "tests/fixtures/sampler/cases.json"
V = 40


def survivors(case):
    ids = torch.tensor([case["prompt"] + case["answer"]])
    x = torch.tensor([case["logits"]], dtype=torch.float32)
    for token, bias in case["logit_bias"]:
        x[0, token] += bias
    if case["repetition_penalty"] != 1:
        x = RepetitionPenaltyLogitsProcessor(case["repetition_penalty"])(ids, x)
    for token in set(case["answer"]):
        x[0, token] -= case["presence_penalty"]
        x[0, token] -= case["frequency_penalty"] * case["answer"].count(token)
    x = TemperatureLogitsWarper(case["temperature"])(ids, x)
    if case["top_k"]:
        x = TopKLogitsWarper(case["top_k"])(ids, x)
    if case["top_p"] < 1:
        x = TopPLogitsWarper(case["top_p"])(ids, x)
    if case["min_p"] > 0:
        x = MinPLogitsWarper(case["min_p"])(ids, x)
    p = torch.softmax(x.double(), -1)[0]
    return [[i, round(float(p[i]), 7)] for i in range(V) if p[i] > 0]


def make(rng):
    pick = rng.choice
    case = {
        "logits": [round(rng.gauss(0, 3), 4) for _ in range(V)],
        "prompt": [rng.randrange(V) for _ in range(pick([1, 6]))],
        "answer": [rng.randrange(V) for _ in range(pick([0, 3, 8]))],
        "logit_bias": sorted([rng.randrange(V), round(rng.uniform(-4, 4), 2)] for _ in range(pick([0, 1])) ),
        "repetition_penalty": pick([1.0, 1.3, 0.8]),
        "presence_penalty": pick([0.0, 0.7, -0.5]),
        "frequency_penalty": pick([0.0, 0.4]),
        "temperature": pick([1.0, 0.5, 1.7]),
        "top_k": pick([0, 1, 5, 20, 100]),
        "top_p": pick([1.0, 0.95, 0.6, 0.1]),
        "min_p": pick([0.0, 0.05, 0.3]),
    }
    case["survivors"] = survivors(case)
    return case


rng = random.Random(5)
cases = [make(rng) for _ in range(60)]
OUT.parent.mkdir(parents=True, exist_ok=True)
OUT.write_text("[\n" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "\n]\n")
print(len(cases), "cases,", OUT.stat().st_size, "bytes")
