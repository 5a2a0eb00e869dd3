"""The arguments of a transform: which leaves are traced, and whether tangents and cotangents fit them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from fxgrad import errors, tree
from fxgrad.ir.types import Aval
from fxgrad.primitives.base import instantiate, is_float
from fxgrad.trace.function import argument_names, as_leaf, aval_of_leaf, name_of

F = Callable[..., Any]


class Arguments:
    """The leaves of the arguments that a transform traces, and how to call the function with others in their place."""

    __slots__ = ("f", "leaves", "rebuild", "structure", "weak", "where")

    def __init__(self, f: F, args: Sequence[Any], kwargs: dict[str, Any], argnums: Sequence[int] | None, transform: str):
        self.f, self.where = f, (args, argnums)
        chosen = tuple(args) if argnums is None else tuple(args[i] for i in argnums)
        flat, self.structure = tree.flatten(chosen)
        pairs = [as_leaf(x, partial(self._blame, i, transform)) for i, x in enumerate(flat)]
        self.leaves, self.weak = [x for x, _ in pairs], [w for _, w in pairs]

        def rebuild(*values: Any) -> Any:
            new = tree.unflatten(self.structure, values)
            if argnums is None:
                return f(*new, **kwargs)
            full = list(args)
            for i, value in zip(argnums, new, strict=True):
                full[i] = value
            return f(*full, **kwargs)

        self.rebuild = rebuild

    def _blame(self, leaf: int, transform: str) -> str:
        return f"{self.label(leaf)} of {transform}"

    def label(self, leaf: int) -> str:
        """`argument 'w'['bias']` for the leaf of that number."""
        args, argnums = self.where
        paths = tree.flatten_with_path(tuple(args) if argnums is None else tuple(args[i] for i in argnums))[0]
        path = paths[leaf][0]
        position = path[0].key
        position = position if argnums is None else argnums[position]
        return f"argument '{argument_names(self.f, args)[position]}'{tree.path_string(path[1:])}"


def argnums_of(argnums: int | Sequence[int], args: Sequence[Any], what: str) -> tuple[int, ...]:
    numbers = (argnums,) if isinstance(argnums, (int, np.integer)) else tuple(argnums)
    for i in numbers:
        if not -len(args) <= i < len(args):
            raise errors.FxValueError(
                f"{what} got argnums={argnums}, but the function was called with {len(args)} positional arguments",
                why="argnums count positional arguments from 0.",
                fix="Pass the differentiated arguments by position.",
            )
    return tuple(i % len(args) for i in numbers)


def require_float(arguments: Arguments, transform: str) -> None:
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


def cotangents(given: Any, out_tree: Any, avals: Sequence[Aval], name: str) -> list[Any]:
    """The leaves of a cotangent tree, checked against the outputs; None stands for zero."""
    flat, structure = tree.flatten(given, is_leaf=lambda x: x is None) if given is not None else ([None] * len(avals), out_tree)
    if len(flat) != len(avals) or (structure != out_tree and not any(x is None for x in flat)):
        tree.check_same(structure, out_tree, f"the cotangent given to the pullback of '{name}'")
        raise errors.TreeMismatchError(
            f"the cotangent given to the pullback of '{name}' has {len(flat)} leaves, the output {len(avals)}"
        )
    return [
        matching(x, a, f"cotangent {i} given to the pullback of '{name}'", "output")
        for i, (x, a) in enumerate(zip(flat, avals, strict=True))
    ]


def matching(x: Any, aval: Aval, what: str, of: str) -> Any:
    """A tangent or cotangent checked against the value it belongs to; None for integer values, and for zero."""
    if x is None or not is_float(aval.dtype):
        return None
    if type(x) in (int, float) and aval.shape == ():
        return aval.dtype.type(x)
    x, weak = as_leaf(x, lambda: what)
    have = aval_of_leaf(x)
    if have.shape != aval.shape:
        raise errors.FxValueError(
            f"{what} has shape {have.shape}, the {of} has shape {aval.shape}", fix=f"Pass an array of shape {aval.shape}."
        )
    if have.dtype != aval.dtype and not weak:
        raise errors.FxTypeError(
            f"{what} has dtype {have.dtype}, the {of} has dtype {aval.dtype}",
            why="Both must agree, so that precision is never lost silently.",
            fix=f"Pass ct.astype(np.{aval.dtype}).",
        )
    return x if have.dtype == aval.dtype else instantiate_as(x, aval)


def instantiate_as(x: Any, aval: Aval) -> Any:
    from fxgrad.primitives.elementwise import convert

    return convert(x, dtype=aval.dtype)


def fill(tangents: Sequence[Any], avals: Sequence[Aval]) -> list[Any]:
    return [instantiate(t, a) if is_float(a.dtype) else None for t, a in zip(tangents, avals, strict=True)]


def tangents_like(given: Any, arguments: Arguments) -> list[Any]:
    flat, structure = tree.flatten(given, is_leaf=lambda x: x is None)
    if len(flat) != len(arguments.leaves):
        tree.check_same(structure, arguments.structure, "the tangents")
        raise errors.TreeMismatchError(f"the tangents have {len(flat)} leaves, the primals {len(arguments.leaves)}")
    return [
        matching(t, aval_of_leaf(x), f"the tangent of {arguments.label(i)}", "primal")
        for i, (t, x) in enumerate(zip(flat, arguments.leaves, strict=True))
    ]


def wraps(f: F, transform: str) -> Callable[[F], F]:
    """functools.wraps that survives callables without a name, and keeps the function for pickling and guards."""

    def decorate(wrapped: F) -> F:
        functools.update_wrapper(wrapped, f, updated=())
        wrapped.__name__ = f"{transform}({name_of(f)})"
        wrapped.__wrapped__ = f  # type: ignore[attr-defined]
        return wrapped

    return decorate
