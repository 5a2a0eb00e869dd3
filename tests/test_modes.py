"""One answer, to the bit: op by op, compiled, fused or not, cut anywhere, among any number of threads, batched, from any cache.

A program is evaluated op by op, once; every other way to run it must give these bits. Programs here are small, and `cut_finely`
has them shared out all the same: wherever a kernel may be cut, it is cut, at places that depend on the number of threads.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fxgrad as fx
import fxgrad.numpy as fnp
from examples import transformer_parity as transformer
from fxgrad.compile import lower
from fxgrad.runtime.eager import EagerPlan
from fxgrad.testing.bits import assert_same_bits
from fxgrad.tree import leaves
from tests import laws
from tests.cases import BROADCAST_PAIRS, CASES, UNARY_SHAPES, Case, Shape
from tests.hot import heat, refuse_op_by_op
from tests.programs import check_ownership, random_inputs, random_program
from tests.works import THREADS, Work, check, shared_steps, work

F = Callable[..., Any]
EXAMPLES = int(os.environ.get("FXGRAD_FUZZ_EXAMPLES", "48"))


# ---- every operation -------------------------------------------------------------------------------------------------------

LARGE: dict[str, list[tuple[Shape, ...]]] = {
    "searchsorted": [((50,), (700,))],
    "matmul": [((65, 300), (300, 70)), ((4, 33, 40), (40, 35)), ((300,), (300, 50)), ((90, 300), (300,)), ((9000,), (9000,))],
    "dot_general": [((6, 30, 14, 20), (30, 15, 20, 6))],
    "einsum": [((30, 70), (40, 70))],
    "solve": [((2, 30, 30), (30, 7))],
    "lstsq": [((30, 5), (30, 3))],
    "lstsq_rest": [((30, 5),)],
    "cond": [((20_000,),)],
    "complex_matmul": [((700,), (700,)), ((9, 70), (9, 70))],
    "tapes": [((3,),)],  # their programs are written for three elements
    "no_tape": [((3,),)],
}


def large_arguments(case: Case) -> Iterator[list[np.ndarray]]:
    """Arguments of a size at which there is something to share, in the case's dtypes by turns."""
    if case.shapes is UNARY_SHAPES:
        shapes: Any = [((700,),), ((5, 1, 133),)]
    elif case.shapes is BROADCAST_PAIRS:
        shapes = [((37, 41), (41,)), ((5, 1, 23), (19, 1))]
    else:
        shapes = LARGE.get(case.name) or case.extra.get("larger") or _larger(case.shapes[0])
    for i, s in enumerate(shapes):
        yield case.arrays(s, case.dtypes[i % len(case.dtypes)])


def _larger(shapes: tuple[Shape, ...]) -> list[tuple[Shape, ...]]:
    """Shapes of the same kind: vectors, several of one shape (the parts of complex numbers), square and other matrices."""
    first = shapes[0]
    if len(first) > 1:
        square = first[-1] == first[-2]
        return [((2, 24, 24),)] if square else [((2, 24, 9),), ((9, 24),)]
    return [((20_000,),), ((9, 50, 7),)] if len(shapes) == 1 else [((700,),) * len(shapes), ((9, 10, 7),) * len(shapes)]


def works_of(case: Case, args: list[np.ndarray]) -> Iterator[Work]:
    """An operation with its gradient; the same checkpointed, and batched."""
    numbers = tuple(range(len(args)))

    def everything(f: F) -> F:
        loss = laws._loss(f, args)
        return lambda *xs: (f(*xs), fx.value_and_grad(loss, numbers)(*xs)) if case.differentiable else f(*xs)

    plain = work(case.name, everything(case.f), *args)
    yield plain
    if case.differentiable:
        yield work(f"{case.name}, checkpointed", everything(fx.checkpoint(case.f)), *args, answer=plain.answer)
    batches = [np.stack([a, a[::-1] if a.ndim else a * 0.5, a * 0.75]) for a in args]
    yield batched(f"{case.name}, batched", everything(case.f), *batches)


def batched(what: str, f: F, *batches: np.ndarray) -> Work:
    """`f` mapped over the first axis of all arguments; the answer is the loop's, op by op."""
    rows = [work(what, f, *row).answer for row in zip(*batches, strict=True)]
    return work(what, fx.vmap(f), *batches, answer=[np.stack(column) for column in zip(*rows, strict=True)])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_operations(case: Case, use_threads: Callable[[int], None], cut_finely: None) -> None:
    works = [w for args in large_arguments(case) for w in works_of(case, args)]
    small = all(a.size < 4 for w in works for a in w.arrays)
    assert check(works, use_threads) or small or not any(kernels(w) for w in works)


def kernels(w: Work) -> bool:
    """Whether anything of a program is computed by kernels."""
    return any(s.launches for s in lower._compile(w.program, True).steps)


# ---- random programs -------------------------------------------------------------------------------------------------------


@pytest.mark.fuzz
@pytest.mark.parametrize("batch", range(4))
def test_random_programs(batch: int, use_threads: Callable[[int], None], cut_finely: None) -> None:
    seeds = range(batch, EXAMPLES, 4)
    shared = 0
    for start in range(0, len(seeds), 12):
        shared += check([random_work(seed) for seed in seeds[start : start + 12]], use_threads)
    assert 2 * shared > len(seeds)


def random_work(seed: int) -> Work:
    program = random_program(seed)
    arrays = random_inputs(program, seed)
    answer = EagerPlan(program).run(arrays)
    check_ownership(answer, arrays, program)
    return Work(f"program {seed}", program, arrays, answer)


# ---- a transformer block ---------------------------------------------------------------------------------------------------

SMALL, LARGER = transformer.Size(2, 8, 16, 2), transformer.Size(2, 64, 128, 4)


