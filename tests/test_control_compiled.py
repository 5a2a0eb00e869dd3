"""Loops and branches compiled: the same bits as their bodies op by op, natively and in Python, and what they cost."""

from __future__ import annotations

import numpy as np
import pytest

import fxgrad.numpy as fnp
from fxgrad.ir.types import aval_of
from fxgrad.primitives import control
from fxgrad.trace.tracing import build
from tests.works import check, work

RNG = np.random.default_rng(0)


def normal(*shape, dtype=np.float64):
    return RNG.normal(size=shape).astype(dtype)


def body_of(f, *avals):
    """The closed program of a function of values, which returns a tuple."""
    return build(avals, lambda *xs: list(f(*xs)))


def scan(f, init, xs=(), consts=(), reverse=False, length=None):
    """`f(consts, carry, xs) -> (carry, ys)`, all of them tuples; the carry, then the stacked ys."""
    n, m = len(consts), len(init)
    avals = [*map(aval_of, consts), *map(aval_of, init), *(aval_of(x).with_shape(aval_of(x).shape[1:]) for x in xs)]
    length = aval_of(xs[0]).shape[0] if length is None else length

    def flat(*values):
        carry, ys = f(values[:n], values[n : n + m], values[n + m :])
        return [*carry, *ys]

    out = control.scan(*consts, *init, *xs, body=body_of(flat, *avals), consts=n, carry=m, length=length, reverse=reverse)
    return tuple(out) if isinstance(out, list) else (out,)


def while_loop(test, f, carry, consts=()):
    """`test(consts, carry)` and `f(consts, carry)`."""
    n, avals = len(consts), [*map(aval_of, consts), *map(aval_of, carry)]
    cond = body_of(lambda *v: [test(v[:n], v[n:])], *avals)
    body = body_of(lambda *v: f(v[:n], v[n:]), *avals)
    out = control.while_loop(*consts, *consts, *carry, cond=cond, body=body, cond_consts=n, body_consts=n)
    return tuple(out) if isinstance(out, list) else (out,)


def cond(index, branches, *operands):
    out = control.cond(index, *operands, branches=tuple(body_of(f, *map(aval_of, operands)) for f in branches))
    return tuple(out) if isinstance(out, list) else (out,)


# ---- programs --------------------------------------------------------------------------------------------------------------


def rnn(w, u, b, xs):
    def step(consts, carry, x):
        w, u, b = consts
        h = fnp.tanh(w @ carry[0] + u @ x[0] + b)
        return (h,), (h, fnp.sum(h))

    return scan(step, (fnp.zeros_like(b),), (xs,), (w, u, b))


def cumulative(x, y, reverse):
    return scan(lambda _, c, x: ((c[0] + x[0] * x[1],), (c[0], x[0] - c[0])), (x[0] * 2.0,), (x, y), reverse=reverse)


def swapped(a, b, n):
    """Two carries change places, a third is never changed, a fourth becomes a constant."""

    def step(_, carry, xs):
        a, b, c, d = carry
        return (b, a + c, c, fnp.zeros_like(d)), (a,)

    return scan(step, (a, b, a * 3.0, b + 1.0), length=n)


def stencil(x, n):
    """The next value of an element needs its neighbours: no kernel can work in place."""

    def step(_, carry, xs):
        u = carry[0]
        return (u + 0.1 * (fnp.roll(u, 1) - 2.0 * u + fnp.roll(u, -1)),), ()

    return scan(step, (x,), length=n)


def nested(w, xs):
    """A loop over rows of a loop over columns of slices; the inner carry is handed on; a matrix product inside."""

    def inner(consts, carry, x):
        h = carry[0] * 0.5 + x[0] + consts[0]
        return (h,), (h * h,)

    def outer(consts, carry, x):
        a, ys = scan(inner, (carry[0] + 1.0,), (x[0],), (carry[1][0],))
        return (a, consts[0] @ carry[1]), (ys, a)

    return scan(outer, (xs[0, 0], w[0]), (xs,), (w,), reverse=True)


def transposed(w, x):
    """Constants, carries and stacked arrays that are views in another order."""
    return scan(lambda c, s, x: ((c[0] @ s[0] + x[0],), (s[0],)), (x.T[1],), (x.T,), (w.T,))


def count_down(x, n):
    """while n > 0: x, n = roll(x) * 0.5 + n, n - 1."""
    return while_loop(
        lambda c, v: v[1] > c[0], lambda c, v: (fnp.roll(v[0], 1) * 0.5 + fnp.sum(v[0]), v[1] - 1), (x, n), (n - n,)
    )


