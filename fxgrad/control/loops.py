"""scan, while_loop and fori_loop."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad import errors, tree
from fxgrad.control.values import (
    INT64,
    Leaves,
    as_type,
    carry_types,
    converted,
    finish,
    flatten,
    kind,
    require_callable,
    text,
    trace_turn,
)
from fxgrad.ir.program import Program
from fxgrad.ir.types import Aval
from fxgrad.primitives import control as _c
from fxgrad.primitives.elementwise import add, lt
from fxgrad.trace.function import Traced, as_leaf, aval_of_leaf, canonical, name_of
from fxgrad.trace.tracer import Tracer
from fxgrad.trace.tracing import bind, build, inline

F = Callable[..., Any]


def scan(
    f: F, init: Any, xs: Any = None, length: int | None = None, reverse: bool = False, unroll: int | bool = 1
) -> tuple[Any, Any]:
    """Apply carry, y = f(carry, x) along the leading axis of xs; return the last carry and the stacked ys.

    Its values and derivatives are those of the unrolled Python loop, to the bit.

    Arguments:
        f: (carry, x) -> (carry, y); carry, x and y are any pytrees.
        init: the first carry; Python numbers in it take the dtype that f gives them.
        xs: a tree of arrays with one leading length, or None, for which `length` says how many turns there are.
        length: the number of turns, where xs does not tell.
        reverse: go from the last entry to the first; ys stand where their x stands.
        unroll: taken for JAX's sake; compiled loops have no overhead that unrolling could save.

    Returns:
        (carry, ys), each y with a new leading axis.

    Raises:
        FxTypeError: f's carry has another dtype or shape than `init`; the message has the path, and both.
        TreeMismatchError: it has another structure.
        FxValueError: the leading lengths of xs (and `length`) differ, or there is none.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.scan(lambda c, x: (c + x, c), 0.0, np.arange(4.0))
        (np.float64(6.0), array([0., 0., 1., 3.]))
    """
    require_callable(f, "scan", "its function")
    if isinstance(unroll, builtins.bool) is False and (not isinstance(unroll, (int, np.integer)) or unroll < 0):
        raise errors.FxValueError(f"scan got unroll={unroll!r}", why="It counts turns.", fix="Leave it away.")
    start, slices = flatten(init, "the carry"), flatten(xs, "xs")
    n = scan_length(slices, length)
    elements = [Aval(a.shape[1:], a.dtype) for a in slices.avals]

    def trace(avals: list[Aval], weak: list[bool]) -> tuple[Traced, int]:
        def body(*values: Any) -> Any:
            carry = tree.unflatten(start.structure, values[: len(avals)])
            return f(carry, tree.unflatten(slices.structure, values[len(avals) :]))

        def check(out: Any) -> None:
            if not isinstance(out, tuple) or len(out) != 2:
                raise errors.FxTypeError(
                    f"scan: '{name_of(f)}' must return a pair (carry, y), got {kind(out)}",
                    why="The first part goes to the next turn, the second is stacked.",
                    fix="Return carry, None if there is nothing to stack.",
                )
            tree.check_same(
                start.structure, tree.structure(out[0]), "the carry that scan starts with and the one its body returns"
            )

        traced = trace_turn(f, body, [*avals, *elements], [*weak, *[False] * len(elements)], "scan", check)
        return traced, len(avals)

    avals, weak, traced = carry_types(start, trace, "scan")
    k = len(avals)
    program = canonical(converted(traced.program, avals))
    operands = [*traced.captures, *[as_type(x, a) for x, a in zip(start.values, avals, strict=True)], *slices.values]
    params = {"body": program, "consts": len(traced.captures), "carry": k, "length": n, "reverse": builtins.bool(reverse)}
    outs = bind(_c.scan, operands, params)
    return finish(traced.out_tree, outs, [*weak, *[False] * (len(outs) - k)])


def scan_length(xs: Leaves, length: int | None) -> int:
    lengths: dict[int, str] = {}
    for i, a in enumerate(xs.avals):
        if not a.shape:
            raise errors.FxValueError(
                f"{xs.label(i)} of scan is a scalar",
                why="scan runs along the leading axis of every array in xs.",
                fix="Pass an array (np.asarray of a list of numbers), or close over the value.",
            )
        lengths.setdefault(a.shape[0], xs.label(i))
    if length is not None:
        try:
            lengths.setdefault(length.__index__(), "length")
        except (AttributeError, TypeError):
            raise errors.FxTypeError(
                f"scan got length={length!r}", why="It counts turns.", fix="Pass an int; for a traced bound use fx.while_loop."
            ) from None
    if len(lengths) != 1 or min(lengths) < 0:
        told = ", ".join(f"{what} has {n}" if what != "length" else f"length is {n}" for n, what in lengths.items())
        raise errors.FxValueError(
            f"scan cannot tell how many turns to take: {told or 'xs has no arrays and there is no length'}",
            why="All arrays in xs have one leading length, which is the number of turns.",
            fix="Pass arrays of one length, or xs=None with length=n.",
        )
    return next(iter(lengths))


def while_loop(cond_fun: F, body_fun: F, init_val: Any) -> Any:
    """Apply body_fun to the carry as long as cond_fun(carry) is true; differentiable in both modes.

    Reverse mode keeps what it needs of every turn on a tape that grows with the loop; values that are the same in every turn are
    kept once. Wrap the body in fx.checkpoint to keep only the carry. Under vmap the loop runs until the last entry is done.

    Arguments:
        cond_fun: carry -> scalar bool.
        body_fun: carry -> carry, of the same tree, shapes and dtypes.
        init_val: the first carry, any pytree; Python numbers in it take the dtype that the body gives them.

    Raises:
        FxTypeError: the test is no scalar bool, or the body's carry has another dtype or shape; the message has the path.
        TreeMismatchError: the body's carry has another structure.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> f = lambda x: fx.while_loop(lambda c: c[1] < 3, lambda c: (c[0] * c[0], c[1] + 1), (x, 0))[0]
        >>> print(f"{fx.grad(f)(1.1):.6f}")
        15.589737
    """
    require_callable(cond_fun, "while_loop", "cond_fun")
    require_callable(body_fun, "while_loop", "body_fun")
    start = flatten(init_val, "the carry")

    def on_carry(f: F) -> F:
        return lambda *values: f(tree.unflatten(start.structure, values))

    def trace(avals: list[Aval], weak: list[bool]) -> tuple[Traced, int]:
        def check(out: Any) -> None:
            tree.check_same(
                start.structure, tree.structure(out), "the carry that while_loop starts with and the one its body returns"
            )

        traced = trace_turn(body_fun, on_carry(body_fun), avals, weak, "while_loop", check)
        return traced, len(avals)

    avals, weak, body = carry_types(start, trace, "while_loop")
    test = trace_turn(cond_fun, on_carry(cond_fun), avals, weak, "while_loop", lambda out: _check_test(cond_fun, out))
    operands = [*test.captures, *body.captures, *[as_type(x, a) for x, a in zip(start.values, avals, strict=True)]]
    params = {
        "cond": canonical(test.program),
        "body": canonical(converted(body.program, avals)),
        "cond_consts": len(test.captures),
        "body_consts": len(body.captures),
    }
    return finish(start.structure, bind(_c.while_loop, operands, params), weak)


def _check_test(f: F, out: Any) -> None:
    flat = tree.leaves(out)
    aval = aval_of_leaf(as_leaf(flat[0], lambda: "the test")[0]) if len(flat) == 1 and flat[0] is out else None
    if aval is None or aval.shape != () or aval.dtype != np.bool_:
        raise errors.FxTypeError(
            f"while_loop: '{name_of(f)}' must return a scalar bool, got {text(aval) if aval else kind(out)}",
            why="It decides whether another turn is taken.",
            fix="Compare (x > 0), or reduce: np.any(...), np.all(...).",
        )


def fori_loop(lower: Any, upper: Any, body_fun: F, init_val: Any, *, unroll: int | bool | None = None) -> Any:
    """The carry after val = body_fun(i, val) for i in range(lower, upper).

    With Python ints as bounds it is a scan; with traced bounds a while_loop. Both are differentiable in both modes.

    Arguments:
        lower, upper: integer scalars.
        body_fun: (i, carry) -> carry; i counts as a Python int in arithmetic.
        init_val: the first carry, any pytree; Python numbers in it take the dtype that the body gives them.
        unroll: taken for JAX's sake, as in `scan`.

    Raises:
        As `while_loop`; FxTypeError for bounds that are no integer scalars.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.fori_loop(0, 4, lambda i, x: x + i, 0)
        np.int64(6)
    """
    require_callable(body_fun, "fori_loop", "body_fun")
    bounds = [_bound(b, name) for b, name in ((lower, "lower"), (upper, "upper"))]
    start = flatten(init_val, "the carry")

    def trace(avals: list[Aval], weak: list[bool]) -> tuple[Traced, int]:
        def body(i: Any, *values: Any) -> Any:
            return body_fun(i, tree.unflatten(start.structure, values))

        def check(out: Any) -> None:
            tree.check_same(
                start.structure, tree.structure(out), "the carry that fori_loop starts with and the one its body returns"
            )

        everything, flags = [Aval((), INT64), *avals], [True, *weak]
        traced = trace_turn(body_fun, body, everything, flags, "fori_loop", check)
        return traced, len(avals)

    avals, weak, traced = carry_types(start, trace, "fori_loop")
    consts, body = len(traced.captures), _counting(converted(traced.program, avals), len(traced.captures))
    values = [as_type(x, a) for x, a in zip(start.values, avals, strict=True)]
    if any(type(b) is Tracer for b in bounds):
        outs = _counted_while(bounds, body, [*traced.captures], values)
    else:
        n = max(0, int(bounds[1]) - int(bounds[0]))
        params = {"body": body, "consts": consts, "carry": len(values) + 1, "length": n, "reverse": False}
        outs = bind(_c.scan, [*traced.captures, np.int64(bounds[0]), *values], params)
    return finish(start.structure, outs[1:], weak)


def _bound(x: Any, name: str) -> Any:
    x, _ = as_leaf(x, lambda: f"{name} of fori_loop")
    aval = aval_of_leaf(x)
    if aval.shape != () or aval.dtype.kind not in "iu":
        raise errors.FxTypeError(
            f"fori_loop got {name} as {text(aval)}",
            why="The bounds count turns.",
            fix="Pass integer scalars: n, int(n), x.shape[0].",
        )
    return as_type(x, Aval((), INT64)) if type(x) is Tracer else x[()]


def _counting(program: Program, consts: int) -> Program:
    """The body with the counter as the first of the carry."""

    def body(*values: Any) -> list[Any]:
        return [add(values[consts], np.int64(1)), *inline(program, values)]

    return canonical(build(program.in_avals, body, program.name))


def _counted_while(bounds: Sequence[Any], body: Program, captures: list[Any], values: list[Any]) -> list[Any]:
    lower, upper = (np.int64(b) if type(b) is not Tracer else b for b in bounds)
    avals = [Aval((), INT64), Aval((), INT64), *[aval_of_leaf(x) for x in values]]
    test = canonical(build(avals, lambda upper, i, *rest: [lt(i, upper)], "test"))
    params = {"cond": test, "body": body, "cond_consts": 1, "body_consts": len(captures)}
    return bind(_c.while_loop, [upper, *captures, lower, *values], params)
