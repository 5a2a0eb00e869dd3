"""The pictures of an explanation as SVG, written by hand: roofline, time of the steps, map of the arena.

Each is drawn for a width in pixels, so that text keeps its size on narrow screens. Colours are classes of the page's style sheet.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from fxgrad import svg
from fxgrad.explain.facts import Block, Facts, StepFacts
from fxgrad.explain.units import amount, bytes_of, flops_of, percent, ratio, seconds_of
from fxgrad.svg import LogAxes, decades

if TYPE_CHECKING:
    from fxgrad.runtime.machine import Limits

__all__ = ["arena_map", "roofline", "time_bars"]

_BAR = 26
_MOST_BARS = 60


# ---- roofline ------------------------------------------------------------------------------------------------------------


def roofline(facts: Facts, limits: Limits, width: int) -> str:
    """Every step that has flops and bytes, and the call, under the machine's limits; without times, where it could be at best."""
    points = [s for s in facts.steps if s.speed.flops and s.speed.intensity]
    whole = facts.speed
    rates = [s.speed.rate or s.speed.flops / s.speed.limit for s in points] + ([whole.rate] if whole.rate else [])
    peaks = (limits.peak_float32, limits.peak_float64)
    ridge = max(peaks) / limits.streams[-1].best
    x_range = decades([*(s.speed.intensity for s in points if s.speed.intensity), ridge, 0.1], 3)
    axes = LogAxes(
        width, 360, x_range, decades([*rates, max(peaks), x_range[0] * limits.streams[-1].best * 2], 3), "flop a byte", "flop/s"
    )
    body = [*axes.grid(), *_roofs(axes, limits)]
    body += [_point(axes, s) for s in points]
    if whole.intensity and whole.rate:
        x, y = axes.x(whole.intensity), axes.y(whole.rate)
        body.append(
            f'<rect x="{x - 6:.1f}" y="{y - 6:.1f}" width="12" height="12" class="whole"><title>the whole call</title></rect>'
        )
        body.append(svg.text(x + 10, y + 4, "the call"))
    return svg.picture(width, 360, f"Roofline of {facts.name}: flops a second against flops a byte", body)


def _roofs(axes: LogAxes, limits: Limits) -> list[str]:
    """The slope of every memory level and the two peaks."""
    out = []
    top, (low, high) = max(limits.peak_float32, limits.peak_float64), axes.x_range
    for stream in limits.streams:
        start, end = max(low, axes.y_range[0] / stream.best), min(top / stream.best, high)
        if start >= end:
            continue
        x1, y1, x2, y2 = axes.x(start), axes.y(start * stream.best), axes.x(end), axes.y(end * stream.best)
        kind = "roof" if stream is limits.streams[-1] else "roof inner"
        out.append(svg.line(x1, y1, x2, y2, kind))
        angle = math.degrees(math.atan2(y2 - y1, x2 - x1))
        x, y = x1 + 0.02 * (x2 - x1), y1 + 0.02 * (y2 - y1)  # at the low end, where few steps are
        label = f"{stream.level} {amount(stream.best, 'B/s')}"
        out.append(f'<text transform="translate({x:.1f} {y - 5:.1f}) rotate({angle:.1f})" class="soft">{escape(label)}</text>')
    for name, peak in (("float32", limits.peak_float32), ("float64", limits.peak_float64)):
        start = min(max(peak / limits.streams[0].best, low), high)
        out.append(svg.line(axes.x(start), axes.y(peak), axes.right, axes.y(peak), "roof"))
        below = 14 if peak < top else -5
        out.append(svg.text(axes.right - 2, axes.y(peak) + below, f"{name} {amount(peak, 'flop/s')}", "end", "soft"))
    return out


