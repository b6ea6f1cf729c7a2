"""Writes tests/fixtures/dspark: tiny random DSpark drafters for two of the tiny targets, with what PyTorch says about them.

usage: drafter_make.py [NAME ...]     (all without a name; needs the packages of requirements.txt beside this file)

The target runs in transformers (fp32), the drafter in the formulas below (fp64) over the numbers that its file holds.
"""
import json
import pathlib
import sys
import zlib

import gguf
import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file

ROOT = pathlib.Path(__file__).resolve().parents[2] / "tests/fixtures"
OUT = ROOT / "dspark"
PROMPT = [1] + [9 + (i * i * 7 + 31 * i) % 279 for i in range(22)]
VOCAB, HIDDEN, HEADS, KV_HEADS, FF, EPS, THETA = 288, 64, 4, 2, 32, 1e-5, 1e4
DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}

# nested: the block's keys stand in dflash_config; prefix: names begin with "model."; confidence: None, "hidden" or "markov".
BASE = dict(target="lfm2-bf16", taps=[0, 2, 3], layers=1, head_dim=16, block=5, kind="vanilla", rank=32, dtype="bf16",
            interleaved=False, rope_key=True, nested=True, prefix=False, bias=False, confidence="markov", own=False)
DRAFTERS = {
    "vanilla-interleaved": BASE | dict(layers=2, interleaved=True, block=9),
    "vanilla-half-split": BASE | dict(dtype="f32", rope_key=False, nested=False, prefix=True, head_dim=32),
    "gated": BASE | dict(kind="gated", dtype="f16", confidence="hidden", bias=True, taps=[1]),
    "rnn": BASE | dict(kind="rnn", interleaved=True),
    "none": BASE | dict(kind="none", rank=0, confidence=None, taps=[0, 1, 2, 3]),
    "own-tables": BASE | dict(target="qwen3-bf16", taps=[0], own=True, nested=False, block=7),
}
GGUF = {"gguf-f16": gguf.GGMLQuantizationType.F16, "gguf-q8_0": gguf.GGMLQuantizationType.Q8_0}
GGUF_SOURCE = "vanilla-interleaved"


def shapes(s):
    """Names and shapes of a drafter's tensors."""
    q, kv, r = HEADS * s["head_dim"], KV_HEADS * s["head_dim"], s["rank"]
    out = {"fc.weight": (HIDDEN, len(s["taps"]) * HIDDEN), "hidden_norm.weight": (HIDDEN,), "norm.weight": (HIDDEN,)}
    for i in range(s["layers"]):
        layer = {"input_layernorm": (HIDDEN,), "post_attention_layernorm": (HIDDEN,), "self_attn.q_proj": (q, HIDDEN),
                 "self_attn.k_proj": (kv, HIDDEN), "self_attn.v_proj": (kv, HIDDEN), "self_attn.o_proj": (HIDDEN, q),
                 "self_attn.q_norm": (s["head_dim"],), "self_attn.k_norm": (s["head_dim"],),
                 "mlp.gate_proj": (FF, HIDDEN), "mlp.up_proj": (FF, HIDDEN), "mlp.down_proj": (HIDDEN, FF)}
        out |= {f"layers.{i}.{k}.weight": v for k, v in layer.items()}
        if s["bias"]:
            out |= {f"layers.{i}.self_attn.{k}_proj.bias": (layer[f"self_attn.{k}_proj"][0],) for k in "qkvo"}
    if s["kind"] != "none":
        out |= {"markov_head.markov_w1.weight": (VOCAB, r), "markov_head.markov_w2.weight": (VOCAB, r)}
    if s["kind"] == "gated":
        out |= {"markov_head.gate_proj.weight": (r, HIDDEN + r), "markov_head.gate_proj.bias": (r,)}
    if s["kind"] == "rnn":
        out |= {"markov_head.joint_proj.weight": (3 * r, 2 * r + HIDDEN), "markov_head.joint_proj.bias": (3 * r,)}
    if s["confidence"]:
        width = HIDDEN + (r if s["confidence"] == "markov" else 0)
        out |= {"confidence_head.proj.weight": (1, width), "confidence_head.proj.bias": (1,)}
    if s["own"]:
        out |= {"embed_tokens.weight": (VOCAB, HIDDEN), "lm_head.weight": (VOCAB, HIDDEN)}
    return out


