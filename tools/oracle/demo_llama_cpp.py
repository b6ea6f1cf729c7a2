#!/usr/bin/env python3
"""llama.cpp as a witness: greedy answers of a GGUF file to the prompts of a greedy fixture, and quantised copies of a file.

Usage: demo_llama_cpp.py greedy MODEL.gguf PROMPTS.jsonl OUT.jsonl [--tokens 64] [--limit N]
       demo_llama_cpp.py quantize IN.gguf OUT.gguf Q8_0|Q4_K_M|...

PROMPTS.jsonl is demo_greedy.py's fixture, or lines with "prompt_ids" only. Token ids go in as they are; that llama.cpp's own tokenizer makes the same ids of
the prompt's text is checked. One line a prompt, in the order of PROMPTS.jsonl: {"ids", "min_gap": {"gap", "position"}}, as
in that fixture. K and V are kept in fp32 and attention is computed without flash attention; what llama.cpp does to the
activations is its own affair: for BF16 weights it rounds them to bf16, so F32 is the form to compare fp32 arithmetic with.

Needs llama-cpp-python, which compiles llama.cpp when it is installed (11 minutes on two cores), and tokenizers.
"""
import argparse
import ctypes
import json
from pathlib import Path

import llama_cpp as lib
import numpy as np

THREADS = 1


@lib.llama_log_callback
def quiet(level, text, user_data):
    del level, text, user_data


def load(path, n_ctx):
    parameters = lib.llama_model_default_params()
    parameters.n_gpu_layers = 0
    model = lib.llama_model_load_from_file(str(path).encode(), parameters)
    if not model:
        raise SystemExit(f"llama.cpp does not load {path}")
    options = lib.llama_context_default_params()
    options.n_ctx = options.n_batch = options.n_ubatch = n_ctx
    options.n_threads = options.n_threads_batch = THREADS
    options.type_k = options.type_v = lib.GGML_TYPE_F32
    options.flash_attn_type = lib.LLAMA_FLASH_ATTN_TYPE_DISABLED
    context = lib.llama_init_from_model(model, options)
    if not context:
        raise SystemExit(f"llama.cpp makes no context of {n_ctx} tokens for {path}")
    return model, context


def last_logits(context, ids, size):
    tokens = (lib.llama_token * len(ids))(*ids)
    status = lib.llama_decode(context, lib.llama_batch_get_one(tokens, len(ids)))
    if status != 0:
        raise SystemExit(f"llama_decode returned {status} for {len(ids)} tokens")
    return np.ctypeslib.as_array(lib.llama_get_logits_ith(context, -1), shape=(size,))


def answer(context, vocabulary, ids, limit):
    size = lib.llama_vocab_n_tokens(vocabulary)
    lib.llama_memory_clear(lib.llama_get_memory(context), True)
    out, gap, at = [], float("inf"), 0
    logits = last_logits(context, ids, size)
    while True:
        second, first = np.argsort(logits, kind="stable")[-2:]
        difference = float(logits[first] - logits[second])
        if difference < gap:
            gap, at = difference, len(out)
        out.append(int(first))
        if lib.llama_vocab_is_eog(vocabulary, out[-1]) or len(out) == limit:
            return {"ids": out, "min_gap": {"gap": round(gap, 5), "position": at}}
        logits = last_logits(context, out[-1:], size)


def text_of(vocabulary, ids):
    tokens, out = (lib.llama_token * len(ids))(*ids), ctypes.create_string_buffer(16 * len(ids))
    n = lib.llama_detokenize(vocabulary, tokens, len(ids), out, len(out), False, True)
    if n < 0:
        raise SystemExit(f"the text of {len(ids)} tokens is longer than {len(out)} bytes")
    return out.raw[:n]


def ids_of(vocabulary, text):
    tokens = (lib.llama_token * (len(text) + 8))()
    n = lib.llama_tokenize(vocabulary, text, len(text), tokens, len(tokens), False, True)
    return list(tokens[:max(n, 0)])


def greedy(options):
    cases = [json.loads(line) for line in options.prompts.read_text().splitlines()][:options.limit]
    longest = max(len(c["prompt_ids"]) for c in cases) + options.tokens
    model, context = load(options.model, -(-longest // 256) * 256)
    vocabulary = lib.llama_model_get_vocab(model)
    equal = 0
    with open(options.output, "w") as out:
        for i, case in enumerate(cases):
            if ids_of(vocabulary, text_of(vocabulary, case["prompt_ids"])) != case["prompt_ids"]:
                raise SystemExit(f"prompt {i}: llama.cpp's tokenizer makes other ids of its text")
            found = answer(context, vocabulary, case["prompt_ids"], options.tokens)
            out.write(json.dumps(found) + "\n")
            if "ids" not in case:
                continue
            if found["ids"] == case["ids"]:
                equal += 1
            else:
                k = next((k for k in range(len(case["ids"])) if found["ids"][k:k + 1] != case["ids"][k:k + 1]), len(case["ids"]))
                print(f"prompt {i}: differs at token {k}; smallest gap here {found['min_gap']}, there {case['min_gap']}")
    print(f"{options.output}: {len(cases)} answers, {equal} equal to those of {options.prompts}")
    lib.llama_free(context)
    lib.llama_model_free(model)


def quantize(options):
    kind = getattr(lib, f"LLAMA_FTYPE_MOSTLY_{options.type}", None)
    if kind is None:
        raise SystemExit(f"llama.cpp has no file type {options.type}")
    parameters = lib.llama_model_quantize_default_params()
    parameters.nthread, parameters.ftype = THREADS, kind
    status = lib.llama_model_quantize(str(options.model).encode(), str(options.output).encode(), ctypes.byref(parameters))
    if status != 0:
        raise SystemExit(f"llama_model_quantize returned {status}")
    print(f"{options.output}: {options.output.stat().st_size} bytes, {options.type}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("greedy")
    one.add_argument("model", type=Path)
    one.add_argument("prompts", type=Path)
    one.add_argument("output", type=Path)
    one.add_argument("--tokens", type=int, default=64)
    one.add_argument("--limit", type=int)
    one.set_defaults(run=greedy)
    two = commands.add_parser("quantize")
    two.add_argument("model", type=Path)
    two.add_argument("output", type=Path)
    two.add_argument("type")
    two.set_defaults(run=quantize)
    options = parser.parse_args()
    lib.llama_log_set(quiet, ctypes.c_void_p(0))
    lib.llama_backend_init()
    options.run(options)


if __name__ == "__main__":
    main()
