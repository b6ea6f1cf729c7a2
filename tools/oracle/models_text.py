"""The text side of the tiny models: a byte-level BPE of 288 entries and a chat template.

The split regexes are those that the families' own tokenizer.json files carry, so that a reader
that recognises a GGUF pre-tokenizer by name and one that compiles the file's regex agree.
"""
import json
import pathlib

SPECIALS = ["<|pad|>", "<|startoftext|>", "<|endoftext|>", "<|im_start|>", "<|im_end|>",
            "<think>", "</think>", "<|tool_call_start|>", "<|tool_call_end|>"]
PAD, BOS, EOS = 0, 1, 4
PAIRS = ["Ġ t", "h e", "i n", "Ġ a", "r e", "o n", "Ġt he", "e r", "a t", "o u", "i s", "e n",
         "Ġ w", "in g", "o r", "a n", "e s", "Ġ s", "Ġ o", "l l", "Ġ c", "a l", "u s"]
LLAMA3_SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
                r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2_SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
               r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
GGUF_PRE = {"lfm2": "lfm2", "llama": "llama-bpe", "qwen3": "qwen2"}
CHAT_TEMPLATE = """\
{{- bos_token -}}
{%- for message in messages %}
{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' -}}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' -}}
{%- endif %}
"""


def byte_alphabet():
    """The 256 characters of GPT-2's byte map, by code point."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return [chr(b) for b in shown] + [chr(256 + i) for i in range(256 - len(shown))]


def tokens():
    return SPECIALS + byte_alphabet() + [p.replace(" ", "") for p in PAIRS]


def tokenizer_json(family):
    split = QWEN2_SPLIT if family == "qwen3" else LLAMA3_SPLIT
    added = [dict(id=i, content=t, single_word=False, lstrip=False, rstrip=False, normalized=False,
                  special=not t.endswith("think>")) for i, t in enumerate(SPECIALS)]
    bos = {"SpecialToken": {"id": SPECIALS[BOS], "type_id": 0}}
    post = None if family == "qwen3" else {
        "type": "TemplateProcessing",
        "single": [bos, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [bos, {"Sequence": {"id": "A", "type_id": 0}}, bos, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {SPECIALS[BOS]: {"id": SPECIALS[BOS], "ids": [BOS], "tokens": [SPECIALS[BOS]]}}}
    level = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=False)
    return dict(version="1.0", truncation=None, padding=None, added_tokens=added, normalizer=None,
                pre_tokenizer=dict(type="Sequence", pretokenizers=[
                    dict(type="Split", pattern={"Regex": split}, behavior="Isolated", invert=False), level]),
                post_processor=post, decoder=level,
                model=dict(type="BPE", dropout=None, unk_token=None, continuing_subword_prefix=None,
                           end_of_word_suffix=None, fuse_unk=False, byte_fallback=False,
                           ignore_merges=family != "qwen3",
                           vocab={t: i for i, t in enumerate(tokens())}, merges=PAIRS))


def write_text_files(folder, family, template_in_config):
    """tokenizer.json, tokenizer_config.json, generation_config.json and the template in one of its two homes."""
    folder = pathlib.Path(folder)
    config = dict(tokenizer_class="PreTrainedTokenizerFast", bos_token=SPECIALS[BOS], eos_token=SPECIALS[EOS],
                  pad_token=SPECIALS[PAD], clean_up_tokenization_spaces=False)
    if template_in_config:
        config["chat_template"] = CHAT_TEMPLATE
    else:
        (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_json(family), ensure_ascii=False, separators=(",", ":")))
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")
    generation = dict(bos_token_id=BOS, eos_token_id=EOS, pad_token_id=PAD)
    (folder / "generation_config.json").write_text(json.dumps(generation) + "\n")
