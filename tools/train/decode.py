"""Batched greedy decoding from the turns of whole dialogues, with the training module.

A dialogue is run once; every assistant turn of it then branches off its own prefix, so that the
work of the prefix is shared. A branch's result equals that of decoding its prompt alone.
"""
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F

from lfm2 import rms, rope_table


@dataclass
class Prefix:
    """What layers keep of a dialogue of T tokens."""
    keys: dict = field(default_factory=dict)     # layer -> [kv_heads, T, d], RoPE applied
    values: dict = field(default_factory=dict)
    frames: dict = field(default_factory=dict)   # layer -> [T + 2, H], two zero rows first
    taps: list = field(default_factory=list)     # [T, H] each
    hidden: torch.Tensor = None                  # [T, H] after the final norm


@dataclass
class Branch:
    prefix: Prefix
    start: int                                   # tokens of the prefix that it continues
    tokens: list = field(default_factory=list)


@torch.no_grad()
def run_prefix(model, ids, taps=()):
    c = model.config
    ids = torch.as_tensor(ids, device=model.device)[None]
    cos, sin = rope_table(torch.arange(ids.shape[1], device=model.device), c.head_dim, c.theta)
    h, prefix = model.embedding(ids), Prefix()
    for i, block in enumerate(model.blocks):
        a = rms(h, block.operator_norm, c.eps)
        if block.is_attention:
            _, k, v = block.heads(a, cos, sin)
            prefix.keys[i], prefix.values[i] = k[0], v[0]
            y = block.attention(a, cos, sin)
        else:
            b, _, x = block.bcx(a).chunk(3, -1)
            prefix.frames[i] = F.pad((b * x)[0], (0, 0, 2, 0))
            y = block.convolution(a)
        h = block.feed_forward(h + block.out(y))
        if i in taps:
            prefix.taps.append(h[0])
    prefix.hidden = rms(h, model.final_norm, c.eps)[0]
    return prefix


