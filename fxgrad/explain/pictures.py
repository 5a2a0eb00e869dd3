"""The pictures of an explanation as SVG, written by hand: roofline, time of the steps, map of the arena.

Each is drawn for a width in pixels, so that text keeps its size on narrow screens. Colours are classes of the page's style sheet.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from fxgrad.explain.facts import Block, Facts, StepFacts
from fxgrad.explain.units import amount, bytes_of, flops_of, percent, ratio, seconds_of

if TYPE_CHECKING:
    from fxgrad.runtime.machine import Limits

__all__ = ["arena_map", "roofline", "time_bars"]

_LETTER = 6.6  # pixels, of the pictures' 12 px text
_BAR = 26
_MOST_BARS = 60


def _svg(width: int, height: float, title: str, body: Sequence[str]) -> str:
    head = (
        f'<svg viewBox="0 0 {width} {height:.0f}" width="{width}" height="{height:.0f}" role="img" aria-label="{escape(title)}">'
    )
    return "\n".join([head, f"<title>{escape(title)}</title>", *body, "</svg>"])


def _text(x: float, y: float, text: str, anchor: str = "start", kind: str = "") -> str:
    classes = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{classes}>{escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def _rect(x: float, y: float, width: float, height: float, kind: str, title: str = "") -> str:
    inner = f"<title>{escape(title)}</title>" if title else ""
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{height:.1f}" class="{kind}">{inner}</rect>'


def _cut(text: str, pixels: float) -> str:
    most = max(int(pixels / _LETTER), 1)
    return text if len(text) <= most else text[: most - 1] + "\u2026"


# ---- roofline ------------------------------------------------------------------------------------------------------------


class _Axes:
    """Logarithmic axes: flops a byte to the right, flops a second upwards."""

    def __init__(self, width: int, height: int, x: tuple[float, float], y: tuple[float, float]):
        self.left, self.right, self.top, self.bottom = 58.0, width - 14.0, 30.0, height - 46.0
        self.x_range, self.y_range = x, y

    def x(self, value: float) -> float:
        low, high = map(math.log10, self.x_range)
        return self.left + (math.log10(value) - low) / (high - low) * (self.right - self.left)

    def y(self, value: float) -> float:
        low, high = map(math.log10, self.y_range)
        return self.bottom - (math.log10(value) - low) / (high - low) * (self.bottom - self.top)

    def grid(self) -> list[str]:
        out = []
        for power in range(round(math.log10(self.x_range[0])), round(math.log10(self.x_range[1])) + 1):
            x = self.x(10.0**power)
            out += [_line(x, self.top, x, self.bottom, "grid"), _text(x, self.bottom + 17, f"{10.0**power:g}", "middle", "soft")]
        for power in range(round(math.log10(self.y_range[0])), round(math.log10(self.y_range[1])) + 1):
            y = self.y(10.0**power)
            out.append(_line(self.left, y, self.right, y, "grid"))
            out.append(_text(self.left - 6, y + 4, _power_of_ten(power), "end", "soft"))
        middle = (self.left + self.right) / 2
        return [*out, _text(middle, self.bottom + 37, "flop a byte", "middle", "soft"), _text(6, 14, "flop/s", "start", "soft")]


def _power_of_ten(power: int) -> str:
    """`10 G` for 10."""
    group = min(max(power // 3, 0), 5)
    return f"{10.0 ** (power - 3 * group):g} {('', 'k', 'M', 'G', 'T', 'P')[group]}".rstrip()


def _decades(values: Sequence[float], least: float) -> tuple[float, float]:
    """Whole powers of ten around the values, at least `least` of them."""
    low, high = math.floor(math.log10(min(values)) - 0.05), math.ceil(math.log10(max(values)) + 0.05)
    return 10.0**low, 10.0 ** max(high, low + least)


def roofline(facts: Facts, limits: Limits, width: int) -> str:
    """Every step that has flops and bytes, and the call, under the machine's limits; without times, where it could be at best."""
    points = [s for s in facts.steps if s.speed.flops and s.speed.intensity]
    whole = facts.speed
    rates = [s.speed.rate or s.speed.flops / s.speed.limit for s in points] + ([whole.rate] if whole.rate else [])
    peaks = (limits.peak_float32, limits.peak_float64)
    ridge = max(peaks) / limits.streams[-1].best
    x_range = _decades([*(s.speed.intensity for s in points if s.speed.intensity), ridge, 0.1], 3)
    axes = _Axes(width, 360, x_range, _decades([*rates, max(peaks), x_range[0] * limits.streams[-1].best * 2], 3))
    body = [*axes.grid(), *_roofs(axes, limits)]
    body += [_point(axes, s) for s in points]
    if whole.intensity and whole.rate:
        x, y = axes.x(whole.intensity), axes.y(whole.rate)
        body.append(
            f'<rect x="{x - 6:.1f}" y="{y - 6:.1f}" width="12" height="12" class="whole"><title>the whole call</title></rect>'
        )
        body.append(_text(x + 10, y + 4, "the call"))
    return _svg(width, 360, f"Roofline of {facts.name}: flops a second against flops a byte", body)


