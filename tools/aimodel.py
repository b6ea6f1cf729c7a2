#!/usr/bin/env python3
"""Packs a printed program into an .aimodel, and runs one in Apple's Core AI runtime.

usage: aimodel.py check                         exit 0 where the package is there and of the known version, else says what is wrong
       aimodel.py pack FOLDER OUT.aimodel       FOLDER/program.mlir, weights.bin, weights.json (src/units/coreai/mlir_text.h)
       aimodel.py serve FOLDER OUT.aimodel      packs, then answers calls on stdin and stdout
       aimodel.py serve OUT.aimodel

Needs coreai-core (PyPI), of exactly the version below: packing goes through a part of it that Apple calls unsupported.
`serve` is the other end of src/units/static/process_backend.h, which has the protocol; the library holds a copy of this file.
"""
import asyncio
import json
import os
import struct
import sys
from pathlib import Path

VERSION = "1.0.0b3"
TYPES = ("float16", "int32", "uint32")
INPUT, STATE, OUTPUT = range(3)


class Fault(Exception):
    """What to tell people, as a sentence."""


def check():
    from importlib import metadata

    try:
        found = metadata.version("coreai-core")
    except metadata.PackageNotFoundError:
        raise Fault(f"{sys.executable} has no package coreai-core; install coreai-core=={VERSION}") from None
    if found != VERSION:
        raise Fault(f"{sys.executable} has coreai-core {found}, and this tool is made for {VERSION}")
    try:
        import coreai.runtime  # noqa: F401
    except Exception as error:
        raise Fault(f"{sys.executable}: coreai-core does not load: {error}") from None


def resources(folder):
    """Maker of a weight's attribute: one for each name, so that all functions share it."""
    import numpy as np
    from coreai._compiler.ir import DenseResourceElementsAttr

    index = json.loads((folder / "weights.json").read_text())
    path = folder / "weights.bin"
    data = np.memmap(path, np.uint8, "r") if path.stat().st_size else np.zeros(0, np.uint8)
    made = {}

    def make(name, tensor):
        if name not in index:
            raise Fault(f"{folder}/weights.json: the program's weight {name} is missing")
        begin, size = index[name]
        if begin < 0 or size < 0 or begin + size > data.size:
            raise Fault(f"{path}: weight {name} should lie at {begin} and have {size} bytes, and the file has {data.size}")
        if name not in made:
            made[name] = DenseResourceElementsAttr.get_from_buffer(data[begin : begin + size], name, tensor)
        return made[name]

    return make


def pack(folder, out):
    from coreai._compiler._mlir_libs._coreaiIR._bindings.compiler import run_pre_compilation_rewrite
    from coreai._compiler.ir import Location, Module
    from coreai.authoring import AIProgram
    from coreai.authoring.context import Context

    make = resources(folder)

    def bind(op):
        if op.name == "coreai.constant":
            value = op.attributes["value"]
            text = str(value)[:200]
            if "dense_resource<" in text:
                name = text[text.index("dense_resource<") + 15 : text.index(">")].strip('"')
                op.attributes["value"] = make(name, value.type)
        for region in op.regions:
            for block in region.blocks:
                for inner in block.operations:
                    bind(inner.operation)

    with Context()._mlir_context, Location.unknown():
        module = Module.parse((folder / "program.mlir").read_text())
        bind(module.operation)
        module.operation.verify()
        run_pre_compilation_rewrite(module=module)
        AIProgram._from_mlir_module(module).save_asset(Path(out))


class Frames:
    """Frames on two file descriptors. What the runtime prints must not get between them: stdout becomes stderr."""

    def __init__(self):
        self.source, self.sink = os.dup(0), os.dup(1)
        os.dup2(2, 1)

    def exactly(self, size):
        parts = bytearray()
        while len(parts) < size:
            part = os.read(self.source, min(size - len(parts), 1 << 24))
            if not part:
                return None
            parts += part
        return bytes(parts)

    def read(self):
        head = self.exactly(8)
        return None if head is None else self.exactly(struct.unpack("<Q", head)[0])

    def write(self, body):
        left = memoryview(struct.pack("<Q", len(body)) + body)
        while left:
            left = left[os.write(self.sink, left[: 1 << 24]) :]