def collatz(n):
    def step(_, carry):
        n, turns = carry
        (m,) = cond(n % 2 == 0, [lambda n: (3 * n + 1,), lambda n: (n // 2,)], n)
        return m, turns + 1

    return while_loop(lambda _, v: v[0] != 1, step, (n, n - n))


def choices(i, x, y):
    branches = [lambda x, y: (x + y, x), lambda x, y: (fnp.sin(x) @ y, y), lambda x, y: (fnp.zeros_like(x), x.T)]
    return cond(i, branches, x, y)


def literals(x):
    """Carries and results that are numbers, or broadcast numbers."""

    def step(_, carry, x):
        return (carry[0] + 1, carry[1] + x[0]), (np.float64(2.0), carry[0])

    return scan(step, (np.int64(0), fnp.zeros(x.shape[1:])), (x,))


def deep(x):
    """Four loops, one in the other."""

    def make(level):
        def step(_, carry, xs):
            (v,) = make(level - 1)((carry[0] + xs[0],)) if level else (carry[0] * 1.5 + xs[0],)
            return (v,), ()

        return lambda init: scan(step, init, (fnp.arange(3, dtype=np.float64),))

    return make(3)((x,))


def branches_in_loops(x):
    def step(_, carry, xs):
        (v,) = cond(xs[0] % 3, [lambda v: (v + 1.0,), lambda v: (v * 0.5,), lambda v: (fnp.cumsum(v),)], carry[0])
        return (v,), (v[0],)

    return scan(step, (x,), (fnp.arange(7),))


def sorts(x):
    """A body with a library call."""

    def step(_, carry, xs):
        (v,) = scan(lambda _, c, x: ((c[0] + x[0],), ()), (carry[0],), (fnp.ones((2, *carry[0].shape)),))
        return (fnp.sort(fnp.sin(v) + xs[0]),), (v[0],)

    return scan(step, (x,), (fnp.arange(3.0),))


def while_sorts(x, n):
    return while_loop(lambda c, v: v[1] > 0, lambda c, v: (fnp.sort(-v[0]), v[1] - 1), (x, n))


def cond_sorts(i, x):
    return cond(i, [lambda x: (fnp.sort(x),), lambda x: (x + 1.0,)], x)


W, U, B = normal(5, 5), normal(5, 3), normal(5)
WORKS = [
    ("rnn", rnn, W, U, B, normal(9, 3)),
    ("rnn32", rnn, *(normal(*s, dtype=np.float32) for s in ((33, 33), (33, 7), (33,), (6, 7)))),
    ("cumulative", lambda x, y: cumulative(x, y, False), normal(6, 4), normal(6, 4)),
    ("reversed", lambda x, y: cumulative(x, y, True), normal(6, 4), normal(6, 4)),
    ("scalars", lambda x, y: cumulative(x, y, True), normal(11), normal(11)),
    ("of a view", lambda x, y: cumulative(x[::-2, 1:], y.T[1:, :3], False), normal(6, 4), normal(3, 4)),
    ("of broadcasts", lambda x, y: cumulative(fnp.broadcast_to(x, (5, 4)), y, False), normal(4), normal(5, 4)),
    *((f"swapped {n}", lambda a, b, n=n: swapped(a, b, n), normal(7), normal(7)) for n in range(5)),
    *((f"stencil {n}", lambda x, n=n: stencil(x, n), normal(70)) for n in (0, 1, 2, 5)),
    ("nested", nested, normal(4, 4), normal(3, 5, 2)),
    ("transposed", transposed, normal(6, 6), normal(6, 6)),
    ("while", count_down, normal(9), np.int64(5)),
    ("while never", count_down, normal(9), np.int64(0)),
    ("collatz", collatz, np.int64(27)),
    *((f"branch {i}", choices, i, normal(4, 4), normal(4, 4)) for i in (np.int64(-2), np.int64(1), np.int32(2), np.int64(9))),
    ("bool", lambda b, x: cond(b, [lambda x: (x,), lambda x: (x * 2.0,)], x), np.bool_(True), normal(3)),
    ("literals", literals, normal(5, 3)),
    ("no turns", literals, normal(0, 3)),
    ("no elements", literals, normal(4, 0)),
    ("deep", deep, normal(4)),
    ("branches in loops", branches_in_loops, normal(6)),
    ("library calls", sorts, normal(6)),
    ("library calls in while", while_sorts, normal(6), np.int64(3)),
    ("library calls in cond", cond_sorts, np.int64(0), normal(6)),
    ("large", lambda w, x: scan(lambda c, s, x: ((c[0] @ s[0] * 0.05 + x[0],), (fnp.sum(s[0], axis=0),)), (w,), (x,), (w,)),
     normal(150, 150), normal(4, 150)),
]  # fmt: skip


@pytest.mark.parametrize("case", WORKS, ids=lambda c: c[0])
def test_compiled_equals_op_by_op(case, use_threads, cut_finely):
    check([work(*case)], use_threads)
