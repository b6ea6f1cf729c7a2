#!/usr/bin/env python3
"""Trains the DSpark drafter on the target's own answers (answers.py) and on the dialogues' own turns.

Loss by slot j, weighted by exp(-j / 4): 0.1 cross-entropy + 0.9 L1 distance of the distributions +
1.0 binary cross-entropy of the confidence against the exact acceptance. The schedule counts
dialogues. A run folder holds the checkpoint; run again to resume; SIGTERM ends with a checkpoint.
"""
import argparse
import json
import os
import random
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from tokenizers import Tokenizer

import chat
from decode import run_branches, run_prefix
from dspark import Drafter
from export import load_checkpoint, load_hf
from lfm2 import matrices_and_rest

NOT_MATRICES = ("markov_head.markov_w1.weight", "markov_head.markov_w2.weight", "confidence_head.proj.weight")


def parse_options(arguments=None):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("run", type=Path, help="run folder")
    p.add_argument("model", type=Path, help="target: checkpoint.pt or Hugging Face folder")
    p.add_argument("tokenizer", type=Path)
    p.add_argument("answers", type=Path, help="file that answers.py wrote")
    p.add_argument("--taps", default="1,3,5")
    p.add_argument("--layers", type=int, default=2)
    p.add_argument("--rank", type=int, default=64)
    p.add_argument("--dialogues", type=int, default=8000, help="dialogues at which the decay ends")
    p.add_argument("--decay-from", type=float, default=0.4)
    p.add_argument("--batch", type=int, default=3, help="dialogues of a step")
    p.add_argument("--anchors", type=int, default=48, help="of a dialogue")
    p.add_argument("--own-share", type=float, default=0.8, help="anchors on the target's own answers")
    p.add_argument("--call-weight", type=int, default=1, help="how often an own answer with a call is drawn")
    p.add_argument("--ce", type=float, default=0.1)
    p.add_argument("--l1", type=float, default=0.9)
    p.add_argument("--confidence", type=float, default=1.0)
    p.add_argument("--rate", type=float, default=3e-3)
    p.add_argument("--warmup", type=int, default=30, help="steps")
    p.add_argument("--minutes", type=float, default=5, help="between checkpoints")
    p.add_argument("--seed", type=int, default=3)
    p.add_argument("--max-steps", type=int, default=0, help="stop early, for tests")
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    p.add_argument("--start", type=Path, help="checkpoint of another run to start from (weights only)")
    return p.parse_args(arguments)


@dataclass
class Rows:
    """Trunk tokens and then each branch's, flat: what anchors, labels and context rows index."""
    ids: torch.Tensor        # [N]
    segment: torch.Tensor    # 0 trunk, then 1 .. branches
    position: torch.Tensor
    split: torch.Tensor      # first position that is the segment's own
    spoken: torch.Tensor     # assistant text
    hidden: torch.Tensor     # [N, H] final normed target states; unused for a branch's last token
    tapped: torch.Tensor     # [N, taps * H]


@torch.no_grad()
def target_rows(target, record, taps, count):
    """The rows of a dialogue with `count` of its branches run through the target."""
    with torch.autocast(target.device.type, dtype=torch.bfloat16):
        prefix = run_prefix(target, record["ids"], taps)
        branches = [b for b in record["branches"] if len(b[1]) > 1][:count]
        hidden, tapped = [prefix.hidden], [torch.cat(prefix.taps, -1)]
        if branches:
            own = run_branches(target, prefix, [b[0] for b in branches], [b[1] for b in branches], taps)
            for h, t in zip(*own):
                hidden.append(F.pad(h, (0, 0, 0, 1)))
                tapped.append(F.pad(t, (0, 0, 0, 1)))
    trunk, device = len(record["ids"]), target.device
    spoken = torch.zeros(trunk, dtype=torch.bool)
    for first, end in record["spans"]:
        spoken[first:end] = True
    lengths = [trunk] + [len(b[1]) for b in branches]
    starts = [0] + [b[0] for b in branches]
    spread = lambda values: torch.repeat_interleave(torch.tensor(values), torch.tensor(lengths)).to(device)
    return Rows(ids=torch.tensor(record["ids"] + [t for b in branches for t in b[1]], device=device),
                segment=spread(list(range(len(lengths)))), split=spread(starts),
                position=torch.cat([torch.arange(s, s + n) for s, n in zip(starts, lengths)]).to(device),
                spoken=torch.cat((spoken, torch.ones(sum(lengths) - trunk, dtype=torch.bool))).to(device),
                hidden=torch.cat(hidden).float(), tapped=torch.cat(tapped).float())