def text(name):
    return struct.pack("<I", len(name.encode())) + name.encode()


class Call:
    """A function and its arrays; `wrap` makes of a numpy array what the runtime takes."""

    def __init__(self, body, wrap):
        self.body, self.at, self.wrap = body, 0, wrap
        self.function = self.text()
        self.arrays = {INPUT: {}, STATE: {}}
        for _ in range(self.number("I")):
            self.array()

    def number(self, kind):
        (value,) = struct.unpack_from("<" + kind, self.body, self.at)
        self.at += struct.calcsize(kind)
        return value

    def text(self):
        size = self.number("I")
        self.at += size
        return self.body[self.at - size : self.at].decode()

    def array(self):
        import numpy as np

        name, kind, dtype, axes = self.text(), self.number("B"), self.number("B"), self.number("B")
        shape = [self.number("I") for _ in range(axes)]
        count = int(np.prod(shape))
        values = np.frombuffer(self.body, TYPES[dtype], count, self.at).reshape(shape)
        self.at += values.nbytes
        self.arrays[kind][name] = self.wrap(values)


def array(name, kind, values):
    import numpy as np

    values = np.ascontiguousarray(values)
    if values.dtype.name not in TYPES:
        raise Fault(f"output {name} has the type {values.dtype.name}, expected one of {', '.join(TYPES)}")
    shape = struct.pack(f"<BBB{values.ndim}I", kind, TYPES.index(values.dtype.name), values.ndim, *values.shape)
    return text(name) + shape + values.tobytes()


def reply(outputs, states):
    parts = [array(n, OUTPUT, v) for n, v in outputs.items()] + [array(n, STATE, v) for n, v in states.items()]
    return b"\1" + struct.pack("<I", len(parts)) + b"".join(parts)


async def answer(model, functions, body):
    from coreai.runtime import NDArray

    call = Call(body, NDArray)
    if call.function not in functions:
        functions[call.function] = model.load_function(call.function)
    out = await functions[call.function](call.arrays[INPUT], call.arrays[STATE])
    states = call.arrays[STATE]
    return reply({n: v.numpy() for n, v in out.items()}, {n: v.numpy() for n, v in states.items()})


def wrong(error):
    return b"\0" + (str(error) if isinstance(error, Fault) else f"{type(error).__name__}: {error}").encode()


async def serve(frames, asset):
    from coreai.authoring import AIModelAsset

    async with AIModelAsset.load(Path(asset)).executable() as model:
        functions = {}
        frames.write(reply({}, {}))
        while (body := frames.read()) is not None:
            try:
                body = await answer(model, functions, body)
            except Exception as error:  # a call that fails is told; the next one may be right
                body = wrong(error)
            frames.write(body)


def served(serve):
    """Exit code of a serve command: what goes wrong before the first call is its first answer."""
    frames = Frames()
    try:
        serve(frames)
    except Exception as error:
        frames.write(wrong(error))
        return 1
    return 0


def run(doc, command):
    """Exit code of command(arguments), which gives None where they are no command of doc's."""
    try:
        code = command(sys.argv[1:])
    except Fault as fault:
        print(fault, file=sys.stderr)
        return 1
    if code is None:
        print(doc.strip(), file=sys.stderr)
        return 2
    return code


def command(args):
    def serve_asset(frames):
        check()
        if len(args) == 3:
            pack(Path(args[1]), args[2])
        asyncio.run(serve(frames, args[-1]))

    if args == ["check"]:
        check()
    elif args[:1] == ["pack"] and len(args) == 3:
        check()
        pack(Path(args[1]), args[2])
    elif args[:1] == ["serve"] and len(args) in (2, 3):
        return served(serve_asset)
    else:
        return None
    return 0


if __name__ == "__main__":
    sys.exit(run(__doc__, command))
