"""A small LFM2 decoder for training, with fused projections, and its Hugging Face form.

The maths is that of transformers' Lfm2ForCausalLM: pre-norm blocks, each a gated short
convolution or grouped-query attention with normalised queries and keys and half-split RoPE,
then a SwiGLU feed-forward; the embedding is also the output head.
"""
from dataclasses import asdict, dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass(frozen=True)
class Config:
    vocab: int = 4096
    hidden: int = 256
    layers: int = 8
    attention: tuple = (1, 3, 5)
    heads: int = 4
    kv_heads: int = 2
    ff: int = 768
    theta: float = 1e6
    eps: float = 1e-5

    @property
    def head_dim(self):
        return self.hidden // self.heads

    def to_dict(self):
        return asdict(self)


def rms(x, weight, eps):
    """RMS norm in fp32, returned in the input's type."""
    y = x.float()
    y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + eps)
    return (y * weight).to(x.dtype)


def rope_table(positions, head_dim, theta):
    """cos and sin of [..., head_dim / 2] for integer positions of any shape."""
    step = torch.arange(0, head_dim, 2, device=positions.device).float() / head_dim
    angle = positions[..., None].float() * theta ** -step
    return angle.cos(), angle.sin()


def rope_half(x, cos, sin):
    """Half-split pairs: element i with element i + head_dim / 2."""
    a, b = x.float().chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


class Block(nn.Module):
    def __init__(self, config, is_attention):
        super().__init__()
        c = self.config = config
        self.is_attention = is_attention
        self.operator_norm = nn.Parameter(torch.ones(c.hidden))
        self.ffn_norm = nn.Parameter(torch.ones(c.hidden))
        if is_attention:
            self.qkv = nn.Linear(c.hidden, (c.heads + 2 * c.kv_heads) * c.head_dim, bias=False)
            self.q_norm = nn.Parameter(torch.ones(c.head_dim))
            self.k_norm = nn.Parameter(torch.ones(c.head_dim))
            self.out = nn.Linear(c.heads * c.head_dim, c.hidden, bias=False)
        else:
            self.bcx = nn.Linear(c.hidden, 3 * c.hidden, bias=False)
            self.taps = nn.Parameter(torch.randn(c.hidden, 3) * 0.3)
            self.out = nn.Linear(c.hidden, c.hidden, bias=False)
        self.gate_up = nn.Linear(c.hidden, 2 * c.ff, bias=False)
        self.down = nn.Linear(c.ff, c.hidden, bias=False)

    def heads(self, a, cos, sin):
        """Queries [B, heads, T, d], keys and values [B, kv_heads, T, d] of normed rows."""
        c = self.config
        batch, rows, _ = a.shape
        wide, narrow = c.heads * c.head_dim, c.kv_heads * c.head_dim
        q, k, v = self.qkv(a).split((wide, narrow, narrow), -1)
        q = rms(q.view(batch, rows, c.heads, c.head_dim), self.q_norm, c.eps).transpose(1, 2)
        k = rms(k.view(batch, rows, c.kv_heads, c.head_dim), self.k_norm, c.eps).transpose(1, 2)
        v = v.view(batch, rows, c.kv_heads, c.head_dim).transpose(1, 2)
        return rope_half(q, cos, sin), rope_half(k, cos, sin), v

    def attention(self, a, cos, sin):
        q, k, v = self.heads(a, cos, sin)
        repeat = self.config.heads // self.config.kv_heads
        k, v = k.repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return y.transpose(1, 2).reshape(a.shape[0], a.shape[1], -1)

    def convolution(self, a):
        b, gate, x = self.bcx(a).chunk(3, -1)
        u = b * x
        past = F.pad(u, (0, 0, 2, 0))
        w = self.taps.to(u.dtype).t().contiguous()
        return gate * (past[:, :-2] * w[0] + past[:, 1:-1] * w[1] + u * w[2])

    def feed_forward(self, h):
        gate, up = self.gate_up(rms(h, self.ffn_norm, self.config.eps)).chunk(2, -1)
        return h + self.down(F.silu(gate) * up)

    def forward(self, h, cos, sin):
        a = rms(h, self.operator_norm, self.config.eps)
        y = self.attention(a, cos, sin) if self.is_attention else self.convolution(a)
        return self.feed_forward(h + self.out(y))


