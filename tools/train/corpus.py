"""Loads the dialogues and varies them: tool lists, names, and the values that calls must copy."""
import gzip
import json
import random
import re
from functools import cached_property
from pathlib import Path

DATA = Path(__file__).parent / "data"

SYSTEM_LINES = (
    "You are a helpful assistant.",
    "You are a friendly assistant. Keep your answers short.",
    "Today's date: 2019-03-01",
    "You are a helpful assistant.\n\nToday's date: 2019-03-01",
    "The current date is Friday, 1 March 2019.",
    "You help one person at a time with everyday tasks. Use the tools when they fit the request.",
    "Answer briefly and politely. If something is missing, ask for it.",
    "You are an assistant with access to services. Copy names and values exactly.",
)
SYLLABLES = ("ka ro mi ta len dor sha vi bel nor ar el in os um ra ti zo pe lu gri sta mon fer quin "
             "hal ber wick ton by dale ford ley mar cor sil ven tru jas ola eth ny cha dru plo kim").split()
DATE_OR_TIME = re.compile(r"\d{4}-\d\d-\d\d|\d\d?:\d\d")


def load(name):
    with gzip.open(DATA / f"{name}.jsonl.gz", "rt") as lines:
        return [json.loads(line) for line in lines]


def load_tools():
    """Service name -> its tools as OpenAI functions."""
    return json.loads((DATA / "sgd-tools.json").read_text())


