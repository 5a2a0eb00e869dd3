"""Pictures of benchmark results: bars of every contender's time, and bars against the machine's limits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.report import quantity, rate
from bench.run import BANDWIDTH, MATMUL
from bench.timing import Group

__all__ = ["draw"]

# One colour a library in all pictures, light where it runs without a compiler.
COLOURS = {
    "fxgrad jit": "#c1272d", "fxgrad eager": "#eb9c9f", "numpy": "#4d77cf", "jax jit": "#2a9d5c", "jax eager": "#94d0ae",
    "torch eager": "#f6b26b", "torch compiled": "#e06c00", "numexpr": "#8e6bbf", "autograd": "#8c8c8c",
    "fxgrad, empty cache": "#eb9c9f", "fxgrad, warm cache": "#c1272d",
}  # fmt: skip
SPARE = ("#c1272d", "#4d77cf", "#2a9d5c", "#e06c00")
BAR = 0.2  # inches
LONGEST = 12.0  # bars of slower ones are cut there


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.hashsalt": "fxgrad", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    from matplotlib import pyplot

    return pyplot


def _contenders(group: Group) -> list[str]:
    return [n for n in dict.fromkeys(name for row in group.rows for name in row.times) if n not in (BANDWIDTH, MATMUL)]


def _colour(name: str, names: list[str]) -> str:
    return COLOURS.get(name) or SPARE[names.index(name) % len(SPARE)]


def _bars(group: Group, value: Any, text: Any, label: str, cut: float | None) -> Any:
    """Rows from top to bottom, their contenders as bars below each other; value and text take (row, name)."""
    names = _contenders(group)
    bars = sum(name in row.times for row in group.rows for name in names) + len(group.rows)
    figure, axes = _pyplot().subplots(figsize=(8.5, 1.3 + BAR * bars), layout="constrained")
    at, ticks, seen = 0.0, [], set()
    for row in group.rows:
        present = [name for name in names if name in row.times]
        ticks.append(at + (len(present) - 1) / 2)
        for name in present:
            length = value(row, name)
            shown = min(length, cut) if cut else length
            axes.barh(at, shown, 0.9, color=_colour(name, names), label=None if name in seen else name)
            axes.annotate(text(row, name), (shown, at), (3, 0), textcoords="offset points", va="center", fontsize=7)
            seen.add(name)
            at += 1
        at += 1
    axes.set_yticks(ticks, [row.label for row in group.rows])
    axes.set_ylim(at - 1, -1)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(label)
    axes.margins(x=0.14)
    threads = "one thread" if group.threads == 1 else f"{group.threads} threads"
    figure.suptitle(f"{group.title}, {threads}", fontsize=10)
    handles, labels = axes.get_legend_handles_labels()
    order = sorted(range(len(labels)), key=lambda i: names.index(labels[i]))
    figure.legend(
        [handles[i] for i in order], [labels[i] for i in order], loc="outside lower center", ncols=4, frameon=False, fontsize=8
    )
    return figure, axes


def _ratios(group: Group) -> Any:
    def value(row: Any, name: str) -> float:
        return row.times[name].median / row.times[group.base].median

    def text(row: Any, name: str) -> str:
        ratio = value(row, name)
        beyond = "→ " if ratio > LONGEST else ""
        return f"{beyond}{quantity(row.times[name].median, group.unit)}" + ("" if name == group.base else f", {ratio:.2f}x")

    what = "memory" if group.unit == "B" else "time"
    figure, axes = _bars(group, value, text, f"{what} as a multiple of {group.base}'s", LONGEST)
    axes.axvline(1.0, color="#444444", linewidth=0.8, linestyle=":")
    return figure


def _against_limits(group: Group) -> Any:
    """What each row reached of what its limit allows: bars of GB/s or GFLOP/s with the machine's limit as a line."""
    limit = BANDWIDTH if any(BANDWIDTH in row.times for row in group.rows) else MATMUL
    kept = [row for row in group.rows if limit in row.times]
    part = Group(**{**vars(group), "rows": kept})

    def value(row: Any, name: str) -> float:
        return rate(row, name)[0]  # type: ignore[index]

    figure, axes = _bars(part, value, lambda row, name: f"{value(row, name):.1f}", rate(kept[0], limit)[1], None)  # type: ignore[index]
    at = 0
    for row in kept:
        height = sum(name in row.times for name in _contenders(part))
        top = value(row, limit)
        axes.plot([top, top], [at - 0.6, at + height - 0.4], color="black", linewidth=1.2, label=limit if at == 0 else None)
        at += height + 1
    axes.legend(loc="best", frameon=False, fontsize=8, handles=axes.get_lines()[:1])
    return figure


def draw(group: Group, out: Path) -> None:
    """Write NAME.svg, ratios of times, and NAME_limit.svg where the table has a limit of the machine."""
    comparable = [row for row in group.rows if group.base in row.times and len(row.times) > 1]
    pictures = {}
    if comparable and group.unit in ("s", "B"):
        pictures[f"{group.name}.svg"] = _ratios(Group(**{**vars(group), "rows": comparable}))
    if any(name in row.times for row in group.rows for name in (BANDWIDTH, MATMUL)):
        pictures[f"{group.name}_limit.svg"] = _against_limits(group)
    for name, figure in pictures.items():
        figure.savefig(out / name, metadata={"Date": None}, facecolor="white")
        _pyplot().close(figure)
