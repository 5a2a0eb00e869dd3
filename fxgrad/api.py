"""The transforms users call. Each traces its function, rewrites the program, and runs the result (or records it in an outer trace)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad import errors, tree
from fxgrad.ir.program import Program, dce
from fxgrad.ir.types import Aval
from fxgrad.primitives.base import instantiate, is_float
from fxgrad.runtime.stale import Guarded
from fxgrad.trace.function import Traced, argument_names, as_leaf, aval_of_leaf, canonical, name_of, trace_function
from fxgrad.trace.tracer import Tracer
from fxgrad.trace.tracing import build, inline
from fxgrad.transforms.jvp import jvp as jvp_program
from fxgrad.transforms.linearize import Split
from fxgrad.transforms.linearize import linearize as linearize_program
from fxgrad.transforms.transpose import transpose as transpose_program
from fxgrad.transforms.vmap import vmap as vmap_program

__all__ = [
    "eval_shape", "grad", "hessian", "hvp", "jacfwd", "jacobian", "jacrev", "jvp", "linearize", "make_ir", "stop_gradient",
    "value_and_grad", "vjp", "vmap",
]  # fmt: skip

F = Callable[..., Any]


# ---- arguments ---------------------------------------------------------------------------------------------------------


class _Arguments:
    """The leaves of the arguments that a transform traces, and how to call the function with others in their place."""

    __slots__ = ("f", "leaves", "rebuild", "structure", "weak", "where")

    def __init__(self, f: F, args: Sequence[Any], kwargs: dict[str, Any], argnums: Sequence[int] | None, transform: str):
        self.f = f
        chosen = tuple(args) if argnums is None else tuple(args[i] for i in argnums)
        flat, self.structure = tree.flatten(chosen)
        pairs = [as_leaf(x, lambda i=i: f"{self.label(i)} of {transform}") for i, x in enumerate(flat)]
        self.leaves, self.weak = [x for x, _ in pairs], [w for _, w in pairs]
        self.where = (args, argnums)

        def rebuild(*values: Any) -> Any:
            new = tree.unflatten(self.structure, values)
            if argnums is None:
                return f(*new, **kwargs)
            full = list(args)
            for i, value in zip(argnums, new, strict=True):
                full[i] = value
            return f(*full, **kwargs)

        self.rebuild = rebuild

    def label(self, leaf: int) -> str:
        """`argument 'w'['bias']` for the leaf of that number."""
        args, argnums = self.where
        paths = tree.flatten_with_path(tuple(args) if argnums is None else tuple(args[i] for i in argnums))[0]
        path = paths[leaf][0]
        position = path[0].key if hasattr(path[0], "key") else path[0]
        position = position if argnums is None else argnums[position]
        return f"argument '{argument_names(self.f, args)[position]}'{tree.path_string(path[1:])}"


def _argnums(argnums: int | Sequence[int], args: Sequence[Any], what: str) -> tuple[int, ...]:
    numbers = (argnums,) if isinstance(argnums, (int, np.integer)) else tuple(argnums)
    for i in numbers:
        if not -len(args) <= i < len(args):
            raise errors.FxValueError(
                f"{what} got argnums={argnums}, but the function was called with {len(args)} positional arguments",
                why="argnums count positional arguments from 0.", fix="Pass the differentiated arguments by position.",
            )  # fmt: skip
    return tuple(i % len(args) for i in numbers)


def _require_float(arguments: _Arguments, transform: str) -> None:
    for i, leaf in enumerate(arguments.leaves):
        dtype = aval_of_leaf(leaf).dtype
        if dtype.kind == "c":
            raise errors.UnsupportedError(f"{transform} of complex inputs is not supported yet: {arguments.label(i)} is {dtype}")
        if not is_float(dtype):
            raise errors.NonDifferentiableError(
                f"{transform} needs floating-point inputs, but {arguments.label(i)} has dtype {dtype}",
                why="A function of integers has no derivative.",
                fix="Pass x.astype(float) (or 3.0 for 3), or choose other arguments with argnums=.",
            )


def _run(program: Program, args: Sequence[Any]) -> list[Any]:
    """Record in the active trace, or evaluate."""
    return inline(program, args)


# ---- reverse mode ------------------------------------------------------------------------------------------------------


def grad(f: F, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> F:
    """The gradient of a scalar function, by reverse mode.

    Arguments:
        f: a function of arrays (any pytrees) whose result is a real scalar, or (scalar, aux) with `has_aux`.
        argnums: which positional arguments to differentiate: an int, or several.
        has_aux: whether f returns a pair whose second part is passed through.

    Returns:
        A function with f's arguments that returns the gradient: for an int `argnums` a tree like that argument, else a tuple
        of them; each array has the shape and dtype of its input. With `has_aux`, the pair (gradient, aux).

    Raises:
        NonDifferentiableError: an input is not floating point, the output is not a real scalar, or a derivative would be cut.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.grad(lambda x: np.sum(x**2))(np.array([1.0, 2.0]))
        array([2., 4.])
    """
    return _reverse(f, argnums, has_aux, with_value=False)


def value_and_grad(f: F, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> F:
    """Like `grad`, and returns the pair (value, gradient); with `has_aux`, ((value, aux), gradient).

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.value_and_grad(lambda x: x**3)(2.0)
        (np.float64(8.0), np.float64(12.0))
    """
    return _reverse(f, argnums, has_aux, with_value=True)


def _reverse(f: F, argnums: int | Sequence[int], has_aux: bool, with_value: bool) -> F:
    transform = "value_and_grad" if with_value else "grad"

    @_wraps(f, transform)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        numbers = _argnums(argnums, args, transform)
        arguments = _Arguments(f, args, kwargs, numbers, transform)
        _require_float(arguments, transform)
        traced = trace_function(
            arguments.rebuild, arguments.leaves, arguments.weak, transform,
            known=True, differentiated=[True] * len(arguments.leaves), name=name_of(f),
            check=lambda out: _check_scalar(f, out, has_aux, transform),
        )  # fmt: skip
        n, k = len(traced.captures), len(arguments.leaves)
        program = canonical(traced.program)
        derivative = program.memoize((transform, n), lambda: _gradient_program(program, n, with_value))
        results = _run(derivative, [*traced.captures, *arguments.leaves])
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


def _check_scalar(f: F, out: Any, has_aux: bool, transform: str) -> None:
    if has_aux:
        if not isinstance(out, tuple) or len(out) != 2:
            raise errors.FxTypeError(f"{transform}(has_aux=True): '{name_of(f)}' must return a pair (value, aux), got {type(out).__name__}")
        out = out[0]
    kind = type(out)
    shape, dtype = getattr(out, "shape", ()), getattr(out, "dtype", None)
    if kind not in (float, int) and dtype is None:
        raise errors.NonDifferentiableError(
            f"{transform} needs a scalar output, '{name_of(f)}' returned a {kind.__name__}",
            fix="Return one number; with extra results, return (value, extra) and pass has_aux=True.",
        )
    if shape != ():
        raise errors.NonDifferentiableError(
            f"{transform} needs a scalar output, got shape {shape} from '{name_of(f)}'",
            why="A gradient is the derivative of one number.",
            fix="Reduce it (y.sum(), y.mean(), y[0]), or use fx.jacrev for the whole Jacobian, or fx.vjp with a cotangent.",
        )
    if kind is not float and (dtype is None or not is_float(dtype) or dtype.kind == "c"):
        raise errors.NonDifferentiableError(
            f"{transform} needs a real floating-point output, got {dtype or kind.__name__} from '{name_of(f)}'",
            fix="Return a real number, for example np.real(z) or np.abs(z)**2.",
        )


def _later_cotangents(later: Program, residuals: int, nonzero: Sequence[bool]) -> tuple[Program, tuple[bool, ...]]:
    return transpose_program(later, [i >= residuals for i in range(len(later.inputs))], nonzero)


def _residuals(halves: Split, inputs: Sequence[Any], outputs: Sequence[Any]) -> list[Any]:
    return [inputs[i] if kind == "in" else outputs[i] for kind, i in halves.residuals]


def _gradient_program(program: Program, captured: int, with_value: bool) -> Program:
    """(*captures, *inputs) -> ([value,] *aux, *gradients), forward and backward in one program."""
    mask = [i >= captured for i in range(len(program.inputs))]
    n_out, wanted = len(program.outputs), program.inputs[captured:]

    def body(*values: Any) -> list[Any]:
        halves = linearize_program(program, mask)
        outs = inline(halves.known, values)
        rest = outs[0 if with_value else 1 : n_out]
        if not halves.unknown_out[0]:
            return rest + [instantiate(None, v.aval) for v in wanted]
        moving = [i for i, u in enumerate(halves.unknown_out) if u]
        backward, in_nonzero = _later_cotangents(halves.later, len(halves.residuals), [i == 0 for i in moving])
        one = program.outputs[0].aval.dtype.type(1)
        found = iter(inline(backward, [*_residuals(halves, values, outs), one]))
        return rest + [next(found) if nz else instantiate(None, v.aval) for nz, v in zip(in_nonzero, wanted, strict=True)]

    return build(program.in_avals, body, program.name)


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
    arguments = _Arguments(f, primals, {}, None, "vjp")
    traced, halves, outs, values = _forward(f, arguments, has_aux, "vjp")
    n_out = len(traced.program.outputs)
    guarded = _guard_residuals(halves, values, outs, n_out, arguments, len(traced.captures))
    out_avals = traced.program.out_avals
    out, aux, n_diff, out_tree = _split_aux(traced, outs[:n_out], has_aux)
    mask = [is_float(aval_of_leaf(x).dtype) for x in arguments.leaves]

    def pullback(cotangent: Any) -> tuple[Any, ...]:
        cts = _cotangents(cotangent, out_tree, out_avals[:n_diff], name_of(f))
        moving = [i for i, u in enumerate(halves.unknown_out) if u]
        given = [cts[i] if i < n_diff else None for i in moving]
        backward, in_nonzero = _later_cotangents(halves.later, len(halves.residuals), [g is not None for g in given])
        found = iter(_run(backward, [*guarded.read("vjp's pullback"), *(g for g in given if g is not None)]))
        arrived = iter([next(found) if nz else None for nz in in_nonzero])
        leaves = [instantiate(next(arrived), aval_of_leaf(x)) if d else None for x, d in zip(arguments.leaves, mask, strict=True)]
        return tree.unflatten(arguments.structure, leaves)

    return (out, pullback, aux) if has_aux else (out, pullback)


def _forward(f: F, arguments: _Arguments, has_aux: bool, transform: str) -> tuple[Traced, Split, list[Any], list[Any]]:
    """Trace, linearize and evaluate the primal half."""
    mask = [is_float(aval_of_leaf(x).dtype) for x in arguments.leaves]

    def check(out: Any) -> None:
        if has_aux and (not isinstance(out, tuple) or len(out) != 2):
            raise errors.FxTypeError(f"{transform}(has_aux=True): '{name_of(f)}' must return a pair (out, aux), got {type(out).__name__}")

    traced = trace_function(
        arguments.rebuild, arguments.leaves, arguments.weak, transform, known=True, differentiated=mask, name=name_of(f), check=check
    )
    program = canonical(traced.program)
    halves = linearize_program(program, [False] * len(traced.captures) + mask)
    values = [*traced.captures, *arguments.leaves]
    return traced, halves, _run(halves.known, values), values


def _split_aux(traced: Traced, outs: list[Any], has_aux: bool) -> tuple[Any, Any, int, Any]:
    """(out, aux, number of differentiable output leaves, their tree)."""
    result = tree.unflatten(traced.out_tree, outs)
    if not has_aux:
        return result, None, len(outs), traced.out_tree
    out, aux = result
    flat, structure = tree.flatten(out)
    return out, aux, len(flat), structure


def _guard_residuals(halves: Split, values: Sequence[Any], outs: Sequence[Any], n_out: int, arguments: _Arguments, captured: int) -> Guarded:
    """Residuals, with those that live in memory the caller can reach watched for changes."""
    residuals = _residuals(halves, values, outs)
    names = []
    for kind, i in halves.residuals:
        if kind == "in":
            names.append(arguments.label(i - captured) if i >= captured else "a captured array")
        else:
            names.append("the returned output" if i < n_out else None)
    return Guarded(residuals, names)


def _cotangents(given: Any, out_tree: Any, avals: Sequence[Aval], name: str) -> list[Any]:
    """The leaves of a cotangent tree, checked against the outputs; None stands for zero."""
    flat, structure = tree.flatten(given, is_leaf=lambda x: x is None) if given is not None else ([None] * len(avals), out_tree)
    if len(flat) != len(avals) or (structure != out_tree and not any(x is None for x in flat)):
        tree.check_same(structure, out_tree, f"the cotangent given to the pullback of '{name}'")
        raise errors.TreeMismatchError(f"the cotangent given to the pullback of '{name}' has {len(flat)} leaves, the output {len(avals)}")
    return [_matching(x, a, f"cotangent {i} given to the pullback of '{name}'", "output") for i, (x, a) in enumerate(zip(flat, avals, strict=True))]


def _matching(x: Any, aval: Aval, what: str, of: str) -> Any:
    """A tangent or cotangent checked against the value it belongs to; None for integer values, and for zero."""
    if x is None or not is_float(aval.dtype):
        return None
    if type(x) in (int, float) and aval.shape == ():
        return aval.dtype.type(x)
    x, weak = as_leaf(x, lambda: what)
    have = aval_of_leaf(x)
    if have.shape != aval.shape:
        raise errors.FxValueError(f"{what} has shape {have.shape}, the {of} has shape {aval.shape}", fix=f"Pass an array of shape {aval.shape}.")
    if have.dtype != aval.dtype and not weak:
        raise errors.FxTypeError(
            f"{what} has dtype {have.dtype}, the {of} has dtype {aval.dtype}", why="Both must agree, so that precision is never lost silently.", fix=f"Pass ct.astype(np.{aval.dtype}).",
        )  # fmt: skip
    return x if have.dtype == aval.dtype else instantiate_as(x, aval)


def instantiate_as(x: Any, aval: Aval) -> Any:
    from fxgrad.primitives.elementwise import convert

    return convert(x, dtype=aval.dtype)


# ---- forward mode ------------------------------------------------------------------------------------------------------


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
    _check_sequence(primals, tangents, "jvp")
    arguments = _Arguments(f, primals, {}, None, "jvp")
    moved = _tangents(tuple(tangents), arguments)
    traced, _, mask = _trace_forward(f, arguments, moved, has_aux)
    program = canonical(traced.program)
    forward, out_nonzero = jvp_program(program, [False] * len(traced.captures) + mask)
    results = _run(forward, [*traced.captures, *arguments.leaves, *(t for t in moved if t is not None)])
    n = len(traced.program.outputs)
    out, aux, n_diff, out_tree = _split_aux(traced, results[:n], has_aux)
    arrived = iter(results[n:])
    touts = [next(arrived) if nz else None for nz in out_nonzero]
    tangent = tree.unflatten(out_tree, _fill(touts[:n_diff], traced.program.out_avals[:n_diff]))
    return (out, tangent, aux) if has_aux else (out, tangent)


def _fill(tangents: Sequence[Any], avals: Sequence[Aval]) -> list[Any]:
    return [instantiate(t, a) if is_float(a.dtype) else None for t, a in zip(tangents, avals, strict=True)]


def _check_sequence(primals: Any, tangents: Any, transform: str) -> None:
    if not isinstance(primals, (tuple, list)) or not isinstance(tangents, (tuple, list)):
        raise errors.FxTypeError(f"{transform} takes primals and tangents as tuples", fix=f"Write {transform}(f, (x,), (t,)).")
    if len(primals) != len(tangents):
        raise errors.TreeMismatchError(f"{transform} got {len(primals)} primals and {len(tangents)} tangents")


def _tangents(given: Any, arguments: _Arguments) -> list[Any]:
    flat, structure = tree.flatten(given, is_leaf=lambda x: x is None)
    if len(flat) != len(arguments.leaves):
        tree.check_same(structure, arguments.structure, "the tangents")
        raise errors.TreeMismatchError(f"the tangents have {len(flat)} leaves, the primals {len(arguments.leaves)}")
    return [
        _matching(t, aval_of_leaf(x), f"the tangent of {arguments.label(i)}", "primal")
        for i, (t, x) in enumerate(zip(flat, arguments.leaves, strict=True))
    ]


def _trace_forward(f: F, arguments: _Arguments, moved: Sequence[Any], has_aux: bool) -> tuple[Traced, None, list[bool]]:
    mask = [t is not None for t in moved]

    def check(out: Any) -> None:
        if has_aux and (not isinstance(out, tuple) or len(out) != 2):
            raise errors.FxTypeError(f"jvp(has_aux=True): '{name_of(f)}' must return a pair (out, aux), got {type(out).__name__}")

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
    arguments = _Arguments(f, primals, {}, None, "linearize")
    traced, halves, outs, values = _forward(f, arguments, False, "linearize")
    n_out = len(traced.program.outputs)
    guarded = _guard_residuals(halves, values, outs, n_out, arguments, len(traced.captures))
    mask = [is_float(aval_of_leaf(x).dtype) for x in arguments.leaves]
    out_avals, out_tree = traced.program.out_avals, traced.out_tree

    def f_jvp(*tangents: Any) -> Any:
        if len(tangents) != len(primals):
            raise errors.TreeMismatchError(f"f_jvp got {len(tangents)} tangents for {len(primals)} primals")
        moved = _tangents(tangents, arguments)
        full = [instantiate(t, aval_of_leaf(x)) for t, x, d in zip(moved, arguments.leaves, mask, strict=True) if d]
        found = iter(_run(halves.later, [*guarded.read("linearize's f_jvp"), *full]))
        touts = [next(found) if u else None for u in halves.unknown_out]
        return tree.unflatten(out_tree, _fill(touts, out_avals))

    return tree.unflatten(out_tree, outs[:n_out]), f_jvp


# ---- Jacobians ---------------------------------------------------------------------------------------------------------


def jacfwd(f: F, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> F:
    """The Jacobian by forward mode, one tangent per input element: the choice for few inputs and many outputs.

    Returns:
        A function that returns, for each output leaf of shape S and each input leaf of shape T, an array of shape S + T in
        the output's dtype (a tree of outputs whose leaves are trees of inputs). With `has_aux`, the pair (jacobian, aux).

    Raises:
        NonDifferentiableError: an input is not floating point.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.jacfwd(lambda x: x * x)(np.array([1.0, 2.0]))
        array([[2., 0.],
               [0., 4.]])
    """

    @_wraps(f, "jacfwd")
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        numbers = _argnums(argnums, args, "jacfwd")
        arguments = _Arguments(f, args, kwargs, numbers, "jacfwd")
        _require_float(arguments, "jacfwd")
        avals = [aval_of_leaf(x) for x in arguments.leaves]
        aux = None

        def push(*tangents: Any) -> Any:
            nonlocal aux
            result = jvp(arguments.rebuild, arguments.leaves, tangents, has_aux=has_aux)
            return (result[0], result[1], result[2]) if has_aux else (result[0], result[1])

        pushed = vmap(push, in_axes=0, out_axes=(None, -1, None) if has_aux else (None, -1))(*_basis(avals))
        out, columns = pushed[0], pushed[1]
        aux = pushed[2] if has_aux else None
        jac = tree.map(lambda y, c: _columns_to_tree(c, np.shape(y), avals, arguments, argnums), out, columns)
        return (jac, aux) if has_aux else jac

    return wrapped


def _basis(avals: Sequence[Aval]) -> list[np.ndarray]:
    """For each leaf, an array with a leading axis over all input elements: the unit tangents."""
    total, start, out = sum(a.size for a in avals), 0, []
    for a in avals:
        block = np.zeros((total, a.size), a.dtype)
        block[start : start + a.size] = np.eye(a.size, dtype=a.dtype)
        out.append(block.reshape(total, *a.shape))
        start += a.size
    return out


def _columns_to_tree(columns: Any, shape: tuple[int, ...], avals: Sequence[Aval], arguments: _Arguments, argnums: Any) -> Any:
    """Cut the last axis, which runs over all input elements, into one block a leaf."""
    import fxgrad.numpy as fnp

    start, blocks = 0, []
    for a in avals:
        block = columns[..., start : start + a.size]
        blocks.append(_owned(fnp.reshape(block, (*shape, *a.shape))))
        start += a.size
    found = tree.unflatten(arguments.structure, blocks)
    return found[0] if isinstance(argnums, (int, np.integer)) else found


def _owned(x: Any) -> Any:
    """An array that shares memory with no other result."""
    return x if type(x) is Tracer or x.base is None else x.copy()


def jacrev(f: F, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> F:
    """The Jacobian by reverse mode, one cotangent per output element: the choice for many inputs and few outputs.

    Returns, raises: as `jacfwd`.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.jacrev(lambda x: x * x)(np.array([1.0, 2.0]))
        array([[2., 0.],
               [0., 4.]])
    """

    @_wraps(f, "jacrev")
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        numbers = _argnums(argnums, args, "jacrev")
        arguments = _Arguments(f, args, kwargs, numbers, "jacrev")
        _require_float(arguments, "jacrev")
        result = vjp(arguments.rebuild, *arguments.leaves, has_aux=has_aux)
        out, pullback = result[0], result[1]
        flat, out_tree = tree.flatten(out)
        avals = [aval_of_leaf(as_leaf(y, lambda: "the output of jacrev")[0]) for y in flat]
        for a in avals:
            if not is_float(a.dtype):
                raise errors.NonDifferentiableError(f"jacrev needs floating-point outputs, got {a} from '{name_of(f)}'")
        rows = vmap(lambda *cts: pullback(tree.unflatten(out_tree, cts)))(*_basis(avals))
        start, blocks = 0, []
        import fxgrad.numpy as fnp

        for a in avals:
            cut = [_owned(fnp.reshape(r[start : start + a.size], (*a.shape, *r.shape[1:]))) for r in rows]
            found = tree.unflatten(arguments.structure, cut)
            blocks.append(found[0] if isinstance(argnums, (int, np.integer)) else found)
            start += a.size
        jac = tree.unflatten(out_tree, blocks)
        return (jac, result[2]) if has_aux else jac

    return wrapped


jacobian = jacrev


def hessian(f: F, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> F:
    """The matrix of second derivatives, forward over reverse.

    Returns:
        A function that returns, for a scalar f of an array of shape T, an array of shape T + T (trees nest as in `jacfwd`).

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.hessian(lambda x: np.sum(x**3))(np.array([1.0, 2.0]))
        array([[ 6.,  0.],
               [ 0., 12.]])
    """
    return jacfwd(jacrev(f, argnums, has_aux), argnums, has_aux)


def hvp(f: F, primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    """The product of the Hessian of a scalar function with a direction: jvp(grad(f), primals, tangents)[1].

    Costs a small multiple of f and never forms the matrix (Pearlmutter, 1994).

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.hvp(lambda x: np.sum(x**3), (np.array([1.0, 2.0]),), (np.array([1.0, 0.0]),))
        array([6., 0.])
    """
    return jvp(grad(f), primals, tangents)[1]


# ---- vmap --------------------------------------------------------------------------------------------------------------


def vmap(f: F, in_axes: Any = 0, out_axes: Any = 0) -> F:
    """Map a function of one example over a batch axis, all examples at once.

    Arguments:
        f: a function of arrays (pytrees).
        in_axes: the batch axis of each positional argument: an int, None (not batched), or a tuple or list with a prefix tree of
            these for each argument.
        out_axes: where the batch axis goes in each result: an int, None (the result must not depend on the batch), or a prefix tree.

    Returns:
        A function of batched arguments; keyword arguments are batched along axis 0. Elements, reductions included, have the bits
        that a Python loop over the batch would give.

    Raises:
        FxValueError: batch sizes differ, an axis is out of range, or nothing is batched.
        ConcretizationError: f asks for a value, as in `if x > 0`.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.vmap(np.dot)(np.ones((2, 3)), np.ones((2, 3)))
        array([3., 3.])
    """

    @_wraps(f, "vmap")
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        axes_tree = (in_axes if isinstance(in_axes, (int, type(None))) else tuple(in_axes), 0)
        if isinstance(axes_tree[0], tuple) and len(axes_tree[0]) != len(args):
            raise errors.FxValueError(f"vmap got in_axes for {len(axes_tree[0])} arguments, but '{name_of(f)}' was called with {len(args)}")
        flat, structure = tree.flatten((args, kwargs))
        arguments = _Arguments(f, args, {}, None, "vmap")
        leaves, weak = zip(*(as_leaf(x, lambda: f"an argument of vmap of '{name_of(f)}'") for x in flat), strict=True) if flat else ((), ())
        axes = _prefix(axes_tree, (args, kwargs), "in_axes")
        leaves, axes, size = _batch_size(f, arguments, leaves, axes)
        moved = [_to_front(x, a) for x, a in zip(leaves, axes, strict=True)]
        examples = [Aval(aval_of_leaf(x).shape[1:], aval_of_leaf(x).dtype) if a is not None else aval_of_leaf(x) for x, a in zip(moved, axes, strict=True)]

        def call(*values: Any) -> Any:
            new_args, new_kwargs = tree.unflatten(structure, values)
            return f(*new_args, **new_kwargs)

        traced = trace_function(call, examples, [w and a is None for w, a in zip(weak, axes, strict=True)], "vmap", known=False, name=name_of(f))
        program = canonical(traced.program)
        batched = [False] * len(traced.captures) + [a is not None for a in axes]
        wide, out_batched = vmap_program(program, batched, size)
        results = _run(wide, [*traced.captures, *moved])
        wanted = _prefix(out_axes, tree.unflatten(traced.out_tree, results), "out_axes")
        outs = [_from_front(y, b, a, size, f) for y, b, a in zip(results, out_batched, wanted, strict=True)]
        return tree.unflatten(traced.out_tree, outs)

    return wrapped


def _prefix(axes: Any, full: Any, what: str) -> list[int | None]:
    """One axis for each leaf of `full` from a tree of axes that may stop early."""
    if axes is None or isinstance(axes, (int, np.integer)):
        return [axes] * len(tree.leaves(full))
    if isinstance(axes, (tuple, list)) and isinstance(full, (tuple, list)) and len(axes) == len(full):
        return [a for x, y in zip(axes, full, strict=True) for a in _prefix(x, y, what)]
    if isinstance(axes, dict) and isinstance(full, dict) and axes.keys() == full.keys():
        return [a for k in sorted(full) for a in _prefix(axes[k], full[k], what)]
    raise errors.TreeMismatchError(f"vmap's {what}={axes!r} is not a prefix of the tree {tree.structure(full)}", fix=f"Give an int, None, or one entry for each part in {what}.")


def _batch_size(f: F, arguments: _Arguments, leaves: Sequence[Any], axes: Sequence[int | None]) -> tuple[list[Any], list[int | None], int]:
    sizes: dict[int, str] = {}
    canonical_axes: list[int | None] = []
    for i, (x, axis) in enumerate(zip(leaves, axes, strict=True)):
        label = arguments.label(i) if i < len(arguments.leaves) else "a keyword argument"
        shape = aval_of_leaf(x).shape
        if axis is not None and not -len(shape) <= axis < len(shape):
            raise errors.FxValueError(
                f"vmap of '{name_of(f)}': {label} of shape {shape} has no axis {axis}", why="Each batched argument needs the batch axis.", fix="Pass in_axes=None for arguments that are not batched."
            )
        if axis is not None:
            axis %= len(shape)
            sizes.setdefault(shape[axis], f"{label} has size {shape[axis]} along axis {axis}")
        canonical_axes.append(axis)
    if len(sizes) > 1:
        raise errors.FxValueError(f"vmap of '{name_of(f)}' got different batch sizes: {'; '.join(sizes.values())}", fix="All batched arguments need one size; pass in_axes=None for the others.")
    if not sizes:
        raise errors.FxValueError(f"vmap of '{name_of(f)}' has no batched argument", fix="At least one argument needs an axis in in_axes.")
    return list(leaves), canonical_axes, next(iter(sizes))


def _to_front(x: Any, axis: int | None) -> Any:
    if not axis:
        return x
    import fxgrad.numpy as fnp

    return np.moveaxis(x, axis, 0) if type(x) is np.ndarray else fnp.moveaxis(x, axis, 0)


def _from_front(y: Any, batched: bool, axis: int | None, size: int, f: F) -> Any:
    from fxgrad.primitives.shape import add_batch_axis

    if axis is None:
        if batched:
            raise errors.FxValueError(f"vmap of '{name_of(f)}' has out_axes=None for a result that depends on the batch", fix="Give it an axis, for example out_axes=0.")
        return y
    if not batched:
        y = add_batch_axis(y, size)
        y = y if type(y) is Tracer else np.array(y)
    ndim = len(y.shape)
    if not -ndim <= axis < ndim:
        raise errors.FxValueError(f"vmap of '{name_of(f)}': out_axes={axis} is out of range for a result with {ndim} axes")
    if axis % ndim == 0:
        return y
    import fxgrad.numpy as fnp

    return np.ascontiguousarray(np.moveaxis(y, 0, axis)) if type(y) is np.ndarray else fnp.moveaxis(y, 0, axis)


# ---- looking at programs -------------------------------------------------------------------------------------------------


def stop_gradient(x: Any) -> Any:
    """x (any pytree), with derivatives cut: its tangent is zero, and float(x) is allowed.

    Example:
        >>> import fxgrad as fx
        >>> fx.grad(lambda x: x * fx.stop_gradient(x))(3.0)
        np.float64(3.0)
    """
    from fxgrad.primitives.call import stop_gradient as prim

    def cut(leaf: Any) -> Any:
        return prim(leaf) if type(leaf) is Tracer else leaf

    return tree.map(cut, x)


def make_ir(f: F) -> Callable[..., Program]:
    """A function that traces f on example arguments and returns the Program, with captured arrays as its consts.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> print(fx.make_ir(lambda x: np.sum(x * 2.0))(np.ones(3)))  # doctest: +ELLIPSIS
        program ...
    """

    @_wraps(f, "make_ir")
    def wrapped(*args: Any, **kwargs: Any) -> Program:
        traced = _trace_abstract(f, args, kwargs, "make_ir")
        if any(type(c) is Tracer for c in traced.captures):
            raise errors.UnsupportedError(f"make_ir of '{name_of(f)}' captured a traced value", fix="Pass it as an argument.")
        p = dce(traced.program)
        return Program(p.inputs, p.eqns, p.outputs, traced.captures, p.name)

    return wrapped


def _trace_abstract(f: F, args: Sequence[Any], kwargs: dict[str, Any], transform: str) -> Traced:
    flat, structure = tree.flatten((tuple(args), kwargs))
    pairs = [as_leaf(x, lambda: f"an argument of {transform}") for x in flat]

    def call(*values: Any) -> Any:
        new_args, new_kwargs = tree.unflatten(structure, values)
        return f(*new_args, **new_kwargs)

    return trace_function(call, [x for x, _ in pairs], [w for _, w in pairs], transform, known=False, name=name_of(f))


def eval_shape(f: F, *args: Any, **kwargs: Any) -> Any:
    """The shapes and dtypes of f's results, without computing them.

    Arguments may be arrays or Avals (anything with shape and dtype); the result is a tree of Avals.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.eval_shape(np.matmul, np.ones((2, 3)), np.ones((3, 4)))
        f64[2,4]
    """
    traced = _trace_abstract(f, args, kwargs, "eval_shape")
    return tree.unflatten(traced.out_tree, traced.program.out_avals)


def _wraps(f: F, transform: str) -> Callable[[F], F]:
    """functools.wraps that survives callables without a name, and keeps the function for pickling and guards."""

    def decorate(wrapped: F) -> F:
        functools.update_wrapper(wrapped, f, updated=())
        wrapped.__name__ = f"{transform}({name_of(f)})"
        wrapped.__wrapped__ = f  # type: ignore[attr-defined]
        return wrapped

    return decorate


