"""Derivatives that a user wrote, brought into the form the checks take: functions of vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad.testing.subject import ShapeError, Subject, labelled

__all__ = ["pull_of_grad", "pull_of_vjp", "push_of_jvp"]

F = Callable[..., Any]


def _by_leaf(subject: Subject, found: list[tuple[str, Any]]) -> list[Any]:
    """The leaves of a gradient in the order of the arguments'; None, or nothing at its place, is zero."""
    given, wanted = dict(found), [leaf.path for leaf in subject.ins]
    unknown, missing = [path for path in given if path not in wanted], [path for path in wanted if path not in given]
    if unknown and missing:
        raise ShapeError(f"the gradient of '{subject.name}' has an entry for {unknown[0]}, but none for {missing[0]}")
    out = []
    for leaf in subject.ins:
        value = given.get(leaf.path)
        out.append(subject.library.array(np.zeros(leaf.shape), leaf.kind.native) if value is None else value)
    return out


def _gradient(subject: Subject, f: F, args: Sequence[Any], values: Any, what: str) -> np.ndarray:
    """The vector of a tuple with a cotangent for each argument."""
    if not isinstance(values, (tuple, list)) or len(values) != len(args):
        count = f"{len(values)} values" if isinstance(values, (tuple, list)) else f"a {type(values).__name__}"
        raise ShapeError(f"{what} of '{subject.name}' answered {count}, not a tuple of {len(args)}")
    leaves = _by_leaf(subject, labelled(subject.library, f, args, values))
    return subject.conjugate(subject.ins, subject.vector(subject.ins, leaves, what + " of"))


def _same_result(subject: Subject, result: Any, x: np.ndarray, precision: str, what: str) -> None:
    """The function that a derivative comes with is the one that is checked."""
    found = subject.vector(subject.outs, subject.floats(result), f"the result of {what} for")
    due = subject(x, precision)
    eps = max([leaf.kind.eps for leaf in subject.ins])
    scale = np.max(np.abs(due), initial=0.0, where=np.isfinite(due))
    off = np.abs(found - due)
    if np.any(off > eps**0.5 * scale):
        worst = int(np.nanargmax(off))
        place = next(leaf for leaf in subject.outs if worst < leaf.stop).place(worst)
        text = f"{what} of '{subject.name}' computes another function: {place} is {found[worst]:.6g}, not {due[worst]:.6g}"
        raise ShapeError(text, hint=f"{what} answers the function's own result first.")


def pull_of_grad(subject: Subject, f: F, args: Sequence[Any], grad: F) -> F:
    """From `grad(*args)`, an array or tree for the one argument or a tuple with one for each."""

    def pull(precision: str, x: np.ndarray, w: np.ndarray) -> np.ndarray:
        g = grad(*subject.arguments(subject.natives(subject.ins, x, precision)))
        wrapped = isinstance(g, (tuple, list)) and len(g) == 1 and not isinstance(args[0], (tuple, list))
        return w[0] * _gradient(subject, f, args, (g,) if len(args) == 1 and not wrapped else g, "grad")

    return pull


def pull_of_vjp(subject: Subject, f: F, args: Sequence[Any], f_vjp: F) -> F:
    """From `f_vjp(*args) -> (result, pullback)`."""

    def pull(precision: str, x: np.ndarray, w: np.ndarray) -> np.ndarray:
        result, pullback = f_vjp(*subject.arguments(subject.natives(subject.ins, x, precision)))
        _same_result(subject, result, x, precision, "f_vjp")
        cotangents = subject.natives(subject.outs, subject.conjugate(subject.outs, w), precision)
        return _gradient(subject, f, args, pullback(subject.like(result, cotangents)), "the pullback")

    return pull


def push_of_jvp(subject: Subject, f_jvp: F) -> F:
    """From `f_jvp(args, tangents) -> (result, tangent)`."""

    def push(precision: str, x: np.ndarray, v: np.ndarray) -> np.ndarray:
        primals = subject.arguments(subject.natives(subject.ins, x, precision))
        tangents = subject.arguments(subject.natives(subject.ins, v, precision), subject.library.no_tangent)
        result, tangent = f_jvp(tuple(primals), tuple(tangents))
        _same_result(subject, result, x, precision, "f_jvp")
        return subject.vector(subject.outs, subject.floats(tangent), "the tangent of")

    return push
