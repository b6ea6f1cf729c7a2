#!/usr/bin/env python3
"""Breaks each rule of tools/tidy once in a small tree and expects exactly that finding.

usage: tidy_selftest.py      (the last line counts the cases)
"""
import pathlib
import shutil
import subprocess
import sys
import tempfile

TIDY = pathlib.Path(__file__).resolve().parents[2] / "tools/tidy"
CLEAN = {
    "src/base/a.h": '#pragma once\n// printf(x) and llama in a comment, and in a "string // of" it\nint a();\n',
    "src/base/a.cc": '#include "base/a.h"\nint a() { return snprintf(buffer, 4, "%d", 3); }\nconst char* e() { return getenv("ESPALIER_ISA"); }\n',
    "src/base/CMakeLists.txt": "add_library(base a.cc)\n",
    "src/models/llama.cc": '#include "base/a.h"\nbool is_llama(int) { return true; }\n',
    "src/models/CMakeLists.txt": "foreach(f llama)\n  add_library(m ${f}.cc)\nendforeach()\n",
    "src/cli/main.cc": '#include <iostream>\n#include "base/a.h"\nint main() { printf("hello"); }\n',
    "src/cli/CMakeLists.txt": "add_executable(espalier main.cc)\n",
    "docs/environment.md": "| variable | meaning |\n| `ESPALIER_ISA` | x |\n",
}
# rule, the file to change, what is put at its end (None removes it)
CASES = [
    ("arrows", "src/base/a.cc", '#include "models/decoder.h"\n'),
    ("arrows", "src/models/llama.cc", '#include "units/unit.h"\n'),
    ("families", "src/base/a.cc", 'bool f(const char* s) { return is(s, "lfm2"); }\n'),
    ("families", "src/base/a.h", "struct Qwen3Config;\n"),
    ("environment", "src/base/a.cc", 'const char* f() { return getenv("ESPALIER_SECRET"); }\n'),
    ("environment", "docs/environment.md", "| `ESPALIER_GONE` | nobody reads it |\n"),
    ("quiet_library", "src/base/a.cc", "#include <iostream>\n"),
    ("quiet_library", "src/base/a.cc", 'void f() { std::fprintf(stderr, "x"); }\n'),
    ("quiet_library", "src/base/a.cc", "void f() { abort(); }\n"),
    ("quiet_library", "src/base/a.cc", "void f() { std::exit(1); }\n"),
    ("debug_marks", "src/base/a.cc", "// TODO later\n"),
    ("debug_marks", "src/base/a.cc", "#if 0\n#endif\n"),
    ("header_guards", "src/base/a.h", "using namespace std;\n"),
    ("long_files", "src/base/a.cc", "\n" * 601),
    ("build_files", "src/base/CMakeLists.txt", "add_library(gone gone.cc)\n"),
    ("build_files", "src/base/CMakeLists.txt", None),
    ("build_files", "src/base/lonely.h", "#pragma once\n"),
    ("workplace", "docs/notes.md", "see /" "root/x\n"),
]


def run(folder, *more):
    done = subprocess.run([sys.executable, TIDY, "--root", folder, *more], capture_output=True, text=True)
    return done.returncode, [line for line in done.stdout.splitlines() if line.endswith("]")]


def write(folder, changes):
    for path, text in changes.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def case(rule, path, addition):
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        write(folder, CLEAN)
        if addition is None:
            (folder / path).unlink()
        else:
            write(folder, {path: CLEAN.get(path, "") + addition})
        code, findings = run(folder)
    return code == 1 and len(findings) == 1 and findings[0].endswith(f"[{rule}]"), findings


def clean_tree():
    with tempfile.TemporaryDirectory() as temporary:
        write(pathlib.Path(temporary), CLEAN)
        code, findings = run(temporary)
    return code == 0 and not findings, findings


def weak_symbol(source):
    """A variant's object made from `source`, looked at by --objects."""
    compiler = shutil.which("c++") or shutil.which("g++")
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        write(folder, CLEAN)
        write(folder / "build", {"x.cpp": source})
        subprocess.run([compiler, "-c", folder / "build/x.cpp", "-o", folder / "build/op_avx2.cc.o"], check=True)
        return run(folder, "--objects", folder / "build")


def weak_symbols():
    inline = "inline int f(int x) { return x + 1; }\nint g(int x) { return f(x); }\n"
    bad, findings = weak_symbol(inline)
    good, none = weak_symbol("namespace { " + inline.replace("\nint g", "}\nint g"))
    return bad == 1 and "[weak_symbols]" in "".join(findings) and good == 0 and not none, findings + none


def main():
    results = [("a clean tree", *clean_tree()), ("weak_symbols", *weak_symbols())]
    results += [(f"{rule}: {path}", *case(rule, path, addition)) for rule, path, addition in CASES]
    failed = [(name, findings) for name, ok, findings in results if not ok]
    for name, findings in failed:
        print(f"FAILED {name}: {findings}")
    print(f"{len(results) - len(failed)} passed, {len(failed)} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
