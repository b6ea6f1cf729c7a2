"""MLX-quantised folders, written by mlx_lm.convert itself from a bf16 folder."""
import json
import pathlib
import shutil
import tempfile

import mlx.core as mx
import mlx_lm
import numpy as np

import models_hf
import models_oracle as oracle
import models_text

TEXT_FILES = ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"]


def predicate(group, bits, overrides):
    """What mlx_lm asks for each module: True, False or its own grouping, by the end of the module's path."""
    def choose(path, module, *_):
        for end, choice in overrides.items():
            if path.endswith(end):
                return choice
        return module.weight.shape[-1] % group == 0
    return choose


def fp32(array):
    return array.astype(mx.float32)


def dequantised(tensors, config, prefix):
    """transformers' names and fp32 values of an MLX folder's tensors."""
    default = config["quantization"]
    state = {}
    for name, value in tensors.items():
        path = name.removesuffix(".weight")
        if name.endswith((".scales", ".biases")):
            continue
        if path + ".scales" in tensors:
            own = default.get(path) or default
            value = mx.dequantize(value, fp32(tensors[path + ".scales"]), fp32(tensors[path + ".biases"]),
                                  group_size=own["group_size"], bits=own["bits"])
        value = np.array(fp32(value))
        state[name.removeprefix(prefix)] = value.transpose(0, 2, 1) if value.ndim == 3 else value
    return state


def add_prefix(folder, prefix):
    """Renames the tensors, and the modules that config.json names, as tools for vision models do."""
    tensors = mx.load(str(folder / "model.safetensors"))
    mx.eval(tensors)
    mx.save_safetensors(str(folder / "model.safetensors"), {prefix + k: v for k, v in tensors.items()}, {"format": "mlx"})
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    index["weight_map"] = {prefix + k: v for k, v in index["weight_map"].items()}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n")
    config = json.loads((folder / "config.json").read_text())
    for key in ("quantization", "quantization_config"):
        config[key] = {prefix + k if k.startswith("model.") else k: v for k, v in config[key].items()}
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")


def write(out, name, family, config, group, bits, overrides=None, prefix="", dtype="bfloat16"):
    """Writes OUT/NAME and OUT/NAME.expect.safetensors."""
    folder = pathlib.Path(out) / name
    model = oracle.build(family, config)
    for trial in range(200):
        shutil.rmtree(folder, ignore_errors=True)
        with tempfile.TemporaryDirectory() as temporary:
            source = pathlib.Path(temporary)
            extra = dict(block_dim=config["hidden_size"]) if family == "lfm2" else {}
            state = oracle.random_state(model, name, trial)
            models_hf.write_folder(source, model, family, state, dtype, extra=extra)
            mlx_lm.convert(str(source), mlx_path=str(folder), quantize=True, q_group_size=group, q_bits=bits,
                           dtype=dtype, quant_predicate=predicate(group, bits, overrides or {}))
            (folder / "README.md").unlink(missing_ok=True)
            for file in TEXT_FILES:
                shutil.copy(source / file, folder / file)
        if prefix:
            add_prefix(folder, prefix)
        saved = json.loads((folder / "config.json").read_text())
        oracle.load(model, dequantised(mx.load(str(folder / "model.safetensors")), saved, prefix))
        result = oracle.expected(model)
        if oracle.is_useful(result, len(models_text.tokens())):
            for file in folder.iterdir():
                file.chmod(0o644)
            oracle.save_expected(folder.with_name(name + ".expect.safetensors"), result)
            return trial, result
    raise RuntimeError(f"{name}: no useful seed")
