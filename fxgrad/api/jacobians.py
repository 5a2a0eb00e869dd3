"""Whole Jacobians and Hessians, row by row or column by column under vmap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad import errors, tree
from fxgrad.api.arguments import Arguments, argnums_of, require_float
from fxgrad.api.batching import vmap
from fxgrad.api.forward import check_sequences, jvp
from fxgrad.api.reverse import grad, vjp
from fxgrad.api.wrapping import wraps
from fxgrad.ir.types import Aval
from fxgrad.primitives.base import is_float
from fxgrad.trace.function import as_leaf, aval_of_leaf, name_of
from fxgrad.trace.tracer import Tracer

F = Callable[..., Any]


def jacfwd(f: F, argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False) -> F:
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

    @wraps(f, "jacfwd", (jacfwd, (f, argnums, has_aux, holomorphic)))
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        numbers = argnums_of(argnums, args, "jacfwd")
        arguments = Arguments(f, args, kwargs, numbers, "jacfwd")
        require_float(arguments, "jacfwd", holomorphic, real=True)
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


def _columns_to_tree(columns: Any, shape: tuple[int, ...], avals: Sequence[Aval], arguments: Arguments, argnums: Any) -> Any:
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


def jacrev(f: F, argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False) -> F:
    """The Jacobian by reverse mode, one cotangent per output element: the choice for many inputs and few outputs.

    Returns, raises: as `jacfwd`.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.jacrev(lambda x: x * x)(np.array([1.0, 2.0]))
        array([[2., 0.],
               [0., 4.]])
    """

    @wraps(f, "jacrev", (jacrev, (f, argnums, has_aux, holomorphic)))
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        numbers = argnums_of(argnums, args, "jacrev")
        arguments = Arguments(f, args, kwargs, numbers, "jacrev")
        require_float(arguments, "jacrev", holomorphic)
        result = vjp(arguments.rebuild, *arguments.leaves, has_aux=has_aux)
        out, pullback = result[0], result[1]
        flat, out_tree = tree.flatten(out)
        avals = [aval_of_leaf(as_leaf(y, lambda: "the output of jacrev")[0]) for y in flat]
        for a in avals:
            if not is_float(a.dtype):
                raise errors.NonDifferentiableError(
                    f"jacrev needs floating-point outputs, got {a} from '{name_of(f)}'",
                    why="A function with integer values has no derivative.",
                    fix="Return y.astype(float), or pass it through with has_aux=True.",
                )
            if (a.dtype.kind == "c") != holomorphic:
                raise errors.NonDifferentiableError(
                    f"jacrev{'(holomorphic=True)' * holomorphic} needs {'complex' if holomorphic else 'real'} outputs, "
                    f"got {a} from '{name_of(f)}'",
                    why="A complex result has a derivative of its own only if the function is holomorphic.",
                    fix="Return np.real(z) or np.abs(z), or pass holomorphic=True for holomorphic functions of complex inputs.",
                )
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


def hessian(f: F, argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False) -> F:
    """The matrix of second derivatives, forward over reverse.

    Returns:
        A function that returns, for a scalar f of an array of shape T, an array of shape T + T (trees nest as in `jacfwd`).

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.hessian(lambda x: np.sum(x**3))(np.array([1.0, 2.0]))
        array([[ 6.,  0.],
               [ 0., 12.]])
    """
    return jacfwd(jacrev(f, argnums, has_aux, holomorphic), argnums, has_aux, holomorphic)


def hvp(f: F, primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    """The product of the Hessian of a scalar function with a direction: jvp(grad(f), primals, tangents)[1].

    Costs a small multiple of f and never forms the matrix (Pearlmutter, 1994).

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.hvp(lambda x: np.sum(x**3), (np.array([1.0, 2.0]),), (np.array([1.0, 0.0]),))
        array([6., 0.])
    """
    check_sequences(primals, tangents, "hvp")
    return jvp(grad(f), primals, tangents)[1]
