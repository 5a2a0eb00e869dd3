"""Figures that pages quote from docs/benchmarks: single ones, and tables with one line for each named work."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.experiments.base import shown
from bench.report import stored
from bench.timing import Group, Row

__all__ = ["PEERS", "Benchmarks", "Work"]


@dataclass(frozen=True)
class Work:
    """A line of a table: what a reader calls it, and the benchmark's table and row that have its figures."""

    says: str
    group: str
    row: str


PEERS = (
    Work("relu(a*b + c), 10 million float32", "memory", "n = 1e7"),
    Work("exp, 100,000 float32", "math", "exp float32 [-10, 10]"),
    Work("softmax of 4096x1024", "rows", "softmax"),
    Work("gradient of softmax", "rows", "gradient of softmax"),
    Work("gradient of layer norm", "rows", "gradient of layer norm"),
    Work("product of 1024x1024 matrices, float32", "matmul_float32", "1024: a @ b"),
    Work("transformer block, loss and all gradients", "transformer", "B,T,D,H = 8,128,256,8, float32"),
    Work("training step of the block, AdamW", "training", "block: BlockTraining(8, 128, 256, 8), float32"),
    Work("training step of a GPT, AdamW", "training", "GPT: GPTTraining(8, 128), float32"),
    Work("peak memory of the GPT's step", "training_memory", "GPT: GPTTraining(8, 128), float32"),
    Work("gradients of thirty NumPy programs, mean", "program_gradients", "geometric mean of all"),
    Work("call on three arrays of 10 numbers", "jit_call", "tanh(a*b + c), float32"),
    Work("gradient without jit, 3 numbers", "eager_grad", "n = 3, float64"),
)
# Whom a column stands for: contenders whose names begin so, of which the best counts.
COLUMNS = {"JAX": "jax", "PyTorch": "torch", "NumPy": "numpy", "autograd": "autograd"}
# The README's table: what no benchmark says, then what they do, the first contender of a column that is there.
FACTS = (
    ("you write", "plain NumPy", "`jax.numpy`, no writes in place", "torch's tensors", "plain NumPy, no writes in place"),
    ("eager and compiled agree", "to the bit", "nearly", "nearly", "eager only"),
    ("forward mode / `vmap` / checkpoints", "yes / yes / yes", "yes / yes / yes", "yes / yes / yes", "yes / no / yes"),
    ("GPUs, half precision, sparse arrays", "no", "yes", "yes", "no"),
    ("what is built on it", "nothing yet", "much", "most", "some"),
)
FIGURES = (
    Work("transformer block, loss and gradients", "transformer", "B,T,D,H = 8,128,256,8, float32"),
    Work("its first call, with empty caches", "startup", "the block's first call"),
    Work("first compiled call of a process", "startup", "first compiled call of the process: x + 1"),
    Work("training step of a GPT, AdamW", "training", "GPT: GPTTraining(8, 128), float32"),
    Work("gradient of three numbers, not compiled", "eager_grad", "n = 3, float64"),
)
NO_BREAK = "\u00a0"  # a space at which a narrow column does not break
PACKAGES = {"jax": "JAX", "torch": "PyTorch", "numpy": "NumPy", "autograd": "autograd"}


class Benchmarks:
    """What the JSON files of docs/benchmarks hold, by the names of their tables."""

    def __init__(self, folder: Path):
        self.groups: dict[str, tuple[Group, dict[str, Any]]] = {group.name: (group, where) for group, where in stored(folder)}

    def group(self, name: str) -> Group:
        if name not in self.groups:
            raise KeyError(f"docs/benchmarks has no {name}.json: run python -m bench")
        return self.groups[name][0]

    def row(self, name: str, label: str) -> Row:
        rows = {row.label: row for row in self.group(name).rows}
        if label not in rows:
            raise KeyError(f"{name} has no row {label!r}; it has {', '.join(map(repr, rows))}")
        return rows[label]

    def figure(self, name: str, label: str, who: str) -> str:
        """A contender's figure in its unit; of `this / that` how many times that is."""
        times = self.row(name, label).times
        contenders = who.split(" / ")
        for contender in contenders:
            if contender not in times:
                raise KeyError(f"{label!r} of {name} has no {contender!r}; it has {', '.join(map(repr, times))}")
        values = [times[contender].median for contender in contenders]
        if len(values) == 1:
            return shown(values[0], self.group(name).unit)
        return shown(values[0] / values[1], "x")

    def spread(self, name: str, who: str) -> str:
        """`0.2 s to 8 s, half of them within 0.7 s`: a contender's figures in all rows of a table."""
        group = self.group(name)
        values = [row.times[who].median for row in group.rows if who in row.times]
        least, middle, most = (shown(v, group.unit) for v in (min(values), statistics.median(values), max(values)))
        return f"{least} to {most}, half of them at most {middle}"

    def compared(self, works: Sequence[Work] = PEERS) -> str:
        """Ours, and the others' as so many times ours."""
        lines = [f"| | fxgrad | {' | '.join(COLUMNS)} |", f"|---|---:|{'---:|' * len(COLUMNS)}"]
        for work in works:
            times, group = self.row(work.group, work.row).times, self.group(work.group)
            ours = times[group.base].median
            others = [best(times, prefix) for prefix in COLUMNS.values()]
            cells = ["-" if other is None else ratio(other / ours) for other in others]
            figure = shown(ours, group.unit).replace(" ", NO_BREAK)
            lines.append(f"| {work.says} | {figure} | {' | '.join(cells)} |")
        legend = "Others' times and memory as multiples of fxgrad's; **bold**: less than fxgrad needs."
        return "\n".join([*lines, "", f"{legend} {self.about(work.group for work in works)}"])

    def comparison(self) -> str:
        """What fxgrad is and is not, next to others, and some times."""
        columns = ("JAX", "PyTorch", "autograd")
        lines = [f"| | fxgrad | {' | '.join(columns)} |", "|---|---|---|---|---|"]
        lines += [f"| {' | '.join(fact)} |" for fact in FACTS]
        for work in FIGURES:
            times, group = self.row(work.group, work.row).times, self.group(work.group)
            values = [times[group.base].median, *(best(times, COLUMNS[peer]) for peer in columns)]
            lines.append(f"| {work.says} | {' | '.join('-' if x is None else shown(x, group.unit) for x in values)} |")
        return "\n".join([*lines, "", self.about(work.group for work in FIGURES)])

    def about(self, names: Iterable[str]) -> str:
        """Where, when, by what command and with which versions these tables were measured."""
        kept = [self.groups[name] for name in dict.fromkeys(names)]
        dates = sorted({where["date"].split()[0] for _, where in kept})
        machines = dict.fromkeys(f"{group.threads} threads of an {where['processor']}" for group, where in kept)
        versions = dict.fromkeys((name, group.versions[name]) for group, _ in kept for name in PACKAGES if name in group.versions)
        said = ", ".join(
            f"{PACKAGES[name]} {version}" for name, version in sorted(versions, key=lambda v: list(PACKAGES).index(v[0]))
        )
        when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
        return f"`python -m bench`, {when}, {', '.join(machines)}; {said}."


def best(times: Mapping[str, Any], prefix: str) -> float | None:
    """The least of the contenders whose names begin so; None if there is none."""
    return min((t.median for name, t in times.items() if name.startswith(prefix)), default=None)


def ratio(value: float) -> str:
    """Three digits at most; bold where the peer needs less than we do, to the digits shown."""
    text = f"{value:.0f}" if value >= 100 else f"{value:.3g}" if value >= 10 else f"{value:.2f}"
    return f"**{text}x**" if float(text) < 1 else f"{text}x"