class Lfm2(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab, config.hidden)
        self.blocks = nn.ModuleList(Block(config, i in config.attention) for i in range(config.layers))
        self.final_norm = nn.Parameter(torch.ones(config.hidden))
        for name, p in self.named_parameters():
            if name == "embedding.weight":
                nn.init.normal_(p, 0, 0.02)
            elif p.ndim == 2 and not name.endswith("taps"):
                residual = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(p, 0, p.shape[1] ** -0.5 * (0.35 if residual else 0.7))

    @property
    def device(self):
        return self.embedding.weight.device

    def hidden(self, ids, taps=()):
        """Normed final hidden [B, T, H]; with taps also the residual stream after those layers."""
        c = self.config
        cos, sin = rope_table(torch.arange(ids.shape[1], device=ids.device), c.head_dim, c.theta)
        h = self.embedding(ids)
        tapped = []
        for i, block in enumerate(self.blocks):
            h = block(h, cos, sin)
            if i in taps:
                tapped.append(h)
        h = rms(h, self.final_norm, c.eps)
        return (h, tapped) if taps else h

    def logits(self, hidden):
        return hidden @ self.embedding.weight.to(hidden.dtype).t()

    def losses(self, ids, labels, where):
        """Cross-entropy in nats at the flat positions `where` of [B, T]."""
        rows = self.hidden(ids).reshape(-1, self.config.hidden)[where]
        if torch.is_autocast_enabled(ids.device.type):
            rows = rows.to(torch.get_autocast_dtype(ids.device.type))
        return F.cross_entropy(self.logits(rows).float(), labels, reduction="none")


def matrices_and_rest(module, not_matrices=("embedding.weight",)):
    """Parameters for Muon (hidden matrices) and for AdamW (embedding, norms, conv taps)."""
    muon, adamw = [], []
    for name, p in module.named_parameters():
        plain = p.ndim == 2 and name not in not_matrices and not name.endswith("taps")
        (muon if plain else adamw).append(p)
    return muon, adamw


def to_hf(model, dtype=torch.bfloat16):
    """The tensors of the model under their Hugging Face names."""
    c = model.config
    out = {"model.embed_tokens.weight": model.embedding.weight, "model.embedding_norm.weight": model.final_norm}
    for i, b in enumerate(model.blocks):
        p = f"model.layers.{i}."
        w1, w3 = b.gate_up.weight.chunk(2, 0)
        out |= {p + "operator_norm.weight": b.operator_norm, p + "ffn_norm.weight": b.ffn_norm,
                p + "feed_forward.w1.weight": w1, p + "feed_forward.w3.weight": w3,
                p + "feed_forward.w2.weight": b.down.weight}
        if b.is_attention:
            wide, narrow = c.heads * c.head_dim, c.kv_heads * c.head_dim
            q, k, v = b.qkv.weight.split((wide, narrow, narrow), 0)
            a = p + "self_attn."
            out |= {a + "q_proj.weight": q, a + "k_proj.weight": k, a + "v_proj.weight": v,
                    a + "out_proj.weight": b.out.weight, a + "q_layernorm.weight": b.q_norm,
                    a + "k_layernorm.weight": b.k_norm}
        else:
            out |= {p + "conv.in_proj.weight": b.bcx.weight, p + "conv.out_proj.weight": b.out.weight,
                    p + "conv.conv.weight": b.taps[:, None, :]}
    return {k: v.detach().cpu().to(dtype).contiguous().clone() for k, v in out.items()}


@torch.no_grad()
def from_hf(model, tensors):
    """Fills the model from tensors under their Hugging Face names."""
    model.embedding.weight.copy_(tensors["model.embed_tokens.weight"])
    model.final_norm.copy_(tensors["model.embedding_norm.weight"])
    for i, b in enumerate(model.blocks):
        get = lambda *names: torch.cat([tensors[f"model.layers.{i}.{n}.weight"] for n in names])
        b.operator_norm.copy_(get("operator_norm"))
        b.ffn_norm.copy_(get("ffn_norm"))
        b.gate_up.weight.copy_(get("feed_forward.w1", "feed_forward.w3"))
        b.down.weight.copy_(get("feed_forward.w2"))
        if b.is_attention:
            b.qkv.weight.copy_(get("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"))
            b.out.weight.copy_(get("self_attn.out_proj"))
            b.q_norm.copy_(get("self_attn.q_layernorm"))
            b.k_norm.copy_(get("self_attn.k_layernorm"))
        else:
            b.bcx.weight.copy_(get("conv.in_proj"))
            b.out.weight.copy_(get("conv.out_proj"))
            b.taps.copy_(get("conv.conv")[:, 0])