def random_weights(name, s, trial):
    generator = torch.Generator().manual_seed(zlib.crc32(f"{name}/{trial}".encode()))
    out = {}
    for key, shape in shapes(s).items():
        noise = torch.randn(shape, generator=generator)
        if "norm" in key:
            value = 1 + 0.2 * noise
        elif key.endswith("bias"):
            value = 0.2 * noise
        elif "markov_w1" in key:
            value = noise
        elif "markov_w2" in key or "embed_tokens" in key or "lm_head" in key:
            value = 2.5 * noise / shape[1] ** 0.5
        else:
            value = 1.5 * noise / shape[1] ** 0.5
        out[key] = value.to(DTYPES[s["dtype"]])
    return out


def config(s):
    block = {"mask_token_id": 5, "target_layer_ids": s["taps"], "num_target_layers": {"lfm2-bf16": 5, "qwen3-bf16": 2}[s["target"]],
             "block_size": s["block"]}
    out = {"architectures": ["Qwen3DSparkModel" if s["own"] else "Lfm2DSparkDraftModel"], "model_type": "qwen3", "hidden_size": HIDDEN,
           "num_hidden_layers": s["layers"], "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": s["head_dim"],
           "intermediate_size": FF, "hidden_act": "silu", "rms_norm_eps": EPS, "vocab_size": VOCAB, "rope_theta": THETA,
           "max_position_embeddings": 1024, "layer_types": ["full_attention"] * s["layers"], "attention_bias": s["bias"],
           "markov_rank": s["rank"], "enable_confidence_head": s["confidence"] is not None, "tie_word_embeddings": False}
    if s["rank"]:
        out["markov_head_type"] = s["kind"]
    if s["confidence"]:
        out["confidence_head_with_markov"] = s["confidence"] == "markov"
    if s["rope_key"]:
        out["rope_is_neox_style"] = not s["interleaved"]
    if s["nested"]:
        # A misleading number at the top level: the nested one counts.
        return out | {"dflash_config": block, "block_size": s["block"] + 1}
    return out | block


def rms(x, w):
    return w * x / torch.sqrt((x * x).mean(-1, keepdim=True) + EPS)


