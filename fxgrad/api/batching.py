"""vmap: one example becomes a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad import errors, tree
from fxgrad.api.arguments import Arguments
from fxgrad.api.wrapping import wraps
from fxgrad.ir.types import Aval
from fxgrad.trace.function import as_leaf, aval_of_leaf, canonical, name_of, trace_function
from fxgrad.trace.tracer import Tracer
from fxgrad.trace.tracing import inline
from fxgrad.transforms.vmap import vmap as vmap_program

F = Callable[..., Any]


def vmap(f: F, in_axes: Any = 0, out_axes: Any = 0) -> F:
    """Map a function of one example over a batch axis, all examples at once.

    Arguments:
        f: a function of arrays (pytrees).
        in_axes: the batch axis of each positional argument: an int, None (not batched), or a tuple or list with a prefix tree of
            these for each argument.
        out_axes: where the batch axis goes in each result: an int, None (it must not depend on the batch), or a prefix tree.

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

    @wraps(f, "vmap", (vmap, (f, in_axes, out_axes)))
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        axes_tree = (in_axes if isinstance(in_axes, (int, type(None))) else tuple(in_axes), 0)
        if isinstance(axes_tree[0], tuple) and len(axes_tree[0]) != len(args):
            raise errors.FxValueError(
                f"vmap got in_axes for {len(axes_tree[0])} arguments, but '{name_of(f)}' was called with {len(args)}",
                why="in_axes has one entry for each positional argument.",
                fix=f"Pass in_axes={(0,) * len(args)}, with None for arguments that are not batched.",
            )
        flat, structure = tree.flatten((args, kwargs))
        arguments = Arguments(f, args, {}, None, "vmap")
        leaves, weak = (
            zip(*(as_leaf(x, lambda: f"an argument of vmap of '{name_of(f)}'") for x in flat), strict=True) if flat else ((), ())
        )
        axes = _prefix(axes_tree, (args, kwargs), "in_axes")
        axes, size = _batch_size(f, arguments, kwargs, leaves, axes)
        moved = [_to_front(x, a) for x, a in zip(leaves, axes, strict=True)]
        examples = [
            Aval(aval_of_leaf(x).shape[1:], aval_of_leaf(x).dtype) if a is not None else aval_of_leaf(x)
            for x, a in zip(moved, axes, strict=True)
        ]

        def call(*values: Any) -> Any:
            new_args, new_kwargs = tree.unflatten(structure, values)
            return f(*new_args, **new_kwargs)

        traced = trace_function(
            call, examples, [w and a is None for w, a in zip(weak, axes, strict=True)], "vmap", known=False, name=name_of(f)
        )
        program = canonical(traced.program)
        batched = [False] * len(traced.captures) + [a is not None for a in axes]
        wide, out_batched = vmap_program(program, batched, size)
        results = inline(wide, [*traced.captures, *moved])
        wanted = _prefix(out_axes, tree.unflatten(traced.out_tree, results), "out_axes")
        outs = [_from_front(y, b, a, size, f) for y, b, a in zip(results, out_batched, wanted, strict=True)]
        return tree.unflatten(traced.out_tree, outs)

    return wrapped


def _prefix(axes: Any, full: Any, what: str) -> list[int | None]:
    """One axis for each leaf of `full` from a tree of axes that may stop early."""
    if axes is None or isinstance(axes, (int, np.integer)):
        return [axes if axes is None else int(axes)] * len(tree.leaves(full))
    if isinstance(axes, (tuple, list)) and isinstance(full, (tuple, list)) and len(axes) == len(full):
        return [a for x, y in zip(axes, full, strict=True) for a in _prefix(x, y, what)]
    if isinstance(axes, dict) and isinstance(full, dict) and axes.keys() == full.keys():
        return [a for k in sorted(full) for a in _prefix(axes[k], full[k], what)]
    raise errors.TreeMismatchError(
        f"vmap's {what}={axes!r} is not a prefix of the tree {tree.structure(full)}",
        why="Axes are given for whole parts of a tree, or for each of their parts in the same containers.",
        fix=f"Give an int, None, or one entry for each part in {what}.",
    )


def _keyword_label(kwargs: dict[str, Any], number: int) -> str:
    """A leaf among the keyword arguments as messages name it: argument 'params'['w']."""
    (first, *rest), _ = tree.flatten_with_path(kwargs)[0][number]
    return f"argument '{first.key}'{tree.path_string(tuple(rest))}"


def _batch_size(
    f: F, arguments: Arguments, kwargs: dict[str, Any], leaves: Sequence[Any], axes: Sequence[int | None]
) -> tuple[list[int | None], int]:
    sizes: dict[int, str] = {}
    canonical_axes: list[int | None] = []
    for i, (x, axis) in enumerate(zip(leaves, axes, strict=True)):
        positional = len(arguments.leaves)
        label = arguments.label(i) if i < positional else _keyword_label(kwargs, i - positional)
        shape = aval_of_leaf(x).shape
        if axis is not None and not -len(shape) <= axis < len(shape):
            raise errors.FxValueError(
                f"vmap of '{name_of(f)}': {label} of shape {shape} has no axis {axis}",
                why="Each batched argument needs the batch axis.",
                fix="Pass in_axes=None for arguments that are not batched.",
            )
        if axis is not None:
            axis %= len(shape)
            sizes.setdefault(shape[axis], f"{label} has size {shape[axis]} along axis {axis}")
        canonical_axes.append(axis)
    if len(sizes) > 1:
        raise errors.FxValueError(
            f"vmap of '{name_of(f)}' got different batch sizes: {'; '.join(sizes.values())}",
            why="The function is called once for each position along the batch axes, so these must have one length.",
            fix="Pass in_axes=None for arguments that are not batched.",
        )
    if not sizes:
        raise errors.FxValueError(
            f"vmap of '{name_of(f)}' has no batched argument",
            why="The size of the batch comes from the arguments.",
            fix="Give at least one of them an axis in in_axes, or call the function itself.",
        )
    return canonical_axes, next(iter(sizes))


def _to_front(x: Any, axis: int | None) -> Any:
    if not axis:
        return x
    import fxgrad.numpy as fnp

    return np.moveaxis(x, axis, 0) if type(x) is np.ndarray else fnp.moveaxis(x, axis, 0)


def _from_front(y: Any, batched: bool, axis: int | None, size: int, f: F) -> Any:
    from fxgrad.primitives.shape import add_batch_axis

    if axis is None:
        if batched:
            raise errors.FxValueError(
                f"vmap of '{name_of(f)}' has out_axes=None for a result that depends on the batch",
                why="It has one value for each example.",
                fix="Give it an axis, for example out_axes=0.",
            )
        return y
    if not batched:
        y = add_batch_axis(y, size)
        y = y if type(y) is Tracer else np.array(y)
    ndim = len(y.shape)
    if not -ndim <= axis < ndim:
        raise errors.FxValueError(
            f"vmap of '{name_of(f)}': out_axes={axis} is out of range for a result with {ndim} axes",
            why="out_axes counts the axes of the result, the batch axis included.",
            fix=f"Give an axis from 0 to {ndim - 1}.",
        )
    if axis % ndim == 0:
        return y
    import fxgrad.numpy as fnp

    return np.ascontiguousarray(np.moveaxis(y, 0, axis)) if type(y) is np.ndarray else fnp.moveaxis(y, 0, axis)
