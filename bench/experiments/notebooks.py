"""Notebooks for E4, E6 and E8, executed, in docs/notebooks: `python -m bench.experiments.notebooks [NAME ...]`.

They are thin: prediction, table, picture and explanation come from the stored result, and the last cell measures one case anew.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.experiments import FOLDER, load
from bench.experiments.lab import module

__all__ = ["NAMES", "cells", "write"]

NAMES = ("e4", "e6", "e8")
OUT = FOLDER.parent / "notebooks"
SECONDS = 300

SETUP = """
from IPython.display import SVG, Markdown, display

from bench.experiments import FOLDER, {name}, load

result = load("{name}")
result.machine | result.versions
"""
TABLES = """
for table in result.tables.values():
    display(Markdown("\\n".join([f"**{table.title}**", "", *table.markdown()])))
"""
LIVE = {
    "e4": """
import numpy as np

import fxgrad as fx

layers, x = [lambda x, w: np.tanh(x @ w)] * 100, np.ones((64, 64), np.float32)
weights = [np.eye(64, dtype=np.float32) for _ in layers]


def activations(segments):
    through = fx.checkpoint_sequential(layers, segments=segments)
    step = fx.jit(fx.grad(lambda w, x: np.mean(through(x, w) ** 2)))
    return step.lower(weights, x).compile().memory_analysis().temp_bytes / x.nbytes


{f"{segments} segments": f"{activations(segments):.1f} activations" for segments in (1, 5, 10, 20, 100)}
""",
    "e6": """
import timeit

import numpy as np

import fxgrad as fx

f = fx.jit(lambda a, b, c: np.maximum(a * b + c, 0))


def seconds(n):
    args = [np.ones(n, np.float32)] * 3
    f(*args)
    return min(timeit.repeat(lambda: f(*args), number=100, repeat=7)) / 100


{f"{n} elements": f"{seconds(n) * 1e6:.2f} us" for n in (1, 100, 1_000, 10_000, 100_000)}
""",
    "e8": """
import timeit

import numpy as np

import fxgrad as fx

args = [np.ones(2_000_000, np.float32)] * 3


def seconds(fusion):
    fx.config.fusion = fusion
    f = fx.jit(lambda a, b, c: np.maximum(a * b + c, 0))
    f(*args)
    display(Markdown(f"```\\n{f.lower(*args).compile()}\\n```"))
    return min(timeit.repeat(lambda: f(*args), number=1, repeat=30))


unfused, fused = seconds(False), seconds(True)
f"unfused over fused: {unfused / fused:.2f}"
""",
}


def cells(name: str) -> list[tuple[str, str]]:
    """(kind, source) of each cell."""
    e = module(name)
    head = f"# {name.upper()}: {e.TITLE}\n\n{e.QUESTION}\n\n"
    made = f"Made by `python -m bench.experiments {name}`; this notebook shows the stored run."
    return [
        ("markdown", head + made),
        ("code", SETUP.strip().format(name=name)),
        ("markdown", "## Predicted\n\nWritten before anything was measured."),
        ("code", f"Markdown({name}.DERIVATION)"),
        ("code", 'Markdown("\\n".join(result.outcome_table().markdown()))'),
        ("markdown", "## Measured"),
        ("code", f'display(SVG(filename=FOLDER / "{name}.svg"))'),
        ("code", TABLES.strip()),
        ("markdown", "## Explained"),
        ("code", 'Markdown("\\n\\n".join(result.explanation))'),
        ("markdown", "## One case, measured now\n\nOn the machine that executed this notebook."),
        ("code", LIVE[name].strip()),
    ]


def notebook(name: str) -> Any:
    """Not executed yet."""
    import nbformat

    book = nbformat.v4.new_notebook()
    for number, (kind, source) in enumerate(cells(name)):
        make = nbformat.v4.new_markdown_cell if kind == "markdown" else nbformat.v4.new_code_cell
        book.cells.append(make(source, id=f"{name}-{number}"))
    book.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return book


def write(names: Sequence[str], out: Path) -> list[Path]:
    """Make, execute and store; an error in a cell is an error here."""
    import nbformat
    from nbclient import NotebookClient
    from traitlets.config import Config

    out.mkdir(parents=True, exist_ok=True)
    paths = []
    for name in names:
        load(name)  # says what is missing
        book = notebook(name)
        root = str(Path(__file__).resolve().parents[2])
        local = Config({"KernelManager": {"transport": "ipc"}})  # no socket that others could connect to
        where = {"metadata": {"path": root}}
        NotebookClient(book, timeout=SECONDS, kernel_name="python3", resources=where, config=local).execute()
        for cell in book.cells:
            cell.metadata.pop("execution", None)  # times of the run, which would differ in every commit
        paths.append(out / f"{name}.ipynb")
        nbformat.write(book, paths[-1])
        print(paths[-1])
    return paths


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(NAMES)} (default: all)")
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    try:
        write(args.names or NAMES, args.out)
    except ImportError as missing:
        print(f"Notebooks are made with nbformat, nbclient and ipykernel: pip install {missing.name}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
