"""Thirty ordinary NumPy programs (examples/numpy_programs): gradients and values, next to NumPy, numba and JAX ports."""

from __future__ import annotations

import math
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

import fxgrad as fx
from bench import programs
from bench.peers import FXGRAD, JAX
from bench.run import Run
from bench.timing import Group, Row, Target, exact

NUMBA = "numba njit"
TINY = ["arma", "kmeans"]
FASTER = 24 / 30  # the share of the gradients that is to be faster than JAX's
TOLERANCE = 1e-6  # rounding, after hundreds of steps
Contenders = dict[str, Callable[[], Any]]


def first_calls(found: Contenders) -> dict[str, float]:
    """Seconds of each contender's next call, which compiles."""
    seconds = {}
    for name, f in found.items():
        start = time.perf_counter()
        f()
        seconds[name] = time.perf_counter() - start
    return seconds


def compiled_pair(run: Run, name: str, args: tuple[Any, ...], gradient: bool) -> Contenders:
    """The program or its gradient in its first argument: by fxgrad, and the port by JAX."""
    plain = programs.load(name, "fxgrad.numpy").run
    mine = fx.jit(fx.grad(plain) if gradient else plain)
    found: Contenders = {FXGRAD: lambda: mine(*args)}
    jax = run.peers.jax
    if jax is not None:
        from bench import ports_data  # noqa: F401  # more entries of PORTS
        from bench.ports import PORTS

        port, arrays = PORTS[name], [jax.numpy.asarray(a) for a in args]
        theirs = jax.jit(jax.grad(port) if gradient else port)
        found[JAX] = lambda: jax.block_until_ready(theirs(*arrays))
    return found


def numba_version(run: Run, name: str, args: tuple[Any, ...]) -> Callable[[], Any] | None:
    """The program with each of its functions under a plain `njit`, or None where numba refuses it or is not there."""
    numba = run.peers.module("numba")
    if numba is None:
        return None
    scope = vars(programs.load.__wrapped__(name))
    for key in [k for k, f in scope.items() if hasattr(f, "__code__")]:
        scope[key] = numba.njit(scope[key])
    f = scope["run"]
    try:
        f(*args)
    except numba.core.errors.NumbaError:
        return None
    return lambda: f(*args)


@contextmanager
def empty_cache() -> Iterator[None]:
    """No kernel is found on disk; the executor, compiled once for a machine, is there already."""
    fx.jit(lambda x: x + 1.0)(np.zeros(2))
    kept = fx.config.cache_dir
    with tempfile.TemporaryDirectory() as folder:
        fx.config.cache_dir = folder
        try:
            yield
        finally:
            fx.config.cache_dir = kept


def add_targets(run: Run, group: Group, rows: Sequence[Row]) -> None:
    """Two rows that carry what was asked of the thirty together."""
    pairs = [(row.times[FXGRAD].median, row.times[JAX].median) for row in rows if JAX in row.times]
    if not pairs:
        return
    mine, theirs = (math.exp(sum(map(math.log, column)) / len(pairs)) for column in zip(*pairs, strict=True))
    target = Target("gradients of thirty NumPy programs, geometric mean", FXGRAD, 0.5, (JAX,))
    run.add(group, Row("geometric mean of all", {FXGRAD: exact(mine), JAX: exact(theirs)}, [target]))
    place = math.ceil(FASTER * len(pairs))
    mine, theirs = sorted(pairs, key=lambda pair: pair[0] / pair[1])[place - 1]
    target = Target(f"gradients of NumPy programs, {place} of {len(pairs)}", FXGRAD, 1.0, (JAX,))
    run.add(group, Row(f"the ratio that {place} of {len(pairs)} reach", {FXGRAD: exact(mine), JAX: exact(theirs)}, [target]))


def measure(run: Run) -> list[Group]:
    gradients = run.group("program_gradients", "Gradients of thirty NumPy programs", FXGRAD)
    values = run.group("program_values", "Values of thirty NumPy programs", FXGRAD)
    first = run.group("program_first_calls", "First calls of those gradients: trace and compile", FXGRAD)
    with empty_cache(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numba's remarks on products of strided arrays
        for name in run.size(programs.NAMES, TINY):
            args = programs.problem(name, small=run.tiny)
            pair = compiled_pair(run, name, args, gradient=True)
            run.add(first, Row(name, {k: exact(t) for k, t in first_calls(pair).items()}))
            run.row(gradients, name, pair, TOLERANCE)
            plain = programs.load(name).run
            found = compiled_pair(run, name, args, gradient=False) | {"numpy": lambda f=plain, a=args: f(*a)}
            with_numba = numba_version(run, name, args)
            run.row(values, name, found | ({NUMBA: with_numba} if with_numba else {}), TOLERANCE)
    add_targets(run, gradients, list(gradients.rows))
    gradients.notes.append(
        "With respect to the first argument. The programs are in examples/numpy_programs, the JAX ports in bench."
    )
    values.notes.append("numba is given each function of a program as it stands, under a plain njit; a dash: it refuses.")
    first.notes.append("One call each in one process, from an empty cache of kernels; what programs share is compiled once.")
    return [gradients, values, first]
