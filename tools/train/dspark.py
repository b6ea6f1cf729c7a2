"""A DSpark drafter with the published tensor names: block drafting over tapped target states.

Context rows are made of the target's residual stream after some layers. A block is the anchor token
and masks; its rows see the context before the anchor and each other. Row j proposes the token j + 1
after the anchor: base logits plus a low-rank (Markov) bias of the token before.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

from lfm2 import rms, rope_half, rope_table


def rope_pairs(x, cos, sin):
    """Interleaved pairs: element 2i with element 2i + 1."""
    a, b = x.float()[..., 0::2], x.float()[..., 1::2]
    return torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2).to(x.dtype)


class Norm(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), eps

    def forward(self, x):
        return rms(x, self.weight, self.eps)


class SelfAttention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.q_proj = nn.Linear(c.hidden, c.heads * c.head_dim, bias=False)
        self.k_proj = nn.Linear(c.hidden, c.kv_heads * c.head_dim, bias=False)
        self.v_proj = nn.Linear(c.hidden, c.kv_heads * c.head_dim, bias=False)
        self.o_proj = nn.Linear(c.heads * c.head_dim, c.hidden, bias=False)
        self.q_norm, self.k_norm = Norm(c.head_dim, c.eps), Norm(c.head_dim, c.eps)
        self.head_dim = c.head_dim

    def split(self, x):
        return x.view(x.shape[0], -1, self.head_dim)

    def forward(self, block, context, block_table, context_table, mask, rope):
        """block [N, H] normed rows; context [T, H]; mask [N, T + N]."""
        turn = lambda x, norm, table: rope(norm(self.split(x)).transpose(0, 1), *table)
        q = turn(self.q_proj(block), self.q_norm, block_table)
        k = torch.cat((turn(self.k_proj(context), self.k_norm, context_table),
                       turn(self.k_proj(block), self.k_norm, block_table)), 1)
        v = torch.cat((self.split(self.v_proj(context)), self.split(self.v_proj(block)))).transpose(0, 1)
        repeat = q.shape[0] // k.shape[0]
        y = F.scaled_dot_product_attention(q[None], k.repeat_interleave(repeat, 0)[None],
                                           v.repeat_interleave(repeat, 0)[None].to(q.dtype), attn_mask=mask)
        return self.o_proj(y[0].transpose(0, 1).reshape(block.shape[0], -1))


class FeedForward(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gate_proj = nn.Linear(c.hidden, c.ff, bias=False)
        self.up_proj = nn.Linear(c.hidden, c.ff, bias=False)
        self.down_proj = nn.Linear(c.ff, c.hidden, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = Norm(c.hidden, c.eps), Norm(c.hidden, c.eps)
        self.self_attn, self.mlp = SelfAttention(c), FeedForward(c)
        for weight in (self.self_attn.o_proj.weight, self.mlp.down_proj.weight):
            nn.init.normal_(weight, 0, 0.02)

    def forward(self, h, *attention):
        h = h + self.self_attn(self.input_layernorm(h), *attention)
        return h + self.mlp(self.post_attention_layernorm(h))


class MarkovHead(nn.Module):
    def __init__(self, vocab, rank):
        super().__init__()
        self.markov_w1 = nn.Embedding(vocab, rank)
        self.markov_w2 = nn.Linear(rank, vocab, bias=False)
        nn.init.normal_(self.markov_w1.weight, 0, 0.1)
        nn.init.zeros_(self.markov_w2.weight)


class ConfidenceHead(nn.Module):
    def __init__(self, inputs):
        super().__init__()
        self.proj = nn.Linear(inputs, 1)


class Drafter(nn.Module):
    def __init__(self, config, taps, mask_token, layers=2, block=9, rank=64, interleaved=True):
        """config is the target's lfm2.Config; taps are ids of its layers."""
        super().__init__()
        self.config, self.taps, self.mask_token, self.block = config, tuple(taps), mask_token, block
        self.rope = rope_pairs if interleaved else rope_half
        self.fc = nn.Linear(len(taps) * config.hidden, config.hidden, bias=False)
        self.hidden_norm, self.norm = Norm(config.hidden, config.eps), Norm(config.hidden, config.eps)
        self.layers = nn.ModuleList(Layer(config) for _ in range(layers))
        self.markov_head = MarkovHead(config.vocab, rank)
        self.confidence_head = ConfidenceHead(config.hidden + rank)

    def context(self, tapped):
        """Context rows [T, H] of concatenated taps [T, taps * H]."""
        return self.hidden_norm(self.fc(tapped))

    def backbone(self, embedding, anchors, positions, context, context_positions, visible):
        """Normed rows [A, block, H] of blocks at `positions` [A]; visible [A, T] says what they see."""
        count, device = len(anchors), anchors.device
        ids = torch.full((count, self.block), self.mask_token, device=device)
        ids[:, 0] = anchors
        rows = (positions[:, None] + torch.arange(self.block, device=device)).reshape(-1)
        owner = torch.arange(count, device=device).repeat_interleave(self.block)
        mask = torch.cat((visible[owner], owner[:, None] == owner[None]), 1)
        c = self.config
        tables = rope_table(rows, c.head_dim, c.theta), rope_table(context_positions, c.head_dim, c.theta)
        h = F.embedding(ids.reshape(-1), embedding)
        for layer in self.layers:
            h = layer(h, context, *tables, mask, self.rope)
        return self.norm(h).view(count, self.block, -1)

    def bias(self, tokens):
        """Markov bias [..., V] after `tokens`."""
        return self.markov_head.markov_w2(self.markov_head.markov_w1(tokens))

    def hf_config(self, target_layers):
        c = self.config
        return {
            "architectures": ["Lfm2DSparkDraftModel"], "model_type": "qwen3", "dtype": "bfloat16",
            "hidden_size": c.hidden, "num_hidden_layers": len(self.layers), "num_attention_heads": c.heads,
            "num_key_value_heads": c.kv_heads, "head_dim": c.head_dim, "intermediate_size": c.ff,
            "hidden_act": "silu", "rms_norm_eps": c.eps, "vocab_size": c.vocab, "rope_theta": c.theta,
            "max_position_embeddings": 4096, "layer_types": ["full_attention"] * len(self.layers),
            "rope_is_neox_style": self.rope is not rope_pairs, "block_size": self.block,
            "dflash_config": {"mask_token_id": self.mask_token, "target_layer_ids": list(self.taps),
                              "num_target_layers": target_layers},
            "markov_rank": self.markov_head.markov_w1.embedding_dim, "markov_head_type": "vanilla",
            "enable_confidence_head": True, "confidence_head_with_markov": True,
            "tie_word_embeddings": True}
