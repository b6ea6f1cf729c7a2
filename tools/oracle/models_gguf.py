"""GGUF files as llama.cpp's converter writes them, with every block type that Espalier reads.

The expectation is made from what the `gguf` package dequantises out of the finished file, so it
holds for the file's own numbers and not for those that went into the quantiser.
"""
import pathlib
import re

import gguf
import numpy as np
from gguf import GGMLQuantizationType as T

import models_kquants
import models_oracle as oracle
import models_text

NAMES = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
    "model.embedding_norm": "token_embd_norm",
    "operator_norm": "attn_norm", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "ffn_norm": "ffn_norm", "feed_forward.w1": "ffn_gate", "feed_forward.w3": "ffn_up", "feed_forward.w2": "ffn_down",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "conv.in_proj": "shortconv.in_proj", "conv.out_proj": "shortconv.out_proj", "conv.conv": "shortconv.conv",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.out_proj": "attn_output",
    "self_attn.q_layernorm": "attn_q_norm", "self_attn.k_layernorm": "attn_k_norm",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
}


def gguf_name(name):
    stem, kind = name.rsplit(".", 1)
    layer = re.fullmatch(r"model\.layers\.(\d+)\.(.*)", stem)
    return f"blk.{layer[1]}.{NAMES[layer[2]]}.{kind}" if layer else f"{NAMES[stem]}.{kind}"


def permute(w, heads):
    """llama.cpp's order of q and k rows for interleaved rotation: row i + hd/2 of a head comes after row i."""
    return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def unpermute(w, heads):
    return w.reshape(heads, w.shape[0] // heads // 2, 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def permuted_heads(family, name, config):
    """How many heads the rows of this tensor are permuted in, or 0."""
    if family != "llama" or not re.search(r"\.(attn_q|attn_k|self_attn\.[qk]_proj)\.", name):
        return 0
    return config.num_attention_heads if re.search(r"attn_q|q_proj", name) else config.num_key_value_heads


def encode(value, kind):
    """Bytes of a tensor in a GGUF type."""
    if kind == T.F32:
        return value.astype(np.float32)
    if kind in models_kquants.QUANTISERS:
        return models_kquants.QUANTISERS[kind](value)
    return gguf.quants.quantize(value, kind)


def rope_freqs(config):
    """The divisors that llama.cpp's converter computes for Llama 3 scaling."""
    rope = config.rope_parameters
    dim = config.head_dim or config.hidden_size // config.num_attention_heads
    freqs = 1.0 / rope["rope_theta"] ** (np.arange(0, dim, 2, dtype=np.float32) / dim)
    wavelen = 2 * np.pi / freqs
    low, high, factor = rope["low_freq_factor"], rope["high_freq_factor"], rope["factor"]
    old = rope["original_max_position_embeddings"]
    smooth = (old / wavelen - low) / (high - low)
    middle = 1 / ((1 - smooth) / factor + smooth)
    return np.where(wavelen < old / high, 1, np.where(wavelen > old / low, factor, middle)).astype(np.float32)


def add_metadata(writer, family, model):
    c = model.config
    writer.add_name("tiny")
    writer.add_block_count(c.num_hidden_layers)
    writer.add_context_length(c.max_position_embeddings)
    writer.add_embedding_length(c.hidden_size)
    writer.add_feed_forward_length(next(p for n, p in model.named_parameters() if "gate" in n or ".w1." in n).shape[0])
    writer.add_head_count(c.num_attention_heads)
    writer.add_rope_freq_base(c.rope_parameters["rope_theta"])
    writer.add_vocab_size(c.vocab_size)
    if family == "lfm2":
        writer.add_head_count_kv([c.num_key_value_heads if t == "full_attention" else 0 for t in c.layer_types])
        writer.add_layer_norm_rms_eps(c.norm_eps)
        writer.add_shortconv_l_cache(c.conv_L_cache)
    else:
        writer.add_head_count_kv(c.num_key_value_heads)
        writer.add_layer_norm_rms_eps(c.rms_norm_eps)
        if family == "llama":
            writer.add_rope_dimension_count(c.head_dim or c.hidden_size // c.num_attention_heads)
        if family == "qwen3" or c.head_dim * c.num_attention_heads != c.hidden_size:
            writer.add_key_length(c.head_dim)
            writer.add_value_length(c.head_dim)


def add_text(writer, family):
    tokens = models_text.tokens()
    kinds = [gguf.TokenType.CONTROL if t in models_text.SPECIALS and not t.endswith("think>") else
             gguf.TokenType.USER_DEFINED if t in models_text.SPECIALS else gguf.TokenType.NORMAL for t in tokens]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(models_text.GGUF_PRE[family])
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(models_text.PAIRS)
    writer.add_bos_token_id(models_text.BOS)
    writer.add_eos_token_id(models_text.EOS)
    writer.add_pad_token_id(models_text.PAD)
    writer.add_add_bos_token(family != "qwen3")
    writer.add_add_eos_token(False)
    writer.add_chat_template(models_text.CHAT_TEMPLATE)


def kind_of(name, types):
    """types: [(pattern, type)], first match; vectors and conv kernels stay F32 whatever it says."""
    if "norm" in name or "shortconv.conv" in name or name.endswith(".bias"):
        return T.F32
    return next(kind for pattern, kind in types if re.search(pattern, name))


def write_file(path, family, model, state, types, tensors_per_file):
    writer = gguf.GGUFWriter(path, family, split_max_tensors=tensors_per_file)
    add_metadata(writer, family, model)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    add_text(writer, family)
    if model.config.rope_parameters["rope_type"] == "llama3":
        writer.add_tensor("rope_freqs.weight", rope_freqs(model.config))
    for name, value in state.items():
        heads = permuted_heads(family, name, model.config)
        value = permute(value, heads) if heads else value
        value = value[:, 0, :] if value.ndim == 3 else value
        kind = kind_of(gguf_name(name), types)
        writer.add_tensor(gguf_name(name), np.ascontiguousarray(encode(value, kind)), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def read_back(paths, family, model):
    """transformers' names and fp32 values of the finished files."""
    stored = {t.name: gguf.quants.dequantize(t.data, t.tensor_type) for p in paths for t in gguf.GGUFReader(p).tensors}
    stored.pop("rope_freqs.weight", None)
    state = {}
    for name, p in model.named_parameters():
        value = stored.pop(gguf_name(name)).astype(np.float32)
        heads = permuted_heads(family, gguf_name(name), model.config)
        state[name] = (unpermute(value, heads) if heads else value).reshape(p.shape)
    assert not stored, stored.keys()
    return state


def write(out, name, family, config, types, tensors_per_file=0):
    """Writes OUT/NAME.gguf (or NAME-0000i-of-0000n.gguf) and OUT/NAME.expect.safetensors."""
    out = pathlib.Path(out)
    model = oracle.build(family, config)
    for trial in range(200):
        for old in out.glob(f"{name}*.gguf"):
            if re.fullmatch(re.escape(name) + r"(-\d{5}-of-\d{5})?\.gguf", old.name):
                old.unlink()
        write_file(out / f"{name}.gguf", family, model, oracle.random_state(model, name, trial), types, tensors_per_file)
        paths = sorted(out.glob(f"{name}-0*.gguf")) if tensors_per_file else [out / f"{name}.gguf"]
        oracle.load(model, read_back(paths, family, model))
        result = oracle.expected(model)
        if oracle.is_useful(result, len(models_text.tokens())):
            oracle.save_expected(out / f"{name}.expect.safetensors", result)
            return trial, result
    raise RuntimeError(f"{name}: no useful seed")
