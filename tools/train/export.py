#!/usr/bin/env python3
"""Writes a Hugging Face folder (bf16) from a training checkpoint."""
import argparse
import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

import chat
from lfm2 import Config, Lfm2, from_hf, to_hf

TEMPLATE = Path(__file__).parent / "chat_template.jinja"


def load_checkpoint(path):
    """The model and the training state of a checkpoint of target.py."""
    saved = torch.load(path, map_location="cpu", weights_only=True)
    config = Config(**{**saved["config"], "attention": tuple(saved["config"]["attention"])})
    model = Lfm2(config)
    model.load_state_dict(saved["model"])
    return model.eval(), saved["state"]


def load_hf(folder):
    """The training module with the weights of a Hugging Face folder, as fp32."""
    c = json.loads((folder / "config.json").read_text())
    attention = tuple(i for i, kind in enumerate(c["layer_types"]) if kind == "full_attention")
    model = Lfm2(Config(vocab=c["vocab_size"], hidden=c["hidden_size"], layers=c["num_hidden_layers"],
                        attention=attention, heads=c["num_attention_heads"], kv_heads=c["num_key_value_heads"],
                        ff=c["intermediate_size"], theta=c["rope_parameters"]["rope_theta"], eps=c["norm_eps"]))
    from_hf(model, {k: v.float() for k, v in load_file(str(folder / "model.safetensors")).items()})
    return model.eval()


def hf_config(config, token):
    return {
        "architectures": ["Lfm2ForCausalLM"], "model_type": "lfm2", "dtype": "bfloat16",
        "vocab_size": config.vocab, "hidden_size": config.hidden, "block_dim": config.hidden,
        "intermediate_size": config.ff, "block_auto_adjust_ff_dim": False, "block_multiple_of": 256,
        "block_ffn_dim_multiplier": 1.0, "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads, "num_key_value_heads": config.kv_heads,
        "layer_types": ["full_attention" if i in config.attention else "conv" for i in range(config.layers)],
        "conv_L_cache": 3, "conv_bias": False, "norm_eps": config.eps, "initializer_range": 0.02,
        "rope_parameters": {"rope_theta": config.theta, "rope_type": "default"},
        "tie_word_embeddings": True, "max_position_embeddings": 4096, "use_cache": True,
        "bos_token_id": token(chat.BOS), "eos_token_id": token(chat.END), "pad_token_id": token(chat.PAD)}


def write_hf(model, tokenizer_file, folder):
    folder.mkdir(parents=True, exist_ok=True)
    token = Tokenizer.from_file(str(tokenizer_file)).token_to_id
    save_file(to_hf(model), str(folder / "model.safetensors"), metadata={"format": "pt"})
    shutil.copy(tokenizer_file, folder / "tokenizer.json")
    shutil.copy(TEMPLATE, folder / "chat_template.jinja")
    ids = {"bos_token_id": token(chat.BOS), "eos_token_id": [token(chat.END), token(chat.END_OF_TEXT)],
           "pad_token_id": token(chat.PAD)}
    written = {"config.json": hf_config(model.config, token),
               "generation_config.json": {**ids, "do_sample": False},
               "tokenizer_config.json": {
                   "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": chat.BOS, "eos_token": chat.END,
                   "pad_token": chat.PAD, "model_max_length": 4096, "clean_up_tokenization_spaces": False}}
    for name, value in written.items():
        (folder / name).write_text(json.dumps(value, indent=2) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    model, state = load_checkpoint(options.checkpoint)
    write_hf(model, options.tokenizer, options.folder)
    print(f"{options.folder}: {state['tokens'] / 1e6:.2f} M tokens, step {state['step']}")


if __name__ == "__main__":
    main()
