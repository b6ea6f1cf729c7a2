#!/usr/bin/env python3
"""Writes src/text/unicode_table.inc: what the reference tokenizer library holds of each code point.

    python3 tools/unicode/make_table.py > src/text/unicode_table.inc

The table is probed, not copied from a Unicode release, because the reference mixes three of them: its regex engine
(Oniguruma), its digit splitter (Rust's char::is_numeric) and its normaliser each carry their own. Needs `tokenizers`;
Python's `unicodedata` only proposes pairs that may compose. Takes about a minute.
"""
import unicodedata

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

CATEGORIES = ("Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Cs Co Cn").split()
LIMIT = 0x110000
CHUNK = 0x1000


def chunks():
    for base in range(0, LIMIT, CHUNK):
        points = [c for c in range(base, base + CHUNK) if not 0xD800 <= c < 0xE000]
        if points:
            yield points


def matching(pattern):
    """The code points that a one-character regex matches."""
    split = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
    found = set()
    for points in chunks():
        for piece, _ in split.pre_tokenize_str("".join(map(chr, points))):
            found.update(map(ord, piece))
    return found


def digits():
    """The code points that Digits isolates, each tried between two letters."""
    split = pre_tokenizers.Digits(individual_digits=True)
    found = set()
    for points in chunks():
        text = "a".join(map(chr, points))
        for _, (begin, end) in split.pre_tokenize_str(text):
            if end - begin == 1 and begin % 2 == 0 and text[begin] != "a":
                found.add(ord(text[begin]))
    return found


def beside_added_token(token, test):
    """The code points c for which test(encoding of "1" + c + "@#") holds, the token being "@#"."""
    tok = Tokenizer(models.BPE({"1": 0}, []))
    tok.add_tokens([token])
    found = set()
    for points in chunks():
        for c in points:
            if test(tok.encode("1" + chr(c) + "@#")):
                found.add(c)
    return found


def word_of_added_tokens():
    return beside_added_token(AddedToken("@#", single_word=True, normalized=False), lambda e: 1 not in e.ids)


def space_of_added_tokens():
    return beside_added_token(
        AddedToken("@#", lstrip=True, normalized=False), lambda e: e.offsets[e.ids.index(1)][0] == 1)


def normal_form():
    """(relevant, joins): code points that NFC may change in any context; those that may join what is before them."""
    nfd, nfc = normalizers.NFD().normalize_str, normalizers.NFC().normalize_str
    relevant, joins = set(), set()
    points = [c for c in range(LIMIT) if not 0xD800 <= c < 0xE000]
    for c in points:
        s = chr(c)
        if nfd("\u0345" + s) == s + "\u0345" or c == 0x345:  # a combining class between 1 and 240
            joins.add(c)
        if nfd(s) != s or nfc(s) != s:
            relevant.add(c)
        pair = unicodedata.decomposition(s).split()
        if len(pair) == 2 and not pair[0].startswith("<"):
            a, b = (int(x, 16) for x in pair)
            if nfc(chr(a) + chr(b)) == s:
                relevant.add(a)
                joins.add(b)
    relevant.update(range(0x1100, 0x1113))  # Hangul composes by rule: leading, then vowel, then trailing
    joins.update(range(0x1161, 0x1176))
    joins.update(range(0x11A8, 0x11C3))
    for c in points:
        if ord(nfd(chr(c))[0]) in joins:
            joins.add(c)
    return relevant | joins, joins


def ranges(found):
    out = []
    for c in sorted(found):
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def write_ranges(name, found):
    rows = ranges(found)
    print(f"\ninline constexpr CodeRange {name}[] = {{  // {len(found)} code points")
    for i in range(0, len(rows), 6):
        print("    " + " ".join(f"{{0x{a:x}, 0x{b:x}}}," for a, b in rows[i : i + 6]))
    print("};")


def main():
    category = [CATEGORIES.index("Cn")] * LIMIT
    for i, name in enumerate(CATEGORIES):
        if name not in ("Cn", "Cs"):
            for c in matching(rf"\p{{{name}}}"):
                category[c] = i
    for c in range(0xD800, 0xE000):
        category[c] = CATEGORIES.index("Cs")
    relevant, joins = normal_form()

    print(f"// Made by tools/unicode/make_table.py from tokenizers {tokenizers.__version__}; do not edit.")
    print("\n// The first code point of each run of one general category.")
    runs = [(c, category[c]) for c in range(LIMIT) if c == 0 or category[c] != category[c - 1]]
    print("inline constexpr CategoryRun kCategoryRuns[] = {")
    for i in range(0, len(runs), 8):
        print("    " + " ".join(f"{{0x{c:x}, {k}}}," for c, k in runs[i : i + 8]))
    print("};")
    write_ranges("kRegexSpace", matching(r"\s"))
    write_ranges("kRegexWord", matching(r"\w"))
    write_ranges("kHan", matching(r"\p{Han}"))
    write_ranges("kNumeric", digits())
    write_ranges("kAddedTokenSpace", space_of_added_tokens())
    write_ranges("kAddedTokenWord", word_of_added_tokens())
    write_ranges("kNfcRelevant", relevant)
    write_ranges("kNfcJoins", joins)


if __name__ == "__main__":
    main()
