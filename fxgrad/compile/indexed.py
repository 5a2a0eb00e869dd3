"""Reading and writing at positions known when the program runs: gather, scatter and windows as steps of the native program.

An array that is written to is copied first; the copy falls away where the array dies there (`plan.py`), and then a write costs
what it writes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fxgrad.compile.fuse import Analysis
from fxgrad.compile.kernelize import Launch
from fxgrad.compile.layout import collapse, contiguous, grain
from fxgrad.compile.operands import Operands
from fxgrad.ir.program import Eqn
from fxgrad.ir.types import Atom, Var
from fxgrad.kernels.indexed import DIMS, IndexKernel

if TYPE_CHECKING:
    from fxgrad.compile.lower import Step

__all__ = ["index_steps"]


def index_steps(a: Analysis, eqn: Eqn, why: Sequence[str]) -> list[Step] | None:
    """The steps of an equation; None if its boxes are too jagged for a kernel."""
    window = eqn.prim.name.startswith("dynamic")
    reads = eqn.prim.name in ("gather", "dynamic_slice")
    x, (out,) = eqn.inputs[0], eqn.outputs
    indices = eqn.inputs[1 if reads else 2 :]
    update: Atom = out if reads else eqn.inputs[1]
    if not update.aval.size:
        return None
    axes = tuple(range(x.aval.ndim)) if window else eqn.params["axes"]
    operands = Operands(a, "it is written to" if not reads else "indices are read in order")
    found: Atom | None = None
    if reads:
        root, source = a.access(x)
        if not isinstance(root, Var):
            return None
        target = contiguous(out.aval.shape, out.aval.dtype.itemsize)
    else:
        root, source = out, contiguous(out.aval.shape, out.aval.dtype.itemsize)
        found, target = a.access(update)
        if not isinstance(found, Var):
            found, target = operands.take(update).root, contiguous(update.aval.shape, update.aval.dtype.itemsize)
    count = 0 if window else indices[0].aval.ndim
    units = math.prod(target.shape[:count])
    box = target.shape[count:]
    inside = source.strides if window else tuple(s for d, s in enumerate(source.strides) if d not in axes)
    sizes, (x_strides, u_strides) = collapse(box, [inside, target.strides[count:]])
    unit_sizes, (unit,) = collapse(target.shape[:count], [target.strides[:count]])
    if len(sizes) > DIMS or len(unit_sizes) > 1:
        return None
    pad = DIMS - len(sizes)
    taken = [operands.take(i) for i in indices]
    per = math.prod(sizes)
    plan = [units, grain(per) if reads else 0, 0, source.offset, target.offset, unit[0] if unit else 0]
    plan += [*(1,) * pad, *sizes, *(0,) * pad, *x_strides, *(0,) * pad, *u_strides]
    for k, (g, i) in enumerate(zip(taken, indices, strict=True)):
        length = source.shape[axes[k]] - (box[k] - 1 if window else 0)
        plan += [g.offset, i.aval.dtype.itemsize if i.aval.size > 1 else 0, length, source.strides[axes[k]]]
    what = "take" if reads else "add" if eqn.params.get("mode") == "add" else "put"
    kernel = IndexKernel(what, x.aval.dtype, [i.aval.dtype for i in indices], window)
    moved = units * per * x.aval.dtype.itemsize
    counts = moved + sum(i.aval.nbytes for i in indices), moved, units * per if what == "add" else 0
    roots = [g.root for g in taken]
    if reads:
        launch = Launch(kernel, np.array(plan, np.int64), [root, *roots], [out], *counts)
    else:
        assert isinstance(found, Var)
        operands.write(*a.access(x), out)
        launch = Launch(kernel, np.array(plan, np.int64), [out, found, *roots], [], *counts, why="after the copy")
    return [*operands.steps, _step(launch, eqn, why)]


def _step(launch: Launch, eqn: Eqn, why: Sequence[str]) -> Step:
    from fxgrad.compile.lower import kernel_step

    step = kernel_step(launch, eqn.prim.name, why)
    step.eqn = eqn
    return step
