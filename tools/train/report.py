#!/usr/bin/env python3
"""Writes figures.json, curve.svg and the model card of a model folder from logs and measurements."""
import argparse
import json
import random
from pathlib import Path

WIDTH, HEIGHT, LEFT, BOTTOM = 640, 300, 46, 34
COLOURS = {"prose": "#2a6f97", "call": "#c1440e", "user": "#6a994e"}


def read_log(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def curve_points(log):
    """Kind -> (training points, held-out points), each (million tokens, loss)."""
    curves = {k: ([], []) for k in COLOURS}
    for entry in log:
        for field, which in (("train", 0), ("held_out", 1)):
            for kind in COLOURS:
                if kind in entry.get(field, {}):
                    curves[kind][which].append((entry["tokens"] / 1e6, entry[field][kind]))
    return curves


def svg(curves, ceiling=6.0):
    last = max(x for points in curves.values() for x, _ in points[0] + points[1])
    place = lambda x, y: (round(LEFT + x / last * (WIDTH - LEFT - 90), 1),
                          round(HEIGHT - BOTTOM - min(y, ceiling) / ceiling * (HEIGHT - BOTTOM - 12), 1))
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="11">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    for y in range(int(ceiling) + 1):
        x0, y0 = place(0, y)
        out.append(f'<line x1="{x0}" y1="{y0}" x2="{place(last, y)[0]}" y2="{y0}" stroke="#ddd"/>'
                   f'<text x="{x0 - 8}" y="{y0 + 4}" text-anchor="end">{y}</text>')
    for x in range(0, int(last) + 1, 2):
        x0, y0 = place(x, 0)
        out.append(f'<text x="{x0}" y="{y0 + 16}" text-anchor="middle">{x}</text>')
    out.append(f'<text x="{LEFT}" y="{HEIGHT - 4}">million tokens; loss in nats a token; lines training text, dots held-out dialogues</text>')
    for kind, (train, held_out) in curves.items():
        path = " ".join(f"{x},{y}" for x, y in (place(*p) for p in train))
        out.append(f'<polyline points="{path}" fill="none" stroke="{COLOURS[kind]}" stroke-width="1" opacity="0.55"/>')
        for p in held_out:
            x, y = place(*p)
            out.append(f'<circle cx="{x}" cy="{y}" r="3" fill="{COLOURS[kind]}"/>')
        if held_out:
            x, y = place(*held_out[-1])
            out.append(f'<text x="{x + 8}" y="{y + 4}" fill="{COLOURS[kind]}">{kind} {held_out[-1][1]:.2f}</text>')
    return "\n".join(out + ["</svg>"]) + "\n"


def percent(value):
    return "-" if value is None else f"{100 * value:.1f} %"


CALL_ROWS = (("call turns", "call_turns"), ("of these: emit a call", "emit_a_call"),
             ("of the emitted calls: parse", "parse"), ("of the emitted calls: name a tool of the prompt", "known_tool"),
             ("of the parsed calls: only parameters of that tool", "known_parameters"),
             ("of all call turns: the reference's tool", "right_tool"),
             ("of all call turns: identical to the reference", "identical"),
             ("argument values that occur in the dialogue", "values_in_dialogue"),
             ("the same for the reference's calls", "reference_values_in_dialogue"),
             ("reference arguments reproduced where the tool is right", "arguments_reproduced_where_tool_right"),
             ("prose turns", "prose_turns"), ("of these: get a call instead", "prose_turns_that_get_a_call"),
             ("answers that end by themselves (prose turns)", "ended"))


def call_table(evaluation):
    seen, unseen = evaluation["seen_services"], evaluation.get("unseen_services", {})
    lines = ["| held-out turns, greedy, reference context | services seen in training | with an unseen service |", "|---|---|---|"]
    show = lambda v: str(v) if isinstance(v, int) else percent(v)
    return "\n".join(lines + [f"| {text} | {show(seen.get(key))} | {show(unseen.get(key))} |" for text, key in CALL_ROWS])


def replay_table(replay):
    modes = list(replay["call"]["tokens_per_cycle"])
    lines = ["| tokens per cycle | turns | " + " | ".join(modes) + " |", "|---|---|" + "---|" * len(modes)]
    for kind in ("call", "prose"):
        r = replay[kind]
        lines.append(f"| {kind} | {r['turns']} | " + " | ".join(f"{r['tokens_per_cycle'][m]:.2f}" for m in modes) + " |")
    acceptance = "\n".join(f"Conditional acceptance of the chain by position, {kind}: "
                           + ", ".join(f"{a:.2f}" for a in replay[kind]["acceptance"]) + "." for kind in ("call", "prose"))
    wrong = replay["wrong_rope_share_of_accepted"]
    return "\n".join(lines) + f"""

{acceptance}

With the wrong RoPE pairing the drafter keeps {percent(wrong['tree48'])} of its accepted drafts per cycle (48 rows; chain {percent(wrong['chain9'])})."""


def samples(evaluation, count=10, seed=10):
    answers = evaluation["seen_services_answers"]
    is_call = lambda a: a["reference"].startswith("<|tool_call_start|>")
    rng = random.Random(seed)
    chosen = rng.sample([a for a in answers if is_call(a)], count // 2) + rng.sample([a for a in answers if not is_call(a)], count - count // 2)
    out = []
    for a in chosen:
        before = a["before"] if isinstance(a["before"], str) else json.dumps(a["before"], ensure_ascii=False)
        before = before if len(before) <= 240 else before[:240] + " …"
        out.append(f"> {before}\n  reference: {a['reference']}\n  model:     {a['answer']}\n")
    return "\n".join(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="model folder")
    parser.add_argument("--log", type=Path, required=True, help="log.jsonl of target.py")
    parser.add_argument("--evaluation", type=Path, required=True, help="from evaluate.py")
    parser.add_argument("--replay", type=Path, help="from replay.py")
    parser.add_argument("--drafter-log", type=Path, help="log.jsonl of drafter.py")
    parser.add_argument("--check", type=Path, help="from check.py")
    parser.add_argument("--card", type=Path, default=Path(__file__).parent / "card.md", help="the card's text")
    options = parser.parse_args()
    log, evaluation = read_log(options.log), json.loads(options.evaluation.read_text())
    held_out = [e for e in log if "held_out" in e][-1]
    figures = {"tokens": held_out["tokens"], "steps": held_out["step"], "training_seconds": held_out.get("seconds"),
               "held_out_loss": held_out["held_out"],
               "seen_services": evaluation["seen_services"], "unseen_services": evaluation.get("unseen_services")}
    if options.check:
        figures["transformers"] = json.loads(options.check.read_text().splitlines()[-1])
    replay = json.loads(options.replay.read_text()) if options.replay else None
    if replay:
        figures["drafter"] = replay
    if options.drafter_log:
        figures["drafter_training"] = read_log(options.drafter_log)[-1]
    (options.folder / "figures.json").write_text(json.dumps(figures, indent=1) + "\n")
    (options.folder / "curve.svg").write_text(svg(curve_points(log)))
    loss = ", ".join(f"{k} {v:.2f}" for k, v in held_out["held_out"].items())
    card = options.card.read_text()
    for name, text in {"TOKENS": f"{held_out['tokens'] / 1e6:.1f}", "LOSS": loss, "CALLS": call_table(evaluation),
                       "REPLAY": replay_table(replay) if replay else "Not measured yet.",
                       "SAMPLES": samples(evaluation)}.items():
        card = card.replace("{{" + name + "}}", text)
    (options.folder / "README.md").write_text(card)
    print(f"{options.folder}: figures.json, curve.svg, README.md")


if __name__ == "__main__":
    main()
