"""Reads a call back from the model's text, as the engine does, and compares it with its prompt."""
import ast

import chat
from corpus import strings


def parse(text):
    """(name, arguments) of the first call, or None where the text holds no well-formed one."""
    if not text.startswith(chat.CALL) or chat.CALL_END not in text:
        return None
    try:
        call = ast.parse(text[len(chat.CALL):text.index(chat.CALL_END)], mode="eval").body.elts[0]
        return call.func.id, {k.arg: ast.literal_eval(k.value) for k in call.keywords}
    except (SyntaxError, ValueError, AttributeError, IndexError, TypeError):
        return None


def dialogue_text(messages):
    """Everything said and returned so far, in lower case."""
    return "\n".join(chat.pieces([m], None)[2][0] for m in messages).lower()


def values_found(arguments, text):
    """(values that occur in the text, values)."""
    values = [v.lower() for _, v in strings(arguments)] + [
        str(v).lower() for v in arguments.values() if not isinstance(v, (str, dict, list))]
    return sum(v in text for v in values), len(values)


def names_and_parameters(tools):
    return {t["function"]["name"]: set(t["function"]["parameters"]["properties"]) for t in tools}
