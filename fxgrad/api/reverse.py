"""Reverse mode: grad, value_and_grad, vjp."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad import errors, tree
from fxgrad.api.arguments import Arguments, argnums_of, cotangents, require_float, require_pair
from fxgrad.api.wrapping import wraps
from fxgrad.ir.program import Eqn, Program, dce
from fxgrad.ir.types import Lit, Var
from fxgrad.primitives.base import instantiate, is_float
from fxgrad.runtime.stale import Guarded
from fxgrad.trace.function import Traced, aval_of_leaf, canonical, name_of, trace_function
from fxgrad.trace.tracer import Tracer
from fxgrad.trace.tracing import build, inline
from fxgrad.transforms.linearize import Split
from fxgrad.transforms.linearize import linearize as linearize_program
from fxgrad.transforms.transpose import transpose as transpose_program

F = Callable[..., Any]


def grad(f: F, argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False) -> F:
    """The gradient of a scalar function, by reverse mode.

    By a complex argument z = x + iy the gradient of a real function is df/dx - i df/dy (JAX's convention): its conjugate is the
    direction of steepest ascent. With `holomorphic` it is the complex derivative.

    Arguments:
        f: a function of arrays (any pytrees) whose result is a real scalar, or (scalar, aux) with `has_aux`.
        argnums: which positional arguments to differentiate: an int, or several.
        has_aux: whether f returns a pair whose second part is passed through.
        holomorphic: whether f is a holomorphic function: complex arguments, complex result.

    Returns:
        A function with f's arguments that returns the gradient: for an int `argnums` a tree like that argument, else a tuple
        of them; each array has the shape and dtype of its input. With `has_aux`, the pair (gradient, aux).

    Raises:
        NonDifferentiableError: an input is not floating point, the output is not a real scalar, or a derivative would be cut.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.grad(lambda x: np.sum(x**2))(np.array([1.0, 2.0]))
        array([2., 4.])
        >>> fx.grad(np.abs)(3.0 + 4.0j)
        np.complex128(0.6-0.8j)
    """
    return _reverse(f, argnums, has_aux, holomorphic, with_value=False)


def value_and_grad(f: F, argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False) -> F:
    """Like `grad`, and returns the pair (value, gradient); with `has_aux`, ((value, aux), gradient).

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.value_and_grad(lambda x: x**3)(2.0)
        (np.float64(8.0), np.float64(12.0))
    """
    return _reverse(f, argnums, has_aux, holomorphic, with_value=True)


def _reverse(f: F, argnums: int | Sequence[int], has_aux: bool, holomorphic: bool, with_value: bool) -> F:
    transform = "value_and_grad" if with_value else "grad"

    @wraps(f, transform, (_reverse, (f, argnums, has_aux, holomorphic, with_value)))
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        numbers = argnums_of(argnums, args, transform)
        arguments = Arguments(f, args, kwargs, numbers, transform)
        require_float(arguments, transform, holomorphic)
        traced = trace_function(
            arguments.rebuild,
            arguments.leaves,
            arguments.weak,
            transform,
            known=True,
            differentiated=[True] * len(arguments.leaves),
            name=name_of(f),
            check=lambda out: _check_scalar(f, out, has_aux, holomorphic, transform),
        )
        n, k = len(traced.captures), len(arguments.leaves)
        program = canonical(traced.program)
        derivative = program.memoize((transform, n), lambda: _gradient_program(program, n, with_value))
        results = inline(derivative, [*traced.captures, *arguments.leaves])
        gradients = tree.unflatten(arguments.structure, results[len(results) - k :])
        gradients = gradients[0] if isinstance(argnums, (int, np.integer)) else gradients
        rest = results[: len(results) - k]
        if not with_value and not has_aux:
            return gradients
        if not with_value:
            rest = [None, *rest]
        out = tree.unflatten(traced.out_tree, rest)
        if has_aux:
            return ((out[0], out[1]), gradients) if with_value else (gradients, out[1])
        return out, gradients

    return wrapped


_ONE_NUMBER = "A gradient is the derivative of one real number."


def _check_scalar(f: F, out: Any, has_aux: bool, holomorphic: bool, transform: str) -> None:
    if has_aux:
        require_pair(out, f, transform)
        out = out[0]
    if type(out) is Tracer and out._var.aval.shape == () and out._var.aval.dtype.kind == "fc"[holomorphic]:
        return
    kind = type(out)
    shape, dtype = getattr(out, "shape", ()), getattr(out, "dtype", None)
    if kind not in (float, int) and dtype is None:
        raise errors.NonDifferentiableError(
            f"{transform} needs a scalar output, '{name_of(f)}' returned a {kind.__name__}",
            why=_ONE_NUMBER,
            fix="Return one number; with extra results, return (value, extra) and pass has_aux=True.",
        )
    if shape != ():
        raise errors.NonDifferentiableError(
            f"{transform} needs a scalar output, got shape {shape} from '{name_of(f)}'",
            why=_ONE_NUMBER,
            fix="Reduce it (y.sum(), y.mean(), y[0]), or use fx.jacrev for the whole Jacobian, or fx.vjp with a cotangent.",
        )
    if holomorphic:
        raise errors.NonDifferentiableError(
            f"{transform}(holomorphic=True) needs a complex output, got {dtype or kind.__name__} from '{name_of(f)}'",
            why="A real function that has a complex derivative is constant.",
            fix="Leave holomorphic=True away: the gradient of a real function of z = x + iy is df/dx - i df/dy.",
        )
    if kind is not float and (dtype is None or not is_float(dtype) or dtype.kind == "c"):
        raise errors.NonDifferentiableError(
            f"{transform} needs a real floating-point output, got {dtype or kind.__name__} from '{name_of(f)}'",
            why=_ONE_NUMBER,
            fix="Return y.astype(float) of an integer or bool, np.real(z) or np.abs(z)**2 of a complex number; or pass "
            "holomorphic=True if the function is.",
        )


def later_cotangents(later: Program, residuals: int, nonzero: Sequence[bool]) -> tuple[Program, tuple[bool, ...]]:
    return transpose_program(later, [i >= residuals for i in range(len(later.inputs))], nonzero)


def residuals_of(halves: Split, inputs: Sequence[Any], outputs: Sequence[Any]) -> list[Any]:
    return [inputs[i] if kind == "in" else outputs[i] for kind, i in halves.residuals]


def _gradient_program(program: Program, captured: int, with_value: bool) -> Program:
    """(*captures, *inputs) -> ([value,] *aux, *gradients), forward and backward in one program."""
    mask = [i >= captured for i in range(len(program.inputs))]
    n_out, wanted = len(program.outputs), program.inputs[captured:]
    halves = linearize_program(program, mask)
    known = halves.known
    rest = known.outputs[0 if with_value else 1 : n_out]
    gradients: list[Any] = [None] * len(wanted)
    eqns = list(known.eqns)
    if halves.unknown_out[0]:
        moving = [i for i, u in enumerate(halves.unknown_out) if u]
        backward, in_nonzero = later_cotangents(halves.later, len(halves.residuals), [i == 0 for i in moving])
        one = Lit(program.outputs[0].aval.dtype.type(1))
        given = dict(zip(backward.inputs, [*residuals_of(halves, known.inputs, known.outputs), one], strict=True))
        eqns += [
            Eqn(e.prim, [given.get(a, a) if type(a) is Var else a for a in e.inputs], e.params, e.outputs, e.source)
            for e in backward.eqns
        ]
        found = iter([given.get(o, o) if type(o) is Var else o for o in backward.outputs])
        gradients = [next(found) if nz else None for nz in in_nonzero]
    joined = Program(known.inputs, eqns, [*rest, *[g for g in gradients if g is not None]], (), program.name)
    if None not in gradients:
        return dce(joined)

    def with_zeros(*values: Any) -> list[Any]:
        outs = inline(joined, values)
        moved = iter(outs[len(rest) :])
        zeros = [instantiate(None, v.aval) if g is None else next(moved) for g, v in zip(gradients, wanted, strict=True)]
        return outs[: len(rest)] + zeros

    return build(program.in_avals, with_zeros, program.name)


def vjp(f: F, *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """Evaluate f and return its pullback, the map from output cotangents to input cotangents.

    Arguments:
        f: a function of the primals; any pytrees in and out (with `has_aux`, the pair (out, aux)).
        *primals: the point; integer leaves are allowed and get None as cotangent.

    Returns:
        (out, pullback) or (out, pullback, aux); `pullback(ct)`, ct a tree like out, returns a tuple with one entry a primal.

    Raises:
        TreeMismatchError, FxValueError, FxTypeError: a cotangent has another tree, shape or dtype than the output.
        StaleValueError: by the pullback, if memory it must read was changed in place since (primals, captured arrays, outputs).

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> y, pullback = fx.vjp(np.sin, 0.0)
        >>> pullback(2.0)
        (np.float64(2.0),)
    """
    arguments = Arguments(f, primals, {}, None, "vjp")
    traced, halves, outs, values = forward_half(f, arguments, has_aux, "vjp")
    n_out = len(traced.program.outputs)
    guarded = guard_residuals(halves, values, outs, n_out, arguments, len(traced.captures))
    out_avals = traced.program.out_avals
    out, aux, n_diff, out_tree = split_aux(traced, outs[:n_out], has_aux)
    mask = [is_float(aval_of_leaf(x).dtype) for x in arguments.leaves]

    def pullback(cotangent: Any) -> tuple[Any, ...]:
        cts = cotangents(cotangent, out_tree, out_avals[:n_diff], name_of(f))
        moving = [i for i, u in enumerate(halves.unknown_out) if u]
        given = [cts[i] if i < n_diff else None for i in moving]
        backward, in_nonzero = later_cotangents(halves.later, len(halves.residuals), [g is not None for g in given])
        found = iter(inline(backward, [*guarded.read("vjp's pullback"), *(g for g in given if g is not None)]))
        arrived = iter([next(found) if nz else None for nz in in_nonzero])
        leaves = [instantiate(next(arrived), aval_of_leaf(x)) if d else None for x, d in zip(arguments.leaves, mask, strict=True)]
        return tree.unflatten(arguments.structure, leaves)

    return (out, pullback, aux) if has_aux else (out, pullback)


def forward_half(f: F, arguments: Arguments, has_aux: bool, transform: str) -> tuple[Traced, Split, list[Any], list[Any]]:
    """Trace, linearize and evaluate the primal half."""
    mask = [is_float(aval_of_leaf(x).dtype) for x in arguments.leaves]

    def check(out: Any) -> None:
        if has_aux:
            require_pair(out, f, transform)

    traced = trace_function(
        arguments.rebuild,
        arguments.leaves,
        arguments.weak,
        transform,
        known=True,
        differentiated=mask,
        name=name_of(f),
        check=check,
    )
    program = canonical(traced.program)
    halves = linearize_program(program, [False] * len(traced.captures) + mask)
    values = [*traced.captures, *arguments.leaves]
    return traced, halves, inline(halves.known, values), values


def split_aux(traced: Traced, outs: list[Any], has_aux: bool) -> tuple[Any, Any, int, Any]:
    """(out, aux, number of differentiable output leaves, their tree)."""
    result = tree.unflatten(traced.out_tree, outs)
    if not has_aux:
        return result, None, len(outs), traced.out_tree
    out, aux = result
    flat, structure = tree.flatten(out)
    return out, aux, len(flat), structure


def guard_residuals(
    halves: Split, values: Sequence[Any], outs: Sequence[Any], n_out: int, arguments: Arguments, captured: int
) -> Guarded:
    """Residuals, with those that live in memory the caller can reach watched for changes."""

    def name(j: int) -> str:
        kind, i = halves.residuals[j]
        return "the returned output" if kind == "out" else arguments.label(i - captured) if i >= captured else "a captured array"

    watched = [kind == "in" or i < n_out for kind, i in halves.residuals]
    return Guarded(residuals_of(halves, values, outs), watched, name)