def _roofs(axes: _Axes, limits: Limits) -> list[str]:
    """The slope of every memory level and the two peaks."""
    out = []
    top, (low, high) = max(limits.peak_float32, limits.peak_float64), axes.x_range
    for stream in limits.streams:
        start, end = max(low, axes.y_range[0] / stream.best), min(top / stream.best, high)
        if start >= end:
            continue
        x1, y1, x2, y2 = axes.x(start), axes.y(start * stream.best), axes.x(end), axes.y(end * stream.best)
        kind = "roof" if stream is limits.streams[-1] else "roof inner"
        out.append(_line(x1, y1, x2, y2, kind))
        angle = math.degrees(math.atan2(y2 - y1, x2 - x1))
        x, y = x1 + 0.02 * (x2 - x1), y1 + 0.02 * (y2 - y1)  # at the low end, where few steps are
        label = f"{stream.level} {amount(stream.best, 'B/s')}"
        out.append(f'<text transform="translate({x:.1f} {y - 5:.1f}) rotate({angle:.1f})" class="soft">{escape(label)}</text>')
    for name, peak in (("float32", limits.peak_float32), ("float64", limits.peak_float64)):
        start = min(max(peak / limits.streams[0].best, low), high)
        out.append(_line(axes.x(start), axes.y(peak), axes.right, axes.y(peak), "roof"))
        below = 14 if peak < top else -5
        out.append(_text(axes.right - 2, axes.y(peak) + below, f"{name} {amount(peak, 'flop/s')}", "end", "soft"))
    return out


def _point(axes: _Axes, s: StepFacts) -> str:
    p = s.speed
    assert p.intensity is not None
    rate = p.rate or p.flops / p.limit
    kind = "point" if p.rate else "point hollow"
    what = f"step {s.number}, {s.title}: {flops_of(p.flops)}, {ratio(p.intensity)} flop a byte, "
    what += f"{amount(rate, 'flop/s')}, {percent(p.share)} of its limit" if p.rate else f"at most {amount(rate, 'flop/s')}"
    x, y = axes.x(p.intensity), axes.y(rate)
    mark = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="9" class="{kind}"/>{_text(x, y + 4, str(s.number), "middle", "number")}'
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
        name = _cut(f"{s.number}  {s.title}", label - 12)
        body.append(_text(label - 8, y + 14, name, "end"))
        if measured:
            body.append(_rect(label, y, t / longest * room, _BAR - 8, "time", what))
        body.append(
            _rect(
                label, y + (4 if measured else 0), s.speed.limit / longest * room, _BAR - (16 if measured else 8), "least", what
            )
        )
        end = max(t, s.speed.limit) / longest * room
        body.append(_text(label + end + 6, y + 14, seconds_of(t), "start", "soft"))
    title = f"{'Time' if measured else 'Least time'} of {len(shown)} steps of {facts.name}"
    return _svg(width, len(shown) * _BAR + 8, title, body)


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
        body += [_line(left, y, width - 10, y, "grid"), _text(left - 6, y + 4, bytes_of(size * i / 4), "end", "soft")]
    every = max(1, -(-steps // max(int((width - left) / 28), 1)))
    body += [
        _text(left + (n - 0.5) * column, bottom + 17, str(n), "middle", "soft")
        for n in range(1, steps + 1)
        if n == 1 or n % every == 0
    ]
    body.append(_text((left + width) / 2, bottom + 36, "step", "middle", "soft"))
    for i, b in enumerate(blocks):
        y1, y2 = (bottom - at / size * (bottom - top) for at in (b.offset, b.offset + b.size))
        x, wide = left + (b.first - 1) * column, (b.last - b.first + 1) * column
        what = f"{b.name}: {bytes_of(b.size)} at {b.offset}, steps {b.first} to {b.last}"
        body.append(_rect(x + 0.5, y2, wide - 1, max(y1 - y2, 1), f"block shade{i % 3}", what))
        if y1 - y2 > 14 and wide > 4 * _LETTER:
            body.append(_text(x + wide / 2, (y1 + y2) / 2 + 4, _cut(b.name, wide - 14), "middle", "number"))
    return _svg(width, height, f"Arena of {facts.name}: which bytes are in use at which step", body)
