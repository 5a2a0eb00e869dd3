"""What optimizers refuse: parameters without a derivative, gradients unlike them, settings out of range."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fxgrad import errors, tree
from fxgrad.trace.tracer import Tracer

__all__ = ["require_alike", "require_parameters", "setting"]


def _place(values: Any, leaf: int, what: str) -> str:
    """`parameter ['w'][0]`."""
    path = tree.path_string(tree.flatten_with_path(values)[0][leaf][0])
    return f"{what} {path}" if path else f"the {what}"


def require_parameters(rule: str, params: Any, complex_too: bool) -> None:
    """Every leaf is a float (or complex, for a rule that is linear in gradients): others would be truncated, or are misread."""
    for i, leaf in enumerate(tree.leaves(params)):
        dtype = (
            leaf.dtype
            if hasattr(leaf, "dtype")
            else np.result_type(type(leaf) if isinstance(leaf, (int, float, complex)) else "O")
        )
        if dtype.kind == "f" or (dtype.kind == "c" and complex_too):
            continue
        if dtype.kind == "c":
            raise errors.FxTypeError(
                f"{rule} takes real parameters, but {_place(params, i, 'parameter')} has dtype {dtype}",
                why="It takes squares, signs or bounds of gradients, which of complex numbers are not what the rule means.",
                fix="Keep the real and the imaginary part as two parameters, or use fx.optim.sgd with the gradients' conjugates.",
            )
        raise errors.FxTypeError(
            f"{rule} takes floating-point parameters, but {_place(params, i, 'parameter')} has dtype {dtype}",
            why="They have no derivative, and a step would be cut to a whole number.",
            fix="Pass it as .astype(np.float32) (or np.float64), or keep it in a tree of its own that is not trained.",
        )


def require_alike(rule: str, kept: Any, given: Any, names: tuple[str, str]) -> None:
    """`given` has the tree and the shapes of `kept`; `names` says what each of the two is."""
    leaves, structure = tree.flatten(kept)
    for i, (a, b) in enumerate(
        zip(leaves, tree.flatten_up_to(structure, given, f"the {names[0]}s and the {names[1]}s of {rule}"), strict=True)
    ):
        if np.shape(a) != np.shape(b):
            raise errors.FxValueError(
                f"{rule} got {_place(kept, i, names[1])} of shape {np.shape(b)} for {names[0]} of shape {np.shape(a)}",
                why="Each number of a parameter has its own gradient, state and update; none is broadcast.",
                fix=f"Pass an array of shape {np.shape(a)}.",
            )


def setting(rule: str, name: str, value: Any, most: float = math.inf) -> None:
    """A number of a rule lies in [0, most]; the value of a traced one is not known."""
    if isinstance(value, (bool, np.bool_)) or np.shape(value) != () or getattr(value, "dtype", np.dtype(float)).kind not in "fiu":
        known = False
    else:
        known = isinstance(value, (int, float, np.generic, np.ndarray, Tracer))
    if not known:
        raise errors.FxTypeError(
            f"{rule} got {name}={value!r}, a {type(value).__name__}",
            why="It is a number" + (", or a schedule: a function of the number of updates." if name == "learning_rate" else "."),
            fix=f"Pass a float: {name}=0.1.",
        )
    if type(value) is not Tracer and not 0 <= value <= most:
        raise errors.FxValueError(
            f"{rule} got {name}={value}",
            why=f"It lies between 0 and {most:g}." if most < math.inf else "It is a finite number, not below 0.",
            fix="Pass -g for gradients g to go uphill." if name == "learning_rate" else f"Pass a number in that range as {name}.",
        )
