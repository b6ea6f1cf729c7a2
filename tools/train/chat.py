"""The chat frame of the demo model: the same text as chat_template.jinja, in labelled pieces."""
import json

BOS, END_OF_TEXT, PAD = "<|startoftext|>", "<|endoftext|>", "<|pad|>"
TURN, END = "<|im_start|>", "<|im_end|>"
CALL, CALL_END = "<|tool_call_start|>", "<|tool_call_end|>"
MASK = "<|mask|>"
SPECIALS = [PAD, BOS, END_OF_TEXT, "<|fim_pre|>", "<|fim_mid|>", "<|fim_suf|>", TURN, END,
            "<|tool_list_start|>", "<|tool_list_end|>", CALL, CALL_END,
            "<|tool_response_start|>", "<|tool_response_end|>", "<think>", "</think>", MASK]

# What a token belongs to; loss weights are given by these names.
KINDS = ("frame", "prose", "call", "user", "result", "tools")
FRAME, PROSE, CALLS, USER, RESULT, TOOLS = range(len(KINDS))


def argument(value):
    if isinstance(value, str):
        for plain, escaped in (("\\", "\\\\"), ("'", "\\'"), ("\n", "\\n"), ("\r", "\\r")):
            value = value.replace(plain, escaped)
        return f"'{value}'"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (list, dict)) else str(value)


def call_text(name, arguments):
    inner = ", ".join(f"{k}={argument(v)}" for k, v in arguments.items())
    return f"{CALL}[{name}({inner})]{CALL_END}"


def pieces(messages, tools, system=""):
    """(text, kind) pairs; together they are the rendered conversation."""
    out = [(BOS, FRAME)]
    if tools or system:
        out.append((TURN + "system\n" + system, FRAME))
        if tools:
            listed = ", ".join(json.dumps(t, ensure_ascii=False) for t in tools)
            out.append((("\n" if system else "") + f"List of tools: [{listed}]", TOOLS))
        out.append((END + "\n", FRAME))
    for m in messages:
        out.append((f"{TURN}{m['role']}\n", FRAME))
        if "call" in m:
            out.append((call_text(*m["call"]) + END, CALLS))
        else:
            content = m["content"]
            content = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
            kind = {"assistant": PROSE, "user": USER, "tool": RESULT}.get(m["role"], FRAME)
            out.append((content + END, kind))
        out.append(("\n", FRAME))
    return out


def prompt(messages, tools, system=""):
    """The rendered conversation up to the point where the assistant speaks next."""
    return "".join(text for text, _ in pieces(messages, tools, system)) + TURN + "assistant\n"
