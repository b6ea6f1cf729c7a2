"""Writes tests/fixtures/models: every tiny model with what transformers says about it.

usage: models_make.py [NAME ...]      (all without a name; needs the packages of requirements.txt beside this file)
"""
import logging
import pathlib
import sys
import warnings

from gguf import GGMLQuantizationType as T

import models_gguf as gguf
import models_hf as hf
import models_mlx as mlx
import models_oracle as oracle

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
OUT = pathlib.Path(__file__).resolve().parents[2] / "tests/fixtures/models"

ATT, CONV = "full_attention", "conv"
PLAIN_ROPE = dict(rope_type="default", rope_theta=1e4)
# With 32 original positions the three ranges of Llama 3's scaling all occur among eight frequencies.
LLAMA3_ROPE = dict(rope_type="llama3", rope_theta=1e4, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                   original_max_position_embeddings=32)


def lfm2(layers, **changes):
    base = dict(vocab_size=288, hidden_size=64, intermediate_size=64, block_auto_adjust_ff_dim=False,
                num_hidden_layers=len(layers), layer_types=layers, num_attention_heads=4, num_key_value_heads=2,
                max_position_embeddings=1024, norm_eps=1e-5, rope_parameters=dict(rope_type="default", rope_theta=1e6))
    return dict(family="lfm2", config=base | changes)


def llama(layers, **changes):
    base = dict(vocab_size=288, hidden_size=64, intermediate_size=96, num_hidden_layers=layers, num_attention_heads=4,
                num_key_value_heads=2, max_position_embeddings=1024, rms_norm_eps=1e-5, tie_word_embeddings=True,
                rope_parameters=PLAIN_ROPE)
    return dict(family="llama", config=base | changes)


def qwen3(layers, **changes):
    base = dict(vocab_size=288, hidden_size=64, intermediate_size=96, num_hidden_layers=layers, num_attention_heads=4,
                num_key_value_heads=2, head_dim=32, max_position_embeddings=1024, rms_norm_eps=1e-6,
                tie_word_embeddings=False, rope_parameters=dict(rope_type="default", rope_theta=1e6))
    return dict(family="qwen3", config=base | changes)


K = dict(hidden_size=256, intermediate_size=256)     # K blocks need inputs in multiples of 256
G128 = dict(hidden_size=128, intermediate_size=128)  # for MLX groups of 128


def old_lfm2_spelling(layers, ff):
    drop = ("layer_types", "intermediate_size", "rope_parameters", "tie_word_embeddings", "dtype")
    attention = [i for i, kind in enumerate(layers) if kind == ATT]
    return dict(drop=drop, extra=dict(full_attn_idxs=attention, block_ff_dim=ff, rope_theta=1e6, tie_embedding=True,
                                      block_norm_eps=1e-5, block_use_swiglu=True, conv_dim=64, block_dim=64))


def old_rope_spelling(rope):
    scaling = {k: v for k, v in rope.items() if k != "rope_theta"}
    return dict(drop=("rope_parameters", "dtype"),
                extra=dict(rope_theta=rope["rope_theta"], rope_scaling=scaling if len(scaling) > 1 else None))


HF = {
    "lfm2-f32": lfm2([CONV, ATT]) | dict(dtype="float32"),
    "lfm2-bf16": lfm2([CONV, CONV, ATT, CONV, ATT]) | dict(template_in_config=True),
    "lfm2-f16-shards-old": lfm2([CONV, ATT]) | dict(dtype="float16", shards=3) | old_lfm2_spelling([CONV, ATT], 64),
    "lfm2-l4-bias": lfm2([CONV, ATT], conv_L_cache=4, conv_bias=True, vocab_size=300),
    "lfm2-adjusted-ff": lfm2([ATT, CONV], intermediate_size=140, block_auto_adjust_ff_dim=True, block_multiple_of=32),
    "llama-bf16": llama(2, hidden_size=72, intermediate_size=100, num_attention_heads=6) | old_rope_spelling(PLAIN_ROPE),
    "llama-untied-f16": llama(1, head_dim=24, num_key_value_heads=4, tie_word_embeddings=False) | dict(dtype="float16"),
    "llama-rope3-bias": llama(2, rope_parameters=LLAMA3_ROPE, attention_bias=True, mlp_bias=True),
    "llama-rope3-old": llama(1, rope_parameters=LLAMA3_ROPE, num_key_value_heads=1) | old_rope_spelling(LLAMA3_ROPE),
    "qwen3-bf16": qwen3(2, num_key_value_heads=1),
    "qwen3-tied-f16": qwen3(1, head_dim=16, tie_word_embeddings=True) | dict(dtype="float16", template_in_config=True),
}

