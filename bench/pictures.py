"""Pictures of benchmark results: bars of every contender's time, and bars against the machine's limits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.report import quantity, rate
from bench.run import BANDWIDTH, MATMUL
from bench.timing import Group, Row

__all__ = ["draw"]

# One colour a library in all pictures, light where it runs without a compiler.
COLOURS = {
    "fxgrad jit": "#c1272d", "fxgrad eager": "#eb9c9f", "numpy": "#4d77cf", "jax jit": "#2a9d5c", "jax eager": "#94d0ae",
    "torch eager": "#f6b26b", "torch eager, own attention": "#ffd966", "torch compiled": "#e06c00",
    "numexpr": "#8e6bbf", "autograd": "#8c8c8c",
    "fxgrad, empty cache": "#eb9c9f", "fxgrad, warm cache": "#c1272d",
}  # fmt: skip
SPARE = ("#c1272d", "#4d77cf", "#2a9d5c", "#e06c00")
Value = Callable[[Row, str], float]
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


def _bars(group: Group, value: Value, text: Callable[[Row, str], str], label: str) -> Any:
    """Figure and axes: rows from top to bottom, their contenders as bars below each other."""
    names = _contenders(group)
    bars = sum(name in row.times for row in group.rows for name in names) + len(group.rows)
    figure, axes = _pyplot().subplots(figsize=(8.5, 1.2 + BAR * bars), layout="constrained")
    at, ticks = 0, []
    for row in group.rows:
        present = [name for name in names if name in row.times]
        ticks.append(at + (len(present) - 1) / 2)
        for name in present:
            shown = value(row, name)
            axes.barh(at, shown, 0.9, color=_colour(name, names))
            note = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 0.5}
            axes.annotate(text(row, name), (shown, at), (3, 0), textcoords="offset points", va="center", fontsize=7, bbox=note)
            at += 1
        at += 1
    axes.set_yticks(ticks, [row.label for row in group.rows])
    axes.set_ylim(at - 1, -1)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(label)
    axes.margins(x=0.16)
    return figure, axes


def _legend(figure: Any, group: Group, title: str, lines: list[Any]) -> None:
    """Colours of the contenders, and lines that mean a limit."""
    from matplotlib.patches import Patch

    names = _contenders(group)
    handles = [Patch(color=_colour(name, names), label=name) for name in names] + lines
    figure.legend(handles=handles, loc="outside lower center", ncols=min(len(handles), 5), frameon=False, fontsize=8)
    threads = "one thread" if group.threads == 1 else f"{group.threads} threads"
    figure.suptitle(f"{group.title}, {threads}{title}", fontsize=10)


def _ratios(group: Group) -> Any:
    """Times as multiples of the base contender's."""

    def ratio(row: Row, name: str) -> float:
        return row.times[name].median / row.times[group.base].median

    def text(row: Row, name: str) -> str:
        shown = quantity(row.times[name].median, group.unit)
        cut = "→ " if ratio(row, name) > LONGEST else ""
        return shown if name == group.base else f"{cut}{shown}, {ratio(row, name):.3g}x"

    what = "memory" if group.unit == "B" else "time"
    figure, axes = _bars(
        group,
        lambda row, name: min(ratio(row, name), LONGEST),
        text,
        f"{what} as a multiple of {group.base}'s (shorter is better)",
    )
    axes.axvline(1.0, color="#444444", linewidth=0.8, linestyle=":", zorder=0)
    _legend(figure, group, "", [])
    return figure


def _against_limit(group: Group, limit: str) -> Any:
    """Bars of GB/s or GFLOP/s, with what the machine allows as a line."""

    def reached(row: Row, name: str) -> float:
        found = rate(row, name)
        assert found is not None, f"{group.name}, {row.label}: a limit, but neither bytes nor operations"
        return found[0]

    unit = "GFLOP/s" if group.rows[0].work else "GB/s"
    figure, axes = _bars(group, reached, lambda row, name: f"{reached(row, name):.3g}", f"{unit} (longer is better)")
    at, lines = 0, []
    for row in group.rows:
        height = sum(name in row.times for name in _contenders(group))
        top = reached(row, limit)
        lines += axes.plot([top, top], [at - 0.6, at + height - 0.4], color="black", linewidth=1.2, label=limit)
        at += height + 1
    _legend(figure, group, ": reached of the machine's limit", lines[:1])
    return figure


def draw(group: Group, out: Path) -> None:
    """Write NAME.svg, ratios of times, and NAME_limit.svg where the table has a limit of the machine."""
    comparable = [row for row in group.rows if group.base in row.times and len(row.times) > 1]
    pictures = {}
    if comparable and group.unit in ("s", "B"):
        pictures[f"{group.name}.svg"] = _ratios(Group(**{**vars(group), "rows": comparable}))
    for limit in (BANDWIDTH, MATMUL):
        limited = [row for row in group.rows if limit in row.times]
        if limited:
            pictures[f"{group.name}_limit.svg"] = _against_limit(Group(**{**vars(group), "rows": limited}), limit)
    for name, figure in pictures.items():
        figure.savefig(out / name, metadata={"Date": None}, facecolor="white")
        _pyplot().close(figure)
