"""Writes tests/fixtures/models: every tiny model with what transformers says about it.

usage: models_make.py [NAME ...]      (all without a name; needs requirements.txt beside this file)
"""
import logging
import pathlib
import sys
import warnings

import models_hf as hf
import models_oracle as oracle

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
OUT = pathlib.Path(__file__).resolve().parents[2] / "tests/fixtures/models"

ATT, CONV = "full_attention", "conv"


def lfm2(layers, **changes):
    base = dict(vocab_size=288, hidden_size=64, intermediate_size=64, block_auto_adjust_ff_dim=False,
                num_hidden_layers=len(layers), layer_types=layers, num_attention_heads=4, num_key_value_heads=2,
                max_position_embeddings=1024, norm_eps=1e-5, rope_parameters=dict(rope_type="default", rope_theta=1e6))
    return base | changes


HF = {
    "lfm2-f32": dict(family="lfm2", config=lfm2([CONV, ATT, CONV]), dtype="float32"),
}


def main():
    wanted = sys.argv[1:]
    for name, spec in HF.items():
        if not wanted or name in wanted:
            trial, result = hf.write(OUT, name, **spec)
            print(f"{name}: trial {trial}, max |logit| {abs(result['logits']).max():.1f}, smallest gap "
                  f"{oracle.smallest_gap(result):.3f}, {len(set(result['greedy_ids'].tolist()))} different ids", flush=True)


if __name__ == "__main__":
    main()
