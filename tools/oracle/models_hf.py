"""Hugging Face folders: dtypes, shards, old and new spellings of config.json."""
import json
import pathlib
import shutil

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

import models_oracle as oracle
import models_text

TORCH = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def config_json(model, family, dtype, extra, drop):
    """transformers' own config.json with keys dropped and added (old spellings)."""
    config = json.loads(model.config.to_json_string(use_diff=True))
    config = {k: v for k, v in config.items() if k not in drop}
    config["architectures"] = [oracle.CLASSES[family][1]]
    config["torch_dtype" if "dtype" in drop else "dtype"] = dtype
    config.update(extra)
    return config


def write_weights(folder, tensors, shards):
    names = list(tensors)
    if shards == 1:
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        return
    weight_map = {}
    for i in range(shards):
        part = names[i * len(names) // shards:(i + 1) * len(names) // shards]
        file = f"model-{i + 1:05d}-of-{shards:05d}.safetensors"
        save_file({n: tensors[n] for n in part}, folder / file, metadata={"format": "pt"})
        weight_map |= {n: file for n in part}
    total = sum(t.numel() * t.element_size() for t in tensors.values())
    index = dict(metadata=dict(total_size=total), weight_map=weight_map)
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n")


def write_folder(folder, model, family, state, dtype, shards=1, extra=None, drop=(), template_in_config=False):
    """A complete model folder; returns the tensors as they were rounded to the file's dtype."""
    tensors = {k: torch.from_numpy(v).to(TORCH[dtype]).contiguous() for k, v in state.items()}
    write_weights(folder, tensors, shards)
    (folder / "config.json").write_text(json.dumps(config_json(model, family, dtype, extra or {}, drop), indent=1) + "\n")
    models_text.write_text_files(folder, family, template_in_config)
    for file in folder.iterdir():
        file.chmod(0o644)
    return tensors


def write(out, name, family, config, dtype="bfloat16", **layout):
    """Writes OUT/NAME and OUT/NAME.expect.safetensors; the expectation comes from loading the folder again."""
    folder = pathlib.Path(out) / name
    for trial in range(200):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        model = oracle.build(family, config)
        tensors = write_folder(folder, model, family, oracle.random_state(model, name, trial), dtype, **layout)
        again = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        for key, p in again.named_parameters():
            assert np.array_equal(p.detach().numpy(), tensors[key].float().numpy()), key
        result = oracle.expected(again)
        if oracle.is_useful(result, len(models_text.tokens())):
            oracle.save_expected(folder.with_name(name + ".expect.safetensors"), result)
            return trial, result
    raise RuntimeError(f"{name}: no useful seed")
