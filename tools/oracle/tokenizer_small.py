#!/usr/bin/env python3
"""Small tokenizers with every supported setting, run by `tokenizers`: tests/fixtures/tokenizer/small.json.

One model (the bytes and a few merges) is shared; each entry adds its own normaliser, pre-tokenizer, added tokens and
post-processor, and carries texts with their ids: with control tokens read, as ordinary text where that differs, and with
the post-processor's tokens where these differ.
"""
import json
import pathlib
import random

import tokenizers
from tokenizers import Tokenizer, pre_tokenizers

ROOT = pathlib.Path(__file__).resolve().parents[2]
ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())
MERGES = ["t h", "th e", "\u0120 the", "i n", "in g", "\u0120 \u0120", "\u0120\u0120 \u0120\u0120", "a a", "aa a", "a aa", "aa aa", "1 2", "12 3",
          "\u010a \u010a", "\u00c3 \u00a9", "' s", "l l", "' ll", "e \u00cc"]


def model(ignore_merges=False):
    vocab = {c: i for i, c in enumerate(ALPHABET)}
    for merge in MERGES:
        vocab.setdefault(merge.replace(" ", ""), len(vocab))
    vocab["whole"] = len(vocab)  # no merge makes it: only ignore_merges finds it
    return {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False,
            "byte_fallback": False, "ignore_merges": ignore_merges, "vocab": vocab, "merges": MERGES}


def added(content, index, **flags):
    base = {"id": len(model()["vocab"]) + index, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    return base | flags


LAST = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
GPT2 = dict(LAST, use_regex=True)


def split(pattern, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


def sequence(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
PATTERNS = [
    LLAMA3,
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s",
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", r"\p{Han}+|\p{P}", r"^\s*\w", r"\w$", r"\d+|\D", r"x*", r"(?<=a)b|a(?=b)", r"(?>a+)|ab", r"(?:ab|a)+?b",
    r"a{2,3}|\d{2}", r"a{,2}b", r"(?m:.)\n|.", r"[^\S\n]+", r"\p{^L}+", r"\P{L}\p{Letter}", r"\A.|.\z", r"[]a]+|[a-]", r"\x{e9}|\u0301|\x41", r"(?i:the|s|k)+",
    r"(a|e)(?!x)", r"\n\n|\n", r"(?i:A(?-i:b)c)",
]


def configs(rng):
    out = []
    plain = lambda **k: {"normalizer": None, "pre_tokenizer": GPT2, "added_tokens": [], "post_processor": None, "ignore_merges": False} | k
    for pattern in PATTERNS:
        out.append(plain(pre_tokenizer=sequence(split({"Regex": pattern}), LAST)))
    for behavior in ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        for invert in (False, True):
            out.append(plain(pre_tokenizer=sequence(split({"Regex": r"\s|a*"}, behavior, invert), LAST)))
            out.append(plain(pre_tokenizer=sequence(split({"String": "aa"}, behavior, invert), GPT2)))
    out.append(plain(pre_tokenizer=sequence(split({"String": ""}, "Removed"), LAST)))
    out.append(plain(pre_tokenizer=dict(GPT2, add_prefix_space=True)))
    out.append(plain(pre_tokenizer=sequence({"type": "Digits", "individual_digits": True}, dict(GPT2, add_prefix_space=True))))
    out.append(plain(pre_tokenizer=sequence({"type": "Digits", "individual_digits": False}, sequence(split({"Regex": r"\p{P}"}), LAST))))
    out.append(plain(ignore_merges=True))
    out.append(plain(normalizer={"type": "NFC"}))
    out.append(plain(normalizer={"type": "Sequence", "normalizers": [{"type": "NFC"}]}))
    flags = ("lstrip", "rstrip", "single_word", "normalized", "special")
    words = ["<|im_start|>", "the", "<e\u0301>", "\u212b", " ", "ing", "<|im_start|>>", "a\u0301", "im_s", "\u00e9", "  the"]
    for normalizer in (None, {"type": "NFC"}):
        for _ in range(14):
            chosen = rng.sample(words, 4)
            tokens, fresh = [], 0
            for word in chosen:
                token = added(word, fresh, **{f: rng.random() < 0.4 for f in flags})
                if word in model()["vocab"]:
                    token["id"] = model()["vocab"][word]
                    token["special"] = False  # merges can spell it: there the engine differs on purpose (tokenizer.h)
                else:
                    fresh += 1
                tokens.append(token)
            out.append(plain(normalizer=normalizer, added_tokens=tokens))
    bos = added("<s>", 0, special=True)
    template = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
                "special_tokens": {"<s>": {"id": "<s>", "ids": [bos["id"]], "tokens": ["<s>"]}}}
    out.append(plain(added_tokens=[bos], post_processor=template))
    out.append(plain(added_tokens=[bos], post_processor={"type": "Sequence", "processors": [{"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}, template]}))
    return out


PARTS = ["the", " the", "a", "aa", "aaaa", "b", "ab", "x", " ", "  ", "\n", "\r\n", "\t", "\u00e9", "e\u0301", "\u212b", "A\u030a", "1", "12", "1234", "\u00bd", "'s", "'LL",
         "'\u017f", "K\u212a", "<|im_start|>", "<e\u0301>", "<\u00e9>", "<s>", "ing", "whole", " whole", "\u4e2d", "\u3042", "\U0001f642", ".", "!?", "\u0301", "\u2028", "\u3000", "z-]", "ABc", "abc", ""]


def main():
    rng = random.Random(7)
    entries = []
    for config in configs(rng):
        full = {"version": "1.0", "truncation": None, "padding": None, "decoder": LAST, "model": model(config["ignore_merges"])} | {
            k: config[k] for k in ("normalizer", "pre_tokenizer", "added_tokens", "post_processor")}
        tok = Tokenizer.from_str(json.dumps(full))
        cases = []
        for _ in range(16):
            text = "".join(rng.choice(PARTS) for _ in range(rng.randint(1, 14)))
            tok.encode_special_tokens = False
            special, bos = tok.encode(text, add_special_tokens=False).ids, tok.encode(text).ids
            tok.encode_special_tokens = True
            ordinary = tok.encode(text, add_special_tokens=False).ids
            case = {"text": text, "special": special}
            if ordinary != special:
                case["plain"] = ordinary
            if bos != special:
                case["bos"] = bos
            cases.append(case)
        entries.append(config | {"cases": cases})
    compact = lambda v: json.dumps(v, separators=(",", ":"))
    lines = [f'"made_by": "tools/oracle/tokenizer_small.py, tokenizers {tokenizers.__version__}"', f'"model": {compact(model())}',
             '"entries": [\n' + ",\n".join(map(compact, entries)) + "\n]"]
    (ROOT / "tests/fixtures/tokenizer/small.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
