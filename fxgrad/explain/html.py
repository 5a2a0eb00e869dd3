"""The explanation as a page that needs nothing else: no network, no scripts, no fonts of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from fxgrad.explain.facts import Facts, StepFacts
from fxgrad.explain.pictures import arena_map, roofline, time_bars
from fxgrad.explain.text import FIGURES, figures, format_line, headline, plural, remarks
from fxgrad.explain.units import bytes_of, flops_of, percent, rate, ratio, seconds_of

if TYPE_CHECKING:
    from fxgrad.runtime.machine import Limits

__all__ = ["format_fragment", "format_page"]

_WIDE, _NARROW = 920, 350  # pixels the pictures are drawn for

_STYLE = """
.fx { --ink:#1b1f24; --soft:#59636e; --line:#d5dae0; --paper:#ffffff; --panel:#f5f7f9;
  --blue:#2563c9; --pale:#a9c6f5; --green:#1a7f4b; --amber:#b45309;
  color:var(--ink); background:var(--paper); font:15px/1.5 system-ui, sans-serif; }
@media (prefers-color-scheme: dark) {
  .fx { --ink:#e8eaed; --soft:#9aa4af; --line:#383f47; --paper:#15181c; --panel:#1f2429;
    --blue:#7fb0ff; --pale:#2f4f80; --green:#5cc78f; --amber:#f0b060; }
}
.fx main { max-width:960px; margin:0 auto; padding:20px 16px 48px; }
.fx h1 { font-size:1.5em; margin:.2em 0; overflow-wrap:anywhere; }
.fx h2 { font-size:1.15em; margin:2em 0 .4em; overflow-wrap:anywhere; }
.fx p { margin:.4em 0; max-width:72ch; overflow-wrap:anywhere; }
.fx .soft { color:var(--soft); }
.fx .note { border-left:3px solid var(--amber); padding-left:10px; }
.fx dl { display:grid; grid-template-columns:repeat(auto-fit, minmax(118px, 1fr)); gap:10px; margin:14px 0; }
.fx dl div { background:var(--panel); border-radius:8px; padding:8px 12px; }
.fx dt { color:var(--soft); font-size:.85em; }
.fx dd { margin:0; font-size:1.15em; font-variant-numeric:tabular-nums; }
.fx dd small { display:block; color:var(--soft); font-size:.72em; }
.fx .scroll { overflow-x:auto; border:1px solid var(--line); border-radius:8px; margin:8px 0; }
.fx table { border-collapse:collapse; width:100%; font-size:.88em; font-variant-numeric:tabular-nums; }
.fx caption { text-align:left; padding:5px 9px; }
.fx th, .fx td { padding:5px 9px; text-align:right; white-space:nowrap; vertical-align:top; border-bottom:1px solid var(--line); }
.fx thead th { color:var(--soft); font-weight:600; background:var(--panel); }
.fx tbody:last-child tr:last-child > * { border-bottom:0; }
.fx th[scope=row], .fx .left { text-align:left; }
.fx tr.first > * { border-bottom:0; padding-bottom:0; }
.fx tr.more td { text-align:left; white-space:normal; color:var(--soft); padding-top:1px; }
.fx tr.more td > div { position:sticky; left:9px; width:max-content; max-width:min(100%, calc(100vw - 120px)); }
.fx tr.more td > div > div { padding-left:2.1em; text-indent:-2.1em; overflow-wrap:anywhere; }
.fx tr.more b { color:var(--ink); font-weight:500; }
.fx code, .fx pre { font-family:ui-monospace, Menlo, Consolas, monospace; font-size:.9em; }
.fx code { white-space:pre-wrap; }
.fx pre { background:var(--panel); border-radius:8px; padding:10px 12px; margin:6px 0; overflow-x:auto; line-height:1.4; }
.fx details { border-bottom:1px solid var(--line); padding:5px 0; }
.fx summary { cursor:pointer; overflow-wrap:anywhere; }
.fx ol { margin:.3em 0; padding-left:1.6em; overflow-wrap:anywhere; }
.fx svg { display:block; max-width:100%; height:auto; margin:8px 0; font:12px system-ui, sans-serif; }
.fx svg text { fill:var(--ink); }
.fx svg .soft { fill:var(--soft); paint-order:stroke; stroke:var(--paper); stroke-width:3px; }
.fx svg .number { fill:var(--paper); font-size:11px; font-weight:600; }
.fx .grid { stroke:var(--line); }
.fx .roof { stroke:var(--ink); stroke-width:2; }
.fx .inner { stroke:var(--soft); stroke-dasharray:5 4; }
.fx .point { fill:var(--blue); stroke:var(--paper); stroke-width:1.5; }
.fx .hollow { fill:var(--soft); }
.fx .whole { fill:var(--amber); }
.fx .time { fill:var(--pale); }
.fx .least { fill:var(--blue); }
.fx .block { stroke:var(--paper); }
.fx .shade0 { fill:var(--blue); }
.fx .shade1 { fill:var(--green); }
.fx .shade2 { fill:var(--amber); }
.fx .narrow { display:none; }
@media (max-width: 700px) { .fx .narrow { display:block; } .fx .wide { display:none; } }
"""


def format_page(facts: Facts, limits: Limits) -> str:
    """A whole document."""
    title = escape(f"{facts.name}: explained by fxgrad")
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>{title}</title>'
    body = "<style>:root { color-scheme: light dark; } body { margin:0; }</style>\n" + _content(facts, limits, "h1")
    head = f"<head>{head}\n<style>{_STYLE}</style></head>"
    return f'<!DOCTYPE html>\n<html lang="en">\n{head}\n<body class="fx">{body}</body>\n</html>\n'


def format_fragment(facts: Facts, limits: Limits) -> str:
    """The same as a part of another page."""
    return f'<div class="fx"><style>{_STYLE}</style>{_content(facts, limits, "h2")}</div>'


def _content(facts: Facts, limits: Limits, title: str) -> str:
    parts = [f"<{title}>{escape(headline(facts))}</{title}>", *_summary(facts)]
    if facts.steps:
        parts += _pictures(facts, limits)
        parts += _section("Steps", _steps(facts))
    if facts.kernels:
        parts += _section("Kernels", _kernels(facts))
    parts += (
        _section("Memory", _memory(facts)) + _section("Cache of traces", _cache(facts)) + _section("Machine", _machine(limits))
    )
    versions = ", ".join(f"{name} {version}" for name, version in facts.versions)
    return "\n".join(["<main>", *parts, f'<p class="soft">{escape(versions)}</p>', "</main>"])


def _section(title: str, body: Iterable[str]) -> list[str]:
    return ["<section>", f"<h2>{escape(title)}</h2>", *body, "</section>"]


def _paragraph(text: str, kind: str = "") -> str:
    return f'<p class="{kind}">{escape(text)}</p>' if kind else f"<p>{escape(text)}</p>"


def _summary(facts: Facts) -> list[str]:
    s, m = facts.speed, facts.memory
    timed = (
        f"best of {facts.groups} groups of {plural(facts.calls, 'call')}, {plural(facts.threads, 'thread')}"
        if facts.calls
        else "not run"
    )
    binding = {"bandwidth": "mostly bytes over bandwidth", "peak": "mostly flops over peak", "nothing": "no work"}[s.bound]
    cards = [
        ("a call", seconds_of(s.seconds), timed),
        ("least time on this machine", seconds_of(s.limit), binding),
        ("share of the limit", percent(s.share), "least time / time"),
        ("flops", flops_of(s.flops), rate(s.rate, "flop") if s.rate is not None else ""),
        ("moved", bytes_of(s.bytes_moved), rate(s.bandwidth, "B") if s.bandwidth is not None else ""),
        ("intensity", f"{ratio(s.intensity)} flop/B", ""),
        ("memory at most", bytes_of(m.peak), f"{bytes_of(m.temp)} of it between steps"),
    ]
    out = ["<dl>"]
    for name, value, small in cards:
        more = f"<small>{escape(small)}</small>" if small else ""
        out.append(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}{more}</dd></div>")
    out.append("</dl>")
    out.append(_paragraph(f"Arguments: {', '.join(facts.arguments) or 'none'}. Results: {', '.join(facts.results) or 'none'}."))
    if facts.captured:
        out.append(_paragraph(f"Captured arrays: {', '.join(facts.captured)}."))
    return [*out, *(_paragraph(r, "note") for r in remarks(facts))]


def _both(draw: Callable[[int], str]) -> list[str]:
    """A picture for wide screens and one for narrow ones; the page shows one of them."""
    return [f'<div class="wide">{draw(_WIDE)}</div>', f'<div class="narrow">{draw(_NARROW)}</div>']


def _pictures(facts: Facts, limits: Limits) -> list[str]:
    timed = any(s.speed.seconds is not None for s in facts.steps)
    out = []
    if any(s.speed.flops and s.speed.intensity for s in facts.steps):
        where = "where each step is" if timed else "where each step could be at best"
        square = ", the square the whole call" if timed else ""
        text = f"Circles show {where}, by its number{square}; lines are what this machine reaches."
        out += _section("Against the machine", [_paragraph(text, "soft"), *_both(lambda w: roofline(facts, limits, w))])
    text = (
        "Outer bar: time. Inner bar: the least time this machine allows."
        if timed
        else "The least time this machine allows for each step."
    )
    return out + _section(
        "Time of the steps" if timed else "Least time of the steps",
        [_paragraph(text, "soft"), *_both(lambda w: time_bars(facts, w))],
    )


def _steps(facts: Facts) -> list[str]:
    left = '<th scope="col" class="left">'
    head = "".join(f'<th scope="col">{h}</th>' for h in FIGURES)
    out = [
        '<div class="scroll" tabindex="0" role="region" aria-label="Steps"><table>',
        f'<thead><tr><th scope="col">step</th>{left}kind</th>{head}{left}bound by</th></tr></thead>',
    ]
    return [*out, *(f"<tbody>{_figures(s)}{_details(s)}</tbody>" for s in facts.steps), "</table></div>"]


def _figures(s: StepFacts) -> str:
    cells = "".join(f"<td>{escape(c)}</td>" for c in figures(s.speed))
    kind, bound = f'<td class="left">{escape(s.kind)}</td>', f'<td class="left">{escape(s.speed.bound)}</td>'
    return f'<tr class="first"><th scope="row">{s.number}</th>{kind}{cells}{bound}</tr>'


def _details(s: StepFacts) -> str:
    kernels = f" ({', '.join(s.kernels)})" if s.kernels else ""
    rows = [f"<div><b>{escape(s.title + kernels)}</b></div>"]
    rows.append(f"<div>{escape(', '.join(s.reads) or 'nothing')} \u2192 {escape(', '.join(s.writes))}</div>")
    if s.why:
        rows.append(f"<div>stored because: {escape('; '.join(s.why))}</div>")
    if s.inside:
        rows.append(f"<pre>{escape(chr(10).join(s.inside))}</pre>")
    rows += [f"<div><code>{escape(format_line(x))}</code></div>" for x in s.lines]
    return f'<tr class="more"><td></td><td colspan="{len(FIGURES) + 2}"><div>{"".join(rows)}</div></td></tr>'


def _kernels(facts: Facts) -> list[str]:
    out = []
    for k in facts.kernels:
        origin = "compiled by this process" if k.generated else "from the cache on disk"
        used = f"{'steps' if len(k.steps) > 1 else 'step'} {', '.join(map(str, k.steps))}"
        opened = " open" if len(facts.kernels) <= 3 else ""
        summary = f"<summary>{escape(k.name)}, {used}, {origin}</summary>"
        out.append(f"<details{opened}>{summary}<pre>{escape(k.text)}</pre></details>")
    return out


def _memory(facts: Facts) -> list[str]:
    m = facts.memory
    rows = [("arguments", m.argument), ("results", m.output), ("values between steps", m.temp), ("most at a time", m.peak)]
    out = [_table("Memory of a call", ("what", "bytes"), [(name, bytes_of(n)) for name, n in rows])]
    if m.blocks:
        text = "Which bytes of the arena hold which value, from the step that writes it to the last that reads it."
        out += [_paragraph(text, "soft"), *_both(lambda w: arena_map(facts, w))]
    return out


def _cache(facts: Facts) -> list[str]:
    c = facts.cache
    misses = f"{c.misses} {'miss' if c.misses == 1 else 'misses'}"
    out = [_paragraph(f"{plural(c.traces, 'trace')} held, {plural(c.hits, 'hit')}, {misses}. Why it traced:")]
    first = c.misses - len(c.reasons) + 1
    return [*out, f'<ol start="{first}">{"".join(f"<li>{escape(why)}</li>" for why in c.reasons)}</ol>'] if c.reasons else out


def _machine(limits: Limits) -> list[str]:
    streams = [(s.level, bytes_of(s.size), *(rate(x, "B") for x in (s.read, s.copy, s.triad))) for s in limits.streams]
    peaks = [("float32", rate(limits.peak_float32, "flop")), ("float64", rate(limits.peak_float64, "flop"))]
    return [
        _paragraph(f"{limits.cpu}, {plural(limits.threads, 'thread')}, measured on {limits.measured} by kernels of fxgrad."),
        _table("Streams over arrays", ("level", "arrays", "read", "copy", "triad"), streams),
        _table("Multiply-adds in registers", ("dtype", "peak"), peaks),
    ]


def _table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    top = "".join(f'<th scope="col"{" class=left" if i == 0 else ""}>{escape(h)}</th>' for i, h in enumerate(head))
    lines = [f'<tr><th scope="row">{escape(r[0])}</th>{"".join(f"<td>{escape(c)}</td>" for c in r[1:])}</tr>' for r in rows]
    body = f"<thead><tr>{top}</tr></thead><tbody>{''.join(lines)}</tbody>"
    table = f'<table><caption class="soft">{escape(caption)}</caption>{body}</table>'
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}">{table}</div>'
