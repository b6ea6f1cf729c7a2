#!/usr/bin/env python3
"""Writes src/text/jinja_unicode_table.inc: case mappings, printability and letters as Python's str has them.

Usage: chat_unicode_table.py OUT
"""
import sys
import unicodedata


def ranges(predicate):
    out, start = [], None
    for c in range(0x110000):
        if predicate(c):
            if start is None:
                start = c
        elif start is not None:
            out.append((start, c - 1))
            start = None
    if start is not None:
        out.append((start, 0x10FFFF))
    return out


def case_map(method):
    """Runs (first, last, stride, delta) of one-to-one mappings, and a list of the others."""
    single, multi = [], []
    for c in range(0x110000):
        if 0xD800 <= c < 0xE000:
            continue
        m = getattr(chr(c), method)()
        if m == chr(c):
            continue
        if len(m) == 1:
            single.append((c, ord(m) - c))
        else:
            multi.append((c, m))
    runs = []
    for c, d in single:
        if runs:
            first, last, stride, delta = runs[-1]
            step = c - last
            if delta == d and step in (1, 2) and (first == last or step == stride):
                runs[-1] = (first, c, step, d)
                continue
        runs.append((c, c, 1, d))
    return runs, multi


def main():
    out = open(sys.argv[1], "w")
    p = lambda s: print(s, file=out)
    p(f"// Made by tools/oracle/chat_unicode_table.py from Unicode {unicodedata.unidata_version}. Do not edit.")
    for name, method in (("Lower", "lower"), ("Upper", "upper"), ("Title", "title")):
        runs, multi = case_map(method)
        p(f"constexpr CaseRun k{name}Runs[] = {{")
        line = ""
        for r in runs:
            item = "{0x%x,0x%x,%d,%d}," % r
            if len(line) + len(item) > 116:
                p(line)
                line = ""
            line += item
        p(line)
        p("};")
        p(f"constexpr CaseMulti k{name}Multi[] = {{")
        line = ""
        for c, m in multi:
            item = "{0x%x,\"%s\"}," % (c, "".join("\\x%02x" % b for b in m.encode()))
            if len(line) + len(item) > 116:
                p(line)
                line = ""
            line += item
        p(line)
        p("};")
    letters = lambda c: chr(c).isalpha()
    hidden = lambda c: not chr(c).isprintable()
    for name, predicate in (("Unprintable", hidden), ("Alpha", letters)):
        p(f"constexpr CodeRange k{name}[] = {{")
        line = ""
        for r in ranges(predicate):
            item = "{0x%x,0x%x}," % r
            if len(line) + len(item) > 116:
                p(line)
                line = ""
            line += item
        p(line)
        p("};")


main()
