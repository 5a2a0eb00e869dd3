"""cond and switch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad import errors, tree
from fxgrad.control.values import INT64, as_type, finish, flatten, require_callable, text
from fxgrad.ir.program import Program
from fxgrad.ir.types import Aval
from fxgrad.primitives import control as _c
from fxgrad.primitives.elementwise import ne
from fxgrad.trace.function import Traced, as_leaf, aval_of_leaf, canonical, name_of, trace_function
from fxgrad.trace.tracer import Tracer
from fxgrad.trace.tracing import bind, build, inline

F = Callable[..., Any]


def cond(pred: Any, true_fun: F, false_fun: F, *operands: Any, **named: Any) -> Any:
    """true_fun(*operands) if pred, else false_fun(*operands); only the one chosen runs.

    Under vmap with a `pred` for each entry both run and each entry takes its own; derivatives of the other cannot leak.

    Arguments:
        pred: a scalar bool, or a number, which counts as true if it is not 0.
        true_fun, false_fun: functions of the operands with results of one tree, shapes and dtypes.
        *operands: any pytrees; or by keyword `operand=x`, for functions of one argument. JAX's old form
            cond(pred, true_operand, true_fun, false_operand, false_fun) is taken too.

    Raises:
        FxTypeError: `pred` is no scalar, or the branches' results differ in dtype or shape; the message has the path.
        TreeMismatchError: the branches' results differ in structure.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.grad(lambda x: fx.cond(x > 0, np.sin, np.cos, x))(0.0)
        np.float64(-0.0)
    """
    if "operand" in named:
        operands = (*operands, named.pop("operand"))
    named.pop("linear", None)
    if named:
        raise TypeError(f"cond() got an unexpected keyword argument '{next(iter(named))}'")
    if not callable(true_fun) and len(operands) == 2 and callable(false_fun) and callable(operands[1]):
        given, taken, other, otherwise = true_fun, false_fun, operands[0], operands[1]
        return cond(pred, lambda a, b: taken(a), lambda a, b: otherwise(b), given, other)
    require_callable(true_fun, "cond", "true_fun")
    require_callable(false_fun, "cond", "false_fun")
    index = _scalar(pred, "cond", "pred", "np.where(pred, a, b)")
    if index.dtype != np.bool_:
        index = ne(index, index.dtype.type(0))
    return _branch(index, [false_fun, true_fun], operands, "cond", ["false_fun", "true_fun"])


def switch(index: Any, branches: Sequence[F], *operands: Any, operand: Any = None) -> Any:
    """branches[index](*operands), the index clamped to the range of branches; only that one runs.

    Arguments:
        index: a scalar integer.
        branches: functions of the operands with results of one tree, shapes and dtypes.
        *operands: any pytrees.

    Raises:
        FxTypeError, FxValueError: there is no branch, the index is no integer scalar, or results differ.
        TreeMismatchError: the branches' results differ in structure.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.lax.switch(1, [np.sin, np.cos], 0.0)
        np.float64(1.0)
    """
    branches = list(branches)
    if not branches:
        raise errors.FxValueError(
            "switch got no branches", why="There is nothing to choose from.", fix="Pass at least one function."
        )
    for i, f in enumerate(branches):
        require_callable(f, "switch", f"branch {i}")
    index = _scalar(index, "switch", "index", "np.choose(index, [...])")
    if index.dtype.kind not in "iu":
        raise errors.FxTypeError(
            f"switch got an index of dtype {index.dtype}",
            why="It counts branches.",
            fix="Pass an integer, or use fx.cond for a bool.",
        )
    operands = operands if operand is None else (*operands, operand)
    index = as_type(index, Aval((), INT64))
    return _branch(index, branches, operands, "switch", [f"branch {i}" for i in range(len(branches))])


def _scalar(x: Any, what: str, name: str, elementwise: str) -> Any:
    x, _ = as_leaf(x, lambda: f"{name} of {what}")
    aval = aval_of_leaf(x)
    if aval.shape != () or aval.dtype.kind == "c":
        raise errors.FxTypeError(
            f"{what} got {name} as {text(aval)}",
            why="It takes one branch as a whole, so it needs one real number.",
            fix=f"Use {elementwise} to choose by element, fx.vmap to branch for each entry, or {name}.any(), {name}.all().",
        )
    return x if type(x) is Tracer else x[()]


def _branch(index: Any, functions: Sequence[F], operands: tuple, what: str, names: Sequence[str]) -> Any:
    args = flatten(operands, f"an operand of {what}")

    def of(f: F) -> F:
        return lambda *values: f(*tree.unflatten(args.structure, values))

    traced = [
        trace_function(of(f), args.avals, args.weak, f"the branches of {what}", known=False, name=name_of(f)) for f in functions
    ]
    for t, name in zip(traced[1:], names[1:], strict=True):
        tree.check_same(traced[0].out_tree, t.out_tree, f"the results of {names[0]} and {name} of {what}")
    avals, weak = _common_results(traced, what, names)
    captures: list[Any] = []
    place: dict[int, int] = {}
    for t in traced:
        for x in t.captures:
            if id(x) not in place:
                place[id(x)] = len(captures)
                captures.append(x)
    captured = [aval_of_leaf(x) for x in captures]

    def program_of(t: Traced) -> Program:
        def body(*values: Any) -> list[Any]:
            mine = [values[place[id(x)]] for x in t.captures]
            return [as_type(o, a) for o, a in zip(inline(t.program, [*mine, *values[len(captures) :]]), avals, strict=True)]

        return canonical(build([*captured, *args.avals], body, t.program.name))

    given = [*captures, *args.values]
    if type(index) is not Tracer:  # the choice is made already
        outs = inline(program_of(traced[min(max(int(index), 0), len(traced) - 1)]), given)
    else:
        outs = bind(_c.cond, [index, *given], {"branches": tuple(program_of(t) for t in traced)})
    return finish(traced[0].out_tree, outs, weak)


def _common_results(traced: Sequence[Traced], what: str, names: Sequence[str]) -> tuple[list[Aval], list[bool]]:
    """The types of the branches' results, which must agree; Python numbers take the dtype of the others."""
    avals, weak = [], []
    for i in range(len(traced[0].program.outputs)):
        these = [(t.program.outputs[i].aval, t.out_weak[i], name) for t, name in zip(traced, names, strict=True)]
        strong = [x for x in these if not x[1]] or [max(these, key=lambda x: np.result_type(x[0].dtype, np.bool_).kind in "fc")]
        first = strong[0]
        for other in these:
            fits = other[0].dtype == first[0].dtype or (other[1] and np.can_cast(other[0].dtype, first[0].dtype, "same_kind"))
            if other[0].shape != first[0].shape or not fits:
                path = _path(traced[0].out_tree, i)
                raise errors.FxTypeError(
                    f"the branches of {what} return different types{' at ' + path if path else ''}: "
                    f"{first[2]} {text(first[0])}, {other[2]} {text(other[0])}",
                    why="Which branch runs is not known when the code is compiled, so the result has one shape and dtype.",
                    fix="Convert one of them: .astype(...), np.broadcast_to(...).",
                )
        avals.append(first[0])
        weak.append(all(w for _, w, _ in these))
    return avals, weak


def _path(structure: Any, i: int) -> str:
    """Where leaf number i stands."""
    return tree.path_string(tree.flatten_with_path(tree.unflatten(structure, range(structure.num_leaves)))[0][i][0])
