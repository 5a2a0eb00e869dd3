"""The index page of docs/experiments, put together from all results that are there."""

from __future__ import annotations

from pathlib import Path

from bench.experiments import EXPERIMENTS
from bench.experiments.base import Result, Table, shown

__all__ = ["falsified", "results", "summary", "write_index", "write_page"]


def results(folder: Path) -> list[Result]:
    """All stored results, in the order of the experiments."""
    return [Result.read(path) for name in EXPERIMENTS if (path := folder / f"{name}.json").exists()]


def summary(found: list[Result]) -> Table:
    """How many predictions of each experiment held."""
    rows = []
    for r in found:
        held = sum(o.holds for o in r.outcomes)
        rows.append(
            [f"[{r.name.upper() if r.name[1:].isdigit() else r.name}]({r.name}.md)", r.title, f"{held} of {len(r.outcomes)}"]
        )
    return Table("Experiments", [("", ""), ("about", ""), ("predictions that held", "")], rows)


def falsified(found: list[Result]) -> Table:
    """Predictions that did not hold, as they were made."""
    rows = [
        [r.name.upper(), o.prediction.says, shown(o.prediction.value, o.prediction.unit), shown(o.measured, o.prediction.unit)]
        for r in found
        for o in r.outcomes
        if not o.holds
    ]
    return Table("Falsified", [("", ""), ("predicted", ""), ("value", ""), ("measured", "")], rows)


def pictures(name: str, folder: Path) -> list[str]:
    """The pictures of an experiment: NAME.svg, NAME_more.svg."""
    return sorted(path.name for path in folder.glob("*.svg") if path.stem.split("_")[0] == name)


def write_page(result: Result, folder: Path) -> None:
    """NAME.md of an experiment, from its result and the pictures that are there."""
    (folder / f"{result.name}.md").write_text(result.markdown(pictures(result.name, folder)))


def write_index(folder: Path) -> None:
    """README.md of the folder."""
    found = results(folder)
    parts = [
        "# Experiments",
        "",
        (
            "Written by `python -m bench.experiments all`. Each experiment predicts, from a derivation and from what this "
            "machine was"
        ),
        (
            "measured to do, then measures, then explains what is left between the two. JSON files beside this page have "
            "every number."
        ),
        "",
        *summary(found).markdown(),
        "",
    ]
    (folder / "README.md").write_text("\n".join(parts))
