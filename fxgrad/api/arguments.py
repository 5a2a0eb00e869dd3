"""The arguments of a transform: which leaves are traced, and whether tangents and cotangents fit them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from fxgrad import errors, tree
from fxgrad.ir.types import Aval
from fxgrad.primitives.base import instantiate, is_float
from fxgrad.trace.function import argument_names, as_leaf, as_leaves, aval_of_leaf, is_plain_array, name_of
from fxgrad.trace.tracing import current_trace

F = Callable[..., Any]


class Arguments:
    """The leaves of the arguments that a transform traces, and how to call the function with others in their place."""

    __slots__ = ("f", "leaves", "rebuild", "structure", "weak", "where")

    def __init__(self, f: F, args: Sequence[Any], kwargs: dict[str, Any], argnums: Sequence[int] | None, transform: str):
        self.f, self.where = f, (args, argnums)
        chosen = tuple(args) if argnums is None else tuple([args[i] for i in argnums])
        flat, self.structure = tree.flatten(chosen)
        self.leaves, self.weak = as_leaves(flat, lambda i: f"{self.label(i)} of {transform}")

        structure = self.structure

        def rebuild(
            *values: Any,
        ) -> Any:  # holds nothing of self, which holds it: a cycle would keep arrays until it is collected
            new = tree.unflatten(structure, values)
            if argnums is None:
                return f(*new, **kwargs)
            full = [lifted(x) for x in args]
            for i, value in zip(argnums, new, strict=True):
                full[i] = value
            return f(*full, **{name: lifted(x) for name, x in kwargs.items()})

        self.rebuild = rebuild

    def label(self, leaf: int, before: str = "") -> str:
        """`argument 'w'['bias']` for the leaf of that number."""
        args, argnums = self.where
        paths = tree.flatten_with_path(tuple(args) if argnums is None else tuple(args[i] for i in argnums))[0]
        path = paths[leaf][0]
        position = path[0].key
        position = position if argnums is None else argnums[position]
        return f"{before}argument '{argument_names(self.f, args)[position]}'{tree.path_string(path[1:])}"


def lifted(x: Any) -> Any:
    """An array among the arguments that are not differentiated, as a traced value: so `x.copy()` may be written to."""
    trace = current_trace()
    return trace.argument(x) if trace is not None and is_plain_array(x) else x


def argnums_of(argnums: int | Sequence[int], args: Sequence[Any], what: str) -> tuple[int, ...]:
    if type(argnums) is int and 0 <= argnums < len(args):
        return (argnums,)
    numbers = (argnums,) if isinstance(argnums, (int, np.integer)) else tuple(argnums)
    if not all([isinstance(i, (int, np.integer)) for i in numbers]):
        raise errors.FxTypeError(
            f"{what} got argnums={argnums!r}",
            why="argnums count positional arguments from 0.",
            fix="Pass an int or several ints.",
        )
    for i in numbers:
        if not -len(args) <= i < len(args):
            raise errors.FxValueError(
                f"{what} got argnums={argnums}, but the function was called with {len(args)} positional arguments",
                why="argnums count positional arguments from 0.",
                fix="Pass the differentiated arguments by position.",
            )
    numbers = tuple(i % len(args) for i in numbers)
    if len(set(numbers)) != len(numbers):
        raise errors.FxValueError(
            f"{what} got argnums={argnums}, which names one argument twice",
            why="The derivative belongs to one of the two and would be 0 for the other.",
            fix="Name each argument once.",
        )
    return numbers


def require_float(arguments: Arguments, transform: str, holomorphic: bool = False, real: bool = False) -> None:
    """Inputs are floating point; with `holomorphic` complex, else, with `real`, not."""
    for i, leaf in enumerate(arguments.leaves):
        dtype = leaf.dtype
        if holomorphic and dtype.kind != "c":
            raise errors.NonDifferentiableError(
                f"{transform}(holomorphic=True) needs complex inputs, but {arguments.label(i)} has dtype {dtype}",
                why="The complex derivative is that of a function of a complex number.",
                fix="Pass z.astype(complex), or leave holomorphic=True away.",
            )
        if dtype.kind == "f" or (dtype.kind == "c" and (holomorphic or not real)):
            continue
        if dtype.kind == "c":
            raise errors.NonDifferentiableError(
                f"{transform} needs real inputs, but {arguments.label(i)} has dtype {dtype}",
                why="A function of complex numbers that is not holomorphic has a derivative by either part, not one.",
                fix="Pass holomorphic=True if it is; else pass the parts as two arguments, or use fx.jvp or fx.jacrev.",
            )
        raise errors.NonDifferentiableError(
            f"{transform} needs floating-point inputs, but {arguments.label(i)} has dtype {dtype}",
            why="A function of integers has no derivative.",
            fix="Pass x.astype(float) (or 3.0 for 3), or choose other arguments with argnums=.",
        )


def cotangents(given: Any, out_tree: Any, avals: Sequence[Aval], name: str) -> list[Any]:
    """The leaves of a cotangent tree, checked against the outputs; None stands for zero."""
    if given is None:
        return [None] * len(avals)
    flat = tree.flatten_up_to(out_tree, given, f"the output of '{name}' and the cotangent given to its pullback")

    def what(i: int) -> str:
        path = tree.flatten_with_path(tree.unflatten(out_tree, range(len(avals))))[0][i][0]
        return f"the cotangent{tree.path_string(path)} given to the pullback of '{name}'"

    return [matching(x, a, partial(what, i), "output") for i, (x, a) in enumerate(zip(flat, avals, strict=True))]


def matching(x: Any, aval: Aval, what: Callable[[], str], of: str) -> Any:
    """A tangent or cotangent checked against the value it belongs to; None for integer values, and for zero."""
    if x is None or not is_float(aval.dtype):
        return None
    if (type(x) in (int, float) or (type(x) is complex and aval.dtype.kind == "c")) and aval.shape == ():
        return aval.dtype.type(x)
    x, weak = as_leaf(x, what)
    have = aval_of_leaf(x)
    if have.shape != aval.shape:
        raise errors.FxValueError(
            f"{what()} has shape {have.shape}, the {of} has shape {aval.shape}",
            why="It holds one number for each element of that value.",
            fix=f"Pass an array of shape {aval.shape}.",
        )
    if have.dtype != aval.dtype and not weak:
        raise errors.FxTypeError(
            f"{what()} has dtype {have.dtype}, the {of} has dtype {aval.dtype}",
            why="Both must agree, so that precision is never lost silently.",
            fix=f"Pass it as .astype(np.{aval.dtype}).",
        )
    return x if have.dtype == aval.dtype else instantiate_as(x, aval)


def instantiate_as(x: Any, aval: Aval) -> Any:
    from fxgrad.primitives.elementwise import convert

    return convert(x, dtype=aval.dtype)


def fill(tangents: Sequence[Any], avals: Sequence[Aval]) -> list[Any]:
    return [instantiate(t, a) if is_float(a.dtype) else None for t, a in zip(tangents, avals, strict=True)]


def tangents_like(given: Any, arguments: Arguments) -> list[Any]:
    """The leaves of tangents, checked against the primals; None stands for zero."""
    flat = tree.flatten_up_to(arguments.structure, given, "the primals and the tangents")
    return [
        matching(t, aval_of_leaf(x), partial(arguments.label, i, "the tangent of "), "primal")
        for i, (t, x) in enumerate(zip(flat, arguments.leaves, strict=True))
    ]


def require_pair(out: Any, f: F, transform: str) -> None:
    """With has_aux, a function returns a pair."""
    if not isinstance(out, tuple) or len(out) != 2:
        raise errors.FxTypeError(
            f"{transform}(has_aux=True): '{name_of(f)}' must return a pair (out, aux), got {type(out).__name__}",
            why="The first part is differentiated, the second is passed through.",
            fix="Write return out, aux; or leave has_aux away.",
        )
