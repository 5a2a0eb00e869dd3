"""Memory against time: a GPT's training step within ten budgets, and a thousand layers in segments: `python -m bench.frontier`.

Writes docs/benchmarks/frontier.json, and from it frontier.md and frontier.svg. Each point runs in a process of its own: the
compiled step's plan tells what it takes above its arguments (work space and results), the growth of the process's resident memory
what it took. Times are the least of several steps; the points take turns. All of them give the same gradients, to the bit, which
is checked.

    --batch B, --length T   of the GPT's ids (default 8, 256)
    --layers N, --rows N    of the chain (default 1000, 4096)
    --budgets N             from plain to the least (default 10)
    --repeat N              rounds over all points (default 3)
    --tiny                  sizes that only show that everything runs
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench.processes import ROOT, fresh
from bench.report import machine, quantity

OUT = ROOT / "docs" / "benchmarks"
STEPS = 3  # in each process; the least time counts

# A process prints what a Point holds.
SCRIPT = """
import ctypes, gc, hashlib, json, sys, time
import numpy as np, fxgrad as fx
from bench import frontier
step, args = {small}
step(*args)  # what is loaded at the first call
step, args = {make}
def status(field):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))
begun = time.perf_counter()
executable = step.lower(*args).compile()
compiling = time.perf_counter() - begun
sizes = executable.memory_analysis()
gc.collect()
ctypes.CDLL(None).malloc_trim(0)
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")
before, seconds = status("VmRSS"), []
for _ in range({steps}):
    result = None
    begun = time.perf_counter()
    result = executable(*fx.tree.leaves(args))
    seconds.append(time.perf_counter() - begun)
grown = status("VmHWM") - before
digest = hashlib.sha256(b"".join(np.asarray(x).tobytes() for x in fx.tree.leaves(result))).hexdigest()
planned = sizes.peak_bytes - sizes.argument_bytes
print(json.dumps([planned, sizes.temp_bytes, grown, min(seconds), compiling, digest, sizes.argument_bytes, executable.flops]))
"""


class Point(NamedTuple):
    """Bytes planned above the arguments, of work space, grown; seconds of a step and of compiling; digest; arguments; flops."""

    planned: int
    space: int
    grown: int
    seconds: float
    compiling: float
    digest: str
    arguments: int
    flops: int


# ---- what is measured ----------------------------------------------------------------------------------------------------------


def gpt_step(size: tuple[int, int, int, int, int], checkpoint: str | None, budget: int | None) -> tuple[Any, tuple[Any, ...]]:
    """Loss and gradients of a GPT of these (layers, heads, width, batch, length), and the arguments."""
    import fxgrad as fx

    layers, heads, width, batch, length = size
    gpt = fx.models.gpt
    params = gpt.init(fx.random.key(0), gpt.Config(layers=layers, heads=heads, width=width, context=length))
    ids = np.random.default_rng(0).integers(0, 256, (batch, length + 1))
    step = fx.value_and_grad(lambda params, ids: gpt.loss(params, ids, checkpoint=checkpoint))
    return fx.jit(step, memory_budget=budget), (params, ids)


def chain_step(size: tuple[int, int, int], segments: int | str) -> tuple[Any, tuple[Any, ...]]:
    """Loss and gradients of (layers, rows, width) residual layers x + tanh(x @ w + b), and the arguments."""
    import fxgrad as fx
    import fxgrad.numpy as fnp

    layers, rows, width = size
    rng = np.random.default_rng(0)
    params = [(rng.normal(size=(width, width)).astype("f4") / width, np.zeros(width, "f4")) for _ in range(layers)]
    x = rng.normal(size=(rows, width)).astype("f4")
    chain = fx.checkpoint_sequential([lambda x, p: x + fnp.tanh(x @ p[0] + p[1])] * layers, segments)
    return fx.jit(fx.value_and_grad(lambda params, x: fnp.mean(fnp.square(chain(x, params))))), (params, x)


def least_peak(size: tuple[int, int, int, int, int]) -> int:
    """The lowest budget the GPT's step can have."""
    import re

    import fxgrad as fx

    step, args = gpt_step(size, None, 0)
    message = "a step in no memory at all"
    try:
        step.lower(*args).compile()
    except fx.FxError as error:
        message = str(error)
    found = re.search(r"it needs (\d+) bytes", message)
    if found is None:
        raise AssertionError(message)
    return int(found[1])


