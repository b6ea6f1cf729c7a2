#!/usr/bin/env python3
"""Random Unicode strings through `tokenizers`, for tokenizer_random_test.cc.

    tools/oracle/tokenizer_random.py [--data FOLDER] [--dump NAME]

Writes tests/fixtures/tokenizer/random-NAME.json for each vocabulary: per block of 100 strings a hash of the texts, of the
ids with control tokens read, and of the ids with them as ordinary text; and the first strings in full. FOLDER is what
tools/get-tokenizers and tools/get-smollm2 fill. --dump prints the strings as JSON lines instead.
"""
import argparse
import json
import os
import pathlib
import sys
import unicodedata

import tokenizers
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

ROOT = pathlib.Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests/fixtures/tokenizer"
POOL = json.loads((FIXTURES / "fragments.json").read_text())
MASK = (1 << 64) - 1
COUNT, BLOCK, FULL = 10000, 100, 150
ACCENTS = "Hello world! Caf\u00e9 d\u00e9j\u00e0 vu \u2014 123 \U0001f60a"
NAMED = {
    "leading_space": "<|im_start|>assistant\n one space first<|im_end|>\n",
    "accents_nfc": unicodedata.normalize("NFC", ACCENTS),
    "accents_nfd": unicodedata.normalize("NFD", ACCENTS),
}


class SplitMix:
    def __init__(self, seed):
        self.state = seed

    def next(self, bound):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return (z ^ (z >> 31)) % bound


def random_string(seed):
    rng = SplitMix(seed)
    pick = lambda items: items[rng.next(len(items))]

    def code_in(low, high):
        code = low + rng.next(high - low + 1)
        return "x" if 0xD800 <= code < 0xE000 else chr(code)

    def from_block(block):
        return code_in(block[0], block[1])

    out = []
    for _ in range(1 + rng.next(24)):
        kind = rng.next(100)
        if kind < 40:
            out.append(pick(POOL["fragments"]))
        elif kind < 52:
            out.append("".join(code_in(0x61, 0x7A) for _ in range(1 + rng.next(9))))
        elif kind < 58:
            out.append(code_in(0, 0x10FFFF))
        elif kind < 70:
            block = pick(POOL["blocks"])
            out.append("".join(from_block(block) for _ in range(1 + rng.next(6))))
        elif kind < 78:
            out.append("".join(chr(pick(POOL["spaces"])) for _ in range(1 + rng.next(6))))
        elif kind < 84:
            out.append("".join(code_in(0x30, 0x39) for _ in range(1 + rng.next(8))))
        elif kind < 92:
            base = from_block(pick(POOL["blocks"]))
            out.append(base + "".join(chr(pick(POOL["marks"])) for _ in range(1 + rng.next(4))))
        else:
            out.append(pick(POOL["tokens"]))
    return "".join(out)


def fnv(data, h=0xCBF29CE484222325):
    for b in data:
        h = ((h ^ b) * 0x100000001B3) & MASK
    return h


def ids_bytes(ids):
    return b"".join(i.to_bytes(4, "little") for i in ids) + b"\xff\xff\xff\xff"


def smollm2(path):
    """The tokenizer of the GGUF file by hand: what transformers makes of it splits digits wrongly."""
    from gguf import GGUFReader

    fields = GGUFReader(path).fields
    get = lambda key: fields["tokenizer.ggml." + key].contents()
    tokens, types = get("tokens"), get("token_type")
    tok = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, [tuple(m.split(" ")) for m in get("merges")]))
    tok.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    tok.decoder = decoders.ByteLevel()
    tok.add_special_tokens([AddedToken(t, special=True, normalized=False) for t, y in zip(tokens, types) if y == 3])
    return tok


def load(name, data):
    if name == "demo":
        return Tokenizer.from_file(str(FIXTURES / "demo/tokenizer.json"))
    if name == "smollm2":
        return smollm2(str(data / "smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"))
    return Tokenizer.from_file(str(data / f"tokenizers/{name}/tokenizer.json"))


def encode(tok, texts, special):
    tok.encode_special_tokens = not special
    return [e.ids for e in tok.encode_batch(texts, add_special_tokens=False)]


def main():
    default = os.environ.get("ESPALIER_TEST_DATA") or os.path.expanduser("~/.cache/espalier/test-data")
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default=default, type=pathlib.Path)
    parser.add_argument("--dump", choices=["texts", "demo", "smollm2", "llama3", "qwen3"])
    parser.add_argument("--plain", action="store_true", help="with --dump NAME: control tokens as ordinary text")
    args = parser.parse_args()
    texts = [random_string(i) for i in range(COUNT)]
    if args.dump == "texts":
        sys.stdout.writelines(json.dumps(t) + "\n" for t in texts)
        return
    if args.dump:
        sys.stdout.writelines(json.dumps(ids) + "\n" for ids in encode(load(args.dump, args.data), texts, not args.plain))
        return
    for name in ("demo", "smollm2", "llama3", "qwen3"):
        tok = load(name, args.data)
        special, plain = encode(tok, texts, True), encode(tok, texts, False)
        blocks = range(0, COUNT, BLOCK)
        join = lambda lists, at: b"".join(ids_bytes(ids) for ids in lists[at : at + BLOCK])
        text_hash = lambda at: f"{fnv(b''.join(t.encode() + bytes([255]) for t in texts[at:at + BLOCK])):016x}"
        out = {
            "made_by": f"tools/oracle/tokenizer_random.py, tokenizers {tokenizers.__version__}",
            "count": COUNT,
            "block": BLOCK,
            "texts": [text_hash(at) for at in blocks],
            "special": [f"{fnv(join(special, at)):016x}" for at in blocks],
            "plain": [f"{fnv(join(plain, at)):016x}" for at in blocks],
            "named": {key: {"text": text, "ids": encode(tok, [text], True)[0]} for key, text in NAMED.items()},
            "first": [{"text": t, "special": s} | ({"plain": p} if p != s else {}) for t, s, p in zip(texts[:FULL], special, plain)],
        }
        lines = [f'"{k}": {json.dumps(v)}' for k, v in out.items() if k != "first"]
        lines.append('"first": [\n' + ",\n".join(json.dumps(c, separators=(",", ":")) for c in out["first"]) + "\n]")
        (FIXTURES / f"random-{name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