def strings(value):
    """(slot, text) of every string inside a tool result or an argument map."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if isinstance(inner, str):
                yield key, inner
            else:
                yield from strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from strings(inner)


def rewrite(value, text, key):
    """A copy with every string passed through `text` and every key through `key`."""
    if isinstance(value, str):
        return text(value)
    if isinstance(value, dict):
        return {key(k): rewrite(v, text, key) for k, v in value.items()}
    return [rewrite(v, text, key) for v in value] if isinstance(value, list) else value


def slim(tool):
    """The tool without the descriptions of its parameters."""
    function = tool["function"]
    schema = function["parameters"]
    properties = {name: {k: v for k, v in p.items() if k != "description"}
                  for name, p in schema["properties"].items()}
    return {**tool, "function": {**function, "parameters": {**schema, "properties": properties}}}


class Corpus:
    def __init__(self):
        self.tools = load_tools()
        self.dialogues = load("sgd-dialogues")
        self.prose = load("dolly-short")

    @cached_property
    def fixed_values(self):
        """Lower-case values that must not be replaced: the choices that tool lists spell out."""
        found = {"true", "false", "none", "dontcare"}
        for tools in self.tools.values():
            for tool in tools:
                for p in tool["function"]["parameters"]["properties"].values():
                    found.update(str(v).lower() for v in p.get("enum", ()))
        return found

    @cached_property
    def pools(self):
        """Slot name -> the values it takes in the training dialogues, sorted."""
        pools = {}
        for d in self.dialogues:
            for slot, value in self.dialogue_values(d["messages"]):
                pools.setdefault(slot, set()).add(value)
        return {slot: sorted(values) for slot, values in pools.items()}

    @cached_property
    def words(self):
        names = {w for tools in self.tools.values() for t in tools
                 for p in t["function"]["parameters"]["properties"] for w in p.split("_")}
        return sorted(w for w in names if len(w) > 1)

    def dialogue_values(self, messages):
        """(slot, value) pairs that look like names or long numbers, in order."""
        for m in messages:
            source = m["call"][1] if "call" in m else m["content"]
            if m["role"] == "user" or isinstance(source, str):
                continue
            for slot, value in strings(source):
                proper = value[:1].isupper() or len(re.sub(r"\D", "", value)) >= 3
                if (3 <= len(value) <= 60 and proper and not DATE_OR_TIME.fullmatch(value)
                        and value.lower() not in self.fixed_values):
                    yield slot, value

    def copyable(self, messages):
        """Value -> slot of the values that a reader of the dialogue could copy where they are used."""
        found, seen_text = {}, ""
        barred = set()
        for m in messages:
            if "call" in m:
                for slot, value in self.dialogue_values([m]):
                    if has_word(seen_text, value):
                        found.setdefault(value, slot)
                    else:
                        barred.add(value)
            else:
                for slot, value in self.dialogue_values([m]):
                    found.setdefault(value, slot)
                content = m["content"]
                seen_text += "\n" + (content if isinstance(content, str) else json.dumps(content, ensure_ascii=False))
        return {v: s for v, s in found.items() if v not in barred}

    def other_value(self, value, slot, rng):
        """Another value of the same kind: drawn, mixed from two, or made up."""
        if not value[:1].isupper():
            return re.sub(r"\d", lambda _: rng.choice("0123456789"), value)
        pool = self.pools.get(slot) or [value]
        way = rng.random()
        if way < 0.4:
            return rng.choice(pool)
        if way < 0.7:
            first, second = rng.choice(pool).split(" "), rng.choice(pool).split(" ")
            return " ".join(first[:(len(first) + 1) // 2] + second[len(second) // 2:][:3])
        return " ".join(pseudo_word(w, rng) for w in value.split(" "))

    def replace_values(self, messages, rng, share=0.85):
        table = {}
        for value, slot in self.copyable(messages).items():
            if rng.random() < share:
                new = self.other_value(value, slot, rng)
                if 2 < len(new) <= 60 and new not in table.values():
                    table[value] = new
        if not table:
            return messages
        longest_first = sorted(table, key=len, reverse=True)
        pattern = re.compile(r"(?<!\w)(?:" + "|".join(map(re.escape, longest_first)) + r")(?!\w)")
        text = lambda s: pattern.sub(lambda hit: table[hit.group()], s)
        return rewrite_messages(messages, text, lambda k: k, lambda n: n)

    def rename(self, messages, tools, rng):
        """New names for some parameters and tools, the same ones everywhere in the dialogue."""
        keys, names = {}, {}
        for tool in tools:
            function = tool["function"]
            for p in function["parameters"]["properties"]:
                if p not in keys and rng.random() < 0.5:
                    keys[p] = "_".join(rng.sample(self.words, rng.choice((1, 2, 2, 3))))
            if rng.random() < 0.6:
                camel = "".join(w.capitalize() for w in rng.sample(self.words, 2))
                verb = rng.choice(("Find", "Get", "Search", "Book", "Reserve", "Play", "Check", "Set", "Make", "Look"))
                names[function["name"]] = f"{rng.choice(self.words).capitalize()}_{verb}{camel}"
        if len(set(keys.values()) | set(keys)) < 2 * len(keys):
            return messages, tools
        key, name, same = (lambda k: keys.get(k, k)), (lambda n: names.get(n, n)), (lambda s: s)
        renamed = []
        for tool in tools:
            function = tool["function"]
            schema = function["parameters"]
            schema = {**schema, "properties": {key(k): v for k, v in schema["properties"].items()},
                      "required": [key(k) for k in schema.get("required", [])]}
            renamed.append({**tool, "function": {**function, "name": name(function["name"]), "parameters": schema}})
        return rewrite_messages(messages, same, key, name), renamed

    def window(self, messages, rng):
        """(messages round one call, its name): from a user's turn that begins the talk of all copied values.

        Short documents with many calls a token; the whole dialogue and None where no call allows it.
        """
        at = [i for i, m in enumerate(messages) if "call" in m]
        for i in rng.sample(at, len(at)):
            values = [v for _, v in strings(messages[i]["call"][1]) if v[:1].isupper() and v.lower() not in self.fixed_values]
            text = ""
            for first in range(i - 1, -1, -1):
                content = messages[first].get("content", "")
                text += content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
                if messages[first]["role"] == "user" and i - first > 1 and all(v in text for v in values):
                    return messages[first:i + 3], messages[i]["call"][0]
        return messages, None

    def listed_tools(self, services, rng, full, only=None):
        """The dialogue's tools, sometimes with a stranger's, in any order, slim or full.

        With `only` they are that tool and one or two others of the dialogue's.
        """
        tools = [t for s in services for t in self.tools[s]]
        if only:
            called = [t for t in tools if t["function"]["name"] == only][:1]
            others = [t for t in tools if t["function"]["name"] != only]
            tools = called + rng.sample(others, min(len(others), rng.choice((0, 1, 1, 2))))
        if rng.random() < 0.08:
            names = {t["function"]["name"] for t in tools}
            stranger = self.tools[rng.choice(sorted(self.tools))]
            tools += [t for t in stranger if t["function"]["name"] not in names]
        rng.shuffle(tools)
        return tools if full else [slim(t) for t in tools]

    def variant(self, index, rng, options):
        """(messages, tools, system) of training document `index`, varied by `rng`."""
        system = rng.choice(SYSTEM_LINES) if rng.random() < options.system_share else ""
        if index >= len(self.dialogues):
            d = self.prose[index - len(self.dialogues)]
            with_tools = rng.random() < options.prose_tools_share
            return d["messages"], self.listed_tools([rng.choice(sorted(self.tools))], rng, False) if with_tools else [], system
        d = self.dialogues[index]
        messages, called = d["messages"], None
        if options.window_share and rng.random() < options.window_share:
            messages, called = self.window(messages, rng)
        tools = self.listed_tools(d["services"], rng, rng.random() < options.full_share, called)
        if rng.random() < options.replace_share:
            messages = self.replace_values(messages, rng)
        if rng.random() < options.rename_share:
            messages, tools = self.rename(messages, tools, rng)
        return messages, tools, system

    def __len__(self):
        return len(self.dialogues) + len(self.prose)


def has_word(text, value):
    at = text.find(value)
    while at >= 0:
        end = at + len(value)
        if not (at and text[at - 1].isalnum()) and not (end < len(text) and text[end].isalnum()):
            return True
        at = text.find(value, at + 1)
    return False


def pseudo_word(word, rng):
    if not word.isalpha() or len(word) < 3:
        return re.sub(r"\d", lambda _: rng.choice("0123456789"), word)
    made = "".join(rng.choice(SYLLABLES) for _ in range(max(1, min(4, round(len(word) / 3)))))
    return made.capitalize() if word[:1].isupper() else made


def rewrite_messages(messages, text, key, name):
    out = []
    for m in messages:
        if "call" in m:
            called, arguments = m["call"]
            out.append({**m, "call": [name(called), rewrite(arguments, text, key)]})
        else:
            out.append({**m, "content": rewrite(m["content"], text, key)})
    return out
