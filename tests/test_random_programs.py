"""Random programs: the same bits in every mode, and NumPy's numbers.

`FXGRAD_FUZZ_EXAMPLES` sets how many (`make fuzz` runs many), `FXGRAD_FUZZ_SEED` which. A program that fails is made smaller, for
at most a minute, and printed with its IR. (Hypothesis could do it, but it knows nothing of data flow and needs long for it.)
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

import fxgrad as fx
from fxgrad.testing.bits import assert_same_bits
from tests import works
from tests.numpy_programs import Spec, minimise, specs

pytestmark = pytest.mark.fuzz

EXAMPLES = int(os.environ.get("FXGRAD_FUZZ_EXAMPLES", "300"))
SEED = int(os.environ.get("FXGRAD_FUZZ_SEED", "0"))
Threads = Callable[[int], None]
BATCHES = 4  # for the workers of pytest-xdist
POLICIES = [
    fx.checkpoint_policies.nothing_saveable,
    fx.checkpoint_policies.everything_saveable,
    fx.checkpoint_policies.dots_saveable,
]


def forall(strategy: Any, check: Callable[..., None], batch: int) -> None:
    """Run `check` on this batch's share of the examples, the same ones each time."""
    wrapped = settings(
        max_examples=max(1, EXAMPLES // BATCHES),
        phases=[Phase.generate],
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        print_blob=False,
        report_multiple_bugs=False,
    )(given(strategy)(lambda drawn: check(drawn)))
    seed(SEED * BATCHES + batch)(wrapped)()


# ---- what must hold ----------------------------------------------------------------------------------------------------


def modes_agree(spec: Spec) -> None:
    """Operation by operation, compiled, and run from the trace."""
    args = spec.arrays()
    before = [a.copy() for a in args]
    eager = spec.function(*args)
    assert_same_bits(fx.jit(spec.function)(*args), eager, "jit against eager")
    with fx.disable_jit():
        assert_same_bits(fx.jit(spec.function)(*args), eager, "the trace, op by op, against eager")
    for i, x in zip(spec.outputs, eager, strict=True):
        assert x.dtype == spec.dtypes[i], f"v{i} is {x.dtype}, NumPy's {spec.dtypes[i]}"
    assert_same_bits(args, before, "operands, before and after")


def threads_agree(spec: Spec, use_threads: Threads) -> None:
    """The program with its gradient, fused and not, among any number of threads."""
    args, numbers = spec.arrays(), tuple(range(len(spec.inputs)))
    works.check([works.work("program", lambda *xs: (spec.function(*xs), fx.grad(spec.loss, numbers)(*xs)), *args)], use_threads)


def gradients_agree(spec: Spec, way: int) -> None:
    """value_and_grad: eager against one of jit(grad), grad(jit), grad(checkpoint), jit(grad(checkpoint))."""
    args, numbers = spec.arrays(), tuple(range(len(spec.inputs)))
    eager = fx.value_and_grad(spec.loss, numbers)(*args)
    policy = POLICIES[way % len(POLICIES)]
    if way % 4 == 0:
        found, name = fx.jit(fx.value_and_grad(spec.loss, numbers))(*args), "jit(grad)"
    elif way % 4 == 1:
        found, name = fx.value_and_grad(fx.jit(spec.loss), numbers)(*args), "grad(jit)"
    elif way % 4 == 2:
        found, name = fx.value_and_grad(fx.checkpoint(spec.loss, policy), numbers)(*args), f"grad(checkpoint), {policy}"
    else:
        found = fx.jit(fx.value_and_grad(fx.checkpoint(spec.loss, policy), numbers))(*args)
        name = f"jit(grad(checkpoint)), {policy}"
    assert_same_bits(found[0], eager[0], f"value of {name}")
    assert_same_bits(found[1], eager[1], f"gradient of {name}")
    for g, a in zip(eager[1], args, strict=True):
        assert g.shape == a.shape and g.dtype == a.dtype, "a gradient has its input's shape and dtype"


def batches_agree(spec: Spec, way: int) -> None:
    """vmap against the loop: of the program, or of its gradient; of all inputs, or the first only."""
    size, numbers = 3, tuple(range(len(spec.inputs)))
    mapped_inputs = [way % 2 == 0 or i == 0 for i in numbers]
    batches = [
        np.stack([i.array(k) for k in range(size)]) if m else i.array() for i, m in zip(spec.inputs, mapped_inputs, strict=True)
    ]
    axes = tuple(0 if m else None for m in mapped_inputs)
    f = fx.grad(spec.loss, numbers) if way % 3 == 0 else spec.function
    rows = [f(*[b[k] if m else b for b, m in zip(batches, mapped_inputs, strict=True)]) for k in range(size)]
    looped = [np.stack(column) for column in zip(*rows, strict=True)]
    assert_same_bits(list(fx.vmap(f, in_axes=axes)(*batches)), looped, "vmap against the loop")


# ---- NumPy in float64 ----------------------------------------------------------------------------------------------------


def reference(spec: Spec, noise: np.random.Generator | None) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """(outputs, integer and boolean values) by NumPy in float64; with noise, each value moved by a few of its dtype's ulp.

    Where noise moves a result, rounding may: the moves tell how well the program determines its results.
    """
    discrete: list[np.ndarray] = []

    def after(i: int, x: Any) -> Any:
        x = np.asarray(x)
        if x.dtype.kind != "f":
            discrete.append(x)
            return x
        dtype = np.dtype(spec.dtypes[i])
        info = np.finfo(dtype)
        # what the dtype cannot hold is what it makes of it: inf, a subnormal, 0
        x = np.where((np.abs(x) > info.max) | (np.abs(x) < info.tiny), x.astype(dtype), x).astype(np.float64)
        if noise is None:
            return x
        step = i - len(spec.inputs)
        # log(e**x + e**y) near 0 is a difference of numbers near 1, in NumPy as here: its error is not relative
        absolute = info.eps if step >= 0 and dict(spec.steps[step].params).get("name") == "logaddexp" else info.tiny
        return x * (1 + 8 * info.eps * noise.uniform(-1, 1, x.shape)) + noise.uniform(-8, 8, x.shape) * absolute

    with np.errstate(all="ignore"):
        outs = spec.run(np, [a.astype(np.float64) for a in spec.arrays()], after)
    return [np.asarray(x) for x in outs], discrete


def numpy_agrees(spec: Spec) -> None:
    exact, decisions = reference(spec, None)
    moved = []
    for k in range(4):
        outs, others = reference(spec, np.random.default_rng(k))
        if any(not np.array_equal(a, b) for a, b in zip(decisions, others, strict=True)):
            return  # a comparison or rounding hangs on the last bits
        moved.append(outs)
    with np.errstate(all="ignore"):
        for n, (i, x) in enumerate(zip(spec.outputs, spec.function(*spec.arrays()), strict=True)):
            runs = np.stack([exact[n], *(m[n] for m in moved)]).astype(np.float64)
            sure = np.all(np.isfinite(runs), axis=0)
            allowed = 16 * np.max(np.abs(runs - runs[0]), axis=0)
            wrong = sure & ~(np.abs(np.asarray(x, np.float64) - exact[n]) <= allowed)
            where = np.argwhere(wrong)
            if where.size:
                at = tuple(where[0])
                raise AssertionError(f"v{i}{at}: {np.asarray(x)[at]!r}, NumPy {exact[n][at]!r}, allowed {allowed[at]:.2g}")


# ---- tests -------------------------------------------------------------------------------------------------------------


def check_all(spec: Spec, way: int, use_threads: Threads) -> None:
    """All that must hold of a program; the dear checks take turns."""
    modes_agree(spec)
    if way % 5 == 0:
        threads_agree(spec, use_threads)
    numpy_agrees(spec)
    gradients_agree(spec, way)
    if way % 3 != 1:
        batches_agree(spec, way)


def problem(spec: Spec, way: int, use_threads: Threads) -> Exception | None:
    try:
        with np.errstate(all="ignore"):  # operators on plain arrays are NumPy's, and it warns
            check_all(spec, way, use_threads)
    except Exception as e:  # noqa: BLE001 - whatever a program raises, it is reported with the program
        return e
    return None


_reported: dict[str, AssertionError] = {}  # hypothesis runs a failing example twice


def check(drawn: tuple[Spec, int], use_threads: Threads) -> None:
    spec, way = drawn
    if repr(spec) in _reported:
        raise _reported[repr(spec)]
    found = problem(spec, way, use_threads)
    if found is None:
        return
    least = minimise(spec, lambda s: type(problem(s, way, use_threads)) is type(found), 60)
    found = problem(least, way, use_threads) or found
    ir = fx.make_ir(least.function)(*least.arrays())
    _reported[repr(spec)] = AssertionError(f"{found}\nway {way} of\n{least!r}\n{ir}")
    raise _reported[repr(spec)] from found


@pytest.mark.parametrize("batch", range(BATCHES))
def test_random_programs(batch: int, use_threads: Threads, cut_finely: None) -> None:
    forall(st.tuples(specs(), st.integers(0, 59)), partial(check, use_threads=use_threads), batch)
