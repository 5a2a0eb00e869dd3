"""custom_jvp, custom_vjp: functions that bring their own derivatives."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from fxgrad import errors, tree
from fxgrad.api.wrapping import name_after, reduction
from fxgrad.ir.program import Program
from fxgrad.ir.types import Aval, Var
from fxgrad.primitives import call
from fxgrad.primitives.base import bind, instantiate, is_float
from fxgrad.trace.function import Traced, as_leaf, aval_of_leaf, name_of, trace_function
from fxgrad.trace.tracer import Tracer
from fxgrad.trace.tracing import current_trace, identity

__all__ = ["custom_jvp", "custom_vjp", "finish", "flatten_call"]

F = Callable[..., Any]

_EXACTLY = "A custom derivative must return exactly what the transform expects."
RULE_DEPTH = 4  # how deep a rule that calls its own function is followed; bounds the order of its derivatives
_depths: ContextVar[dict[int, int] | None] = ContextVar("fxgrad_rule_depths", default=None)


def flatten_call(f: F, args: Sequence[Any], kwargs: dict[str, Any], what: str) -> tuple[list[Any], list[bool], F]:
    """(leaves, weak, function of leaves): arrays and numbers are traced, whatever else (strings, flags) is passed through."""
    flat, structure = tree.flatten((tuple(args), kwargs))
    pairs = [as_leaf(x, lambda: f"an argument of {what} '{name_of(f)}'") for x in flat]

    def flat_call(*values: Any) -> Any:
        new_args, new_kwargs = tree.unflatten(structure, values)
        return f(*new_args, **new_kwargs)

    return [x for x, _ in pairs], [w for _, w in pairs], flat_call


def finish(traced: Traced, outs: Sequence[Any]) -> Any:
    """Results in their tree, weak ones weak again."""
    for y, weak in zip(outs, traced.out_weak, strict=True):
        if weak and type(y) is Tracer:
            y.weak = True
    return tree.unflatten(traced.out_tree, outs)


# ---- custom derivatives --------------------------------------------------------------------------------------------------


class _Custom:
    """What custom_jvp and custom_vjp share: the function, its static arguments, and the check that a rule was given."""

    kind = ""

    def __init__(self, f: F, nondiff_argnums: Sequence[int] = ()):
        self.f = f
        self.nondiff_argnums = (nondiff_argnums,) if isinstance(nondiff_argnums, int) else tuple(nondiff_argnums)
        name_after(self, f, self.kind)

    def __reduce__(self) -> Any:
        return reduction(self, (object.__new__, (type(self),), self.__dict__), sys._getframe(1))

    def _prepare(
        self, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], tuple[Any, ...], tuple[Any, ...], F]:
        """(all arguments by position, the static ones, the differentiable ones, function of the latter)."""
        if kwargs:
            import inspect

            bound = inspect.signature(self.f).bind(*args, **kwargs)
            bound.apply_defaults()
            if bound.kwargs:
                raise errors.FxTypeError(
                    f"{self.kind} function '{name_of(self.f)}' got keyword-only arguments {sorted(bound.kwargs)}",
                    why="Its rule takes one derivative for each positional argument.",
                    fix="Make them positional.",
                )
            args = bound.args
        args = tuple(args)
        fixed = {i: args[i] for i in self.nondiff_argnums}
        moving = tuple(a for i, a in enumerate(args) if i not in fixed)

        def of_moving(*values: Any) -> Any:
            rest = iter(values)
            return self.f(*[fixed[i] if i in fixed else next(rest) for i in range(len(args))])

        return args, tuple(fixed.values()), moving, of_moving

    @contextmanager
    def _following_rule(self) -> Iterator[bool]:
        """Rules are traced when the function is called, and may call it: answers whether to go in once more."""
        depths = _depths.get() or {}
        depth = depths.get(id(self), 0)
        token = _depths.set({**depths, id(self): depth + 1})
        try:
            yield depth < RULE_DEPTH
        finally:
            _depths.reset(token)

    def _missing(self, method: str) -> errors.NonDifferentiableError:
        return errors.NonDifferentiableError(
            f"{self.kind} function '{name_of(self.f)}' has no derivative rule",
            why="It was decorated to have one of its own, so none is derived from its code.",
            fix=f"Call {name_of(self.f)}.{method}(...) once, after its definition.",
        )


class custom_jvp(_Custom):
    """A function whose derivative is given as a forward rule, from which reverse mode follows by transposition.

    `f.defjvp(rule)` takes rule(primals, tangents) -> (out, tangent_out), primals and tangents being tuples; with
    `nondiff_argnums`, those arguments come first, by themselves. `f.defjvps(*rules)` takes one rule(t, ans, *primals) an
    argument, None for zero.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> @fx.custom_jvp
        ... def f(x):
        ...     return np.sin(x)
        >>> f.defjvps(lambda t, y, x: 2.0 * t)
        >>> fx.grad(f)(0.0)
        np.float64(2.0)
    """

    kind = "custom_jvp"
    rule: F | None = None

    def defjvp(self, rule: F) -> F:
        self.rule = rule
        return rule

    def defjvps(self, *rules: F | None) -> None:
        def rule(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
            y = self(*primals)
            terms = [r(t, y, *primals) for r, t in zip(rules, tangents, strict=True) if r is not None and t is not None]
            total = terms[0] if terms else 0.0 * y
            for t in terms[1:]:
                total = tree.map(lambda a, b: a + b, total, t)
            return y, total

        self.rule = rule

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        args, fixed, moving, of_moving = self._prepare(args, kwargs)
        if current_trace() is None:
            return of_moving(*moving)
        leaves, weak, flat_call = flatten_call(of_moving, moving, {}, self.kind)
        traced = trace_function(flat_call, leaves, weak, self.kind, known=True, name=name_of(self.f))
        if self.rule is None:
            raise self._missing("defjvp")
        with self._following_rule() as deeper:
            if not deeper:
                operands, params = _join(leaves, [(traced, "program")])
                return finish(traced, bind(call.custom_jvp_call, operands, {**params, "rule": None}))
            rule = self._trace_rule(fixed, moving, leaves, traced)
        return finish(traced, bind(call.custom_jvp_call, *_join(leaves, [(traced, "program"), (rule, "rule")])))

    def _trace_rule(self, fixed: tuple[Any, ...], moving: tuple[Any, ...], leaves: list[Any], traced: Traced) -> Traced:
        structure = tree.structure(moving)
        floats = [is_float(aval_of_leaf(x).dtype) for x in leaves]
        what = f"the rule of custom_jvp '{name_of(self.f)}'"

        def run(*values: Any) -> list[Any]:
            primals = tree.unflatten(structure, values[: len(leaves)])
            given = iter(values[len(leaves) :])
            tangents = tree.unflatten(structure, [next(given) if d else None for d in floats])
            result = self.rule(*fixed, primals, tangents)  # type: ignore[misc]
            _require_pair(result, what, "out, tangent_out")
            outs = _checked(result[0], traced, what, "out", keep_integers=True)
            return outs + _checked(result[1], traced, what, "tangent_out", keep_integers=False)

        tangents = [aval_of_leaf(x) for x, d in zip(leaves, floats, strict=True) if d]
        return trace_function(
            run,
            [*leaves, *tangents],
            [False] * (len(leaves) + len(tangents)),
            self.kind,
            known=True,
            name=f"{name_of(self.f)}_jvp",
        )


def _require_pair(result: Any, what: str, parts: str) -> None:
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        raise errors.FxTypeError(
            f"{what} must return a pair ({parts}), got {type(result).__name__}", why=_EXACTLY, fix=f"Write return {parts}."
        )


def _checked(given: Any, traced: Traced, what: str, part: str, keep_integers: bool) -> list[Any]:
    """The leaves a custom rule returned for the outputs, each of the output's shape and dtype."""
    avals = traced.program.out_avals
    flat = _subtrees(traced.out_tree, given, f"the result of the function and {part} returned by {what}")
    out = []
    for x, aval in zip(flat, avals, strict=True):
        if is_float(aval.dtype) or keep_integers:
            out.append(_leaf_like(x, aval, f"{part} returned by {what}", "the output"))
    return out


