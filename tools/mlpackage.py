#!/usr/bin/env python3
"""Reads an .mlpackage with Apple's own library and evaluates it, without a Mac.

usage: mlpackage.py check                 exit 0 where coremltools is there, else says what is wrong
       mlpackage.py serve IN.mlpackage    answers calls on stdin and stdout (src/units/static/process_backend.h has the protocol)

Needs coremltools (PyPI). It parses the package, checks types, shapes and parameters of each operation, and finds the weights; what runs
Core ML programs is not in it on Linux, so the arithmetic is numpy's here: every value rounded to fp16, sums in fp32, ascending. That is
the evaluator's fp16 mode (src/lower/evaluate.h), so a package that says what the lowered program says has its bits.
"""
import logging
import sys
import warnings

from aimodel import INPUT, STATE, Call, Fault, reply, run, served, wrong

logging.disable(logging.CRITICAL)
warnings.filterwarnings("ignore")


def check():
    try:
        import coremltools  # noqa: F401
    except Exception as error:
        raise Fault(f"{sys.executable}: coremltools does not load: {error}") from None


def open_package(path):
    import coremltools as ct
    from coremltools.converters.mil.frontend.milproto.load import load

    spec = ct.models.utils.load_spec(path)
    version = spec.specificationVersion
    program = load(spec, specification_version=version, file_weights_dir=path + "/Data/com.apple.CoreML/weights")
    for name, function in program.functions.items():
        # The reader lets through what Core ML itself would not: states before opset CoreML8.
        if version < ct.target.iOS18 or function.opset_version.value < ct.target.iOS18:
            raise Fault(f"{path}: function {name} is of specification {version} and opset {function.opset_version.name}; states need iOS18's")
    return program


def evaluator():
    """What each operation computes, in fp32; the caller rounds."""
    import numpy as np

    f32 = np.float32

    def exp(x):
        with np.errstate(over="ignore"):
            return np.exp(x.astype(np.float64)).astype(f32)

    def ascending(parts):
        total = None
        for part in parts:
            total = f32(0) + part if total is None else total + part
        return total

    def sum_of(x, axis):
        return ascending(np.moveaxis(x, axis, 0))

    def axis_of(i):
        return int(np.atleast_1d(i["axes"])[0])

    def reduced(x, axis):
        return np.expand_dims(sum_of(x, axis), axis)

    def matmul(i):
        a = np.swapaxes(i["x"], -1, -2) if i["transpose_x"] else i["x"]
        b = np.swapaxes(i["y"], -1, -2) if i["transpose_y"] else i["y"]
        return ascending(a[..., :, k : k + 1] * b[..., k : k + 1, :] for k in range(a.shape[-1]))

    def conv(i):
        x, w = i["x"], i["weight"]
        if w.shape[2:] != (1, 1) or x.shape[:3:2] != (1, 1):
            raise Fault(f"conv of {x.shape} and {w.shape}: only 1x1 is known here")
        y = ascending(w[:, k, 0, 0][:, None] * x[0, k, 0, :][None, :] for k in range(x.shape[1]))
        return y[None, :, None, :]

    def softmax(i):
        x, axis = i["x"], int(i["axis"])
        e = exp(x - x.max(axis, keepdims=True))
        return e / reduced(e, axis)

    def window(i):
        return tuple(slice(int(b), int(e)) for b, e in zip(i["begin"], i["end"]))

    def slice_update(i):
        x = i["x"].copy()
        x[window(i)] = i["update"]
        return x

    return {
        "add": lambda i: i["x"] + i["y"],
        "sub": lambda i: i["x"] - i["y"],
        "mul": lambda i: i["x"] * i["y"],
        "real_div": lambda i: i["x"] / i["y"],
        "maximum": lambda i: np.where(i["x"] > i["y"], i["x"], i["y"]),
        "sigmoid": lambda i: f32(1) / (f32(1) + exp(-i["x"])),
        "exp": lambda i: exp(i["x"]),
        "rsqrt": lambda i: (1.0 / np.sqrt((i["x"] + f32(i["epsilon"])).astype(np.float64))).astype(f32),
        "matmul": matmul,
        "conv": conv,
        "softmax": softmax,
        "reduce_sum": lambda i: reduced(i["x"], axis_of(i)),
        "reduce_mean": lambda i: reduced(i["x"], axis_of(i)) / f32(i["x"].shape[axis_of(i)]),
        "reduce_max": lambda i: i["x"].max(axis_of(i), keepdims=True),
        "reduce_argmax": lambda i: np.expand_dims(i["x"].argmax(int(i["axis"])), int(i["axis"])).astype(np.int32),
        "reshape": lambda i: i["x"].reshape([int(n) for n in i["shape"]]),
        "transpose": lambda i: i["x"].transpose([int(n) for n in i["perm"]]),
        "slice_by_index": lambda i: i["x"][window(i)],
        "slice_update": slice_update,
        "concat": lambda i: np.concatenate(i["values"], int(i["axis"])),
        "identity": lambda i: i["x"],
        "constexpr_blockwise_shift_scale": lambda i: i["data"].astype(f32) * i["scale"].astype(f32),
    }


class Run:
    """One call of one function."""

    def __init__(self, operations, inputs, states):
        self.operations, self.values, self.states = operations, dict(inputs), states

    def value(self, v):
        import numpy as np

        if isinstance(v, (list, tuple)):
            return [self.value(x) for x in v]
        a = np.asarray(self.values[v.name] if v.name in self.values else v.val)
        return a.astype(np.float32) if a.dtype == np.float16 else a

    def run(self, function):
        import numpy as np

        for op in function.operations:
            if op.op_type == "const":
                continue
            if op.op_type == "read_state":
                self.values[op.outputs[0].name] = self.states[op.inputs["input"].name].astype(np.float32)
            elif op.op_type in ("write_state", "coreml_update_state"):
                self.states[op.inputs["state"].name] = self.value(op.inputs["value"]).astype(np.float16)
            elif op.op_type in self.operations:
                inputs = {k: self.value(v) for k, v in op.inputs.items() if v is not None}
                with np.errstate(all="ignore"):
                    y = self.operations[op.op_type](inputs)
                    self.values[op.outputs[0].name] = y.astype(np.float16).astype(np.float32) if y.dtype.kind == "f" else y
            else:
                raise Fault(f"operation {op.op_type} is not known here")
        return {o.name: self.values[o.name] for o in function.outputs}


def answer(program, operations, body):
    import numpy as np

    call = Call(body, np.copy)
    if call.function not in program.functions:
        raise Fault(f"the package has no function {call.function}")
    states = call.arrays[STATE]
    outputs = Run(operations, call.arrays[INPUT], states).run(program.functions[call.function])
    narrow = {n: v.astype(np.float16 if v.dtype.kind == "f" else np.int32) for n, v in outputs.items()}
    return reply(narrow, states)


def serve(frames, path):
    check()
    program, operations = open_package(path), evaluator()
    frames.write(reply({}, {}))
    while (body := frames.read()) is not None:
        try:
            body = answer(program, operations, body)
        except Exception as error:  # a call that fails is told; the next one may be right
            body = wrong(error)
        frames.write(body)


def command(args):
    if args == ["check"]:
        check()
    elif args[:1] == ["serve"] and len(args) == 2:
        return served(lambda frames: serve(frames, args[1]))
    else:
        return None
    return 0


if __name__ == "__main__":
    sys.exit(run(__doc__, command))