class Batch:
    """The states of a batch of branches, one row each."""

    def __init__(self, model, branches, room):
        self.model = model
        starts = [b.start for b in branches]
        self.length = torch.tensor(starts, device=model.device)
        rows, width = len(branches), max(starts) + room
        self.keys, self.values, self.frames = {}, {}, {}
        for i, block in enumerate(model.blocks):
            if block.is_attention:
                for name, kept in (("keys", self.keys), ("values", self.values)):
                    one = getattr(branches[0].prefix, name)[i]
                    kept[i] = one.new_zeros(rows, one.shape[0], width, one.shape[2])
                    for row, b in enumerate(branches):
                        kept[i][row, :, :b.start] = getattr(b.prefix, name)[i][:, :b.start]
            else:
                self.frames[i] = torch.stack([b.prefix.frames[i][b.start:b.start + 2] for b in branches])

    def keep(self, rows):
        self.length = self.length[rows]
        for kept in (self.keys, self.values, self.frames):
            for i in kept:
                kept[i] = kept[i][rows]

    def attention(self, i, block, a):
        c = self.model.config
        rows = torch.arange(len(a), device=a.device)
        cos, sin = rope_table(self.length[:, None, None], c.head_dim, c.theta)
        q, k, v = block.heads(a, cos, sin)
        self.keys[i][rows, :, self.length] = k[:, :, 0]
        self.values[i][rows, :, self.length] = v[:, :, 0]
        width = int(self.length.max()) + 1
        seen = torch.arange(width, device=a.device)[None] <= self.length[:, None]
        q = q.reshape(len(a), c.kv_heads, c.heads // c.kv_heads, c.head_dim)
        y = F.scaled_dot_product_attention(q, self.keys[i][:, :, :width], self.values[i][:, :, :width],
                                           attn_mask=seen[:, None, None])
        return y.reshape(len(a), 1, -1)

    def convolution(self, i, block, a):
        b, gate, x = block.bcx(a).chunk(3, -1)
        window = torch.cat((self.frames[i], b * x), 1)
        self.frames[i] = window[:, 1:]
        return gate * (window * block.taps.t()).sum(1, keepdim=True)

    def step(self, tokens):
        """Runs one token a row; the final hidden [rows, H]."""
        model, c = self.model, self.model.config
        h = model.embedding(torch.tensor(tokens, device=model.device))[:, None]
        for i, block in enumerate(model.blocks):
            a = rms(h, block.operator_norm, c.eps)
            y = self.attention(i, block, a) if block.is_attention else self.convolution(i, block, a)
            h = block.feed_forward(h + block.out(y))
        self.length = self.length + 1
        return rms(h, model.final_norm, c.eps)[:, 0]


@torch.no_grad()
def decode(model, branches, end, limit, batch_size=64):
    """Fills the branches' tokens greedily up to `end` (kept) or `limit`."""
    ordered = sorted(branches, key=lambda b: b.start)
    for first in range(0, len(ordered), batch_size):
        rows = ordered[first:first + batch_size]
        batch = Batch(model, rows, limit)
        hidden = torch.stack([b.prefix.hidden[b.start - 1] for b in rows])
        finished = lambda b: len(b.tokens) >= limit or (b.tokens and b.tokens[-1] == end)
        while rows:
            for b, token in zip(rows, model.logits(hidden).argmax(-1).tolist()):
                if not finished(b):
                    b.tokens.append(token)
            open_rows = [r for r, b in enumerate(rows) if not finished(b)]
            # Dropping rows copies the states, so finished ones ride along until they are a third.
            if len(open_rows) < 0.67 * len(rows):
                batch.keep(torch.tensor(open_rows, dtype=torch.long, device=model.device))
                rows = [rows[r] for r in open_rows]
            if rows:
                hidden = batch.step([b.tokens[-1] for b in rows])


@torch.no_grad()
def run_branches(model, prefix, starts, tokens, taps=()):
    """Teacher-forced branches of one prefix, all but their last token.

    Returns the final hidden and the tapped rows, one [length - 1, ...] tensor a branch.
    """
    c, count, device = model.config, len(starts), model.device
    length = max(len(t) for t in tokens) - 1
    ids = torch.zeros(count, length, dtype=torch.long, device=device)
    for row, t in enumerate(tokens):
        ids[row, :len(t) - 1] = torch.tensor(t[:-1], device=device)
    start = torch.tensor(starts, device=device)
    positions = start[:, None] + torch.arange(length, device=device)
    cos, sin = rope_table(positions[:, None], c.head_dim, c.theta)
    width = max(starts)
    old = (torch.arange(width, device=device) < start[:, None])[:, None].expand(-1, length, -1)
    own = torch.ones(length, length, dtype=torch.bool, device=device).tril().expand(count, -1, -1)
    mask = torch.cat((old, own), 2)[:, None]
    h, tapped = model.embedding(ids), []
    for i, block in enumerate(model.blocks):
        a = rms(h, block.operator_norm, c.eps)
        if block.is_attention:
            q, k, v = block.heads(a, cos, sin)
            both = lambda kept, new: torch.cat((kept[i][None, :, :width].to(new.dtype).expand(count, -1, -1, -1), new), 2)
            k, v = both(prefix.keys, k), both(prefix.values, v)
            repeat = c.heads // c.kv_heads
            y = F.scaled_dot_product_attention(q, k.repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1),
                                               attn_mask=mask)
            y = y.transpose(1, 2).reshape(count, length, -1)
        else:
            b, gate, x = block.bcx(a).chunk(3, -1)
            frames = torch.stack([prefix.frames[i][s:s + 2] for s in starts]).to(x.dtype)
            window = torch.cat((frames, b * x), 1)
            w = block.taps.to(x.dtype).t()
            y = gate * (window[:, :-2] * w[0] + window[:, 1:-1] * w[1] + window[:, 2:] * w[2])
        h = block.feed_forward(h + block.out(y))
        if i in taps:
            tapped.append(h)
    hidden = rms(h, model.final_norm, c.eps)
    lengths = [len(t) - 1 for t in tokens]
    return ([hidden[r, :n] for r, n in enumerate(lengths)],
            [torch.cat([t[r, :n] for t in tapped], -1) if taps else None for r, n in enumerate(lengths)])