def choose_anchors(rows, count, own_share, generator):
    """Flat indices t where t and t + 1 are assistant text of one segment; mostly on branches."""
    valid = rows.spoken[:-1] & rows.spoken[1:] & (rows.segment[:-1] == rows.segment[1:])
    picked = []
    own = rows.segment[:-1] > 0
    for where, share in ((own, own_share), (~own, 1 - own_share)):
        index = (valid & where).nonzero()[:, 0]
        wanted = round(count * share) if own.any() else count
        picked.append(index[torch.randperm(len(index), generator=generator)[:wanted].to(index.device)])
    return torch.cat(picked).sort()[0]


def visible_rows(rows, anchors):
    """[A, N]: trunk rows before the split or the anchor, and own rows before the anchor."""
    position, segment = rows.position[None], rows.segment[None]
    own, at = rows.segment[anchors][:, None], rows.position[anchors][:, None]
    limit = torch.where(own > 0, rows.split[anchors][:, None], at)
    return ((segment == 0) & (position < limit)) | ((segment == own) & (own > 0) & (position < at))


def losses(drafter, embedding, rows, anchors, options):
    """The weighted loss of a dialogue and (acceptance, slot) of what was supervised."""
    slots = torch.arange(drafter.block, device=anchors.device)
    label_at = anchors[:, None] + 1 + slots
    inside = label_at < len(rows.ids)
    label_at = label_at.clamp(max=len(rows.ids) - 1)
    inside &= rows.spoken[label_at] & (rows.segment[label_at] == rows.segment[anchors][:, None])
    chosen = inside.long().cumprod(1).bool().nonzero()
    a, slot = chosen[:, 0], chosen[:, 1]
    at = label_at[a, slot]
    with torch.autocast(embedding.device.type, dtype=torch.bfloat16):
        context = drafter.context(rows.tapped)
        g = drafter.backbone(embedding, rows.ids[anchors], rows.position[anchors], context, rows.position,
                             visible_rows(rows, anchors))[a, slot]
        before = drafter.markov_head.markov_w1(rows.ids[at - 1])
        logits = F.linear(g, embedding) + drafter.markov_head.markov_w2(before)
        confidence = drafter.confidence_head.proj(torch.cat((g.float(), before.float()), -1))[:, 0]
        with torch.no_grad():
            wanted = F.linear(rows.hidden[at - 1], embedding).float().softmax(-1)
    logits = logits.float()
    distance = (logits.softmax(-1) - wanted).abs().sum(-1)
    accepted = (1 - 0.5 * distance.detach()).clamp(0, 1)
    weight = torch.exp(-slot / 4.0)
    mean = lambda x: (x * weight).sum() / weight.sum()
    ce = mean(F.cross_entropy(logits, rows.ids[at], reduction="none"))
    l1 = mean(distance)
    sure = mean(F.binary_cross_entropy_with_logits(confidence.float(), accepted, reduction="none"))
    return options.ce * ce + options.l1 * l1 + options.confidence * sure, (accepted, slot), (ce, l1, sure)


def write_drafter(drafter, target_layers, folder):
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {k: v.detach().cpu().to(torch.bfloat16).contiguous() for k, v in drafter.state_dict().items()}
    save_file(tensors, str(folder / "model.safetensors"), metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(drafter.hf_config(target_layers), indent=2) + "\n")


