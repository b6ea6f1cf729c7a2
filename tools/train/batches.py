"""The training stream: seeded pools of varied documents, cut into micro-batches of equal length."""
import random
from dataclasses import dataclass

import numpy as np
import torch
from tokenizers import Tokenizer

import chat


def encode(tokenizer, labelled):
    """Token ids and their kinds (chat.KINDS) of one document."""
    ids, kinds = [], []
    for (_, kind), e in zip(labelled, tokenizer.encode_batch([t for t, _ in labelled], add_special_tokens=False)):
        ids += e.ids
        kinds += [kind] * len(e.ids)
    return np.array(ids, np.int64), np.array(kinds, np.int64)


@dataclass
class MicroBatch:
    """ids [B, T]; the rest has one entry a position that carries loss."""
    ids: torch.Tensor
    where: torch.Tensor
    labels: torch.Tensor
    kinds: torch.Tensor
    weights: torch.Tensor
    tokens: int


def pad_length(longest):
    return (longest + 31) // 32 * 32


def micro_batch(documents, loss, rng):
    """Weights above 1 weigh; below 1 they are the share of positions, drawn by `rng`, that carry loss.

    A drawn share has the expectation of a small weight and saves the output head's work.
    """
    width = pad_length(max(len(ids) for ids, _ in documents))
    ids = np.zeros((len(documents), width), np.int64)
    share = np.zeros((len(documents), width), np.float32)
    kinds = np.zeros((len(documents), width), np.int64)
    labels = np.zeros((len(documents), width), np.int64)
    for row, (tokens, token_kinds) in enumerate(documents):
        n = len(tokens)
        ids[row, :n] = tokens
        labels[row, :n - 1] = tokens[1:]
        kinds[row, :n - 1] = token_kinds[1:]
        share[row, :n - 1] = loss[token_kinds[1:]]
    chosen = rng.random(share.shape) < share
    where = np.flatnonzero(chosen)
    flat = lambda a: torch.from_numpy(a.reshape(-1)[where])
    return MicroBatch(torch.from_numpy(ids), torch.from_numpy(where), flat(labels), flat(kinds),
                      flat(np.maximum(share, 1.0)), sum(len(d[0]) for d in documents))


def grouped(documents, rows_budget):
    """Documents of like length in groups of at most `rows_budget` padded tokens."""
    groups, group = [], []
    for d in sorted(documents, key=lambda d: len(d[0])):
        if group and (len(group) + 1) * pad_length(len(d[0])) > rows_budget:
            groups.append(group)
            group = []
        group.append(d)
    return groups + [group] if group else groups


class Stream:
    """Endless micro-batches; `position` = (epoch, pool, micro-batch) resumes at the same one."""

    POOL = 256

    def __init__(self, corpus, tokenizer_file, options, loss, position=(0, 0, 0)):
        self.corpus, self.options = corpus, options
        self.tokenizer = Tokenizer.from_file(str(tokenizer_file))
        self.loss = np.array([loss[k] for k in chat.KINDS], np.float32)
        self.position = list(position)
        self.ready = None

    def document(self, index, rng):
        ids, kinds = encode(self.tokenizer, chat.pieces(*self.corpus.variant(index, rng, self.options)))
        return ids[:self.options.max_length], kinds[:self.options.max_length]

    def pool(self, epoch, number):
        """The micro-batches of one pool, or None past the end of the epoch."""
        order = list(range(len(self.corpus)))
        random.Random(f"order {self.options.seed} {epoch}").shuffle(order)
        chosen = order[number * self.POOL:(number + 1) * self.POOL]
        if not chosen:
            return None
        name = f"{self.options.seed} {epoch} "
        documents = [self.document(i, random.Random(name + str(i))) for i in chosen]
        rng = np.random.default_rng([self.options.seed, epoch, number])
        groups = grouped(documents, self.options.micro_batch)
        rng.shuffle(groups)
        return [micro_batch(g, self.loss, rng) for g in groups]

    def next(self):
        epoch, number, index = self.position
        if self.ready is None:
            self.ready = self.pool(epoch, number)
        while self.ready is None or index >= len(self.ready):
            epoch, number = (epoch + 1, 0) if self.ready is None else (epoch, number + 1)
            index, self.ready = 0, self.pool(epoch, number)
        self.position = [epoch, number, index + 1]
        return self.ready[index]