def measured(make: str, cache: str) -> Point:
    return Point(*fresh(SCRIPT.format(make=make, small="frontier.gpt_step((2, 2, 16, 2, 8), None, None)", steps=STEPS), cache))


def rounds(points: dict[str, str], repeat: int, cache: str) -> dict[str, Point]:
    """Every point measured `repeat` times, in turns; the least of times and the median of memory."""
    found: dict[str, list[Point]] = {}
    for _ in range(repeat):
        for name, make in points.items():
            found.setdefault(name, []).append(measured(make, cache))
            print(f"  {name}: {found[name][-1]}", flush=True)
    if len({p.digest for ps in found.values() for p in ps}) != 1:
        raise AssertionError("the points do not give the same bits")
    return {
        name: ps[0]._replace(
            grown=statistics.median_low(p.grown for p in ps),
            seconds=min(p.seconds for p in ps),
            compiling=min(p.compiling for p in ps),
        )
        for name, ps in found.items()
    }


def gpt_points(size: tuple[int, int, int, int, int], count: int, repeat: int, cache: str) -> dict[str, Point]:
    plain = measured(f"frontier.gpt_step({size}, None, None)", cache)
    high, low = plain.planned + plain.arguments, least_peak(size)
    budgets = [int(low + part * (high - low)) for part in np.linspace(1, 0, count)]
    points = {"plain": f"frontier.gpt_step({size}, None, None)"}
    points |= {f"budget {quantity(b - plain.arguments, 'B')}": f"frontier.gpt_step({size}, None, {b})" for b in budgets[1:]}
    points |= {name: f"frontier.gpt_step({size}, '{name}', None)" for name in ("block", "sqrt", "log")}
    return rounds(points, repeat, cache)


def chain_points(size: tuple[int, int, int], repeat: int, cache: str) -> dict[str, Point]:
    return rounds({str(s): f"frontier.chain_step({size}, {s!r})" for s in (1, "sqrt", "log")}, repeat, cache)


# ---- what is written -----------------------------------------------------------------------------------------------------------

NAMES = {"1": "plain", "block": "checkpoint per block", "sqrt": "segments by the square root", "log": "segments by halves"}


def table(points: dict[str, Point]) -> list[str]:
    """Markdown; ratios are to the first point."""
    first = next(iter(points.values()))
    lines = ["| | planned | of it work space | measured | measured / planned | step | time / plain | flops / plain | compiling |"]
    lines.append("|---|" + "---|" * 8)
    for name, p in points.items():
        cells = [
            quantity(p.planned, "B"), f"{quantity(p.space, 'B')} ({p.space / first.space:.3f})", quantity(p.grown, "B"),
            f"{p.grown / p.planned:.2f}", quantity(p.seconds, "s"), f"{p.seconds / first.seconds:.2f}",
            f"{p.flops / first.flops:.2f}", quantity(p.compiling, "s"),
        ]  # fmt: skip
        lines.append(f"| {NAMES.get(name, name)} | {' | '.join(cells)} |")
    return lines


def verdicts(gpt: dict[str, Point], chain: dict[str, Point]) -> list[str]:
    def judged(text: str, met: bool) -> str:
        return f"- {text}: {'met' if met else '**missed**'}"

    plain, root = chain["1"], chain["sqrt"]
    worst = max(gpt.values(), key=lambda p: abs(p.grown / p.planned - 1))
    return [
        judged(f"measured within 10 % of the plan: at most {abs(worst.grown / worst.planned - 1):.1%} off",
               abs(worst.grown / worst.planned - 1) <= 0.1),
        judged(f"square root: 1/12 of the plain work space: 1/{plain.space / root.space:.1f}", root.space * 12 <= plain.space),
        judged(f"square root: 1.45 of the time: {root.seconds / plain.seconds:.2f}", root.seconds <= 1.45 * plain.seconds),
        "- loss and gradients of all points have the same bits: checked",
    ]  # fmt: skip


