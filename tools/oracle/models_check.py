"""Reads the finished fixtures with other eyes: mlx-lm for MLX folders, transformers' GGUF reader, cached decoding.

usage: models_check.py      (prints one line a model; exit 1 on the first that disagrees)
"""
import logging
import pathlib
import sys
import warnings

import mlx.core as mx
import mlx_lm.utils
import numpy as np
import torch
from safetensors.numpy import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

import models_text

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
OUT = pathlib.Path(__file__).resolve().parents[2] / "tests/fixtures/models"


def with_mlx(folder, ids):
    model, _ = mlx_lm.utils.load_model(folder)
    model.set_dtype(mx.float32)
    return np.array(model(mx.array([ids]))[0])


@torch.no_grad()
def with_cache(model, ids):
    past, rows = None, []
    for i in ids:
        o = model(input_ids=torch.tensor([[i]]), cache=past, use_cache=True)
        past = o.past_key_values
        rows.append(o.logits[0, 0])
    return torch.stack(rows).numpy()


def logits_of(name, ids):
    folder = OUT / name
    if "mlx" in name:
        # The prefix is for loaders of vision models; mlx-lm's text model doesn't know it.
        return None if "prefix" in name else with_mlx(folder, ids)
    if "gguf" not in name:
        return with_cache(AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval(), ids)
    # transformers' GGUF reader knows neither shards, nor Llama 3's frequencies, nor Qwen 3's head size.
    if "rope3" in name or "qwen3" in name:
        return None
    return with_cache(AutoModelForCausalLM.from_pretrained(OUT, gguf_file=f"{name}.gguf", dtype=torch.float32).eval(), ids)


def check_text(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert isinstance(tokenizer, PreTrainedTokenizerFast)
    text = "The rain in Spain's 1234 — naïve 日本\n\n  end"
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert tokenizer.decode(ids) == text and max(ids) < len(models_text.tokens()), folder
    chat = tokenizer.apply_chat_template([dict(role="user", content="hi")], add_generation_prompt=True, tokenize=False)
    assert chat == "<|startoftext|><|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n", chat


def main():
    for path in sorted(OUT.glob("*.expect.safetensors")):
        name = path.name.removesuffix(".expect.safetensors")
        expect = load_file(path)
        if "greedy_ids" not in expect or "logits" not in expect:
            continue
        ids = [*expect["prompt_ids"].tolist(), *expect["greedy_ids"].tolist()]
        if (OUT / name / "tokenizer.json").exists():
            check_text(OUT / name)
        got = logits_of(name, ids)
        if got is None:
            print(f"{name}: no second reader")
            continue
        error = np.abs(got - expect["logits"]).max() / np.abs(expect["logits"]).max()
        print(f"{name}: {error:.1e}", flush=True)
        if error > 1e-4:
            sys.exit(1)


if __name__ == "__main__":
    main()
