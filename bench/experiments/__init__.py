"""The laboratory: predict, measure, explain. `python -m bench.experiments e8` runs one experiment, `all` runs them all.

Every module here is one experiment and has the same parts, in the order in which they happen:

    TITLE, QUESTION   what it is about
    DERIVATION        the derivation, written before anything was run
    predict(lab)      numbers from the derivation and from what this machine was measured to do (`constants.py`)
    measure(lab, found)   tables and figures; a figure with the name of a prediction is what that is compared with
    explain(result)   where prediction and measurement part, and why, from probes of the single causes
    draw(result)      the picture

`base.py` has what these exchange, `lab.py` how things are timed, `inside.py` programs compiled in ways users do not ask for.
"""

from __future__ import annotations

__all__ = ["EXPERIMENTS", "FOLDER", "load"]

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.experiments.base import Result

EXPERIMENTS = ("e1", "e2", "e3", "e4", "e5", "e6", "e7", "e8", "e9", "e10", "roofline", "checks")
FOLDER = Path(__file__).resolve().parents[2] / "docs" / "experiments"


def load(name: str, folder: Path = FOLDER) -> Result:
    """The stored result of an experiment."""
    from bench.experiments.base import Result

    return Result.read(folder / f"{name}.json")
