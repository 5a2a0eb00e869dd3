"""Exact simplification: every rewrite gives the bits of what it replaces (any NaN being any NaN).

So no x*0 -> 0 and no x+0 -> x (which turns -0.0 into 0.0); but x*1, x-0, x+(-0.0), x+(-y) -> x-y, views of views,
constants of constants, and equations that compute the same. `simplify` is one walk; a rule sees the operands already simplified.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad.compile import regions, scattered, sinking
from fxgrad.ir.program import Eqn, Program, dce
from fxgrad.ir.types import Atom, Lit, Var
from fxgrad.primitives.base import REGISTRY, kernel_dtypes
from fxgrad.primitives.update import update_slice

__all__ = ["Found", "Walk", "simplify"]

Found = Atom | tuple[str, Sequence[Atom], dict[str, Any]] | None  # a value, or a primitive's name, its operands and params


def simplify(program: Program) -> Program:
    """The program without dead equations, equal equations merged, rules applied."""
    program = dce(program)
    walk = Walk()
    walk.uses = sinking.uses_of(program.eqns, program.outputs)
    for eqn in program.eqns:
        walk.visit(eqn)
    outputs = [walk.env.get(o, o) if type(o) is Var else o for o in program.outputs]
    return dce(Program(program.inputs, walk.eqns, outputs, program.consts, program.name))


class Walk:
    """The equations kept so far, and what stands for the variables of those that are gone."""

    def __init__(self) -> None:
        self.env: dict[Var, Atom] = {}
        self.maker: dict[Var, Eqn] = {}
        self.seen: dict[Any, Eqn] = {}
        self.eqns: list[Eqn] = []
        self.written = regions.Written()
        self.uses: dict[Atom, int] = {}  # of variables as they were; one of those that are emitted

    def visit(self, eqn: Eqn) -> None:
        env = self.env
        inputs = [env.get(a, a) if type(a) is Var else a for a in eqn.inputs]
        if len(eqn.outputs) == 1:
            out = eqn.outputs[0]
            if eqn.prim.kind == "map":
                inputs = self._scalars(inputs, out)
            found = self._rewritten(eqn.prim, inputs, eqn.params, out)
            if isinstance(found, Lit) and out.aval.shape:
                found = "broadcast", [found], {"shape": out.aval.shape, "dims": ()}
            if isinstance(found, tuple):
                name, operands, params = found
                inputs = list(operands)
                eqn = Eqn(REGISTRY[name], inputs, params, eqn.outputs, eqn.source)
            elif found is not None:
                env[out] = found
                return
        self._keep(eqn, inputs)

    def _scalars(self, inputs: list[Atom], out: Var) -> list[Atom]:
        """Operands that are one constant everywhere as literals, if another gives the result its shape."""
        values = [self.constant(a) for a in inputs]
        if all([v is None for v in values]):
            return inputs
        for a, v in zip(inputs, values, strict=True):
            if v is None and a.aval.shape == out.aval.shape:
                return [a if v is None or type(a) is Lit else Lit(v) for a, v in zip(inputs, values, strict=True)]
        return inputs

    def _rewritten(self, prim: Any, inputs: Sequence[Atom], params: dict[str, Any], out: Var) -> Found:
        rule = _RULES.get(prim.name)
        found = rule(self, *inputs, **params) if rule is not None else None
        if found is None:
            return self._folded(prim, inputs, params, out)
        if isinstance(found, Var) and found.aval is not out.aval:  # a scalar that meets a shape
            return None
        if (
            isinstance(found, tuple)
            and REGISTRY[found[0]].kind == "map"
            and out.aval.shape not in [a.aval.shape for a in found[1]]
        ):
            return None
        if isinstance(found, tuple):  # what it has become may be simpler still
            name, operands, new = found
            again = self._rewritten(REGISTRY[name], operands, new, out)
            return found if again is None else again
        return found

    def _folded(self, prim: Any, inputs: Sequence[Atom], params: dict[str, Any], out: Var) -> Lit | None:
        """The value of an exact operation on constants."""
        if prim.kind != "map" or prim.numpy is None:
            return None
        values = []
        for a in inputs:
            value = self.constant(a)
            if value is None:
                return None
            values.append(value)
        if not kernel_dtypes([a.aval for a in (*inputs, out)]):
            return None
        with np.errstate(all="ignore"):
            return Lit(out.aval.dtype.type(prim.numpy(*values, **params)))

    def _keep(self, eqn: Eqn, inputs: Sequence[Atom]) -> None:
        params = eqn.params
        key: Any = (eqn.prim, *inputs, *(sorted(params.items()) if len(params) > 1 else params.items()))
        try:
            found = self.seen.get(key)
        except TypeError:  # an unhashable parameter
            found, key = None, object()
        if found is not None:
            self.env.update(zip(eqn.outputs, found.outputs, strict=True))
            return
        if any([a is not b for a, b in zip(inputs, eqn.inputs, strict=True)]):
            eqn = Eqn(eqn.prim, inputs, eqn.params, eqn.outputs, eqn.source)
        self.seen[key] = eqn
        self.eqns.append(eqn)
        for v in eqn.outputs:
            self.maker[v] = eqn
        if eqn.prim is update_slice:
            self.written.note(self, eqn)

    def add(self, name: str, inputs: list[Atom], like: Atom) -> Var:
        """Another equation, or the one there is, with a result like `like`."""
        out = Var(like.aval)
        self._keep(Eqn(REGISTRY[name], inputs, {}, [out], None), inputs)
        found = self.env.get(out, out)
        assert isinstance(found, Var)
        return found

    def emit(self, name: str, inputs: list[Atom], params: dict[str, Any]) -> Atom:
        """Another equation, simplified; its result."""
        (aval,) = REGISTRY[name].typ(*[x.aval for x in inputs], **params)
        out = Var(aval)
        self.visit(Eqn(REGISTRY[name], inputs, params, [out], None))
        return self.env.get(out, out)

    def constant(self, a: Atom) -> Any:
        """The value every element of `a` is known to have, or None."""
        while type(a) is Var:
            made = self.maker.get(a)
            if made is None or made.prim.name not in ("broadcast", "reshape", "transpose"):
                return None
            a = made.inputs[0]
        return a.value  # type: ignore[union-attr]

    def operand(self, name: str, a: Atom) -> Atom | None:
        """x if `a` is name(x)."""
        made = self.maker.get(a) if type(a) is Var else None
        return made.inputs[0] if made is not None and made.prim.name == name else None

    def is_(self, a: Atom, value: float) -> bool:
        """Whether `a` is this number everywhere; 0.0 and -0.0 differ for floats."""
        c = self.constant(a)
        return c is not None and c.dtype.kind in "fiu" and c == value and (c.dtype.kind != "f" or _sign(c) == _sign(value))


def _sign(x: Any) -> float:
    return math.copysign(1.0, float(x))


def _mul(w: Walk, x: Atom, y: Atom) -> Found:
    return x if w.is_(y, 1) else y if w.is_(x, 1) else None


def _sign_after(w: Walk, name: str, t: Atom, r: Atom) -> Found:
    """What is linear in t takes both zeros of t for one, so t = (-u)/s may be -(u/s): then u/s, often needed too, is shared."""
    made = w.maker.get(t) if type(t) is Var else None
    if made is None or made.prim.name not in ("lin_mul", "lin_div"):
        return None
    u = w.operand("neg", made.inputs[0])
    if u is None or u.aval is not t.aval:
        return None
    inner = w.add(made.prim.name, [u, made.inputs[1]], t)
    return name, [w.add("neg", [inner], t), r], {}


def _lin_mul(w: Walk, t: Atom, r: Atom) -> Found:
    return r if w.is_(t, 1) else _zero_like(t) if w.constant(t) == 0 else _sign_after(w, "lin_mul", t, r)


def _zero_like(a: Atom) -> Lit:
    return Lit(a.aval.dtype.type(0))


def _div(w: Walk, x: Atom, y: Atom) -> Found:
    return x if w.is_(y, 1) else None  # kernels multiply where they can: here, another batch size would be another kernel


def _lin_div(w: Walk, t: Atom, r: Atom) -> Found:
    c = w.constant(t)
    if c is None:
        return _sign_after(w, "lin_div", t, r)
    return _zero_like(t) if c == 0 else ("div", [t, r], {})


def _add(w: Walk, x: Atom, y: Atom) -> Found:
    nothing = -0.0 if x.aval.dtype.kind == "f" else 0
    if w.is_(y, nothing):
        return x
    if w.is_(x, nothing):
        return y
    if (z := w.operand("neg", y)) is not None:
        return "sub", [x, z], {}
    if (z := w.operand("neg", x)) is not None:
        return "sub", [y, z], {}
    found = regions.added(w, x, y)
    return scattered.added(w, x, y) if found is None else found


def _sub(w: Walk, x: Atom, y: Atom) -> Found:
    if w.is_(y, 0):
        return x
    z = w.operand("neg", y)
    return None if z is None else ("add", [x, z], {})


def _neg(w: Walk, x: Atom) -> Found:
    return w.operand("neg", x)


def _abs(w: Walk, x: Atom) -> Found:
    z = w.operand("neg", x)
    return x if w.operand("abs", x) is not None else None if z is None else ("abs", [z], {})


def _either(w: Walk, x: Atom, y: Atom) -> Found:
    return x if x == y else None


def _select(w: Walk, mask: Atom, a: Atom, b: Atom) -> Found:
    known = w.constant(mask)
    return a if a == b else None if known is None else a if known else b


def _convert(w: Walk, x: Atom, *, dtype: np.dtype) -> Found:
    z = w.operand("convert", x)
    there_and_back = z is not None and z.aval.dtype == dtype and np.can_cast(dtype, x.aval.dtype)
    return x if x.aval.dtype == dtype else z if there_and_back else None


def _reshape(w: Walk, x: Atom, *, shape: tuple[int, ...]) -> Found:
    z = w.operand("reshape", x)
    return (
        x if x.aval.shape == shape else None if z is None else z if z.aval.shape == shape else ("reshape", [z], {"shape": shape})
    )


def _transpose(w: Walk, x: Atom, *, perm: tuple[int, ...]) -> Found:
    if perm == tuple(range(len(perm))):
        return x
    made = w.maker.get(x) if type(x) is Var else None
    if made is None or made.prim.name != "transpose":
        return None
    both = tuple(made.params["perm"][p] for p in perm)
    return made.inputs[0] if both == tuple(range(len(both))) else ("transpose", made.inputs, {"perm": both})


def _alias(w: Walk, x: Atom, **params: Any) -> Found:
    return x


def _broadcast(w: Walk, x: Atom, *, shape: tuple[int, ...], dims: tuple[int, ...]) -> Found:
    if x.aval.shape == shape and dims == tuple(range(len(shape))):
        return x
    made = w.maker.get(x) if type(x) is Var else None
    if made is None or made.prim.name != "broadcast":
        return None
    return "broadcast", made.inputs, {"shape": shape, "dims": tuple(dims[d] for d in made.params["dims"])}


_RULES: dict[str, Callable[..., Found]] = {
    "mul": _mul, "lin_mul": _lin_mul, "div": _div, "lin_div": _lin_div, "add": _add, "sub": _sub, "neg": _neg, "abs": _abs,
    "maximum": _either, "minimum": _either, "and": _either, "or": _either, "select": _select, "convert": _convert,
    "reshape": _reshape, "transpose": _transpose, "broadcast": _broadcast,
    "stop_gradient": _alias, "name": _alias, **regions.RULES,
}  # fmt: skip
