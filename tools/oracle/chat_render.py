#!/usr/bin/env python3
"""Renders chat templates and small snippets with jinja2 in transformers' environment, for tests of the interpreter.

Usage: chat_render.py TEMPLATES_DIR OUT_DIR [--hash-only]

Writes OUT_DIR/conversations.json (the inputs), OUT_DIR/renders.jsonl (one render a line: template, conversation, options,
`text`, or `fnv` (FNV-1a, 64 bits) with `size`, or `error`) and OUT_DIR/snippets.jsonl. Each input has the keys sorted as
written here; the tests read the same files.
"""
import glob
import json
import os
import sys
from datetime import datetime

import transformers.utils.chat_template_utils as ctu

from chat_conversations import conversations, options
from chat_snippets import DATA, snippets

NOW = datetime(2025, 3, 9, 14, 5, 7)
# Templates of which every text is kept; of the others a hash.
FULL = {"lfm2", "lfm2.5-instruct", "lfm2.5-8b-a1b", "lfm2.5-2.6b", "llama-3.1", "llama-3.2", "qwen3", "smollm2"}


class Clock(datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


ctu.datetime = Clock


def fnv(data):
    h = 0xCBF29CE484222325
    for b in data:
        h = ((h ^ b) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return "%016x" % h


def render(source, context):
    try:
        return {"text": ctu._compile_jinja_template(source).render(**context)}
    except Exception as e:  # noqa: BLE001  every kind counts as a refusal
        return {"error": f"{type(e).__name__}: {e}"}


def main():
    templates_dir, out_dir = sys.argv[1:3]
    hash_only = "--hash-only" in sys.argv
    os.makedirs(out_dir, exist_ok=True)
    dump = lambda v: json.dumps(v, ensure_ascii=False)
    with open(os.path.join(out_dir, "conversations.json"), "w") as f:
        f.write("{\n" + ",\n".join(f"{dump(k)}: {dump(v)}" for k, v in conversations.items()) + "\n}\n")
    counts = {"text": 0, "error": 0}
    with open(os.path.join(out_dir, "renders.jsonl"), "w") as f:
        for path in sorted(glob.glob(os.path.join(templates_dir, "*.jinja"))):
            name = os.path.basename(path)[: -len(".jinja")]
            source = open(path, newline="").read()
            for conversation, body in conversations.items():
                for option, kwargs in options.items():
                    if option != "plain" and conversation not in ("thinking_history", "basic"):
                        continue
                    context = {
                        "messages": body["messages"],
                        "tools": body.get("tools"),
                        "documents": None,
                        "add_generation_prompt": True,
                        "bos_token": "<s>",
                        "eos_token": "</s>",
                        **kwargs,
                    }
                    r = render(source, context)
                    counts["error" if "error" in r else "text"] += 1
                    if "error" in r:
                        r["error"] = r["error"][:100]
                    elif hash_only or name not in FULL:
                        data = r.pop("text").encode()
                        r = {"fnv": fnv(data), "size": len(data)}
                    f.write(dump({"template": name, "conversation": conversation, "kwargs": kwargs, **r}) + "\n")
    with open(os.path.join(out_dir, "snippets.jsonl"), "w") as f:
        f.write(dump({"context": DATA}) + "\n")
        for source in snippets:
            r = render(source, DATA)
            if "error" in r:
                r["error"] = r["error"][:60]
            f.write(dump({"source": source, **r}) + "\n")
    print(counts, len(snippets), "snippets")


main()
