#!/usr/bin/env python3
"""Writes tests/fixtures/tokenizer/fragments.json: the pieces that random test strings are made of.

The strings are made from it by the same integer arithmetic in tokenizer_random.py and in tokenizer_random_test.cc.
"""
import json
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]

FRAGMENTS = [
    "the ", " and", "Hello", " world", "ing", "'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'LL", "'Ve", "'\u017f", "\u2019s", "don't",
    "I'm", "it's", "x'", "''", " '", "they'll've", " ", "  ", "    ", "        ", "\n", "\n\n", "\n\n\n", "\r\n", "\r", "\t", " \n", "\n ",
    "\t\t", " \t\n ", "\u00a0", "\u3000", "\u2028", "\u2029", "\u0085", "\u180e", "\u200b", "\ufeff", "\u200d", "\u200c", "\u2060", "\u00ad",
    "0", "1", "12", "123", "1234", "12345678", "3.14", "1,000", "\u00bd", "\u00b2", "\u0663\u0664", "\u096a\u0967", "\u2167", "\uff11\uff12",
    "\U0001d7d8", "\u4e00", "\U00011de1", "\U00016ff4",
    "caf\u00e9", "cafe\u0301", "d\u00e9j\u00e0 vu", "de\u0301ja\u0300 vu", "\u00c5", "A\u030a", "\u212b", "\u1e9b\u0323", "q\u0323\u0307", "q\u0307\u0323",
    "\u0344", "\u0f73", "\u1100\u1161\u11a8", "\uac01", "\uac00\u11a8", "\u0958", "\u2adc", "\ufb1d", "\ufa10", "\u0340", "\U0001d15e", "\u0dda",
    "\U00011935\U00011930", "\U00011938", "\U000113c2\U000113c2", "\u0897\u0301", "\u1acf\u0316", "a\u0345\u0334", "\ufb03", "\u00df", "\u1e9e",
    "\u01c5", "\u02b0", "\u2014", " \u2014 ", "\u2026", "\u00a1", "\u00bf", "$5", "\u20ac20", "100%", "...", "!!!", "???", "?!", "-", "--", "->",
    "==", "!=", "()", "[];", "{}", "#include <stdio.h>", "def f(x):\n    return x\n", "https://example.org/a?b=c&d=1", "a@b.co", "_", "__init__", "\\n",
    "\U0001f642", "\U0001f44d\U0001f3fd", "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466", "\U0001f1e9\U0001f1ea", "\u2764\ufe0f",
    "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f", "1\ufe0f\u20e3", "\U0001fae9",
    "\u65e5\u672c\u8a9e", "\u4e2d\u6587", "\ud55c\uad6d\uc5b4", "\u0440\u0443\u0441\u0441\u043a\u0438\u0439", "\u03b5\u03bb\u03bb\u03b7\u03bd\u03b9\u03ba\u03ac",
    "\u0627\u0644\u0639\u0631\u0628\u064a\u0629", "\u05e2\u05d1\u05e8\u05d9\u05ea", "\u0939\u093f\u0928\u094d\u0926\u0940", "\u0e44\u0e17\u0e22", "\u1019\u103c\u1014\u103a",
    "\u3072\u3089\u304c\u306a", "\u30ab\u30bf\u30ab\u30ca", "\u304b\u3099", "\uff76\uff9e",
    "<|", "|>", "<|im_", "_end|>", "<", ">", "</", "<|im_end", "im_end|>",
]

# Spelled as control or added tokens by at least one of the vocabularies.
TOKENS = [
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>",
    "<|startoftext|>", "<|pad|>", "<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "<|fim_prefix|>", "<|vision_start|>",
    "<|tool_call_start|>", "<|tool_call_end|>", "<repo_name>", "<file_sep>", "<jupyter_text>", "<empty_output>", "<|reserved_special_token_7|>",
]

# First and last code points of the blocks that random characters come from.
BLOCKS = [
    [0x20, 0x7E], [0x20, 0x7E], [0xA1, 0x17F], [0x180, 0x24F], [0x250, 0x2FF], [0x300, 0x36F], [0x300, 0x36F], [0x370, 0x3FF], [0x400, 0x52F],
    [0x530, 0x5FF], [0x600, 0x6FF], [0x700, 0x8FF], [0x900, 0x97F], [0x980, 0xDFF], [0xE00, 0xFFF], [0x1000, 0x10FF], [0x1100, 0x11FF],
    [0x1200, 0x13FF], [0x1680, 0x18AF], [0x1AB0, 0x1AFF], [0x1C80, 0x1CFF], [0x1D00, 0x1DFF], [0x1E00, 0x1FFF], [0x2000, 0x206F], [0x2070, 0x218F],
    [0x2190, 0x23FF], [0x2460, 0x27BF], [0x2C00, 0x2DFF], [0x3000, 0x30FF], [0x3100, 0x33FF], [0x4E00, 0x9FFF], [0xA000, 0xABFF], [0xAC00, 0xD7A3],
    [0xE000, 0xF8FF], [0xF900, 0xFAFF], [0xFB00, 0xFDFF], [0xFE00, 0xFE6F], [0xFF00, 0xFFEF], [0x10000, 0x103FF], [0x10400, 0x10FFF],
    [0x11000, 0x11FFF], [0x12000, 0x1254F], [0x16A40, 0x16D7F], [0x1CC00, 0x1CEFF], [0x1D100, 0x1D7FF], [0x1E000, 0x1EFFF], [0x1F000, 0x1FAFF],
    [0x20000, 0x2FA1F], [0x30000, 0x323AF], [0xE0000, 0xE01EF], [0xF0000, 0x10FFFD], [0x00, 0x1F], [0x7F, 0x9F],
]

MARKS = [0x300, 0x301, 0x303, 0x308, 0x30A, 0x316, 0x323, 0x327, 0x328, 0x334, 0x338, 0x345, 0x5B0, 0x64B, 0x93C, 0x94D, 0x3099, 0x1AB0, 0x20D0, 0x1D165, 0xFE20, 0x11930]
SPACES = [0x20, 0x20, 0x20, 0x0A, 0x0A, 0x0D, 0x09, 0x0B, 0x0C, 0x85, 0xA0, 0x1680, 0x180E, 0x2003, 0x200B, 0x2028, 0x202F, 0x3000]

if __name__ == "__main__":
    out = ROOT / "tests/fixtures/tokenizer/fragments.json"
    data = {"fragments": FRAGMENTS, "tokens": TOKENS, "blocks": BLOCKS, "marks": MARKS, "spaces": SPACES}
    out.write_text("{\n" + ",\n".join(f'"{k}": {json.dumps(v)}' for k, v in data.items()) + "\n}\n")
