#!/usr/bin/env python3
"""Replays the drafter against the target's greedy answers on held-out turns: tokens per cycle.

Exact: every cycle starts from the target's own token and states; a chain of 9, or a tree grown
best-first over children conditioned on their parent (8 each), is accepted as far as it agrees.
"""
import argparse
import heapq
import json
import random
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from tokenizers import Tokenizer

import chat
import corpus
from decode import run_branches, run_prefix
from dspark import Drafter
from evaluate import answers, split_by_services
from export import load_hf

CHAIN, TREES, CHILDREN = 9, (8, 16, 24, 48), 8


def load_drafter(folder, target_config, interleaved=None):
    """The drafter of a folder; interleaved overrides its RoPE pairing."""
    c = json.loads((folder / "config.json").read_text())
    d = c["dflash_config"]
    pairs = not c["rope_is_neox_style"] if interleaved is None else interleaved
    drafter = Drafter(target_config, d["target_layer_ids"], d["mask_token_id"], c["num_hidden_layers"],
                      c["block_size"], c["markov_rank"], pairs)
    drafter.load_state_dict({k: v.float() for k, v in load_file(str(folder / "model.safetensors")).items()})
    return drafter.eval()


class Drafts:
    """Base logits of every anchor of one answer, and children of (anchor, depth, token)."""

    @torch.no_grad()
    def __init__(self, drafter, embedding, ids, start, tapped):
        self.drafter, self.ids, self.start, self.cache = drafter, ids, start, {}
        context = drafter.context(tapped)
        anchors = torch.arange(start, len(ids) - 1)
        rows = torch.arange(len(tapped))
        g = drafter.backbone(embedding, torch.tensor(ids)[anchors], anchors, context, rows,
                             rows[None] < anchors[:, None])
        self.base = F.linear(g, embedding)

    @torch.no_grad()
    def children(self, anchor, depth, token):
        """[(log-probability, token)] after `token` at `depth` (0: the anchor itself)."""
        key = anchor, depth, token
        if key not in self.cache:
            logits = self.base[anchor - self.start, depth] + self.drafter.bias(torch.tensor(token))
            values, tokens = logits.log_softmax(-1).topk(CHILDREN)
            self.cache[key] = list(zip(values.tolist(), tokens.tolist()))
        return self.cache[key]


def chain(drafts, anchor, counts):
    """Accepted drafts of a greedy chain; counts[slot] = [offered, accepted]."""
    ids, token = drafts.ids, drafts.ids[anchor]
    for slot in range(min(CHAIN, len(ids) - 1 - anchor)):
        token = drafts.children(anchor, slot, token)[0][1]
        counts[slot][0] += 1
        if token != ids[anchor + 1 + slot]:
            return slot
        counts[slot][1] += 1
    return min(CHAIN, len(ids) - 1 - anchor)


def tree(drafts, anchor, rows):
    """Accepted drafts of a best-first tree with `rows` rows, the root included."""
    ids, best, used, heap = drafts.ids, 0, 1, []

    def grow(log_probability, depth, token, right):
        for value, child in drafts.children(anchor, depth, token):
            at = anchor + 1 + depth
            heapq.heappush(heap, (-(log_probability + value), depth + 1, child,
                                  right and at < len(ids) and child == ids[at]))

    grow(0.0, 0, ids[anchor], True)
    while heap and used < rows:
        negative, depth, token, right = heapq.heappop(heap)
        used += 1
        if right:
            best = max(best, depth)
        if depth < CHAIN:
            grow(-negative, depth, token, right)
    return best


def replay(drafter, target, cases):
    """Figures by kind of answer; cases are (kind, ids, start, tapped)."""
    result = {}
    for kind, ids, start, tapped in cases:
        r = result.setdefault(kind, {"turns": 0, "tokens": 0, "slots": [[0, 0] for _ in range(CHAIN)],
                                     "modes": {m: [0, 0] for m in ("chain9", *(f"tree{n}" for n in TREES))}})
        drafts = Drafts(drafter, target.embedding.weight, ids, start, tapped)
        r["turns"] += 1
        r["tokens"] += len(ids) - start
        for mode, sums in r["modes"].items():
            at = start
            while at < len(ids) - 1:
                accepted = chain(drafts, at, r["slots"]) if mode == "chain9" else tree(drafts, at, int(mode[4:]))
                advance = min(accepted + 1, len(ids) - 1 - at)
                sums[0] += 1
                sums[1] += advance
                at += advance
    for r in result.values():
        r["cycles"] = {m: n for m, (n, _) in r["modes"].items()}
        r["tokens_per_cycle"] = {m: round(t / max(1, n), 3) for m, (n, t) in r.pop("modes").items()}
        r["acceptance"] = [round(a / max(1, n), 3) for n, a in r.pop("slots")]
    return result


