"""Random programs for tests: chains of maps, reductions, views, library calls and calls, over odd shapes and layouts."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from fxgrad.ir.program import Program
from fxgrad.ir.types import Aval, aval_of
from fxgrad.primitives import call as C
from fxgrad.primitives import elementwise as E
from fxgrad.primitives import reduce as R
from fxgrad.primitives import shape as S
from fxgrad.primitives import transcendental as T
from fxgrad.primitives.dot import dot
from fxgrad.trace.tracing import build

UNARY = [E.neg, T.exp, E.abs_, E.sqrt, T.log1p, E.floor, E.sign, T.logistic]
BINARY = [E.add, E.sub, E.mul, E.div, E.maximum, E.minimum, E.lin_mul]
KINDS = ["unary", "binary", "convert", "mask", "reduce", "view", "host", "call", "dot"]
WEIGHTS = [22, 28, 5, 5, 12, 18, 5, 5, 5]
SIZES = [1, 2, 3, 4, 5, 7, 16, 17, 33]


class Grower:
    """Grows a program: `step` applies a random operation to a random earlier value."""

    def __init__(self, rng: random.Random, values: list[Any]):
        self.r, self.values = rng, values

    def step(self) -> None:
        r = self.r
        x = r.choice(self.values[-8:] if r.random() < 0.7 else self.values)
        kind = r.choices(KINDS, WEIGHTS)[0]
        y = getattr(self, kind)(x, aval_of(x))
        if y is not None and aval_of(y).size < 200_000:
            self.values.append(y)

    def unary(self, x: Any, a: Aval) -> Any:
        return self.r.choice(UNARY)(x) if a.dtype.kind == "f" else None

    def binary(self, x: Any, a: Aval) -> Any:
        if a.dtype.kind != "f":
            return None
        fitting = [v for v in self.values if aval_of(v).dtype == a.dtype and aval_of(v).shape in (a.shape, ())]
        other = self.r.choice(fitting) if self.r.random() < 0.8 else a.dtype.type(self.r.uniform(-2, 2))
        return self.r.choice(BINARY)(*((x, other) if self.r.random() < 0.5 else (other, x)))

    def convert(self, x: Any, a: Aval) -> Any:
        return E.convert(x, dtype=np.dtype(self.r.choice(["f4", "f8", "f2", "i4", "?"])))

    def mask(self, x: Any, a: Aval) -> Any:
        return E.select(E.gt(x, a.dtype.type(0)), x, a.dtype.type(self.r.choice([0, 1, -0.0]))) if a.dtype.kind == "f" else None

    def reduce(self, x: Any, a: Aval) -> Any:
        if a.dtype.kind != "f":
            return None
        axes = tuple(sorted(self.r.sample(range(a.ndim), self.r.randint(0, a.ndim))))
        y = self.r.choice([R.sum_, R.sum_, R.prod] + ([R.max_, R.min_] if a.size else []))(x, axes=axes)
        return R.spread(y, a.shape, axes) if self.r.random() < 0.7 else y

    def view(self, x: Any, a: Aval) -> Any:
        r, kind = self.r, self.r.randrange(5)
        if kind == 0:
            return S.transpose(x, perm=tuple(r.sample(range(a.ndim), a.ndim)))
        if kind == 1:
            return S.reverse(x, axes=tuple(d for d in range(a.ndim) if r.random() < 0.5))
        if kind == 2:
            start = tuple(r.randint(0, n) for n in a.shape)
            stop = tuple(r.randint(s, n) for s, n in zip(start, a.shape, strict=True))
            return S.slice_(x, start=start, stop=stop, step=tuple(r.randint(1, 3) for _ in a.shape))
        if kind == 3:
            return S.reshape(x, shape=r.choice([(a.size,), (1, a.size, 1), tuple(reversed(a.shape))]))
        return S.broadcast(x, shape=(r.choice([1, 3, 20]), *a.shape), dims=tuple(range(1, a.ndim + 1))) if a.ndim < 3 else None

    def host(self, x: Any, a: Aval) -> Any:
        if not a.ndim or a.dtype.kind != "f":
            return None
        if self.r.random() < 0.5:
            return R.cumsum(x, axis=0, reverse=self.r.random() < 0.5)
        return S.concatenate(x, x, axis=0)

    def dot(self, x: Any, a: Aval) -> Any:
        """A product with any earlier value that has an axis in common; sometimes batched, sometimes strong."""
        r = self.r
        if not a.ndim or a.dtype.kind not in "fi":
            return None
        i = r.randrange(a.ndim)
        others = [v for v in self.values if aval_of(v).dtype == a.dtype and a.shape[i] in aval_of(v).shape]
        y = r.choice(others)
        b = aval_of(y)
        j = b.shape.index(a.shape[i])
        pairs = [(p, q) for p in range(a.ndim) for q in range(b.ndim) if p != i and q != j and a.shape[p] == b.shape[q]]
        batch = [r.choice(pairs)] if pairs and r.random() < 0.5 else []
        if a.size * b.size > 1e6:
            return None
        contract, groups = ((i,), (j,)), (tuple(p for p, _ in batch), tuple(q for _, q in batch))
        strong = r.choice([None, None, 0, 1]) if a.dtype.kind == "f" else None
        return dot(x, y, contract=contract, batch=groups, strong=strong)

    def call(self, x: Any, a: Aval) -> Any:
        if a.dtype.kind != "f":
            return None
        if a.ndim and a.size and self.r.random() < 0.5:
            return R.logsumexp(x, axes=(0,))
        inner = build([a], lambda t: [T.exp(E.neg(t)), t])
        if self.r.random() < 0.5:
            return C.jit_call(x, program=inner)[0]
        return C.checkpoint(x, program=inner, policy=("nothing",))[0]


def random_program(seed: int) -> Program:
    """The same program for the same seed."""
    r = random.Random(seed)
    dtypes = ["f4", "f8"] if r.random() < 0.7 else ["f4", "f8", "f2", "i4", "?"]
    shapes = [tuple(r.choice(SIZES) for _ in range(r.choice([0, 1, 1, 2, 2, 3]))) for _ in range(2)]
    avals = [Aval(r.choice(shapes), np.dtype(r.choice(dtypes))) for _ in range(r.randint(1, 4))]

    def body(*xs: Any) -> list[Any]:
        grower = Grower(r, list(xs))
        for _ in range(r.randint(1, r.choice([5, 15, 40, 150]))):
            grower.step()
        return [r.choice(grower.values) for _ in range(r.randint(1, 3))] + [grower.values[-1]]

    return build(avals, body)


def random_inputs(program: Program, seed: int) -> list[Any]:
    """Arrays for the program: some transposed, gapped or byte-swapped, with infinities and signed zeros."""
    rng = np.random.default_rng(seed)
    out: list[Any] = []
    for a in program.in_avals:
        x = rng.standard_normal(a.shape) * 3
        x = np.asarray(x > 0 if a.dtype.kind == "b" else x).astype(a.dtype)
        if x.size > 2 and a.dtype.kind == "f":
            x.flat[0], x.flat[1] = np.inf, -0.0
        layout = rng.integers(4) if a.ndim else -1
        if layout == 0:
            x = np.asfortranarray(x)
        elif layout == 1:
            x = np.repeat(x, 2, axis=0)[::2]
        elif layout == 2:
            x = x.astype(a.dtype.newbyteorder(">"))
        out.append(x if a.shape else x[()])
    return out


def check_ownership(results: list[Any], arrays: list[Any], program: Program) -> None:
    """Results are arrays of their own, in order and writable; those without axes are NumPy scalars."""
    owned = [r for r in results if isinstance(r, np.ndarray)]
    for i, r in enumerate(owned):
        assert r.flags.c_contiguous and r.flags.writeable and r.dtype.isnative
        assert not any(np.shares_memory(r, other) for other in [*owned[:i], *(a for a in arrays if isinstance(a, np.ndarray))])
    for r, o in zip(results, program.outputs, strict=True):
        assert isinstance(r, np.ndarray if o.aval.shape else np.generic)