def _subtrees(structure: Any, given: Any, what: str) -> list[Any]:
    """What a rule returned for each leaf of a tree; None alone is zero for all of them."""
    return [None] * structure.num_leaves if given is None else tree.flatten_up_to(structure, given, what)


def _leaf_like(x: Any, aval: Aval, what: str, like: str) -> Any:
    if x is None:
        return instantiate(None, aval)
    x, weak = as_leaf(x, lambda: what)
    have = aval_of_leaf(x)
    if have.shape != aval.shape:
        raise errors.FxValueError(
            f"{what} has shape {have.shape}, {like} has shape {aval.shape}",
            why=_EXACTLY,
            fix=f"Return an array of shape {aval.shape}.",
        )
    if have.dtype != aval.dtype:
        if not weak:
            raise errors.FxTypeError(
                f"{what} has dtype {have.dtype}, {like} has dtype {aval.dtype}",
                why=_EXACTLY,
                fix=f"Return it as .astype('{aval.dtype}').",
            )
        from fxgrad.primitives.elementwise import convert

        return convert(x, dtype=aval.dtype)
    return x


def _join(leaves: Sequence[Any], parts: Sequence[tuple[Traced, str]]) -> tuple[list[Any], dict[str, Any]]:
    """Operands and params for an equation whose programs each captured something: all of them take all captures, in one order."""
    captures: list[Any] = []
    for traced, _ in parts:
        captures += [c for c in traced.captures if all(identity(c) != identity(k) for k in captures)]
    params: dict[str, Any] = {}
    for traced, key in parts:
        inputs = traced.program.inputs
        own = {identity(c): v for c, v in zip(traced.captures, inputs, strict=False)}
        lead = [own.get(identity(c)) or Var(aval_of_leaf(c)) for c in captures]
        rest = inputs[len(traced.captures) :]
        params[key] = Program([*lead, *rest], traced.program.eqns, traced.program.outputs, (), traced.program.name)
    params["captured"] = len(captures)
    return [*captures, *leaves], params