def accepted(result, mode):
    """Accepted drafts per cycle over all kinds."""
    cycles = sum(r["cycles"][mode] for r in result.values())
    return sum(r["cycles"][mode] * (r["tokens_per_cycle"][mode] - 1) for r in result.values()) / max(1, cycles)


def held_out_cases(target, tokenizer, taps, calls, prose, seed=9):
    """Turns of validation dialogues of seen services with the target's greedy answers and taps."""
    known, _ = split_by_services()
    random.Random(seed).shuffle(known)
    tools, wanted, cases = corpus.load_tools(), {"call": calls, "prose": prose}, []
    for d in known:
        records = answers(target, tokenizer, [d], tools)
        picked = []
        for r in records:
            kind = "call" if r["text"].startswith(chat.CALL) else "prose"
            if wanted[kind] > 0 and len(r["ids"]) > 1:
                wanted[kind] -= 1
                picked.append((kind, r))
        if picked:
            longest = max((r for _, r in picked), key=lambda r: len(r["prompt_ids"]))["prompt_ids"]
            prefix = run_prefix(target, longest, taps)
            trunk = torch.cat(prefix.taps, -1)
            _, tapped = run_branches(target, prefix, [len(r["prompt_ids"]) for _, r in picked],
                                     [r["ids"] for _, r in picked], taps)
            for (kind, r), own in zip(picked, tapped):
                start = len(r["prompt_ids"])
                cases.append((kind, r["prompt_ids"] + r["ids"], start, torch.cat((trunk[:start], own))))
        if not any(n > 0 for n in wanted.values()):
            break
    return cases


@torch.no_grad()
def self_check(drafter, target, ids, top=32):
    """A tiny fixture: 32 prompt ids, the target's next token, the nine drafts and their base logits."""
    prefix = run_prefix(target, ids, drafter.taps)
    anchor = int(target.logits(prefix.hidden[-1]).argmax())
    drafts = Drafts(drafter, target.embedding.weight, ids + [anchor, 0], len(ids), torch.cat(prefix.taps, -1))
    base, token, chosen = drafts.base[0], anchor, []
    for slot in range(drafter.block):
        token = int((base[slot] + drafter.bias(torch.tensor(token))).argmax())
        chosen.append(token)
    values, tokens = base.topk(top)
    return {"prompt_ids": ids, "anchor": anchor, "drafts": chosen,
            "base_logits_top": [{"ids": i, "logits": [round(x, 5) for x in v]}
                                for i, v in zip(tokens.tolist(), values.tolist())],
            "base_logits_logsumexp": [round(x, 5) for x in base.logsumexp(-1).tolist()]}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, help="Hugging Face folder of the target")
    parser.add_argument("drafter", type=Path, help="folder of the drafter")
    parser.add_argument("output", type=Path, help="JSON to write")
    parser.add_argument("--calls", type=int, default=160)
    parser.add_argument("--prose", type=int, default=160)
    parser.add_argument("--self-check", type=Path, help="also write this selfcheck.json")
    options = parser.parse_args()
    target = load_hf(options.model)
    tokenizer = Tokenizer.from_file(str(options.model / "tokenizer.json"))
    drafter = load_drafter(options.drafter, target.config)
    start = time.time()
    cases = held_out_cases(target, tokenizer, drafter.taps, options.calls, options.prose)
    print(f"{len(cases)} turns answered in {time.time() - start:.0f} s", flush=True)
    result = replay(drafter, target, cases)
    wrong = load_drafter(options.drafter, target.config, interleaved=drafter.rope.__name__ != "rope_pairs")
    wrong_result = replay(wrong, target, cases)
    result["wrong_rope_share_of_accepted"] = {
        mode: round(accepted(wrong_result, mode) / max(accepted(result, mode), 1e-9), 3) for mode in ("chain9", "tree48")}
    result["wrong_rope"] = wrong_result
    options.output.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result), f"{time.time() - start:.0f} s", flush=True)
    if options.self_check:
        check = self_check(drafter, target, cases[0][1][:32])
        options.self_check.write_text(json.dumps(check) + "\n")


if __name__ == "__main__":
    main()