def block_gradient(size: transformer.Size, dtype: str = "float32", wrap: Any = lambda f: f) -> tuple[F, tuple]:
    """Value and gradients of a block's loss, and its arguments."""
    params, x, target = transformer.make_problem(size, dtype, 0)
    return fx.value_and_grad(transformer.loss_of(size.heads, target, wrap=wrap), (0, 1)), (params, x)


def block_works(size: transformer.Size, dtype: str) -> Iterator[Work]:
    f, (params, x) = block_gradient(size, dtype)
    plain = work("block", f, params, x)
    yield plain
    g, args = block_gradient(size, dtype, fx.checkpoint)
    yield work("block, checkpointed", g, *args, answer=plain.answer)
    yield batched("block, batched", lambda x: f(params, x), np.stack([x, x[::-1], 2 * x]))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_small_block(dtype: str, use_threads: Callable[[int], None], cut_finely: None) -> None:
    assert check(block_works(SMALL, dtype), use_threads) == 6


def test_block_large_enough_for_a_team(use_threads: Callable[[int], None]) -> None:
    assert check(block_works(LARGER, "float32"), use_threads, grain=None) == 6


def test_block_op_by_op_with_any_number_of_threads(use_threads: Callable[[int], None]) -> None:
    f, args = block_gradient(LARGER)
    use_threads(1)
    w = work("block", f, *args)
    for n in THREADS[1:]:
        use_threads(n)
        start = shared_steps()
        assert_same_bits(EagerPlan(w.program).run(w.arrays), w.answer, f"block, op by op, {n} threads")
        assert shared_steps() > start


@pytest.mark.parametrize("size", [SMALL, LARGER], ids=["small", "larger"])
def test_block_compiled_in_the_background(size: Any, soon_hot: None, monkeypatch: pytest.MonkeyPatch) -> None:
    f, args = block_gradient(size)
    answer = work("block", f, *args).answer
    heat(f, *args)
    refuse_op_by_op(monkeypatch)
    assert_same_bits([np.asarray(x) for x in leaves(f(*args))], answer)


# ---- parts of a batch ------------------------------------------------------------------------------------------------------


def constant(*shape: int, seed: int = 5) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def head(x: Any) -> Any:
    return fx.nn.softmax(x @ fnp.swapaxes(x, -1, -2)) @ x


WEIGHT, VECTOR, GAIN = constant(64, 90), constant(64), constant(64, seed=6)
OF_ROWS: dict[str, F] = {  # of a matrix; a row of the result depends on that row alone
    "softmax": fx.nn.softmax,
    "layer norm": lambda x: fx.nn.layer_norm(x, GAIN, VECTOR),
    "statistics": lambda x: (fnp.mean(x, -1), fnp.max(x * x, -1), fx.nn.logsumexp(x, axis=-1)),
    "gradient": fx.grad(lambda x: fnp.sum(fx.nn.softmax(fx.nn.layer_norm(x, GAIN, VECTOR)) * x)),
    "product": lambda x: x @ WEIGHT,
    "product of columns": lambda x: fnp.swapaxes(WEIGHT.T @ fnp.swapaxes(x, -1, -2), -1, -2),
    "vector": lambda x: x @ VECTOR,
    "product and rows": lambda x: fx.nn.softmax(fnp.tanh(x @ WEIGHT) @ WEIGHT.T),
    "product's gradient": fx.grad(lambda x: fnp.sum(fnp.tanh(x @ WEIGHT))),
}
OF_BATCHES = {**OF_ROWS, "attention": head, "attention's gradient": fx.grad(lambda x: fnp.sum(head(x) ** 2))}
PARTS = [(f, (53, 64), name) for name, f in OF_ROWS.items()] + [(f, (7, 21, 64), name) for name, f in OF_BATCHES.items()]


@pytest.mark.parametrize("f, shape, name", PARTS, ids=[f"{name}-{len(shape)}" for _, shape, name in PARTS])
def test_parts_of_a_batch(f: F, shape: Shape, name: str, use_threads: Callable[[int], None], cut_finely: None) -> None:
    x = constant(*shape, seed=1)
    answer = work(name, f, x).answer
    parts = [part for cut in (1, shape[0] // 2, shape[0] - 1) for part in (slice(None, cut), slice(cut, None))]
    works = [work(f"{name}, {part}", f, x[part].copy(), answer=[y[part] for y in answer]) for part in parts]
    assert check(works, use_threads)


# ---- the cache -------------------------------------------------------------------------------------------------------------

SCRIPT = "import json; from tests.test_modes import digests; print(json.dumps(digests()))"


def digests() -> dict[str, str]:
    """What becomes of some programs when they are compiled, in short."""
    works = [random_work(seed) for seed in range(8)]
    works += [work(name, f, constant(53, 64)) for name, f in OF_ROWS.items()]
    works += block_works(SMALL, "float32")
    found = {}
    for w in works:
        results = [np.asarray(x) for x in lower.compile_program(w.program)(*w.arrays)]
        bits = [np.where(x != x, np.array(np.nan, x.dtype), x).tobytes() for x in results]  # which NaN it is is not specified
        found[w.what] = hashlib.sha256(b"".join(bits)).hexdigest()
    return found


@pytest.mark.slow
def test_an_empty_cache_and_a_full_one(tmp_path: Path) -> None:
    environment = {**os.environ, "FXGRAD_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(Path(__file__).parent.parent)}
    here = digests()
    assert here["block"] == here["block, checkpointed"] != here["block, batched"]
    for what in ("empty", "full"):
        assert bool([*tmp_path.rglob("k_*")]) == (what == "full")
        command = [sys.executable, "-W", "error", "-c", SCRIPT]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == here, f"with an {what} cache"
