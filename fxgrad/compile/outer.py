"""Products that sum nothing: an outer product is a map operation on two broadcast operands, so it fuses with what follows."""

from __future__ import annotations

import math
from typing import Any

from fxgrad.ir.program import Eqn
from fxgrad.ir.types import Atom, Var
from fxgrad.primitives.base import Doc, Primitive
from fxgrad.primitives.dot import free_axes, has_product_kernel
from fxgrad.primitives.shape import broadcast, reshape, transpose

__all__ = ["is_outer", "outer_eqns"]


def _primitive(name: str, body: Any) -> Primitive:
    return Primitive(name, "map", lambda x, y: [x], Doc("a product of which the sum has one term", ""), body=body)


# The sum of one term is fma(x, y, 0), which is not x * y: its zeros are +0. In a strong product a zero annihilates what it meets.
_PRODUCTS = {
    None: _primitive("outer", lambda k, x, y: k.fma(x, y, 0.0)),
    0: _primitive("outer_strong_x", lambda k, x, y: k.select(x == 0.0, 0.0, k.fma(x, y, 0.0))),
    1: _primitive("outer_strong_y", lambda k, x, y: k.select(y == 0.0, 0.0, k.fma(x, y, 0.0))),
}


def is_outer(eqn: Eqn) -> bool:
    """Whether a product's sums have one term each."""
    if eqn.prim.name != "dot" or eqn.outputs[0].aval.size == 0:
        return False
    dtype = eqn.outputs[0].aval.dtype
    terms = math.prod(eqn.inputs[0].aval.shape[i] for i in eqn.params["contract"][0])
    return terms == 1 and dtype.kind == "f" and has_product_kernel(dtype)


def outer_eqns(eqn: Eqn, out: Var) -> list[Eqn]:
    """The equations of an outer product."""
    (x_sum, y_sum), (x_batch, y_batch) = eqn.params["contract"], eqn.params["batch"]
    batch = len(x_batch)
    free = [free_axes(x.aval.ndim, c, b) for x, c, b in zip(eqn.inputs, (x_sum, y_sum), (x_batch, y_batch), strict=True)]
    eqns: list[Eqn] = []
    operands: list[Atom] = []
    for x, axes, own, first in zip(eqn.inputs, free, (x_batch, y_batch), (batch, batch + len(free[0])), strict=True):
        place = dict(zip(own, range(batch), strict=True)) | {d: first + i for i, d in enumerate(axes)}
        kept = sorted(place)
        small = Var(x.aval.with_shape(tuple(x.aval.shape[d] for d in kept)))
        eqns.append(Eqn(reshape, [x], {"shape": small.aval.shape}, [small], eqn.source))
        wide = Var(out.aval)
        dims = tuple(place[d] for d in kept)
        if dims != tuple(sorted(dims)):
            order = sorted(range(len(dims)), key=dims.__getitem__)
            turned = Var(small.aval.with_shape(tuple(small.aval.shape[i] for i in order)))
            eqns.append(Eqn(transpose, [small], {"perm": tuple(order)}, [turned], eqn.source))
            small, dims = turned, tuple(sorted(dims))
        eqns.append(Eqn(broadcast, [small], {"shape": out.aval.shape, "dims": dims}, [wide], eqn.source))
        operands.append(wide)
    return [*eqns, Eqn(_PRODUCTS[eqn.params["strong"]], operands, {}, [out], eqn.source)]
