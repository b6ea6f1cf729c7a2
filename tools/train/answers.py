#!/usr/bin/env python3
"""Writes the target's own greedy answers to every assistant turn of training dialogues, for the drafter.

One JSON line a dialogue: ids, spans of assistant text [first, end), and branches [tokens before, answer].
The order is seeded; a file that exists is continued.
"""
import argparse
import json
import random
import time
from pathlib import Path
from types import SimpleNamespace

import torch
from tokenizers import Tokenizer

import chat
import corpus
from batches import encode
from decode import Branch, decode, run_prefix
from export import load_checkpoint, load_hf

VARIANTS = SimpleNamespace(system_share=0.15, prose_tools_share=0.1, full_share=0.3, replace_share=0.3,
                           rename_share=0.05, window_share=0.0)


def assistant_spans(kinds):
    spans, start = [], None
    for i, kind in enumerate(list(kinds) + [chat.FRAME]):
        spoken = kind in (chat.PROSE, chat.CALLS)
        if spoken and start is None:
            start = i
        elif not spoken and start is not None:
            spans.append([start, i])
            start = None
    return spans


def document(index, options, tokenizer, data):
    """Token ids and assistant spans of one varied dialogue."""
    variant = data.variant(index, random.Random(f"{options.seed} {index}"), VARIANTS)
    ids, kinds = encode(tokenizer, chat.pieces(*variant))
    return ids[:options.most].tolist(), assistant_spans(kinds[:options.most])


def write_plain(options, tokenizer, data, indices):
    with open(options.output, "w") as out:
        for index in indices:
            ids, spans = document(index, options, tokenizer, data)
            out.write(json.dumps({"ids": ids, "spans": spans, "branches": []}) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, help="checkpoint.pt or Hugging Face folder")
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--turns", type=int, default=20000)
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after this time")
    parser.add_argument("--limit", type=int, default=64, help="tokens of an answer")
    parser.add_argument("--most", type=int, default=1536, help="tokens of a dialogue")
    parser.add_argument("--group", type=int, default=10, help="dialogues decoded together")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--skip", type=int, default=0, help="dialogues of the order to leave out")
    parser.add_argument("--plain", type=int, default=0, help="only write this many dialogues, without own answers")
    options = parser.parse_args()
    model = load_hf(options.model) if options.model.is_dir() else load_checkpoint(options.model)[0]
    tokenizer, data = Tokenizer.from_file(str(options.tokenizer)), corpus.Corpus()
    end = tokenizer.token_to_id(chat.END)
    order = list(range(len(data)))
    random.Random(options.seed).shuffle(order)
    done = options.output.read_text().splitlines() if options.output.exists() else []
    if options.plain:
        write_plain(options, tokenizer, data, order[options.skip:options.skip + options.plain])
        return
    turns, start = sum(len(json.loads(line)["branches"]) for line in done), time.time()
    first, before = len(done) + options.skip, turns
    while turns < options.turns and first < len(order) and time.time() - start < options.seconds:
        group = []
        for index in order[first:first + options.group]:
            ids, spans = document(index, options, tokenizer, data)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                prefix = run_prefix(model, ids)
            group.append((ids, spans, [Branch(prefix, a) for a, _ in spans]))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            decode(model, [b for _, _, branches in group for b in branches], end, options.limit, batch_size=128)
        with open(options.output, "a") as out:
            for ids, spans, branches in group:
                out.write(json.dumps({"ids": ids, "spans": spans,
                                      "branches": [[b.start, b.tokens] for b in branches]}) + "\n")
                turns += len(branches)
        first += len(group)
        rate = (turns - before) / (time.time() - start)
        print(f"{turns} turns, {rate:.1f} a second, {(options.turns - turns) / rate / 60:.1f} minutes left", flush=True)


if __name__ == "__main__":
    main()
