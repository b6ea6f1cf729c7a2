#!/usr/bin/env python3
"""Cycles of the demo drafter over the answers of greedy-40.jsonl by the replay of ../train, as a fixture.

Usage: demo_replay.py MODEL_DIR GREEDY.jsonl OUT.jsonl

One line for each line of GREEDY: {"chain9", "tree8", "tree16", "tree24", "tree48"}: the calls behind the prompt that the answer
takes. The first token comes with the prompt; `../train/replay.py` says how a cycle counts. Children are those of the engine's rule
(src/decode/dspark_source.h), written down once more: scored over the 64 best base logits and the 32 best biases, 32 at most.
"""
import json
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "train"))
from decode import run_prefix  # noqa: E402
from export import load_hf  # noqa: E402
from replay import TREES, CHAIN, Drafts, chain, load_drafter, tree  # noqa: E402


class UnionDrafts(Drafts):
    """Children over a union of candidates; tokens outside it weigh what their base logits say."""

    BASE_TOP, BIAS_TOP, CHILDREN = 64, 32, 32

    @torch.no_grad()
    def children(self, anchor, depth, token):
        key = anchor, depth, token
        if key not in self.cache:
            base, bias = self.base[anchor - self.start, depth], self.drafter.bias(torch.tensor(token))
            union = torch.cat((base.topk(self.BASE_TOP).indices, bias.topk(self.BIAS_TOP).indices)).unique()
            rest = torch.ones_like(base, dtype=torch.bool)
            rest[union] = False
            scores = (base + bias)[union]
            total = torch.cat((scores, base[rest])).logsumexp(0)
            values, order = (scores - total).sort(descending=True, stable=True)
            self.cache[key] = list(zip(values.tolist(), union[order].tolist()))[:self.CHILDREN]
        return self.cache[key]


def cycles(drafts, advance):
    at, last, count = drafts.start, len(drafts.ids) - 1, 0
    while at < last:
        at += min(advance(at) + 1, last - at)
        count += 1
    return count


def main():
    folder, greedy, out = Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
    target = load_hf(folder)
    drafter = load_drafter(folder / "drafter", target.config)
    with out.open("w") as file:
        for line in greedy.read_text().splitlines():
            case = json.loads(line)
            ids, start = case["prompt_ids"] + case["ids"], len(case["prompt_ids"])
            tapped = torch.cat(run_prefix(target, ids, drafter.taps).taps, -1)
            drafts, slots = UnionDrafts(drafter, target.embedding.weight, ids, start, tapped), [[0, 0] for _ in range(CHAIN)]
            found = {f"chain{CHAIN}": cycles(drafts, lambda at: chain(drafts, at, slots))}
            for rows in TREES:
                found[f"tree{rows}"] = cycles(drafts, lambda at: tree(drafts, at, rows))
            file.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
