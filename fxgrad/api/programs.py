"""Looking at programs without running them, and cutting derivatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fxgrad import errors, tree
from fxgrad.api.wrapping import wraps
from fxgrad.ir.program import Program, dce
from fxgrad.trace.function import Traced, as_leaf, name_of, trace_function
from fxgrad.trace.tracer import Tracer

F = Callable[..., Any]


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

    @wraps(f, "make_ir", (make_ir, (f,)))
    def wrapped(*args: Any, **kwargs: Any) -> Program:
        traced = trace_abstract(f, args, kwargs, "make_ir")
        if any(type(c) is Tracer for c in traced.captures):
            raise errors.UnsupportedError(
                f"make_ir of '{name_of(f)}' captured a traced value",
                why="A program that is returned outlives the transform that made the value.",
                fix="Pass it as an argument.",
            )
        p = dce(traced.program)
        return Program(p.inputs, p.eqns, p.outputs, traced.captures, p.name)

    return wrapped


def parse_ir(text: str) -> Program:
    """The program written in `text`, the form that str(program) has.

    Raises:
        FxValueError: the text is malformed; the message names line and column.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> program = fx.make_ir(np.sin)(np.ones(3))
        >>> fx.parse_ir(str(program)) == program
        True
    """
    from fxgrad.ir.text import parse

    return parse(text)


def trace_abstract(f: F, args: Sequence[Any], kwargs: dict[str, Any], transform: str) -> Traced:
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
    traced = trace_abstract(f, args, kwargs, "eval_shape")
    return tree.unflatten(traced.out_tree, traced.program.out_avals)
