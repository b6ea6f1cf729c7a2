"""Random tiny models and what transformers says about them in fp32."""
import zlib

import numpy as np
import torch
import transformers
from safetensors.numpy import save_file

import models_text

torch.set_num_threads(1)
GREEDY = 32
# Linears whose output is added to the residual stream. Where a layer follows a layer they have a quarter of the others' deviation,
# so that each adds less than the stream holds, as in trained models: at full deviation rounding errors grow from layer to layer.
ADDED_TO_STREAM = ("out_proj", "o_proj", "w2", "down_proj")
CLASSES = {"lfm2": ("Lfm2Config", "Lfm2ForCausalLM"), "llama": ("LlamaConfig", "LlamaForCausalLM"),
           "qwen3": ("Qwen3Config", "Qwen3ForCausalLM")}
# 16 ids without a special one but the first.
PROMPT = [models_text.BOS] + [9 + (i * i * 7 + 31 * i) % 279 for i in range(15)]


def build(family, config):
    """A transformers model in fp32 for a config in transformers' spelling."""
    config_class, model_class = (getattr(transformers, n) for n in CLASSES[family])
    common = dict(bos_token_id=models_text.BOS, eos_token_id=models_text.EOS, pad_token_id=models_text.PAD)
    return getattr(transformers, model_class.__name__)(config_class(**common, **config)).float().eval()


def random_state(model, name, trial):
    """Weights whose greedy text wanders: fp32 numpy arrays by name."""
    generator = torch.Generator().manual_seed(zlib.crc32(f"{name}/{trial}".encode()))
    state = {}
    for key, p in model.named_parameters():
        noise = torch.randn(p.shape, generator=generator)
        if "norm" in key:
            value = 1 + 0.2 * noise
        elif key.endswith("bias"):
            value = 0.2 * noise
        elif "embed_tokens" in key or "lm_head" in key:
            value = 2.5 * noise / p.shape[1] ** 0.5  # logits with a deviation of 2.5, as trained models have
        elif p.dim() == 3:
            value = noise / p.shape[-1] ** 0.5
        else:
            value = 1.5 * noise / p.shape[1] ** 0.5
        if model.config.num_hidden_layers > 1 and any(name in key for name in ADDED_TO_STREAM):
            value = 0.25 * value
        state[key] = value.numpy().astype(np.float32)
    return state


def load(model, state):
    """Puts a complete state (fp32, transformers' names) into the model; refuses missing or surplus names."""
    own = dict(model.named_parameters())
    if own.keys() != state.keys():
        raise ValueError(f"names differ: {sorted(own.keys() ^ state.keys())}")
    with torch.no_grad():
        for key, p in own.items():
            p.copy_(torch.from_numpy(np.ascontiguousarray(state[key])).reshape(p.shape))


@torch.no_grad()
def expected(model):
    """prompt_ids (16), greedy_ids (32), logits (48, V) of prompt and greedy ids in one full forward."""
    ids = torch.tensor([PROMPT])
    for _ in range(GREEDY):
        ids = torch.cat((ids, model(input_ids=ids, use_cache=False).logits[:, -1:].argmax(-1)), 1)
    logits = model(input_ids=ids, use_cache=False).logits[0]
    return dict(prompt_ids=np.array(PROMPT, np.int32), greedy_ids=ids[0, len(PROMPT):].numpy().astype(np.int32),
                logits=logits.numpy().astype(np.float32))


def smallest_gap(result):
    """The smallest distance of the two best logits over the 32 choices."""
    top = np.sort(result["logits"][len(PROMPT) - 1:-1], axis=1)
    return float((top[:, -1] - top[:, -2]).min())


def is_useful(result, vocab):
    """A text that wanders, without special ids, whose choices are no near ties."""
    ids = result["greedy_ids"]
    return len(set(ids.tolist())) >= 10 and (ids >= 9).all() and (ids < vocab).all() and smallest_gap(result) > 0.02


def save_expected(path, result):
    save_file(result, path, metadata={"made_by": f"transformers {transformers.__version__}, fp32"})
    path.chmod(0o644)
