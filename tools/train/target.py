#!/usr/bin/env python3
"""Trains the target model. A run folder holds its checkpoint, log and exports; run again to resume.

The schedule counts tokens: warm-up, a constant rate, then a linear decay that ends at --tokens.
--tokens may change at a resume, which moves the decay. SIGTERM ends after the step, with a checkpoint.
"""
import argparse
import json
import os
import signal
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch

import chat
import corpus
import export
from batches import Stream, encode, grouped, micro_batch
from lfm2 import Config, Lfm2, matrices_and_rest


def parse_options(arguments=None):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("run", type=Path, help="run folder")
    p.add_argument("--tokenizer", type=Path, required=True)
    p.add_argument("--tokens", type=float, default=35e6, help="tokens at which the decay ends")
    p.add_argument("--decay-from", type=float, default=0.4, help="share of --tokens after which the rate falls")
    p.add_argument("--layers", type=int, default=8)
    p.add_argument("--attention", default="1,3,5", help="layers with attention; the others are convolutions")
    p.add_argument("--hidden", type=int, default=256)
    p.add_argument("--ff", type=int, default=768)
    p.add_argument("--kv-heads", type=int, default=2)
    p.add_argument("--loss", default="frame=0.02,prose=1,call=1.5,user=0.3,result=0.3,tools=0.04",
                   help="weight by kind of text; below 1 the share of tokens that carry loss")
    p.add_argument("--replace-share", type=float, default=0.6, help="dialogues with other values")
    p.add_argument("--rename-share", type=float, default=0.15, help="dialogues with other tool and parameter names")
    p.add_argument("--full-share", type=float, default=0.08, help="dialogues with parameter descriptions")
    p.add_argument("--window-share", type=float, default=0.0, help="dialogues cut to the turns round one call")
    p.add_argument("--system-share", type=float, default=0.15)
    p.add_argument("--prose-tools-share", type=float, default=0.1)
    p.add_argument("--max-length", type=int, default=1536)
    p.add_argument("--micro-batch", type=int, default=2560, help="padded tokens")
    p.add_argument("--step-tokens", type=int, default=9000)
    p.add_argument("--rate", type=float, default=3e-3, help="peak learning rate of Muon and AdamW")
    p.add_argument("--warmup", type=int, default=40, help="steps")
    p.add_argument("--minutes", type=float, default=10, help="between checkpoints")
    p.add_argument("--held-out", type=int, default=48, help="validation dialogues in the loss that is logged")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--max-steps", type=int, default=0, help="stop early, for tests")
    p.add_argument("--compile", action="store_true", help="compile the blocks (a minute at the start)")
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return p.parse_args(arguments)


def parse_loss(text):
    loss = dict.fromkeys(chat.KINDS, 0.0)
    for part in text.split(","):
        name, value = part.split("=")
        if name not in loss:
            raise SystemExit(f"--loss names '{name}'; the kinds are {', '.join(chat.KINDS)}")
        loss[name] = float(value)
    return loss


def held_out(tokenizer, seen_services, count):
    """Validation dialogues with full tool lists, as micro-batches with loss on all text but the tool list."""
    tools = corpus.load_tools()
    documents = []
    for d in corpus.load("sgd-valid"):
        if set(d["services"]) <= seen_services:
            listed = [t for s in d["services"] for t in tools[s]]
            document = encode(tokenizer, chat.pieces(d["messages"], listed))
            if len(document[0]) <= 2048:
                documents.append(document)
    loss = np.array([0, 1, 1, 1, 1, 0], np.float32)
    rng = np.random.default_rng(0)
    return [micro_batch(g, loss, rng) for g in grouped(documents[:count], 4096)]


class Sums:
    """Loss sums by kind."""

    def __init__(self):
        self.loss, self.count = torch.zeros(len(chat.KINDS)), torch.zeros(len(chat.KINDS))

    def add(self, kinds, losses):
        losses = losses.detach().float().cpu()
        self.loss.index_add_(0, kinds, losses)
        self.count.index_add_(0, kinds, torch.ones_like(losses))

    def means(self):
        return {k: round((self.loss[i] / self.count[i]).item(), 4)
                for i, k in enumerate(chat.KINDS) if self.count[i] > 0}


