"""Quantisers for the K block types, which the `gguf` package can only read.

They make valid blocks with a small error, not llama.cpp's exact codes: its search for the best
scale is no part of the format. Layouts are those of ggml-common.h.
"""
import numpy as np
from gguf import GGMLQuantizationType as T


def half(x):
    return x.astype(np.float16)


def reciprocal(x):
    return np.where(x == 0, 0, 1 / np.where(x == 0, 1, x)).astype(np.float32)


def affine_codes(x, levels):
    """x (blocks, 8, 32) -> d, dmin (blocks) fp16; scales and mins (blocks, 8) in 6 bits; codes in 0..levels."""
    low = np.minimum(x.min(-1), 0)
    scale, least = (x.max(-1) - low) / levels, -low
    d, dmin = half(scale.max(-1) / 63), half(least.max(-1) / 63)
    d32, dmin32 = d.astype(np.float32)[:, None], dmin.astype(np.float32)[:, None]
    scales = np.clip(np.rint(scale * reciprocal(d32)), 0, 63).astype(np.uint8)
    mins = np.clip(np.rint(least * reciprocal(dmin32)), 0, 63).astype(np.uint8)
    codes = np.rint((x + (dmin32 * mins)[..., None]) * reciprocal(d32 * scales)[..., None])
    return d, dmin, scales, mins, np.clip(codes, 0, levels).astype(np.uint8)


def pack_scales(scales, mins):
    """Eight 6-bit scales and mins in 12 bytes."""
    low = scales[:, :4] | (scales[:, 4:] >> 4 << 6)
    middle = mins[:, :4] | (mins[:, 4:] >> 4 << 6)
    high = (scales[:, 4:] & 15) | (mins[:, 4:] & 15) << 4
    return np.concatenate((low, middle, high), 1)


def as_bytes(*fields):
    parts = [np.ascontiguousarray(f).reshape(f.shape[0], -1).view(np.uint8) for f in fields]
    return np.concatenate(parts, 1)


def q4_k(w):
    d, dmin, scales, mins, q = affine_codes(w.reshape(-1, 8, 32), 15)
    nibbles = q[:, 0::2] | q[:, 1::2] << 4
    return as_bytes(d[:, None], dmin[:, None], pack_scales(scales, mins), nibbles).reshape(w.shape[0], -1)


def q5_k(w):
    d, dmin, scales, mins, q = affine_codes(w.reshape(-1, 8, 32), 31)
    nibbles = (q[:, 0::2] & 15) | (q[:, 1::2] & 15) << 4
    top = np.bitwise_or.reduce((q >> 4) << np.arange(8, dtype=np.uint8)[:, None], axis=1)
    return as_bytes(d[:, None], dmin[:, None], pack_scales(scales, mins), top, nibbles).reshape(w.shape[0], -1)


def q6_k(w):
    x = w.reshape(-1, 16, 16)
    scale = np.abs(x).max(-1) / 32
    d = half(scale.max(-1) / 127)
    sc = np.rint(scale * reciprocal(d.astype(np.float32))[:, None]).astype(np.int8)
    codes = np.rint(x * reciprocal(d.astype(np.float32)[:, None] * sc)[..., None])
    q = (np.clip(codes, -32, 31) + 32).astype(np.uint8).reshape(-1, 2, 4, 32)  # half, quarter, l
    ql = np.concatenate(((q[:, :, 0] & 15) | (q[:, :, 2] & 15) << 4, (q[:, :, 1] & 15) | (q[:, :, 3] & 15) << 4), -1)
    qh = (q[:, :, 0] >> 4) | (q[:, :, 1] >> 4) << 2 | (q[:, :, 2] >> 4) << 4 | (q[:, :, 3] >> 4) << 6
    return as_bytes(ql, qh, sc, d[:, None]).reshape(w.shape[0], -1)


QUANTISERS = {T.Q4_K: q4_k, T.Q5_K: q5_k, T.Q6_K: q6_k}
