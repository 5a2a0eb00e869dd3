"""Start-up and first calls in fresh processes, with an empty and with a filled cache of compiled kernels."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping

from bench.peers import JAX
from bench.processes import fresh
from bench.run import Run
from bench.timing import Group, Row, Target, summary

COLD, WARM = "fxgrad, empty cache", "fxgrad, warm cache"
RUNS = 7
SETUPS = {
    "fxgrad": "import numpy as xp; from fxgrad import grad, jit, value_and_grad; ready = lambda y: y; put = lambda tree: tree",
    "jax": (
        "import jax, jax.numpy as xp; from jax import grad, jit, value_and_grad, block_until_ready as ready; "
        "put = lambda tree: jax.tree.map(xp.asarray, tree)"
    ),
}
# Seconds of the import (beyond NumPy's) and of a trivial compiled call; then, by name, of each call that the program times.
SCRIPT = """
import json, statistics, time
import numpy
start = time.perf_counter()
{setup}
times = {{"import": time.perf_counter() - start}}
def timed(name, f, *args):
    start = time.perf_counter()
    ready(f(*args))
    times[name] = time.perf_counter() - start
def steady(name, f, *args):
    samples = []
    for _ in range(7):
        timed(name, f, *args)
        samples.append(times[name])
    times[name] = statistics.median(samples)
timed("trivial", jit(lambda x: x + 1), put(numpy.ones(10, "float32")))
{program}
print(json.dumps(times))
"""
BLOCK = """
from bench.block import example
model, source = example(xp), example()
def problem(batch):
    params, x, target = source.make_problem(source.Size(batch, {length}, {width}, 8), "float32", 0)
    return put(params), put(x), put(target)
step = jit(lambda p, x, target: value_and_grad(model.loss_of(8, target), (0, 1))(p, x))
args = problem({batch})
timed("first", step, *args)
steady("steady", step, *args)
args = problem({batch} - 2)
timed("new batch", step, *args)
steady("new batch, steady", step, *args)
"""
# The chain repeats three operations; `wrap` is jit, or jit of the gradient.
CHAIN = """
def chain(x):
    for i in range({length}):
        x = xp.sin(x) if i % 3 == 0 else x * 1.01 if i % 3 == 1 else x + 0.1
    return x.sum()
timed("first", {wrap}, put(numpy.ones(10)))
"""
Samples = dict[str, list[dict[str, float]]]


def sampled(run: Run, programs: Mapping[str, str], with_warm: bool) -> dict[str, Samples]:
    """Samples by program and column; contenders take turns, each in a fresh process, fxgrad's first with an empty cache."""
    found: dict[str, Samples] = {name: {} for name in programs}
    for _ in range(run.size(RUNS, 1)):
        for name, program in programs.items():
            with tempfile.TemporaryDirectory() as cache:
                for column in (COLD, WARM) if with_warm else (COLD,):
                    found[name].setdefault(column, []).append(
                        fresh(SCRIPT.format(setup=SETUPS["fxgrad"], program=program), cache)
                    )
                if run.peers.jax is not None:
                    found[name].setdefault(JAX, []).append(fresh(SCRIPT.format(setup=SETUPS["jax"], program=program), cache))
    return found


def table_row(label: str, samples: Samples, key: str, targets: list[Target]) -> Row:
    return Row(label, {column: summary([s[key] for s in found]) for column, found in samples.items()}, targets)


def first_calls(run: Run) -> Group:
    group = run.group("startup", "First calls in a fresh process", COLD, sampled="processes")
    batch, length, width = run.size((8, 128, 256), (4, 4, 8))
    program = BLOCK.format(batch=batch, length=length, width=width)
    with tempfile.TemporaryDirectory() as cache:
        fresh(SCRIPT.format(setup=SETUPS["fxgrad"], program=""), cache)  # leaves the bytecode behind
    samples = sampled(run, {"block": program}, with_warm=True)["block"]
    what = "the block's first call"
    for label, key, targets in (
        ("import, beyond NumPy's", "import", []),
        ("first compiled call of the process: x + 1", "trivial", []),
        (
            what,
            "first",
            [Target(f"{what}, empty cache", COLD, 0.9, (JAX,)), Target(f"{what}, warm cache", WARM, 0.4, (JAX,))],
        ),
        ("steady call", "steady", []),
        ("first call with another batch size", "new batch", []),
        ("steady call with it", "new batch, steady", []),
    ):
        run.add(group, table_row(label, samples, key, targets))
    # A difference of two columns is one within a process: the median of the differences.
    more = {name: [s["new batch"] - s["new batch, steady"] for s in found] for name, found in samples.items()}
    targets = [Target("first call with another batch size", name, 0.02, kind="most") for name in (COLD, WARM)]
    row = Row("what another batch size costs", {name: summary(found) for name, found in more.items()}, targets)
    run.add(group, row)
    group.notes += [
        f"fxgrad's kernels are compiled or loaded in {what}; with an empty cache numba compiles the executor in the call before.",
        "The warm cache was filled by the process before. JAX runs without a persistent compilation cache, its default.",
    ]
    return group


def chains(run: Run) -> Group:
    group = run.group("chain", "Tracing and compiling chains of operations, empty cache", "400 operations", sampled="processes")
    lengths = run.size((200, 400), (5, 10))
    wraps = {"value": "jit(chain)", "gradient": "jit(grad(chain))"}
    programs = {f"{what} {n}": CHAIN.format(length=n, wrap=wrap) for what, wrap in wraps.items() for n in lengths}
    samples = sampled(run, programs, with_warm=False)
    short, long = "200 operations", "400 operations"
    for what in wraps:
        for column in samples[f"{what} {lengths[0]}"]:
            times = {
                name: summary([s["first"] for s in samples[f"{what} {n}"][column]])
                for name, n in zip((long, short), reversed(lengths), strict=True)
            }
            label = f"{what}, {column}"
            targets = [Target("chain of 400 operations against 200", long, 2.5, (short,))] if column == COLD else []
            run.add(group, Row(label, times, targets))
    return group


def measure(run: Run) -> list[Group]:
    return [first_calls(run), chains(run)]
