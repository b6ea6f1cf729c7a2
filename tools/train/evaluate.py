#!/usr/bin/env python3
"""Greedy answers on the held-out validation dialogues, and figures about their calls."""
import argparse
import json
import time
from pathlib import Path

import torch
from tokenizers import Tokenizer

import calls
import chat
import corpus
from decode import Branch, decode, run_prefix
from export import load_checkpoint, load_hf


def turns(dialogue, tokenizer, listed):
    """ids of the dialogue and (message index, tokens before the answer) of each assistant turn."""
    ids, at = [], []
    pieces = chat.pieces(dialogue["messages"], listed)
    head = 4 if listed else 1
    for i, m in enumerate(dialogue["messages"]):
        if m["role"] == "assistant":
            at.append((i, head + 3 * i + 1))
    ends = {}
    for n, e in enumerate(tokenizer.encode_batch([t for t, _ in pieces], add_special_tokens=False)):
        ids += e.ids
        ends[n + 1] = len(ids)
    return ids, [(i, ends[n]) for i, n in at]


def answers(model, tokenizer, dialogues, tools, limit=96, group=6, most=3000):
    """One record for each assistant turn, with the model's greedy answer in the reference context."""
    end = tokenizer.token_to_id(chat.END)
    records = []
    for first in range(0, len(dialogues), group):
        branches = []
        for d in dialogues[first:first + group]:
            listed = [t for s in d["services"] for t in tools[s]]
            ids, starts = turns(d, tokenizer, listed)
            if len(ids) > most:
                continue
            prefix = run_prefix(model, ids)
            for i, start in starts:
                b = Branch(prefix, start)
                branches.append(b)
                records.append({"dialogue": d, "turn": i, "tools": listed, "prompt_ids": ids[:start], "branch": b})
        decode(model, branches, end, limit)
        for r in records:
            if "branch" in r:
                r["ids"] = r.pop("branch").tokens
                r["text"] = tokenizer.decode(r["ids"], skip_special_tokens=False)
    return records


def share(part, whole):
    return round(part / whole, 4) if whole else None


def call_figures(records):
    """The figures of call turns and of the calls that were emitted."""
    figures = dict.fromkeys(("turns", "emitted", "parsed", "known_tool", "known_parameters", "right_tool",
                             "identical", "values", "values_in_dialogue", "reference_values",
                             "reference_in_dialogue", "reference_arguments", "reproduced"), 0)
    for r in records:
        message = r["dialogue"]["messages"][r["turn"]]
        known = calls.names_and_parameters(r["tools"])
        called = calls.parse(r["text"])
        text = calls.dialogue_text(r["dialogue"]["messages"][:r["turn"]])
        name, arguments = message["call"]
        found, count = calls.values_found(arguments, text)
        figures["turns"] += 1
        figures["reference_in_dialogue"] += found
        figures["reference_values"] += count
        figures["emitted"] += r["text"].startswith(chat.CALL)
        if called:
            figures["parsed"] += 1
            figures["known_tool"] += called[0] in known
            figures["known_parameters"] += set(called[1]) <= known.get(called[0], set())
            figures["right_tool"] += called[0] == name
            figures["identical"] += called[0] == name and called[1] == arguments
            found, count = calls.values_found(called[1], text)
            figures["values_in_dialogue"] += found
            figures["values"] += count
            if called[0] == name:
                figures["reference_arguments"] += len(arguments)
                figures["reproduced"] += sum(called[1].get(k) == v for k, v in arguments.items())
    f = figures
    return {"call_turns": f["turns"], "emit_a_call": share(f["emitted"], f["turns"]),
            "parse": share(f["parsed"], f["emitted"]), "known_tool": share(f["known_tool"], f["emitted"]),
            "known_parameters": share(f["known_parameters"], f["parsed"]),
            "right_tool": share(f["right_tool"], f["turns"]), "identical": share(f["identical"], f["turns"]),
            "values_in_dialogue": share(f["values_in_dialogue"], f["values"]),
            "reference_values_in_dialogue": share(f["reference_in_dialogue"], f["reference_values"]),
            "arguments_reproduced_where_tool_right": share(f["reproduced"], f["reference_arguments"])}


def prose_figures(records, end):
    called = sum(r["text"].startswith(chat.CALL) for r in records)
    return {"prose_turns": len(records), "prose_turns_that_get_a_call": share(called, len(records)),
            "ended": share(sum(r["ids"][-1] == end for r in records), len(records))}


def figures(records, end):
    is_call = lambda r: "call" in r["dialogue"]["messages"][r["turn"]]
    return {**call_figures([r for r in records if is_call(r)]),
            **prose_figures([r for r in records if not is_call(r)], end)}


def split_by_services():
    """Validation dialogues whose services all occur in training, and the others."""
    seen = {s for d in corpus.load("sgd-dialogues") for s in d["services"]}
    known, unknown = [], []
    for d in corpus.load("sgd-valid"):
        (known if set(d["services"]) <= seen else unknown).append(d)
    return known, unknown


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, help="checkpoint.pt or Hugging Face folder")
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("output", type=Path, help="JSON to write: figures and every answer")
    parser.add_argument("--seen", type=int, default=200, help="dialogues with services seen in training")
    parser.add_argument("--unseen", type=int, default=60)
    options = parser.parse_args()
    model = load_hf(options.model) if options.model.is_dir() else load_checkpoint(options.model)[0]
    tokenizer, tools = Tokenizer.from_file(str(options.tokenizer)), corpus.load_tools()
    known, unknown = split_by_services()
    result, start = {}, time.time()
    for name, dialogues in (("seen_services", known[:options.seen]), ("unseen_services", unknown[:options.unseen])):
        if dialogues:
            records = answers(model, tokenizer, dialogues, tools)
            result[name] = figures(records, tokenizer.token_to_id(chat.END))
            result[name + "_answers"] = [
                {"id": r["dialogue"]["id"], "turn": r["turn"], "before": r["dialogue"]["messages"][r["turn"] - 1]["content"],
                 "reference": r["dialogue"]["messages"][r["turn"]].get("content")
                 or chat.call_text(*r["dialogue"]["messages"][r["turn"]]["call"]), "answer": r["text"],
                 "prompt_tokens": len(r["prompt_ids"]), "ids": r["ids"]} for r in records]
            print(f"{name} ({time.time() - start:.0f} s): {json.dumps(result[name])}", flush=True)
    options.output.write_text(json.dumps(result, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main()