GGUF = {
    "lfm2-gguf-f16": lfm2([CONV, ATT]) | dict(types=[("", T.F16)]),
    "lfm2-gguf-q8_0": lfm2([CONV, ATT, CONV]) | dict(types=[("", T.Q8_0)]),
    "lfm2-gguf-q4_0": lfm2([CONV, ATT, CONV]) | dict(types=[("", T.Q4_0)]),
    # The mix of a Q4_K_M file, with Q5_K where that has Q4_K too.
    "lfm2-gguf-k": lfm2([CONV, ATT], **K) | dict(types=[("embd|ffn_down|attn_v", T.Q6_K), ("ffn_up", T.Q5_K), ("", T.Q4_K)]),
    "llama-gguf-f32": llama(1, intermediate_size=64) | dict(types=[("", T.F32)]),
    "llama-gguf-bf16-rope3": llama(1, rope_parameters=LLAMA3_ROPE, tie_word_embeddings=False) | dict(types=[("", T.BF16)]),
    # SmolLM2's mix.
    "llama-gguf-q4_1": llama(2) | dict(types=[("embd", T.Q8_0), ("", T.Q4_1)]),
    "llama-gguf-q5_1": llama(2, num_key_value_heads=1) | dict(types=[("", T.Q5_1)]),
    "qwen3-gguf-shards-f16": qwen3(1) | dict(types=[("", T.F16)], tensors_per_file=6),
    "qwen3-gguf-q5_0": qwen3(2) | dict(types=[("", T.Q5_0)]),
    "qwen3-gguf-q5_k": qwen3(1, **K, head_dim=64, num_key_value_heads=1, tie_word_embeddings=True) | dict(types=[("", T.Q5_K)]),
}

MLX = {
    "lfm2-mlx-4bit": lfm2([CONV, ATT, CONV]) | dict(group=64, bits=4),
    "lfm2-mlx-8bit-f16": lfm2([CONV, ATT]) | dict(group=64, bits=8, dtype="float16"),
    "lfm2-mlx-prefix": lfm2([CONV, ATT], **G128) | dict(group=128, bits=4, prefix="language_model.", overrides={
        "embed_tokens": dict(group_size=64, bits=6), "conv.out_proj": False}),
    "llama-mlx-3bit": llama(2) | dict(group=32, bits=3),
    "llama-mlx-2bit": llama(2, tie_word_embeddings=False) | dict(group=32, bits=2),
    "qwen3-mlx-5bit": qwen3(1, intermediate_size=64) | dict(group=64, bits=5),
    "qwen3-mlx-6bit": qwen3(1, **G128, tie_word_embeddings=True) | dict(group=128, bits=6),
}


def main():
    wanted = sys.argv[1:]
    for writer, specs in ((hf, HF), (gguf, GGUF), (mlx, MLX)):
        for name, spec in specs.items():
            if not wanted or name in wanted:
                trial, result = writer.write(OUT, name, **spec)
                print(f"{name}: trial {trial}, max |logit| {abs(result['logits']).max():.1f}, smallest gap "
                      f"{oracle.smallest_gap(result):.3f}, {len(set(result['greedy_ids'].tolist()))} different ids", flush=True)


if __name__ == "__main__":
    main()
