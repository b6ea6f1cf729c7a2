"""Fixtures of block decoding: one small matrix of every GGUF type that is read, and of MLX groups x bits.

  weights_blocks.py OUT_DIR      (needs: numpy, gguf, mlx, safetensors)

Writes  blocks.gguf              one tensor a type, written by the gguf package; "random" ones hold random bytes with
                                 finite scales, so that every bit of a block is seen
        blocks.expect.safetensors   the same tensors dequantised by gguf.quants, fp32
        affine.safetensors       written by MLX: <case>.weight/.scales/.biases, case = g<group>_b<bits>_<scale type>
        affine.expect.safetensors   <case>: dequantised by MLX with scales and biases widened to fp32; and
                                 <case>.codes (u8): the codes, unpacked with numpy
"""
import sys

import gguf
import mlx.core as mx
import numpy as np
from gguf import GGMLQuantizationType as T
from safetensors.numpy import save_file

ROWS, COLS = 3, 512
out = sys.argv[1]
rng = np.random.default_rng(20)


def f16_scales(shape, low=-0.02, high=0.02):
    return rng.uniform(low, high, shape).astype(np.float16)


def random_blocks(kind):
    """Random bytes, with the fp16 fields replaced by finite scales (some negative, zero and subnormal)."""
    values, size = gguf.GGML_QUANT_SIZES[kind]
    raw = rng.integers(0, 256, (ROWS, COLS // values, size), dtype=np.uint8)
    fields = {T.Q8_0: [0], T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208]}
    for at in fields[kind]:
        scale = f16_scales(raw.shape[:2])
        scale[0, 0] = 0
        scale[1, 0] = np.float16(6e-7)  # subnormal
        raw[..., at:at + 2] = scale[..., None].view(np.uint8)
    return raw.reshape(ROWS, -1)


def write_gguf():
    writer = gguf.GGUFWriter(f"{out}/blocks.gguf", "test")
    expect = {}
    data = (rng.standard_normal((ROWS, COLS)) * 0.05).astype(np.float32)
    for kind in (T.F32, T.F16, T.BF16, T.Q8_0, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1):
        raw = gguf.quants.quantize(data, kind)
        name = f"{kind.name.lower()}.weight"
        writer.add_tensor(name, raw, raw_dtype=kind)
        expect[name] = gguf.quants.dequantize(raw, kind).astype(np.float32).reshape(ROWS, COLS)
    for kind in (T.Q8_0, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q4_K, T.Q5_K, T.Q6_K):
        raw = random_blocks(kind)
        name = f"{kind.name.lower()}.random.weight"
        writer.add_tensor(name, raw, raw_dtype=kind)
        expect[name] = gguf.quants.dequantize(raw, kind).astype(np.float32).reshape(ROWS, COLS)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    save_file(expect, f"{out}/blocks.expect.safetensors")


def unpack(words, bits, cols):
    """Codes of a row as a little-endian bit string."""
    stream = np.unpackbits(words.view(np.uint8).reshape(words.shape[0], -1), axis=1, bitorder="little")
    stream = stream.reshape(words.shape[0], cols, bits)
    return (stream * (1 << np.arange(bits))).sum(-1).astype(np.uint8)


def write_affine():
    source, expect = {}, {}
    data = (rng.standard_normal((ROWS, 256)) * 0.05).astype(np.float32)
    kinds = [("f32", mx.float32), ("f16", mx.float16), ("bf16", mx.bfloat16)]
    case = 0
    for group in (32, 64, 128):
        for bits in (2, 3, 4, 5, 6, 8):
            label, dtype = kinds[case % 3]
            case += 1
            name = f"g{group}_b{bits}_{label}"
            q, s, b = mx.quantize(mx.array(data).astype(dtype), group_size=group, bits=bits)
            source |= {f"{name}.weight": q, f"{name}.scales": s, f"{name}.biases": b}
            s32, b32 = s.astype(mx.float32), b.astype(mx.float32)
            mlx_values = np.array(mx.dequantize(q, s32, b32, group_size=group, bits=bits))
            codes = unpack(np.array(q), bits, 256)
            # Scale and offset in two fp32 roundings, as our definition has it; MLX may fuse them on some machines.
            plain = codes.reshape(ROWS, -1, group) * np.array(s32)[..., None] + np.array(b32)[..., None]
            plain = plain.astype(np.float32).reshape(ROWS, 256)
            print(name, "MLX equals two roundings:", bool((mlx_values == plain).all()),
                  "max difference", float(np.abs(mlx_values - plain).max()))
            expect |= {name: mlx_values, f"{name}.codes": codes}
    mx.save_safetensors(f"{out}/affine.safetensors", source, metadata={"format": "mlx"})
    save_file(expect, f"{out}/affine.expect.safetensors")


write_gguf()
write_affine()