def rope(x, positions, interleaved):
    """x [heads, rows, head_dim]."""
    n = x.shape[-1]
    angle = positions[:, None].double() * THETA ** (-torch.arange(0, n, 2, dtype=torch.float64) / n)
    cos, sin = angle.cos(), angle.sin()
    a, b = (x[..., 0::2], x[..., 1::2]) if interleaved else (x[..., :n // 2], x[..., n // 2:])
    a, b = a * cos - b * sin, b * cos + a * sin
    return torch.stack((a, b), -1).flatten(-2) if interleaved else torch.cat((a, b), -1)


class Drafter:
    def __init__(self, s, weights, embedding, head):
        self.s, self.w = s, {k: v.double() for k, v in weights.items()}
        self.embedding, self.head = embedding.double(), head.double()

    def linear(self, name, x):
        bias = self.w.get(name + ".bias")
        return x @ self.w[name + ".weight"].T + (0 if bias is None else bias)

    def split(self, x):
        return x.view(x.shape[0], -1, self.s["head_dim"]).transpose(0, 1)

    def block(self, taps, anchor):
        """Hidden rows [block, H] after the context rows of `taps` [T, taps * H]."""
        w, n, t = self.w, self.s["block"], taps.shape[0]
        c = rms(self.linear("fc", taps.double()), w["hidden_norm.weight"])
        h = self.embedding[torch.tensor([anchor] + [5] * (n - 1))]
        positions = torch.arange(t + n)
        for i in range(self.s["layers"]):
            p = f"layers.{i}."
            x = rms(h, w[p + "input_layernorm.weight"])
            rows = torch.cat((c, x))
            q = rms(self.split(self.linear(p + "self_attn.q_proj", x)), w[p + "self_attn.q_norm.weight"])
            k = rms(self.split(self.linear(p + "self_attn.k_proj", rows)), w[p + "self_attn.k_norm.weight"])
            v = self.split(self.linear(p + "self_attn.v_proj", rows)).repeat_interleave(HEADS // KV_HEADS, 0)
            q, k = rope(q, positions[t:], self.s["interleaved"]), rope(k, positions, self.s["interleaved"]).repeat_interleave(HEADS // KV_HEADS, 0)
            o = (q @ k.transpose(1, 2) / self.s["head_dim"] ** 0.5).softmax(-1) @ v
            h = h + self.linear(p + "self_attn.o_proj", o.transpose(0, 1).reshape(n, -1))
            m = rms(h, w[p + "post_attention_layernorm.weight"])
            h = h + self.linear(p + "mlp.down_proj", torch.nn.functional.silu(self.linear(p + "mlp.gate_proj", m)) * self.linear(p + "mlp.up_proj", m))
        return rms(h, w["norm.weight"])

    def bias(self, token, g, memory):
        """Markov bias of the next slot, and the memory of an rnn."""
        kind = self.s["kind"]
        if kind == "none":
            return torch.zeros(VOCAB, dtype=torch.float64), memory
        e = self.w["markov_head.markov_w1.weight"][token]
        x = e
        if kind == "gated":
            x = torch.sigmoid(self.linear("markov_head.gate_proj", torch.cat((g, e)))) * e
        if kind == "rnn":
            gate, candidate, output = self.linear("markov_head.joint_proj", torch.cat((memory, e, g))).chunk(3)
            memory = torch.sigmoid(gate) * memory + (1 - torch.sigmoid(gate)) * torch.tanh(candidate)
            x = torch.tanh(output)
        return self.w["markov_head.markov_w2.weight"] @ x, memory

    def confidence(self, token, g):
        if self.s["confidence"] is None:
            return torch.ones(())
        x = torch.cat((g, self.w["markov_head.markov_w1.weight"][token])) if self.s["confidence"] == "markov" else g
        return torch.sigmoid(self.linear("confidence_head.proj", x))[0]

    def expected(self, taps, anchor):
        hidden = self.block(taps, anchor)
        base = hidden @ self.head.T
        token, memory, drafts, chain, confidence = anchor, torch.zeros(self.s["rank"], dtype=torch.float64), [], [], []
        for slot in range(self.s["block"]):
            bias, memory = self.bias(token, hidden[slot], memory)
            confidence.append(self.confidence(token, hidden[slot]))
            chain.append(base[slot] + bias)
            token = int(chain[-1].argmax())
            drafts.append(token)
        return dict(hidden=hidden.float(), base_logits=base.float(), chain_logits=torch.stack(chain).float(),
                    drafts=torch.tensor(drafts, dtype=torch.int32), confidence=torch.stack(confidence).float())


@torch.no_grad()
def run_target(name):
    """Residual streams after each layer [T, H], the next token, embedding and head."""
    model = transformers.AutoModelForCausalLM.from_pretrained(ROOT / "models" / name, dtype=torch.float32).eval()
    out = model(input_ids=torch.tensor([PROMPT]), use_cache=False, output_hidden_states=True)
    return ([h[0] for h in out.hidden_states[1:]], int(out.logits[0, -1].argmax()), model.get_input_embeddings().weight, model.get_output_embeddings().weight)


def write_expected(name, s, weights, target):
    """None where the drafts are near ties or too much alike."""
    streams, anchor, embedding, head = target
    taps = torch.cat([streams[i] for i in s["taps"]], -1)
    if s["own"]:
        embedding, head = weights["embed_tokens.weight"], weights["lm_head.weight"]
    result = Drafter(s, weights, embedding, head).expected(taps, anchor)
    best = result["chain_logits"].topk(2, -1).values
    if (best[:, 0] - best[:, 1]).min() < 0.05 or len(set(result["drafts"].tolist())) < 3:
        return None
    result |= dict(prompt_ids=torch.tensor(PROMPT, dtype=torch.int32), anchor=torch.tensor([anchor], dtype=torch.int32))
    save_file({k: v.contiguous() for k, v in result.items()}, OUT / f"{name}.expect.safetensors",
              metadata={"target": s["target"], "made_by": f"torch {torch.__version__}, fp64, target by transformers {transformers.__version__}, fp32"})
    (OUT / f"{name}.expect.safetensors").chmod(0o644)
    return result


def write(name, s, target):
    for trial in range(200):
        weights = random_weights(name, s, trial)
        result = write_expected(name, s, weights, target)
        if result is not None:
            break
    else:
        raise RuntimeError(f"{name}: no useful seed")
    folder = OUT / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config(s), indent=1) + "\n")
    prefixed = {"model." * (s["prefix"] and not k.startswith("lm_head")) + k: v for k, v in weights.items()}
    save_file(prefixed, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)
    return trial, result


GGUF_NAMES = {
    "fc": "fc", "hidden_norm": "enc.output_norm", "norm": "output_norm", "markov_head.markov_w1": "markov_w1",
    "markov_head.markov_w2": "markov_w2", "confidence_head.proj": "conf_proj", "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}


def gguf_name(key):
    stem, kind = key.rsplit(".", 1)
    if stem.startswith("layers."):
        _, layer, rest = stem.split(".", 2)
        return f"blk.{layer}.{GGUF_NAMES[rest]}.{kind}"
    return f"{GGUF_NAMES[stem]}.{kind}"


def even_then_odd(key, value, head_dim):
    """llama.cpp's order of interleaved q and k rows: per head, even dimensions first."""
    if not any(part in key for part in ("q_proj", "k_proj", "q_norm", "k_norm")):
        return value
    return value.reshape(-1, head_dim // 2, 2, *value.shape[1:]).swapaxes(1, 2).reshape(value.shape)


def write_gguf(name, kind, target):
    """The numbers of GGUF_SOURCE as llama.cpp's converter lays them out; expected of what the file holds."""
    s = DRAFTERS[GGUF_SOURCE]
    path = OUT / f"{name}.gguf"
    writer = gguf.GGUFWriter(path, "dflash")
    writer.add_block_count(s["layers"])
    writer.add_context_length(1024)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FF)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(s["head_dim"])
    writer.add_value_length(s["head_dim"])
    writer.add_layer_norm_rms_eps(EPS)
    writer.add_rope_freq_base(THETA)
    writer.add_uint32("dflash.block_size", s["block"])
    writer.add_array("dflash.target_layers", [i + 1 for i in s["taps"]])
    writer.add_bool("dflash.sample_from_anchor", True)
    writer.add_bool("dflash.has_confidence_head", True)
    writer.add_mask_token_id(5)
    stored = {}
    for key, value in load_file(OUT / GGUF_SOURCE / "model.safetensors").items():
        value = np.ascontiguousarray(even_then_odd(key, value.float().numpy(), s["head_dim"]))
        as_kind = gguf.GGMLQuantizationType.F32 if "norm" in key or value.ndim == 1 else kind
        data = gguf.quants.quantize(value, as_kind)
        writer.add_tensor(gguf_name(key), data, raw_dtype=as_kind)
        stored[key] = torch.from_numpy(gguf.quants.dequantize(data, as_kind).astype(np.float32).reshape(value.shape))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    result = write_expected(name, s | dict(interleaved=False), stored, target)
    if result is None:
        raise RuntimeError(f"{name}: its drafts are near ties")
    return 0, result


def main():
    torch.set_num_threads(1)
    wanted = sys.argv[1:]
    OUT.mkdir(parents=True, exist_ok=True)
    targets = {name: run_target(name) for name in ("lfm2-bf16", "qwen3-bf16")}
    jobs = [(name, lambda n=name, s=s: write(n, s, targets[s["target"]])) for name, s in DRAFTERS.items()]
    jobs += [(name, lambda n=name, k=kind: write_gguf(n, k, targets[DRAFTERS[GGUF_SOURCE]["target"]])) for name, kind in GGUF.items()]
    for name, job in jobs:
        if not wanted or name in wanted:
            trial, result = job()
            print(f"{name}: trial {trial}, max |logit| {result['base_logits'].abs().max():.1f}, drafts {result['drafts'].tolist()}", flush=True)


if __name__ == "__main__":
    main()
