"""Reading and writing at positions known when the program runs: gather, scatter and windows as steps of the native program.

An array that is written to is copied first; the copy falls away where the array dies there (`plan.py`), and then a write costs
what it writes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fxgrad.compile.analysis import Analysis
from fxgrad.compile.fuse import Task
from fxgrad.compile.gathers import known_position
from fxgrad.compile.kernelize import Launch, Values, coded, flops_of, operands_of
from fxgrad.compile.layout import Place, collapse, contiguous, grain, map_plan
from fxgrad.compile.operands import Operands
from fxgrad.ir.program import Eqn
from fxgrad.ir.types import Atom, Lit, Var
from fxgrad.kernels.indexed import DIMS, IndexKernel
from fxgrad.kernels.spec import Kernel, Moved, Operand, weight

if TYPE_CHECKING:
    from fxgrad.compile.lower import Step

__all__ = ["index_steps", "scatter_steps"]

_LOOK = 32  # elements that are added in the time of looking at an index, which all parts of a scatter do at all of them


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
    lengths = [source.shape[d] - (box[k] - 1 if window else 0) for k, d in enumerate(axes)]
    fixed = [known_position(a.access(i)[0], n, window) for i, n in zip(indices, lengths, strict=True)]
    start = source.offset + sum(p * source.strides[d] for p, d in zip(fixed, axes, strict=True) if p is not None)
    moving = [k for k, p in enumerate(fixed) if p is None]
    taken = [operands.take(indices[k]) for k in moving]
    per = math.prod(sizes)
    plan = [units, grain(per) if reads else 0, 0, start, target.offset, unit[0] if unit else 0]
    plan += [*(1,) * pad, *sizes, *(0,) * pad, *x_strides, *(0,) * pad, *u_strides]
    for k, g in zip(moving, taken, strict=True):
        i = indices[k].aval
        plan += [g.offset, i.dtype.itemsize if i.size > 1 else 0, lengths[k], source.strides[axes[k]]]
    what = "take" if reads else "add" if eqn.params.get("mode") == "add" else "put"
    kernel = IndexKernel(what, x.aval.dtype, [indices[k].aval.dtype for k in moving], window)
    moved = units * per * x.aval.dtype.itemsize
    counts = moved + sum(i.aval.nbytes for i in indices), moved, units * per if what == "add" else 0
    roots = [g.root for g in taken]
    if reads:
        launch = Launch(kernel, np.array(plan, np.int64), [root, *roots], [out], *counts)
    else:
        assert isinstance(found, Var)
        operands.write(*a.access(x), out)
        launch = Launch(kernel, np.array(plan, np.int64), [out, found, *roots], [], *counts, why="after the copy")
    return [*operands.steps, _step(launch, eqn, why, moving)]


def scatter_steps(a: Analysis, task: Task) -> list[Step]:
    """The steps of a scatter, or an update of a window, that computes what it writes; the first one copies the array."""
    from fxgrad.compile.lower import kernel_step

    eqn = task.eqns[-1]
    first = Operands(a, "it is written to")
    first.write(*a.access(eqn.inputs[0]), eqn.outputs[0])
    launch = _scatter_launch(a, task.eqns[:-1], eqn)
    return [*first.steps, kernel_step(launch, launch.kernel.title, task.why)]


class _Target(NamedTuple):
    """Where a scatter goes: the result's place if all indices that are stored are 0; those indices, and where they lie."""

    place: Place
    roots: list[Var]
    places: list[Place]
    parts: list[tuple[int, int]]  # for each of them the positions, and the bytes from one to the next


def _target(a: Analysis, eqn: Eqn) -> _Target:
    _, update, *indices = eqn.inputs
    out, shape, window = eqn.outputs[0].aval, update.aval.shape, eqn.prim.name != "scatter"
    axes = tuple(range(out.ndim)) if window else eqn.params["axes"]
    count = 0 if window else indices[0].aval.ndim
    strides = contiguous(out.shape, out.dtype.itemsize).strides
    inside = strides if window else (*(0,) * count, *(s for d, s in enumerate(strides) if d not in axes))
    found = _Target(Place(inside, 0, out.dtype.itemsize), [], [], [])
    start = 0
    for k, (i, d) in enumerate(zip(indices, axes, strict=True)):
        root, layout = a.access(i)
        length = out.shape[d] - (shape[k] - 1 if window else 0)
        if not isinstance(root, Var):
            known = known_position(root, length, window)
            assert known is not None
            start += known * strides[d]
            continue
        over = (0,) * len(shape) if window else (*layout.strides, *(0,) * (len(shape) - count))
        found.roots.append(root)
        found.places.append(Place(over, layout.offset, root.aval.dtype.itemsize))
        found.parts.append((length, strides[d]))
    return found._replace(place=found.place._replace(offset=start))


def _scatter_launch(a: Analysis, producers: Sequence[Eqn], eqn: Eqn) -> Launch:
    update, out = eqn.inputs[1], eqn.outputs[0]
    window, size = eqn.prim.name != "scatter", update.aval.size
    values, to = Values(a, producers, [update], update.aval.ndim), _target(a, eqn)
    n, prims = len(values.accesses), [e.prim for e in producers]
    modes, plan = map_plan(update.aval.shape, [*values.places(), *to.places, to.place], 0, weight(prims))
    if not window:  # units are parts of the places that the first index leads to
        rows, along = int(plan[2]), int(plan[4])
        parts = min(8, max(2, along // _LOOK))
        plan[:2] = parts, 1 if along > _LOOK and rows >= 2 * grain(along, weight(prims)) else parts
    ops = values.ops(producers, n + len(to.roots), modes)
    reads = operands_of([v.aval for v in values.roots], values.modes(modes[:n], ops))
    reads += [Operand(r.aval.dtype, "index") for r in to.roots]
    index = tuple((n + k, Lit(np.int64(m)), Lit(np.int64(step))) for k, (m, step) in enumerate(to.parts))
    moved = Moved(len(reads), Lit(np.int64(0)), index, window)
    adds = eqn.params.get("mode") == "add"
    results = operands_of([out.aval], modes[-1:])
    kernel = Kernel("add" if adds else "put", reads, ops, [values.ref(update)], results, (), [*values.moved, moved])
    read = values.bytes_read() + sum(r.aval.nbytes for r in to.roots) + adds * update.aval.nbytes
    flops = flops_of(producers, size) + adds * size
    launch = Launch(kernel, plan, [*values.roots, *to.roots, out], [], read, update.aval.nbytes, flops, why="after the copy")
    moving = len(values.moved)
    return coded(launch, [*values.gathers[:moving], *([] if window else [eqn]), *values.gathers[moving:]])


def _step(launch: Launch, eqn: Eqn, why: Sequence[str], moving: Sequence[int]) -> Step:
    from fxgrad.compile.lower import kernel_step

    step = kernel_step(launch, eqn.prim.name, why)
    step.eqn, step.checked = eqn, [eqn.params["axes"][k] for k in moving] if "axes" in eqn.params else []
    return step