class Trainer:
    def __init__(self, options):
        self.options = options
        torch.manual_seed(options.seed)
        self.config = Config(hidden=options.hidden, layers=options.layers, ff=options.ff, heads=options.hidden // 64,
                             kv_heads=options.kv_heads, attention=tuple(map(int, options.attention.split(","))))
        self.model = Lfm2(self.config).to(options.device)
        muon, adamw = matrices_and_rest(self.model)
        self.optimizers = [
            torch.optim.Muon(muon, lr=options.rate, weight_decay=0.01, momentum=0.95, adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW(adamw, lr=options.rate, betas=(0.9, 0.97), weight_decay=0.0)]
        self.state = {"step": 0, "tokens": 0, "position": [0, 0, 0], "seconds": 0.0}
        options.run.mkdir(parents=True, exist_ok=True)
        self.checkpoint = options.run / "checkpoint.pt"
        if self.checkpoint.exists():
            self.load()
        data = corpus.Corpus()
        self.stream = Stream(data, options.tokenizer, options, parse_loss(options.loss), self.state["position"])
        seen = {s for d in data.dialogues for s in d["services"]}
        self.held_out = held_out(self.stream.tokenizer, seen, options.held_out)
        if options.compile:
            for block in self.model.blocks:
                block.compile(dynamic=True)

    def load(self):
        saved = torch.load(self.checkpoint, map_location=self.options.device, weights_only=True)
        self.model.load_state_dict(saved["model"])
        for optimizer, state in zip(self.optimizers, saved["optimizers"]):
            optimizer.load_state_dict(state)
        self.state = saved["state"]

    def save(self):
        self.state["position"] = list(self.stream.position)
        config = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self.config).items()}
        saved = {"model": self.model.state_dict(), "optimizers": [o.state_dict() for o in self.optimizers],
                 "state": self.state, "config": config}
        part = self.checkpoint.with_suffix(".part")
        torch.save(saved, part)
        os.replace(part, self.checkpoint)
        export.write_hf(self.model, self.options.tokenizer, self.options.run / "hf")

    def autocast(self):
        return torch.autocast(self.options.device, dtype=torch.bfloat16)

    def losses(self, batch):
        device = self.options.device
        with self.autocast():
            return self.model.losses(batch.ids.to(device), batch.labels.to(device), batch.where.to(device))

    def factor(self):
        """Learning rate relative to its peak."""
        o = self.options
        progress = self.state["tokens"] / o.tokens
        warm = min(1.0, (self.state["step"] + 1) / o.warmup)
        return warm * (1.0 if progress < o.decay_from else max(0.02, (1 - progress) / (1 - o.decay_from)))

    def step(self, sums):
        batches = []
        while sum(b.tokens for b in batches) < self.options.step_tokens:
            batches.append(self.stream.next())
        weight = sum(b.weights.sum().item() for b in batches)
        for b in batches:
            losses = self.losses(b)
            (losses * b.weights.to(losses.device)).sum().div(weight).backward()
            sums.add(b.kinds, losses)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self.options.rate * self.factor()
            optimizer.step()
            optimizer.zero_grad()
        self.state["step"] += 1
        self.state["tokens"] += sum(b.tokens for b in batches)

    @torch.no_grad()
    def evaluate(self):
        sums = Sums()
        for b in self.held_out:
            sums.add(b.kinds, self.losses(b))
        return sums.means()

    def log(self, **entry):
        entry = {"step": self.state["step"], "tokens": self.state["tokens"], **entry}
        with open(self.options.run / "log.jsonl", "a") as out:
            out.write(json.dumps(entry) + "\n")
        print(" ".join(f"{k} {v}" for k, v in entry.items()), flush=True)

    def run(self):
        o, stop = self.options, []
        signal.signal(signal.SIGTERM, lambda *_: stop.append(True))
        self.log(parameters=sum(p.numel() for p in self.model.parameters()), loss_weights=o.loss, budget=o.tokens)
        sums, since, saved_at = Sums(), (time.time(), self.state["tokens"]), time.time()
        first = self.state["step"]
        while self.state["tokens"] < o.tokens and not stop:
            start = time.time()
            self.step(sums)
            self.state["seconds"] += time.time() - start
            if self.state["step"] % 20 == 0:
                speed = (self.state["tokens"] - since[1]) / (time.time() - since[0])
                left = (o.tokens - self.state["tokens"]) / speed
                self.log(train=sums.means(), rate=round(self.factor(), 3), tokens_per_second=round(speed),
                         minutes_left=round(left / 60, 1))
                sums, since = Sums(), (time.time(), self.state["tokens"])
            if time.time() - saved_at > o.minutes * 60:
                self.save()
                self.log(held_out=self.evaluate(), seconds=round(self.state["seconds"]))
                saved_at, since = time.time(), (time.time(), self.state["tokens"])
            if o.max_steps and self.state["step"] - first >= o.max_steps:
                break
        self.save()
        self.log(held_out=self.evaluate(), seconds=round(self.state["seconds"]), finished=self.state["tokens"] >= o.tokens)


if __name__ == "__main__":
    Trainer(parse_options()).run()
