"""E10: how programs scale over threads, where they stop, and why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import fxgrad as fx
from bench.block import Problem
from bench.experiments.base import Prediction, Result, Table, shown
from bench.experiments.inside import threads_set
from bench.experiments.lab import Lab
from bench.experiments.pictures import GREY, figure
from bench.report import cores

TITLE = "Scaling over threads, and where it ends"
QUESTION = (
    "How much faster do p threads run a program than one, and which limit stops them: bandwidth, the serial part, "
    "sharing, or cores?"
)
DERIVATION = """
With p threads on p cores a program cannot gain more than what bounds it does:

- *arithmetic* (a large product; exp of what is in cache): the peak of multiply-adds with p threads over that with one, near
  **p**;
- *memory* (relu(a*b + c) beyond the caches): the bandwidth of p threads over that of one, which is near **1** where one core
  already draws most of what memory gives;
- *small work*: a step of less than two grains of work wakes nobody: **1**, by design;
- *a program of many steps* (the block's step): Amdahl. If the steps that are shared take the fraction f of one thread's time
  and gain S, the whole gains 1 / (1 - f + f / S). S is between the two ratios above, by what bounds each step.

More threads than cores have nothing to run on: **the same as p = cores**, less what it costs when a thread that others wait for
is not running.
"""
COPIES = (1, 2, 3, 4, 8)
LARGE, CACHED, SMALL, SIDE = (10_000_000, 100_000), (200_000, 20_000), 1_000, (1024, 96)
BLOCK = ((8, 128, 256, 8), (1, 4, 8, 2))
NAMES = ("memory", "exp", "product", "small", "block")
LABELS = {
    "memory": "relu(a*b + c), memory",
    "exp": "exp, in cache",
    "product": "product",
    "small": "relu(a*b + c), 1,000 numbers",
    "block": "step of the block",
}


def programs(lab: Lab) -> dict[str, tuple[Any, list[Any]]]:
    """Compiled functions and their arguments."""
    rng = np.random.default_rng(0)

    def arrays(count: int, *shape: int) -> list[np.ndarray]:
        return [rng.standard_normal(shape, dtype=np.float32) for _ in range(count)]

    problem, side = Problem(BLOCK[lab.quick], "float32"), SIDE[lab.quick]
    chain = lambda a, b, c: np.maximum(a * b + c, 0)  # noqa: E731
    return {
        "memory": (fx.jit(chain), arrays(3, LARGE[lab.quick])),
        "exp": (fx.jit(lambda x: np.exp(x)), arrays(1, CACHED[lab.quick])),
        "product": (fx.jit(lambda a, b: a @ b), arrays(2, side, side)),
        "small": (fx.jit(chain), arrays(3, SMALL)),
        "block": (
            fx.jit(fx.value_and_grad(problem.example.loss_of(problem.size.heads, problem.target), (0, 1))),
            [problem.params, problem.x],
        ),
    }


def shared(step: Any) -> bool:
    """Whether a step has two grains of work, and so wakes the team."""
    if not step.launches:
        return step.kind != "host"
    extent, grain = (int(n) for n in step.launches[0].plan[:2])
    return extent >= 2 * max(grain, 1) or (step.block > 0 and step.rows[0] >= 2 * step.block)


def amdahl(lab: Lab, run: Any, args: list[Any]) -> tuple[float, float]:
    """(predicted gain of all threads, fraction of one thread's time in steps that are shared)."""
    c, p = lab.constants, lab.threads
    peak = c.limits(p).peak_float32 / c.limits(1).peak_float32
    with threads_set(1):
        facts = _explained(run, args)
    whole = spent = 0.0
    steps = run.lower(*args).compile().steps
    for step, fact in zip(steps, facts.steps, strict=True):
        seconds = fact.speed.seconds or 0.0
        gain = (
            peak
            if fact.speed.bound == "peak"
            else c.rate(fact.speed.bytes_moved, "triad", p) / c.rate(fact.speed.bytes_moved, "triad", 1)
        )
        whole += seconds
        spent += seconds / max(gain, 1.0) if shared(step) else seconds
    in_shared = sum((fact.speed.seconds or 0.0) for step, fact in zip(steps, facts.steps, strict=True) if shared(step))
    return whole / spent, in_shared / whole


def _explained(run: Any, args: list[Any]) -> Any:
    import contextlib
    import io

    with contextlib.redirect_stdout(io.StringIO()):
        return fx.explain(run, *args).facts


def predict(lab: Lab) -> list[Prediction]:
    c, p = lab.constants, lab.threads
    peak = c.limits(p).peak_float32 / c.limits(1).peak_float32
    size = 16 * LARGE[lab.quick]
    memory = c.rate(size, "triad", p) / c.rate(size, "triad", 1)
    run, args = programs(lab)["block"]
    block, fraction = amdahl(lab, run, args)
    lab.constants.used["fraction of the block's time in shared steps"] = fraction
    return [
        Prediction(
            "memory",
            f"{LABELS['memory']}: {p} threads over one",
            memory,
            "x",
            f"{shown(c.rate(size, 'triad', p), 'B/s')} against {shown(c.rate(size, 'triad', 1), 'B/s')}.",
            1.2,
        ),
        Prediction("exp", f"{LABELS['exp']}: {p} threads over one", peak, "x", "The peaks' ratio.", 1.25),
        Prediction(
            "product", f"{LABELS['product']} {SIDE[lab.quick]}: {p} threads over one", peak, "x", "The peaks' ratio.", 1.2
        ),
        Prediction("small", f"{LABELS['small']}: {p} threads over one", 1.0, "x", "Less than two grains: nobody is woken.", 1.1),
        Prediction(
            "block",
            f"{LABELS['block']}: {p} threads over one",
            block,
            "x",
            f"Amdahl with {fraction:.0%} of the time in shared steps.",
            1.2,
        ),
        Prediction(
            "more", "product, twice as many threads as cores over as many as cores", 1.0, "x", "No cores to run on.", 1.25
        ),
    ]


def measure(lab: Lab, result: Result) -> None:
    counts = sorted({*lab.size(COPIES, (1,)), lab.threads, 2 * cores()})
    found: dict[str, dict[int, float]] = {}
    for name, (run, args) in programs(lab).items():
        contenders: dict[str, Callable[[], Any]] = {}
        for p in counts:

            def call(p: int = p, run: Any = run, args: list[Any] = args) -> Any:
                if fx.get_num_threads() != p:
                    fx.set_num_threads(p)
                return run(*args)

            contenders[str(p)] = call
        times = lab.times(contenders, repeat=7, block=0.03)
        found[name] = {p: times[str(p)] for p in counts}
    fx.set_num_threads(lab.threads)
    rows = [
        [LABELS[name], *(t[1] / t[p] for p in counts), t[1], min(t.values()), reached(lab, name, min(t.values()))]
        for name, t in found.items()
    ]
    columns = [("", ""), *((f"{p}", "x") for p in counts), ("one thread", "s"), ("best", "s"), ("which is", "")]
    title = f"Gain over one thread by the number of threads; this process may use {cores()} cores"
    result.tables["speedup"] = Table(title, columns, rows)
    for name, t in found.items():
        result.figures[name] = t[1] / t[lab.threads]
        result.figures[f"{name}_many"] = t[1] / t[counts[-1]]
    product = found["product"]
    result.figures["more"] = product[cores()] / product[2 * cores()] if cores() in product else 1.0
    result.figures["cores"], result.figures["most"] = cores(), counts[-1]


def reached(lab: Lab, name: str, seconds: float) -> str:
    """What a program reached in its best time, beside this machine's ceiling."""
    limits = lab.constants.limits()
    if name == "memory":
        size = 16 * LARGE[lab.quick]
        return f"{shown(size / seconds, 'B/s')} of {shown(lab.constants.rate(size, 'triad'), 'B/s')}"
    work = {"product": 2 * SIDE[lab.quick] ** 3, "block": Problem(BLOCK[lab.quick], "float32").flops}
    if name in work:
        return f"{shown(work[name] / seconds, 'flop/s')} of {shown(limits.peak_float32, 'flop/s')}"
    return "-"


def explain(result: Result) -> list[str]:
    f, p = result.figures, result.threads
    fraction = result.constants["fraction of the block's time in shared steps"]
    return [
        (
            f"**Bandwidth.** The memory-bound chain gains {shown(f['memory'], 'x')} from {p} threads, "
            f"{shown(result.predicted_value('memory'), 'x')} predicted: that is the plateau of memory, of which one core "
            f"alone draws {1 / f['memory']:.0%}; more threads cannot move it."
        ),
        (
            f"**Arithmetic.** The product gains {shown(f['product'], 'x')} and exp {shown(f['exp'], 'x')}, of "
            f"{shown(result.predicted_value('product'), 'x')} that multiply-adds in registers gain. What is missing from exp "
            "is the start of a shared step: waking and joining the team costs some microseconds, a fixed part of a call that "
            "is not much longer."
        ),
        (
            f"**Amdahl.** {fraction:.0%} of the block's time on one thread is in steps that are shared; with what bounds each "
            f"of them the prediction is {shown(result.predicted_value('block'), 'x')}, measured {shown(f['block'], 'x')}."
        ),
        (
            f"**Sharing.** {LABELS['small'].capitalize()} gain {shown(f['small'], 'x')}: work below two grains stays with the "
            "calling thread, so that small calls do not pay for threads they cannot use."
        ),
        (
            f"**More threads than cores** ({f['most']:.0f} on {f['cores']:.0f}): the product runs at "
            f"{shown(f['product_many'], 'x')} of one thread's speed, the block at {shown(f['block_many'], 'x')}. A thread "
            "that is not running holds up those that wait for its chunk; workers do not spin then, and every step pays for "
            "sleeping and waking."
        ),
    ]


def draw(result: Result) -> dict[str, Any]:
    made, (axes,) = figure(1, width=6.8, height=4.3)
    table = result.tables["speedup"]
    counts = [int(name) for name, unit in table.columns[1:-3]]
    shades = ["#4d77cf", "#e06c00", "#c1272d", "#8c8c8c", "#2a9d5c"]
    for row, shade, name in zip(table.rows, shades, NAMES, strict=True):
        axes.plot(counts, row[1:-3], "o-", color=shade, label=row[0])
        if name in [p.name for p in result.predictions]:
            axes.plot([result.threads], [result.predicted_value(name)], "x", color=shade, markersize=9, markeredgewidth=2)
    most = int(result.figures["cores"])
    axes.plot([1, most, max(counts)], [1, most, most], color=GREY, linestyle=":", linewidth=1, label=f"{most} cores")
    axes.set(xlabel="threads", ylabel="gain over one thread", ylim=(0, None))
    axes.set_xticks(counts)
    axes.set_title("Crosses: predicted", fontsize=9.5, loc="left")
    axes.legend(frameon=False, fontsize=8)
    return {"": made}
