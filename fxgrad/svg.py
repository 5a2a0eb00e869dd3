"""Pictures as SVG, written by hand: shapes, text, and logarithmic axes. Colours are classes of a style sheet."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

__all__ = ["LETTER", "LogAxes", "cut", "decades", "line", "path", "picture", "power_of_ten", "rect", "text"]

LETTER = 6.6  # pixels, of the pictures' 12 px text


def picture(width: int, height: float, title: str, body: Sequence[str], style: str = "") -> str:
    """The whole SVG; `style` makes it one that can stand alone."""
    root = ' xmlns="http://www.w3.org/2000/svg"' if style else ""
    size = f'viewBox="0 0 {width} {height:.0f}" width="{width}" height="{height:.0f}"'
    head = f'<svg{root} {size} role="img" aria-label="{escape(title)}">'
    sheet = [f"<style>{style}</style>"] if style else []
    return "\n".join([head, f"<title>{escape(title)}</title>", *sheet, *body, "</svg>"])


def text(x: float, y: float, words: str, anchor: str = "start", kind: str = "") -> str:
    classes = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{classes}>{escape(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def path(points: Sequence[tuple[float, float]], kind: str) -> str:
    """A line through points."""
    return f'<polyline points="{" ".join([f"{x:.1f},{y:.1f}" for x, y in points])}" class="{kind}"/>'


def rect(x: float, y: float, width: float, height: float, kind: str, title: str = "") -> str:
    inner = f"<title>{escape(title)}</title>" if title else ""
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{height:.1f}" class="{kind}">{inner}</rect>'


def cut(words: str, pixels: float) -> str:
    most = max(int(pixels / LETTER), 1)
    return words if len(words) <= most else words[: most - 1] + "\u2026"


def power_of_ten(power: int) -> str:
    """`10 G` for 10."""
    group = min(max(power // 3, 0), 5)
    return f"{10.0 ** (power - 3 * group):g} {('', 'k', 'M', 'G', 'T', 'P')[group]}".rstrip()


def decades(values: Sequence[float], least: float) -> tuple[float, float]:
    """Whole powers of ten around the values, at least `least` of them."""
    low, high = math.floor(math.log10(min(values)) - 0.05), math.ceil(math.log10(max(values)) + 0.05)
    return 10.0**low, 10.0 ** max(high, low + least)


class LogAxes:
    """Logarithmic axes, with lines at powers of ten, every one or as many as have room."""

    def __init__(
        self,
        width: int,
        height: float,
        x: tuple[float, float],
        y: tuple[float, float],
        x_label: str,
        y_label: str,
        x_tick: Callable[[int], str] = lambda power: f"{10.0**power:g}",
        y_tick: Callable[[int], str] = power_of_ten,
    ):
        self.left, self.right, self.top, self.bottom = 58.0, width - 14.0, 30.0, height - 46.0
        self.x_range, self.y_range = x, y
        self.x_label, self.y_label, self.x_tick, self.y_tick = x_label, y_label, x_tick, y_tick

    def x(self, value: float) -> float:
        low, high = map(math.log10, self.x_range)
        return self.left + (math.log10(value) - low) / (high - low) * (self.right - self.left)

    def y(self, value: float) -> float:
        low, high = map(math.log10, self.y_range)
        return self.bottom - (math.log10(value) - low) / (high - low) * (self.bottom - self.top)

    @staticmethod
    def _powers(limits: tuple[float, float], most: float) -> range:
        low, high = (round(math.log10(limit)) for limit in limits)
        return range(low, high + 1, max(1, math.ceil((high - low) / most)))

    def grid(self) -> list[str]:
        out = []
        for power in self._powers(self.x_range, (self.right - self.left) / 40):
            x = self.x(10.0**power)
            out += [line(x, self.top, x, self.bottom, "grid"), text(x, self.bottom + 17, self.x_tick(power), "middle", "soft")]
        for power in self._powers(self.y_range, (self.bottom - self.top) / 16):
            y = self.y(10.0**power)
            out.append(line(self.left, y, self.right, y, "grid"))
            out.append(text(self.left - 6, y + 4, self.y_tick(power), "end", "soft"))
        middle = (self.left + self.right) / 2
        return [*out, text(middle, self.bottom + 37, self.x_label, "middle", "soft"), text(6, 14, self.y_label, "start", "soft")]