def _pass_as_residuals(captured: Sequence[Any], fwd: Traced, n_out: int) -> Traced:
    """fwd with what bwd closes over as its first residuals: bwd runs later, where those values are no longer at hand."""
    captures, lead = list(fwd.captures), list(fwd.program.inputs[: len(fwd.captures)])
    rest = fwd.program.inputs[len(captures) :]
    passed = []
    for c in captured:
        position = next((i for i, k in enumerate(captures) if identity(k) == identity(c)), None)
        if position is None:
            position = len(captures)
            captures.append(c)
            lead.append(Var(aval_of_leaf(c)))
        passed.append(lead[position])
    outputs = [*fwd.program.outputs[:n_out], *passed, *fwd.program.outputs[n_out:]]
    return Traced(Program([*lead, *rest], fwd.program.eqns, outputs, (), fwd.program.name), captures, fwd.out_tree, fwd.out_weak)


class custom_vjp(_Custom):
    """A function whose derivative is given as a pullback, for reverse mode only.

    `f.defvjp(fwd, bwd)` takes fwd(*args) -> (out, residuals) and bwd(residuals, ct) -> a tuple with one cotangent an argument
    (None for zero); with `nondiff_argnums`, those arguments lead bwd's. Everything the callbacks return is checked (number,
    shape, dtype) before any of it is used.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> @fx.custom_vjp
        ... def clipped(x):
        ...     return x
        >>> clipped.defvjp(lambda x: (x, None), lambda res, g: (np.clip(g, -1.0, 1.0),))
        >>> fx.grad(lambda x: 5.0 * clipped(x))(2.0)
        np.float64(1.0)
    """

    kind = "custom_vjp"
    fwd: F | None = None
    bwd: F | None = None

    def defvjp(self, fwd: F, bwd: F) -> None:
        self.fwd, self.bwd = fwd, bwd

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        args, fixed, moving, of_moving = self._prepare(args, kwargs)
        if current_trace() is None:
            return of_moving(*moving)
        leaves, weak, flat_call = flatten_call(of_moving, moving, {}, self.kind)
        traced = trace_function(flat_call, leaves, weak, self.kind, known=True, name=name_of(self.f))
        if self.fwd is None or self.bwd is None:
            raise self._missing("defvjp")
        structure = tree.structure(moving)
        with self._following_rule() as deeper:
            if not deeper:
                operands, params = _join(leaves, [(traced, "program")])
                return finish(traced, bind(call.custom_vjp_call, operands, {**params, "fwd": None, "bwd": None}))
            fwd, residual_tree = self._trace_fwd(args, moving, leaves, structure, traced)
            bwd = self._trace_bwd(fixed, leaves, structure, traced, fwd, residual_tree)
        fwd = _pass_as_residuals(bwd.captures, fwd, len(traced.program.outputs))
        operands, params = _join(leaves, [(traced, "program"), (fwd, "fwd")])
        return finish(traced, bind(call.custom_vjp_call, operands, {**params, "bwd": bwd.program}))

    def _trace_fwd(
        self, args: Sequence[Any], moving: tuple[Any, ...], leaves: list[Any], structure: Any, traced: Traced
    ) -> tuple[Traced, Any]:
        what = f"fwd of custom_vjp '{name_of(self.f)}'"
        residual_tree = None

        def run(*values: Any) -> list[Any]:
            nonlocal residual_tree
            rest = iter(tree.unflatten(structure, values))
            result = self.fwd(*[a if i in self.nondiff_argnums else next(rest) for i, a in enumerate(args)])  # type: ignore[misc]
            _require_pair(result, what, "out, residuals")
            outs = _checked(result[0], traced, what, "out", keep_integers=True)
            flat, residual_tree = tree.flatten(result[1])
            return outs + flat

        fwd = trace_function(run, leaves, [False] * len(leaves), self.kind, known=True, name=f"{name_of(self.f)}_fwd")
        return fwd, residual_tree

    def _trace_bwd(
        self, fixed: tuple[Any, ...], leaves: list[Any], structure: Any, traced: Traced, fwd: Traced, residual_tree: Any
    ) -> Traced:
        what = f"bwd of custom_vjp '{name_of(self.f)}'"
        n_out = len(traced.program.outputs)
        residuals = fwd.program.out_avals[n_out:]
        floats = [is_float(a.dtype) for a in traced.program.out_avals]
        cts = [a for a, d in zip(traced.program.out_avals, floats, strict=True) if d]

        def run(*values: Any) -> list[Any]:
            given = iter(values[len(residuals) :])
            ct = tree.unflatten(traced.out_tree, [next(given) if d else None for d in floats])
            result = self.bwd(*fixed, tree.unflatten(residual_tree, values[: len(residuals)]), ct)  # type: ignore[misc]
            return self._check_bwd(result, leaves, structure, what)

        return trace_function(
            run, [*residuals, *cts], [False] * (len(residuals) + len(cts)), self.kind, known=True, name=f"{name_of(self.f)}_bwd"
        )

    def _check_bwd(self, result: Any, leaves: list[Any], structure: Any, what: str) -> list[Any]:
        if not isinstance(result, (tuple, list)):
            raise errors.FxTypeError(
                f"{what} must return a tuple with one cotangent for each argument, got {type(result).__name__}",
                why=_EXACTLY,
                fix="Write return (ct_x,) for a single argument.",
            )
        arguments = tree.unflatten(structure, leaves)
        if len(result) != len(arguments):
            raise errors.TreeMismatchError(
                f"{what} returned {len(result)} cotangents for {len(arguments)} arguments",
                why=_EXACTLY,
                fix="Return one for each argument, None where it is zero.",
            )
        out = []
        for i, (ct, argument) in enumerate(zip(result, arguments, strict=True)):
            flat_args, arg_tree = tree.flatten(argument)
            flat_cts = _subtrees(arg_tree, ct, f"argument {i} and output {i} of {what}")
            for g, x in zip(flat_cts, flat_args, strict=True):
                aval = aval_of_leaf(as_leaf(x, lambda: "an argument")[0])
                if is_float(aval.dtype):
                    out.append(_leaf_like(g, aval, f"{what} output {i}", "argument"))
        return out
