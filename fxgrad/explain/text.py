"""The explanation as text, at most 120 columns wide where the user's own lines allow."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fxgrad.explain.facts import Facts, Line, Speed, faster_than_limit
from fxgrad.explain.units import bytes_of, flops_of, percent, rate, ratio, seconds_of

if TYPE_CHECKING:
    from fxgrad.runtime.machine import Limits

__all__ = [
    "FIGURES",
    "bound_sentence",
    "figures",
    "format_line",
    "format_text",
    "headline",
    "limits_sentences",
    "plural",
    "remarks",
]

FIGURES = ("time", "of limit", "in", "out", "flop", "flop/B", "GB/s", "Gflop/s")  # of a step, the most telling first
_SHOWN = 12  # arrays named in one line


def plural(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def headline(facts: Facts) -> str:
    """What the function became."""
    parts = (plural(len(facts.steps), "step"), plural(facts.operations, "operation"), plural(len(facts.kernels), "kernel"))
    return f"{facts.name}: {parts[0]} for {parts[1]}, {parts[2]}"


def format_line(line: Line) -> str:
    """`model.py:31   loss = ...`, with the function it stands in."""
    return f"{os.path.basename(line.file)}:{line.line} in {line.function}" + (f"   {line.text}" if line.text else "")


def bound_sentence(speed: Speed) -> str:
    """What limits the whole, and how near it is."""
    if speed.bound == "nothing":
        return "no work for kernels or libraries: nothing to compare with"
    name = {"bandwidth": "bytes over bandwidth", "peak": "flops over peak"}[speed.bound]
    least = f"at least {seconds_of(speed.limit)} on this machine, most of it {name}"
    return least if speed.share is None else f"{least}: {percent(speed.share)} of the limit"


def limits_sentences(limits: Limits) -> list[str]:
    """The machine's limits, one line a level."""
    lines = [
        f"{s.level:<7}{bytes_of(s.size):>8}:  read {rate(s.read, 'B')}, copy {rate(s.copy, 'B')}, triad {rate(s.triad, 'B')}"
        for s in limits.streams
    ]
    peaks = f"float32 {rate(limits.peak_float32, 'flop')}, float64 {rate(limits.peak_float64, 'flop')}"
    return [*lines, f"multiply-adds:  {peaks}"]


def remarks(facts: Facts) -> list[str]:
    """What to bear in mind when reading the figures."""
    out = []
    if not facts.calls:
        out.append("Nothing was run: an argument is an Aval, which has no values. Times are the least the machine allows.")
    if faster_than_limit(facts):
        out.append(
            "Something is faster than the limit: that was measured on a busier machine. machine_limits(n, better=True) renews it."
        )
    return out


def format_text(facts: Facts, limits: Limits) -> str:
    """The whole explanation."""
    parts = [_summary(facts), _steps(facts)]
    if facts.kernels:
        parts.append("kernels\n" + "\n\n".join(_kernel_text(facts)))
    parts += [_memory(facts), _cache(facts), _machine(limits)]
    versions = ", ".join(f"{name} {version}" for name, version in facts.versions)
    return "\n\n".join(p for p in parts if p) + f"\n\n{versions}"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more if names else "none"


def _summary(facts: Facts) -> str:
    s = facts.speed
    rows = [("arguments", _listed(facts.arguments))]
    if facts.captured:
        rows.append(("captured", _listed(facts.captured)))
    rows.append(("results", _listed(facts.results)))
    moved = f"{bytes_of(s.bytes_moved)} moved ({bytes_of(s.bytes_read)} in, {bytes_of(s.bytes_written)} out)"
    rows.append(("work", f"{flops_of(s.flops)}, {moved}, {ratio(s.intensity)} flop/B"))
    if s.seconds is not None:
        how = f"the best of {facts.groups} groups of {plural(facts.calls, 'call')}, on {plural(facts.threads, 'thread')}"
        rows.append(("a call", f"{seconds_of(s.seconds)}, {how}"))
        rows.append(("that is", f"{rate(s.bandwidth, 'B')}, {rate(s.rate, 'flop')}"))
        alone = [x for step in facts.steps if (x := step.speed.seconds) is not None]
        rows += [("steps", f"{seconds_of(sum(alone))}, each run by itself")] if alone else []
    rows.append(("limit", bound_sentence(s)))
    m = facts.memory
    between = f"arguments {bytes_of(m.argument)}, results {bytes_of(m.output)}, in between {bytes_of(m.temp)}"
    rows.append(("memory", f"{bytes_of(m.peak)} at most: {between}"))
    rows += [("note", r) for r in remarks(facts)]
    return "\n".join([headline(facts), *(f"  {name:<11}{text}" for name, text in rows)])