def picture(gpt: dict[str, Point], path: Path) -> None:
    """Work space against time, both as multiples of plain's."""
    from bench.pictures import _pyplot

    figure, axes = _pyplot().subplots(figsize=(7, 4.2), layout="constrained")
    plain = gpt["plain"]
    budgets = [p for name, p in gpt.items() if name == "plain" or name.startswith("budget")]
    x, y = [[p.space / 1e6 for p in budgets], [p.seconds / plain.seconds for p in budgets]]
    axes.plot(x, y, "o-", color="#c1272d", label="jit(step, memory_budget=...)")
    for name, mark in (("block", "s"), ("sqrt", "^"), ("log", "D")):
        p = gpt[name]
        axes.plot([p.space / 1e6], [p.seconds / plain.seconds], mark, color="#4d77cf", label=NAMES[name])
    axes.set_xlabel("work space, MB")
    axes.set_ylabel("time of a step, as a multiple of plain's")
    axes.set_xlim(left=0)
    axes.legend(frameon=False)
    axes.grid(alpha=0.3)
    figure.savefig(path, metadata={"Date": None})


class Frontier(NamedTuple):
    """What was measured: the points, the sizes of GPT and chain, and where."""

    gpt: dict[str, Point]
    chain: dict[str, Point]
    sizes: tuple[Sequence[int], Sequence[int]]
    machine: dict[str, Any]

    def as_json(self) -> dict[str, Any]:
        points = [{name: p._asdict() for name, p in each.items()} for each in (self.gpt, self.chain)]
        return {"machine": self.machine, "sizes": self.sizes, "gpt": points[0], "chain": points[1]}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Frontier:
        gpt, chain = ({name: Point(**p) for name, p in data[key].items()} for key in ("gpt", "chain"))
        return cls(gpt, chain, data["sizes"], data["machine"])

    def page(self) -> str:
        (layers, heads, width, batch, length), (n, rows, columns) = self.sizes
        where = self.machine
        about = f"{where['processor']}, {where['cores']} cores, {where['date']}"
        parts = [
            "# Memory against time", "",
            "Written by `python -m bench.frontier`. What is planned and measured is above the arguments: work space and results.",
            "Each point is measured in processes of its own (growth of resident memory over three steps; the least time).", "",
            f"{about}, {where['busy'] or 0:.0%} busy before it began.", "", *verdicts(self.gpt, self.chain), "",
            f"## Loss and gradients of a GPT: {layers} layers, {heads} heads, width {width}, {batch} x {length} bytes", "",
            *table(self.gpt), "", "![work space and time of a GPT's step](frontier.svg)", "",
            f"## {n} layers x + tanh(x @ w + b), x f32[{rows},{columns}]", "", *table(self.chain), "",
        ]  # fmt: skip
        return "\n".join(parts)

    def write(self, out: Path) -> None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "frontier.json").write_text(json.dumps(self.as_json(), indent=1) + "\n")
        (out / "frontier.md").write_text(self.page())
        picture(self.gpt, out / "frontier.svg")


def main(arguments: list[str], out: Path = OUT) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    for name, value in {"batch": 8, "length": 256, "layers": 1000, "rows": 4096, "budgets": 10, "repeat": 3}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args(arguments)
    if not sys.platform.startswith("linux"):
        raise SystemExit("bench.frontier needs Linux's /proc to measure memory")
    gpt, chain = (6, 6, 384, args.batch, args.length), (args.layers, args.rows, 64)
    if args.tiny:
        gpt, chain, args.budgets, args.repeat = (2, 2, 16, 2, 8), (9, 32, 8), 2, 1
    where = machine()
    with tempfile.TemporaryDirectory() as cache:
        points = gpt_points(gpt, args.budgets, args.repeat, cache), chain_points(chain, args.repeat, cache)
    Frontier(*points, (gpt, chain), where).write(out)
    print((out / "frontier.md").read_text())


if __name__ == "__main__":
    main(sys.argv[1:])