def _point(axes: LogAxes, s: StepFacts) -> str:
    p = s.speed
    assert p.intensity is not None
    rate = p.rate or p.flops / p.limit
    kind = "point" if p.rate else "point hollow"
    what = f"step {s.number}, {s.title}: {flops_of(p.flops)}, {ratio(p.intensity)} flop a byte, "
    what += f"{amount(rate, 'flop/s')}, {percent(p.share)} of its limit" if p.rate else f"at most {amount(rate, 'flop/s')}"
    x, y = axes.x(p.intensity), axes.y(rate)
    mark = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="9" class="{kind}"/>{svg.text(x, y + 4, str(s.number), "middle", "number")}'
    return f"<g><title>{escape(what)}</title>{mark}</g>"


# ---- time ----------------------------------------------------------------------------------------------------------------


def time_bars(facts: Facts, width: int) -> str:
    """A bar for each step: its time, and in it the least time the machine allows. The longest, if there are many."""
    times = [(s.speed.seconds if s.speed.seconds is not None else s.speed.limit, s) for s in facts.steps]
    measured = any(s.speed.seconds is not None for s in facts.steps)
    chosen = {s.number for _, s in sorted(times, key=lambda pair: -pair[0])[:_MOST_BARS]}
    shown = [(t, s) for t, s in times if s.number in chosen]
    longest = max([t for t, _ in shown] + [s.speed.limit for _, s in shown], default=0.0) or 1.0
    label = min(300.0, 0.45 * width)
    room = width - label - 84
    body = []
    for row, (t, s) in enumerate(shown):
        y = row * _BAR + 4
        what = f"step {s.number}, {s.title}: {seconds_of(s.speed.seconds)}, at least {seconds_of(s.speed.limit)}"
        name = svg.cut(f"{s.number}  {s.title}", label - 12)
        body.append(svg.text(label - 8, y + 14, name, "end"))
        if measured:
            body.append(svg.rect(label, y, t / longest * room, _BAR - 8, "time", what))
        body.append(
            svg.rect(
                label, y + (4 if measured else 0), s.speed.limit / longest * room, _BAR - (16 if measured else 8), "least", what
            )
        )
        end = max(t, s.speed.limit) / longest * room
        body.append(svg.text(label + end + 6, y + 14, seconds_of(t), "start", "soft"))
    title = f"{'Time' if measured else 'Least time'} of {len(shown)} steps of {facts.name}"
    return svg.picture(width, len(shown) * _BAR + 8, title, body)


# ---- memory --------------------------------------------------------------------------------------------------------------


def arena_map(facts: Facts, width: int) -> str:
    """The arena: steps to the right, offsets upwards, a box for each value while it lives."""
    blocks: Sequence[Block] = facts.memory.blocks
    height, left, bottom, top = 300.0, 78.0, 258.0, 12.0
    size = max(max((b.offset + b.size for b in blocks), default=1), 1)
    steps = max(len(facts.steps), max((b.last for b in blocks), default=1), 1)
    column = (width - left - 10) / steps
    body = []
    for i in range(5):
        y = bottom - i / 4 * (bottom - top)
        body += [svg.line(left, y, width - 10, y, "grid"), svg.text(left - 6, y + 4, bytes_of(size * i / 4), "end", "soft")]
    every = max(1, -(-steps // max(int((width - left) / 28), 1)))
    body += [
        svg.text(left + (n - 0.5) * column, bottom + 17, str(n), "middle", "soft")
        for n in range(1, steps + 1)
        if n == 1 or n % every == 0
    ]
    body.append(svg.text((left + width) / 2, bottom + 36, "step", "middle", "soft"))
    for i, b in enumerate(blocks):
        y1, y2 = (bottom - at / size * (bottom - top) for at in (b.offset, b.offset + b.size))
        x, wide = left + (b.first - 1) * column, (b.last - b.first + 1) * column
        what = f"{b.name}: {bytes_of(b.size)} at {b.offset}, steps {b.first} to {b.last}"
        body.append(svg.rect(x + 0.5, y2, wide - 1, max(y1 - y2, 1), f"block shade{i % 3}", what))
        if y1 - y2 > 14 and wide > 4 * svg.LETTER:
            body.append(svg.text(x + wide / 2, (y1 + y2) / 2 + 4, svg.cut(b.name, wide - 14), "middle", "number"))
    return svg.picture(width, height, f"Arena of {facts.name}: which bytes are in use at which step", body)