class Trainer:
    def __init__(self, options):
        self.options = options
        torch.manual_seed(options.seed)
        self.target = load_hf(options.model) if options.model.is_dir() else load_checkpoint(options.model)[0]
        self.target.to(options.device).requires_grad_(False)
        token = Tokenizer.from_file(str(options.tokenizer)).token_to_id
        mask, self.call = token(chat.MASK), token(chat.CALL)
        taps = tuple(map(int, options.taps.split(",")))
        self.drafter = Drafter(self.target.config, taps, mask, options.layers, rank=options.rank).to(options.device)
        muon, adamw = matrices_and_rest(self.drafter, NOT_MATRICES)
        self.optimizers = [torch.optim.Muon(muon, lr=options.rate, weight_decay=0.0, adjust_lr_fn="match_rms_adamw"),
                           torch.optim.AdamW(adamw, lr=options.rate, betas=(0.9, 0.97), weight_decay=0.0)]
        self.records = [json.loads(line) for line in options.answers.read_text().splitlines()]
        self.state = {"step": 0, "dialogues": 0, "seconds": 0.0}
        options.run.mkdir(parents=True, exist_ok=True)
        self.checkpoint = options.run / "checkpoint.pt"
        if self.checkpoint.exists():
            saved = torch.load(self.checkpoint, map_location=options.device, weights_only=True)
            self.drafter.load_state_dict(saved["model"])
            for optimizer, state in zip(self.optimizers, saved["optimizers"]):
                optimizer.load_state_dict(state)
            self.state = saved["state"]
        elif options.start:
            self.drafter.load_state_dict(torch.load(options.start, weights_only=True)["model"])

    def save(self):
        part = self.checkpoint.with_suffix(".part")
        torch.save({"model": self.drafter.state_dict(), "state": self.state,
                    "optimizers": [o.state_dict() for o in self.optimizers]}, part)
        os.replace(part, self.checkpoint)
        write_drafter(self.drafter, self.target.config.layers, self.options.run / "hf")

    def record(self, number):
        """Dialogue `number` of the seeded endless order."""
        epoch, index = divmod(number, len(self.records))
        order = list(range(len(self.records)))
        random.Random(f"{self.options.seed} {epoch}").shuffle(order)
        record = dict(self.records[order[index]])
        times = lambda answer: self.options.call_weight if answer[0] == self.call else 1
        branches = [b for b in record["branches"] for _ in range(times(b[1]))]
        random.Random(f"{self.options.seed} {number}").shuffle(branches)
        return {**record, "branches": branches}

    def factor(self):
        progress = self.state["dialogues"] / self.options.dialogues
        warm = min(1.0, (self.state["step"] + 1) / self.options.warmup)
        decay = self.options.decay_from
        return warm * (1.0 if progress < decay else max(0.02, (1 - progress) / (1 - decay)))

    def step(self, totals):
        o = self.options
        for _ in range(o.batch):
            number = self.state["dialogues"]
            self.state["dialogues"] += 1
            rows = target_rows(self.target, self.record(number), self.drafter.taps, count=8)
            anchors = choose_anchors(rows, o.anchors, o.own_share, torch.Generator().manual_seed(number))
            if len(anchors) == 0:
                continue
            loss, (accepted, slot), parts = losses(self.drafter, self.target.embedding.weight, rows, anchors, o)
            (loss / o.batch).backward()
            totals["accepted"].index_add_(0, slot.cpu(), accepted.cpu())
            totals["count"].index_add_(0, slot.cpu(), torch.ones(len(slot)))
            totals["parts"] += torch.tensor([p.item() for p in parts] + [1.0])
        torch.nn.utils.clip_grad_norm_(self.drafter.parameters(), 1.0)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = o.rate * self.factor()
            optimizer.step()
            optimizer.zero_grad()
        self.state["step"] += 1

    def log(self, totals, speed):
        acceptance = totals["accepted"] / totals["count"].clamp(min=1)
        ce, l1, sure = (totals["parts"][:3] / totals["parts"][3].clamp(min=1)).tolist()
        entry = {**self.state, "seconds": round(self.state["seconds"]), "ce": round(ce, 3), "l1": round(l1, 3),
                 "bce": round(sure, 3), "acceptance": [round(a, 3) for a in acceptance.tolist()],
                 "tau": round(1 + acceptance.cumprod(0).sum().item(), 3), "rate": round(self.factor(), 3),
                 "minutes_left": round((self.options.dialogues - self.state["dialogues"]) / speed / 60, 1)}
        with open(self.options.run / "log.jsonl", "a") as out:
            out.write(json.dumps(entry) + "\n")
        print(json.dumps(entry), flush=True)

    def run(self):
        o, stop = self.options, []
        signal.signal(signal.SIGTERM, lambda *_: stop.append(True))
        size = sum(p.numel() for p in self.drafter.parameters())
        print(f"{size} parameters, {len(self.records)} dialogues with answers", flush=True)
        fresh = lambda: {"accepted": torch.zeros(self.drafter.block), "count": torch.zeros(self.drafter.block),
                         "parts": torch.zeros(4)}
        totals, first, saved_at, since = fresh(), self.state["step"], time.time(), time.time()
        while self.state["dialogues"] < o.dialogues and not stop:
            start = time.time()
            self.step(totals)
            self.state["seconds"] += time.time() - start
            if self.state["step"] % 25 == 0:
                self.log(totals, 25 * o.batch / (time.time() - since))
                totals, since = fresh(), time.time()
            if time.time() - saved_at > o.minutes * 60:
                self.save()
                saved_at = time.time()
            if o.max_steps and self.state["step"] - first >= o.max_steps:
                break
        self.save()


if __name__ == "__main__":
    Trainer(parse_options()).run()
