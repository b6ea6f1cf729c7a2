#!/usr/bin/env python3
"""Trains the byte-level BPE of the demo model and writes tokenizer.json."""
import argparse
import json
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

import chat
import corpus

SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
         r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
# While merges are learned a space before a capital letter stands alone. So no merge joins the two,
# and a name has the same tokens after a space, after a quote and in JSON: it can be copied as it is.
NAMES_APART = r" (?=\p{Lu})"


def pre_tokenizer(training):
    steps = [pre_tokenizers.Split(Regex(NAMES_APART), "isolated")] if training else []
    steps += [pre_tokenizers.Split(Regex(SPLIT), "isolated"),
              pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    return pre_tokenizers.Sequence(steps)


def training_texts(data):
    for tools in data.tools.values():
        for _ in range(20):
            yield json.dumps(tools, ensure_ascii=False)
    for d in data.dialogues:
        for text, kind in chat.pieces(d["messages"], None):
            if kind != chat.FRAME:
                for marker in (chat.END, chat.CALL, chat.CALL_END):
                    text = text.replace(marker, "")
                yield text
    for d in data.prose:
        for m in d["messages"]:
            yield m["content"]


def train(vocab):
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizer(training=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocab, special_tokens=chat.SPECIALS, show_progress=False,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.train_from_iterator(training_texts(corpus.Corpus()), trainer)
    tokenizer.pre_tokenizer = pre_tokenizer(training=False)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{chat.BOS} $A", pair=f"{chat.BOS} $A {chat.BOS} $B",
        special_tokens=[(chat.BOS, tokenizer.token_to_id(chat.BOS))])
    return tokenizer


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path, help="tokenizer.json to write")
    parser.add_argument("--vocab", type=int, default=4096)
    options = parser.parse_args()
    tokenizer = train(options.vocab)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(options.output))
    print(f"{options.output}: {tokenizer.get_vocab_size()} entries")


if __name__ == "__main__":
    main()