def figures(p: Speed) -> list[str]:
    """What stands in the columns `FIGURES`."""
    amounts = [bytes_of(p.bytes_read), bytes_of(p.bytes_written), flops_of(p.flops).removesuffix("flop").rstrip()]
    speeds = ["-" if x is None else f"{x / 1e9:.3g}" for x in (p.bandwidth, p.rate)]
    return [seconds_of(p.seconds), percent(p.share), *amounts, ratio(p.intensity), *speeds]


def _steps(facts: Facts) -> str:
    if not facts.steps:
        return "steps: none, the results are arguments or constants"
    rows = [["step", "kind", *FIGURES, "bound by"]]
    rows += [[str(s.number), s.kind, *figures(s.speed), s.speed.bound] for s in facts.steps]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    pad = [str.rjust, str.ljust, *[str.rjust] * len(FIGURES), str.ljust]
    lines = ["  ".join(to(c, w) for to, c, w in zip(pad, row, widths, strict=True)).rstrip() for row in rows]
    out = ["steps", lines[0]]
    indent = " " * (widths[0] + 2)
    for s, line in zip(facts.steps, lines[1:], strict=True):
        kernels = f" ({', '.join(s.kernels)})" if s.kernels else ""
        out += [line, f"{indent}does     {s.title}{kernels}"]
        out.append(f"{indent}arrays   {_listed(s.reads)} -> {_listed(s.writes)}")
        out += [f"{indent}stored   {'; '.join(s.why)}"] if s.why else []
        out += [f"{indent}{'inside' if i == 0 else '':<9}{x}" for i, x in enumerate(s.inside)]
        out += [f"{indent}{'line' if i == 0 else '':<9}{format_line(x)}" for i, x in enumerate(s.lines)]
    return "\n".join(out)


def _kernel_text(facts: Facts) -> list[str]:
    out = []
    for k in facts.kernels:
        origin = "compiled by this process" if k.generated else "from the cache on disk"
        used = ", ".join(map(str, k.steps))
        out.append(f"{k.name}, {'steps' if len(k.steps) > 1 else 'step'} {used}, {origin}\n{k.text}")
    return out


def _memory(facts: Facts) -> str:
    m = facts.memory
    if not m.blocks:
        return ""
    rows = [f"  {b.name}: {bytes_of(b.size)} at {b.offset}, steps {b.first} to {b.last}" for b in m.blocks]
    return "\n".join([f"arena: {bytes_of(max(b.offset + b.size for b in m.blocks))} for {plural(len(m.blocks), 'value')}", *rows])


def _cache(facts: Facts) -> str:
    c = facts.cache
    misses = f"{c.misses} {'miss' if c.misses == 1 else 'misses'}"
    lines = [f"jit cache: {plural(c.traces, 'trace')} held, {plural(c.hits, 'hit')}, {misses}"]
    first = c.misses - len(c.reasons)
    if first > 0:
        lines.append(f"  the last {len(c.reasons)} misses:")
    return "\n".join([*lines, *(f"  miss {first + i}: {why}" for i, why in enumerate(c.reasons, 1))])


def _machine(limits: Limits) -> str:
    head = f"machine: {limits.cpu}, {plural(limits.threads, 'thread')}, measured {limits.measured}"
    return "\n".join([head, *(f"  {line}" for line in limits_sentences(limits))])
