"""What a loop would compute again at every turn is computed once, before it.

Equations of a body that depend on nothing the loop changes are moved in front of it, unless doing them again is cheaper than
reading their results. Products of a constant with a slice of a stacked array become one product of the whole array (`U @ x[t]`
for all t), whose rows are the next slices: no bit changes, since an element of a product depends on its row and column alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from fxgrad.ir.program import Eqn, Program, dce
from fxgrad.ir.types import Atom, Var
from fxgrad.primitives.base import Doc, Primitive, kernel_dtypes
from fxgrad.primitives.shape import transpose

__all__ = ["hoisted"]

_VIEWS = ("broadcast", "reshape", "transpose", "reverse", "slice")
_GROWTH = 2  # bytes of a stacked product for each byte of what it is a product of


def hoisted(program: Program) -> Program:
    """A flat program with what its loops need not repeat in front of them."""
    if not any(e.prim.kind == "control" for e in program.eqns):
        return program
    eqns: list[Eqn] = []
    for eqn in program.eqns:
        if eqn.prim.name == "scan":
            eqn = _scan(eqn, eqns)
        elif eqn.prim.name == "while_loop":
            eqn = _while(eqn, eqns)
        eqns.append(eqn)
    return Program(program.inputs, eqns, program.outputs, (), program.name)


def _scan(eqn: Eqn, before: list[Eqn]) -> Eqn:
    from fxgrad.compile.inline import flatten

    p = eqn.params
    n, carry, body = p["consts"], p["carry"], flatten(p["body"])
    body, turned = _turned(body, n)
    if turned:
        params = {**p, "body": body, "consts": n + len(turned)}
        more = [_in_columns(eqn.inputs[k], before) for k in turned]
        eqn = Eqn(eqn.prim, [*eqn.inputs[:n], *more, *eqn.inputs[n:]], params, eqn.outputs, eqn.source)
        p, n = params, n + len(turned)
    fixed = _invariant(body, body.inputs[:n])
    stacked = _stackable(body, {*fixed, *body.inputs[:n]}, body.inputs[n + carry :]) if p["length"] > 1 else []
    if not fixed and not stacked:
        return eqn
    consts, xs = eqn.inputs[:n], eqn.inputs[n + carry :]
    kept = _outside(body, fixed, body.inputs[:n], consts, before)
    outer = [*body.inputs[:n], *body.inputs[n + carry :]]
    more_xs = _outside(body, stacked, outer, [*consts, *xs], before, [False] * n + [True] * len(xs), p["length"])
    inputs = [*body.inputs[:n], *fixed, *body.inputs[n:], *stacked]
    params = {**p, "body": _without(body, inputs, {*fixed, *stacked}), "consts": n + len(fixed)}
    return Eqn(eqn.prim, [*consts, *kept, *eqn.inputs[n:], *more_xs], params, eqn.outputs, eqn.source)


def _while(eqn: Eqn, before: list[Eqn]) -> Eqn:
    from fxgrad.compile.inline import flatten

    p = eqn.params
    n, m, body = p["cond_consts"], p["body_consts"], flatten(p["body"])
    fixed = _invariant(body, body.inputs[:m])
    if not fixed:
        return eqn
    consts = eqn.inputs[n : n + m]
    more = _outside(body, fixed, body.inputs[:m], consts, before)
    inner = _without(body, [*body.inputs[:m], *fixed, *body.inputs[m:]], {*fixed})
    params = {**p, "body": inner, "body_consts": m + len(fixed)}
    return Eqn(eqn.prim, [*eqn.inputs[: n + m], *more, *eqn.inputs[n + m :]], params, eqn.outputs, eqn.source)


def _without(body: Program, inputs: Sequence[Var], gone: set[Var]) -> Program:
    eqns = [e for e in body.eqns if gone.isdisjoint(e.outputs)]
    return dce(Program(inputs, eqns, body.outputs, (), body.name))


# ---- what moves --------------------------------------------------------------------------------------------------------------


def _invariant(body: Program, consts: Sequence[Var]) -> list[Var]:
    """Values that depend on constants alone and are worth keeping: those that the rest of the body reads."""
    size = {v: v.aval.size for v in consts}  # elements read to have a value again
    worth: set[Var] = set()
    for e in body.eqns:
        if not all(x in size for x in e.inputs if type(x) is Var):
            continue
        (v,) = e.outputs if len(e.outputs) == 1 else (None,)
        if v is None or not kernel_dtypes([v.aval]):
            continue
        least = max([size[x] for x in e.inputs if type(x) is Var], default=0)
        if e.prim.name in _VIEWS:
            size[v] = min(least, v.aval.size)
        elif e.prim.name == "iota" or e.prim.name == "dot" or e.prim.kind == "reduce":
            size[v] = v.aval.size
            worth.add(v)
        elif e.prim.kind == "map":
            size[v] = v.aval.size
            if v.aval.size <= max(least, 1) or not e.prim.cheap:
                worth.add(v)
    return _needed(body, worth, set(size))


def _needed(body: Program, worth: set[Var], movable: set[Var]) -> list[Var]:
    """Of the values worth moving, those that what stays reads."""
    gone: set[Var] = set()
    for e in body.eqns:
        if worth.issuperset(e.outputs):
            gone.update(e.outputs)
    read = {o for o in body.outputs if type(o) is Var}
    for e in reversed(body.eqns):
        if gone.isdisjoint(e.outputs) and (e.prim.name not in _VIEWS or not read.isdisjoint(e.outputs)):
            read.update(x for x in e.inputs if type(x) is Var)
    return [v for e in body.eqns for v in e.outputs if v in gone and v in read]


def _stackable(body: Program, fixed: set[Var], xs: Sequence[Var]) -> list[Var]:
    """Products of a constant and a view of a slice."""
    from fxgrad.primitives.dot import has_product_kernel

    known, views = set(fixed), {x: x.aval.nbytes for x in xs}
    found = []
    for e in body.eqns:
        inputs = [x for x in e.inputs if type(x) is Var]
        if e.prim.name in _VIEWS and len(inputs) == 1:
            (x,) = inputs
            if x in views:
                views[e.outputs[0]] = views[x]
            elif x in known:
                known.add(e.outputs[0])
        elif e.prim.name == "dot" and has_product_kernel(e.outputs[0].aval.dtype):
            sliced = [x for x in inputs if x in views]
            if len(sliced) == 1 and all(x in known or x in views for x in inputs) and len(inputs) == 2:
                (v,) = e.outputs
                if v.aval.nbytes <= _GROWTH * views[sliced[0]] and v not in body.outputs:
                    found.append(v)
    return found


def _turned(body: Program, n: int) -> tuple[Program, list[int]]:
    """Small constant matrices that vectors are multiplied by, taken column by column: the body, and which constants those are.

    The chains of different results run side by side, so the columns had better be contiguous; a loop is worth one copy.
    """
    place: dict[Var, Var] = {}  # a constant, and what is its transpose
    eqns = []
    for e in body.eqns:
        x = e.inputs[0] if e.inputs else None
        if e.prim.name == "dot" and type(x) is Var and x in body.inputs[:n] and _by_rows(e):
            if x not in place:
                place[x] = Var(x.aval.with_shape(x.aval.shape[::-1]))
            how = {**e.params, "contract": ((0,), e.params["contract"][1])}
            e = Eqn(e.prim, [place[x], e.inputs[1]], how, e.outputs, e.source)
        eqns.append(e)
    inputs = [*body.inputs[:n], *place.values(), *body.inputs[n:]]
    return Program(inputs, eqns, body.outputs, (), body.name), [body.inputs.index(x) for x in place]


def _by_rows(dot: Eqn) -> bool:
    from fxgrad.kernels.matmul_plan import is_small_matvec

    x, y = (a.aval for a in dot.inputs)
    vector = x.ndim == 2 and y.ndim == 1 and dot.params["contract"][0] == (1,)
    return vector and type(dot.inputs[1]) is Var and is_small_matvec(x.shape[0], x.shape[1], x.dtype)


_COPY = Primitive("copy", "map", lambda x: [x], Doc("x", ""), body=lambda k, x: x)


def _in_columns(x: Atom, before: list[Eqn]) -> Var:
    """A matrix's transpose in memory of its own."""
    turned = x.aval.with_shape(x.aval.shape[::-1])
    view, out = Var(turned), Var(turned)
    before += [Eqn(transpose, [x], {"perm": (1, 0)}, [view]), Eqn(_COPY, [view], {}, [out])]
    return out


# ---- before the loop ---------------------------------------------------------------------------------------------------------


def _outside(
    body: Program, values: Sequence[Var], inputs: Sequence[Var], args: Sequence[Atom], before: list[Eqn],
    batched: Sequence[bool] | None = None, size: int = 0,
) -> list[Atom]:  # fmt: skip
    """Append the equations that compute `values` of the body from `args`, in place of its `inputs`; where they are then."""
    from fxgrad.compile.inline import appended, flatten
    from fxgrad.transforms.vmap import vmap

    if not values:
        return []
    program = dce(Program(inputs, body.eqns, values, (), body.name))
    if batched is not None:
        program = flatten(vmap(program, batched, size)[0])
    return appended(program, list(args), before)
