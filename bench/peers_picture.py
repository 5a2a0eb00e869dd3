"""The README's picture: how many times what fxgrad needs others need for the same, from docs/benchmarks."""

from __future__ import annotations

import math

from bench.figures import COLUMNS, PEERS, Benchmarks, best
from fxgrad.svg import line, picture, text

__all__ = ["peers_picture"]

STYLE = """
text{font:13px system-ui,sans-serif;fill:#24292f} .soft{fill:#6e7781;font-size:12px} .us{fill:#c1272d;font-weight:600}
.grid{stroke:#d0d7de;stroke-width:1} .one{stroke:#c1272d;stroke-width:2} .span{stroke:#afb8c1;stroke-width:2}
.JAX{fill:#1f77b4} .PyTorch{fill:#e8710a} .NumPy{fill:#2c8a4b} .autograd{fill:#8250df}
@media (prefers-color-scheme:dark){text{fill:#e6edf3} .soft{fill:#9198a1} .us{fill:#ff7b72} .grid{stroke:#3d444d}
.one{stroke:#ff7b72} .span{stroke:#656c76} .JAX{fill:#58a6ff} .PyTorch{fill:#ffa657} .NumPy{fill:#56d364} .autograd{fill:#d2a8ff}}
"""
WIDTH, LEFT, RIGHT, TOP, STEP = 900, 340, 880, 54, 25
TICKS = (0.5, 1, 2, 5, 10, 20, 50, 100)


def peers_picture(benchmarks: Benchmarks) -> str:
    """A line for each work of the table of peers, on it a mark for each peer, to the right where it needs more."""
    ratios = {}
    for work in PEERS:
        times, base = benchmarks.row(work.group, work.row).times, benchmarks.group(work.group).base
        found = {peer: best(times, prefix) for peer, prefix in COLUMNS.items()}
        ratios[work.says] = {peer: value / times[base].median for peer, value in found.items() if value is not None}
    every = [x for found in ratios.values() for x in found.values()]
    low, high = math.log10(min(*every, TICKS[0]) / 1.1), math.log10(max(*every, TICKS[4]) * 1.1)

    def x(value: float) -> float:
        return LEFT + (math.log10(value) - low) / (high - low) * (RIGHT - LEFT)

    bottom = TOP + STEP * len(ratios)
    body = []
    for k, peer in enumerate(COLUMNS):
        at = LEFT + 110 * k
        body += [f'<circle cx="{at}" cy="16" r="6" class="{peer}"/>', text(at + 12, 20, peer)]
    for tick in TICKS:
        if low <= math.log10(tick) <= high:
            body += [line(x(tick), TOP - 12, x(tick), bottom, "one" if tick == 1 else "grid")]
            body.append(text(x(tick), TOP - 18, "fxgrad" if tick == 1 else f"{tick:g}x", "middle", "us" if tick == 1 else "soft"))
    for k, (says, found) in enumerate(ratios.items()):
        y = TOP + STEP * (k + 0.5)
        body += [text(LEFT - 14, y + 4, says, "end"), line(x(min(1, *found.values())), y, x(max(1, *found.values())), y, "span")]
        body += [
            f'<circle cx="{x(r):.1f}" cy="{y:.1f}" r="6" class="{p}"><title>{p}: {r:.2f}x</title></circle>'
            for p, r in found.items()
        ]
    body.append(
        text(
            LEFT, bottom + 20, "time or memory as a multiple of fxgrad's, on a CPU; further to the right: needs more", kind="soft"
        )
    )
    return picture(WIDTH, bottom + 32, "fxgrad beside JAX, PyTorch, NumPy and autograd", body, STYLE) + "\n"
