"""Pictures of experiments, in the colours of the benchmarks."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.experiments.base import Result
from bench.pictures import COLOURS, SPARE, _pyplot

__all__ = ["GREY", "beside", "colour", "figure", "loglog", "save_all"]

GREY = "#555555"


def colour(name: str, index: int = 0) -> str:
    """The colour of a library, or one of those for what is no library."""
    return COLOURS.get(name) or SPARE[index % len(SPARE)]


def figure(columns: int = 1, width: float | None = None, height: float = 4.0) -> tuple[Any, Sequence[Any]]:
    """A figure with so many axes side by side."""
    made, axes = _pyplot().subplots(1, columns, figsize=(width or 4.9 * columns, height), layout="constrained", squeeze=False)
    for a in axes[0]:
        a.grid(alpha=0.25, linewidth=0.6)
        a.set_axisbelow(True)
    return made, axes[0]


def loglog(axes: Any, x: str, y: str, title: str = "") -> None:
    axes.set(xscale="log", yscale="log", xlabel=x, ylabel=y)
    axes.set_title(title, fontsize=9.5, loc="left")


def beside(axes: Any, x: float, y: float, text: str, colour: str = GREY, **more: Any) -> None:
    """A remark at a point of the picture."""
    at = {"textcoords": "offset points", "xytext": (5, 3), "fontsize": 8, "color": colour, **more}
    axes.annotate(text, (x, y), **at)


def save_all(result: Result, draw: Callable[[Result], dict[str, Any]], folder: Path) -> list[str]:
    """Draw and write NAME.svg, NAME_more.svg, ...; their file names. Strings are SVG already."""
    if importlib.util.find_spec("matplotlib") is None:
        print("matplotlib is not installed: no pictures.")
        return []
    names = []
    for more, picture in draw(result).items():
        name = f"{result.name}{'_' if more else ''}{more}.svg"
        if isinstance(picture, str):
            (folder / name).write_text(picture)
        else:
            picture.savefig(folder / name, metadata={"Date": None}, facecolor="white")
            _pyplot().close(picture)
        names.append(name)
    return names
