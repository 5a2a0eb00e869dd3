"""Forward mode: jvp and linearize."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fxgrad import errors, tree
from fxgrad.api.arguments import Arguments, fill, require_pair, tangents_like
from fxgrad.api.reverse import forward_half, guard_residuals, split_aux
from fxgrad.primitives.base import instantiate, is_float
from fxgrad.trace.function import Traced, aval_of_leaf, canonical, name_of, trace_function
from fxgrad.trace.tracing import inline
from fxgrad.transforms.jvp import jvp as jvp_program

F = Callable[..., Any]


def jvp(f: F, primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False) -> tuple[Any, ...]:
    """Evaluate f and its derivative along a direction, by forward mode.

    Arguments:
        f: a function of the primals; any pytrees in and out (with `has_aux`, the pair (out, aux)).
        primals: tuple or list of arguments.
        tangents: tuple or list of the same trees, shapes and dtypes; integer primals take None.

    Returns:
        (out, tangent_out[, aux]); the tangent has out's tree, shapes and dtypes (None at integer outputs).

    Raises:
        TreeMismatchError, FxValueError, FxTypeError: tangents do not match the primals.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.jvp(np.sin, (0.0,), (1.0,))
        (np.float64(0.0), np.float64(1.0))
    """
    check_sequences(primals, tangents, "jvp")
    arguments = Arguments(f, primals, {}, None, "jvp")
    moved = tangents_like(tuple(tangents), arguments)
    traced, _, mask = _trace_forward(f, arguments, moved, has_aux)
    program = canonical(traced.program)
    forward, out_nonzero = jvp_program(program, [False] * len(traced.captures) + mask)
    results = inline(forward, [*traced.captures, *arguments.leaves, *(t for t in moved if t is not None)])
    n = len(traced.program.outputs)
    out, aux, n_diff, out_tree = split_aux(traced, results[:n], has_aux)
    arrived = iter(results[n:])
    touts = [next(arrived) if nz else None for nz in out_nonzero]
    tangent = tree.unflatten(out_tree, fill(touts[:n_diff], traced.program.out_avals[:n_diff]))
    return (out, tangent, aux) if has_aux else (out, tangent)


def check_sequences(primals: Any, tangents: Any, transform: str) -> None:
    """Primals and tangents come in a tuple or list each, and are as many."""
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise errors.FxTypeError(
            f"{transform} takes primals and tangents as tuples, got {type(primals).__name__} and {type(tangents).__name__}",
            why="They hold one entry for each argument of the function.",
            fix=f"Write fx.{transform}(f, (x,), (t,)).",
        )
    if len(primals) != len(tangents):
        raise errors.TreeMismatchError(
            f"{transform} got {len(primals)} primals and {len(tangents)} tangents",
            why="Every primal has one tangent.",
            fix="Pass None as the tangent of a primal that does not move.",
        )


def _trace_forward(f: F, arguments: Arguments, moved: Sequence[Any], has_aux: bool) -> tuple[Traced, None, list[bool]]:
    mask = [t is not None for t in moved]

    def check(out: Any) -> None:
        if has_aux:
            require_pair(out, f, "jvp")

    traced = trace_function(
        arguments.rebuild, arguments.leaves, arguments.weak, "jvp", known=True, differentiated=mask, name=name_of(f), check=check
    )
    return traced, None, mask


def linearize(f: F, *primals: Any) -> tuple[Any, F]:
    """Evaluate f and return its derivative at this point as a linear function of tangents.

    Returns:
        (out, f_jvp): `f_jvp(*tangents)` costs only the linear part; it equals `jvp`'s tangent to the bit.

    Raises:
        As `jvp`; and StaleValueError by f_jvp as by `vjp`'s pullback.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> y, f_jvp = fx.linearize(lambda x: x * x, 3.0)
        >>> f_jvp(1.0)
        np.float64(6.0)
    """
    arguments = Arguments(f, primals, {}, None, "linearize")
    traced, halves, outs, values = forward_half(f, arguments, False, "linearize")
    n_out = len(traced.program.outputs)
    guarded = guard_residuals(halves, values, outs, n_out, arguments, len(traced.captures))
    mask = [is_float(aval_of_leaf(x).dtype) for x in arguments.leaves]
    out_avals, out_tree = traced.program.out_avals, traced.out_tree

    def f_jvp(*tangents: Any) -> Any:
        check_sequences(primals, tangents, "linearize's f_jvp")
        moved = tangents_like(tangents, arguments)
        full = [instantiate(t, aval_of_leaf(x)) for t, x, d in zip(moved, arguments.leaves, mask, strict=True) if d]
        found = iter(inline(halves.later, [*guarded.read("linearize's f_jvp"), *full]))
        touts = [next(found) if u else None for u in halves.unknown_out]
        return tree.unflatten(out_tree, fill(touts, out_avals))

    return tree.unflatten(out_tree, outs[:n_out]), f_jvp
