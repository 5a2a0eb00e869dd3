"""From a task to kernels: operands and their strides, the kernel's structure, the plan of its sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fxgrad.compile.fuse import Analysis, Task
from fxgrad.compile.layout import Layout, MapPlan, Place, ReducePlan, contiguous, map_plan, reduce_plan
from fxgrad.ir.program import Eqn
from fxgrad.ir.types import Atom, Aval, Lit, Var
from fxgrad.kernels.matmul import ProductKernel
from fxgrad.kernels.spec import Kernel, Op, Operand, Reduce

__all__ = ["Launch", "copy_launch", "fill_launch", "launches"]

Ints = tuple[int, ...]


class Launch(NamedTuple):
    """One kernel run: its operands in the order of the pointers, and what it writes.

    In a pipeline of several, `scale` is the number of its units a row; 0: it counts the units of the pipeline.

    `rows` = (units, unit, m), if its units of work are rows of the result: unit u is, of batch u // units with its m rows,
    those from (u % units) * unit on, at most `unit`.
    """

    kernel: Kernel | ProductKernel
    plan: np.ndarray
    reads: list[Var]
    writes: list[Var]
    bytes_read: int
    bytes_written: int
    flops: int
    rows: tuple[int, int, int] | None = None
    scale: int = 0


class Values:
    """Numbers the values of a kernel: operands in order of first use, then operations."""

    def __init__(self, a: Analysis, eqns: Sequence[Eqn], more: Sequence[Atom], ndim: int, known: Sequence[Var] = ()):
        self.a, self.ndim = a, ndim
        self.made = {v for e in eqns for v in e.outputs} | set(known)
        self.accesses: dict[tuple[Var, Layout], int] = {}
        for x in (*(x for e in eqns for x in e.inputs), *more):
            key = self._access(x)
            if key is not None:
                self.accesses.setdefault(key, len(self.accesses))
        self.number: dict[Var, int] = {}

    def _access(self, x: Atom) -> tuple[Var, Layout] | None:
        if type(x) is Var and x in self.made:
            return None
        root, layout = self.a.access(x)
        if type(root) is not Var:
            return None
        if not layout.shape and self.ndim:
            layout = Layout((), (0,) * self.ndim, layout.offset)
        return root, layout

    def ref(self, x: Atom, first: int = 0) -> int | Lit:
        """A value by number; operands are counted from `first`."""
        if type(x) is Var and x in self.made:
            return self.number[x]
        key = self._access(x)
        if key is not None:
            return first + self.accesses[key]
        root = self.a.access(x)[0]
        assert isinstance(root, Lit)
        return root

    def ops(self, eqns: Sequence[Eqn], start: int, first: int = 0) -> list[Op]:
        out = []
        for e in eqns:
            args = tuple(self.ref(x, first) for x in e.inputs)
            out.append(Op(e.prim, tuple(sorted(e.params.items())), args, e.outputs[0].aval.dtype))
            self.number[e.outputs[0]] = start + len(out) - 1
        return out

    @property
    def roots(self) -> list[Var]:
        return [root for root, _ in self.accesses]

    def places(self, order: Sequence[int] | None = None) -> list[Place]:
        """How the operands lie in the iteration space, its axes taken in `order`."""
        out = []
        for root, layout in self.accesses:
            strides = layout.strides if order is None else tuple(layout.strides[d] for d in order)
            out.append(Place(strides, layout.offset, root.aval.dtype.itemsize))
        return out

    def bytes_read(self) -> int:
        total = 0
        for root, layout in self.accesses:
            touched = math.prod(n for n, s in zip(layout.shape, layout.strides, strict=False) if s) if layout.shape else 1
            total += min(touched, root.aval.size) * root.aval.dtype.itemsize
        return total


def _flops(eqns: Sequence[Eqn], size: int) -> int:
    return sum(1 if e.prim.cheap else 20 for e in eqns) * size


def _operands(avals: Sequence[Aval], modes: Sequence[str]) -> list[Operand]:
    return [Operand(a.dtype, m) for a, m in zip(avals, modes, strict=True)]


def _target(aval: Aval) -> Place:
    return Place(contiguous(aval.shape, aval.dtype.itemsize).strides, 0, aval.dtype.itemsize)


def launches(a: Analysis, task: Task) -> list[Launch]:
    """The kernel of a task; two, when a reduction needs its operand brought in order first."""
    if task.kind == "map":
        return [_map(a, task, list(task.stored), task.shape, None)]
    found = _reduce(a, task)
    return [found] if found is not None else _ordered_reduce(a, task)


def _map(
    a: Analysis, task: Task, stored: Sequence[Atom], shape: Ints, order: Sequence[int] | None, target: Var | None = None
) -> Launch:  # fmt: skip
    """A map kernel; `order` permutes the iteration space, `target` then receives the only result."""
    values = Values(a, task.eqns, stored, len(shape))
    writes = [target] if target is not None else [v for v in stored if isinstance(v, Var)]
    places = values.places(order) + [_target(v.aval) for v in writes]
    space = shape if order is None else tuple(shape[d] for d in order)
    plan: MapPlan = map_plan(space, places, len(writes))
    n = len(values.accesses)
    ops = values.ops(task.eqns, n)
    operands = _operands([v.aval for v in (*values.roots, *writes)], plan.modes)
    kernel = Kernel("map", operands[:n], ops, [values.ref(v) for v in stored], operands[n:])
    size = math.prod(shape)
    written = sum(v.aval.nbytes for v in writes)
    return Launch(kernel, plan.plan, values.roots, writes, values.bytes_read(), written, _flops(task.eqns, size))


def copy_launch(root: Atom, layout: Layout, out: Var) -> Launch:
    """The kernel that writes a view of a value, of which the memory is not in order, into `out`."""
    if isinstance(root, Lit):
        return fill_launch(out, root.value)
    places = [Place(layout.strides, layout.offset, root.aval.dtype.itemsize), _target(out.aval)]
    plan = map_plan(layout.shape, places, 1)
    source, target = _operands([root.aval, out.aval], plan.modes)
    touched = math.prod(n for n, s in zip(layout.shape, layout.strides, strict=True) if s) * out.aval.dtype.itemsize
    return Launch(Kernel("map", [source], [], [0], [target]), plan.plan, [root], [out], touched, out.aval.nbytes, 0)


def fill_launch(target: Var, value: Any) -> Launch:
    """A kernel that writes one value everywhere."""
    aval = target.aval
    modes, plan = map_plan(aval.shape, [_target(aval)], 1)
    kernel = Kernel("map", [], [], [Lit(aval.dtype.type(value))], _operands([aval], modes))
    return Launch(kernel, plan, [], [target], 0, aval.nbytes, 0)


def _lanes(task: Task, roots: Sequence[Var]) -> int:
    sizes = [v.aval.dtype.itemsize for v in roots] + [
        x.aval.dtype.itemsize for e in task.all_eqns for x in (*e.inputs, *e.outputs)
    ]
    return 16 if max(sizes) <= 4 else 8


def _finish(a: Analysis, task: Task, values: Values, out: Var) -> tuple[Values, Any]:
    """Numbering of the epilogue's operands, which follow the reduced value."""
    assert task.reduce is not None
    r = task.reduce.outputs[0]
    return Values(a, task.epilogue, [], r.aval.ndim, [r]), r


def _assemble(
    a: Analysis, task: Task, values: Values, after: Values, r: Var, arg: Atom, found: ReducePlan, eqns: Sequence[Eqn]
) -> Kernel:  # fmt: skip
    assert task.reduce is not None
    n = len(values.accesses)
    ops = values.ops(eqns, n)
    first = n + len(ops)
    after.number[r] = first
    k = len(after.accesses)
    epilogue = after.ops(task.epilogue, first + 1 + k, first + 1)
    out = task.stored[0]
    reduce = Reduce(
        task.reduce.prim,
        values.ref(arg),
        arg.aval.dtype,
        tuple(_operands([v.aval for v in after.roots], found.after)),
        tuple(epilogue),
    )
    inputs = _operands([v.aval for v in values.roots], found.modes)
    return Kernel(found.form, inputs, ops, [after.ref(out)], [Operand(out.aval.dtype, found.out)], reduce)


def _reduce(a: Analysis, task: Task) -> Launch | None:
    """The fused reduction; None when its operands do not walk the reduced axes as one."""
    eqn = task.reduce
    assert eqn is not None
    arg, out = eqn.inputs[0], task.stored[0]
    values = Values(a, task.eqns, [arg], len(task.shape))
    after, r = _finish(a, task, values, out)
    axes: Ints = eqn.params["axes"]
    found = reduce_plan(task.shape, axes, values.places(), after.places(), _target(out.aval), _lanes(task, values.roots))
    if found is None:
        return None
    kernel = _assemble(a, task, values, after, r, arg, found, task.eqns)
    size = arg.aval.size
    flops = _flops([*task.eqns, eqn], size) + _flops(task.epilogue, out.aval.size)
    read = values.bytes_read() + after.bytes_read()
    return Launch(kernel, found.plan, values.roots + after.roots, [out], read, out.aval.nbytes, flops)


def _ordered_reduce(a: Analysis, task: Task) -> list[Launch]:
    """First what is reduced, stored with the reduced axes last and in order; then its reduction along rows."""
    eqn = task.reduce
    assert eqn is not None
    arg, out = eqn.inputs[0], task.stored[0]
    axes: Ints = eqn.params["axes"]
    order = (*(d for d in range(len(task.shape)) if d not in axes), *axes)
    stored = Var(Aval(tuple(task.shape[d] for d in order), arg.aval.dtype))
    first = _map(a, task, [arg], task.shape, order, stored)
    values = Values(a, [], [stored], len(task.shape))
    after, r = _finish(a, task, values, out)
    last = tuple(range(len(task.shape) - len(axes), len(task.shape)))
    found = reduce_plan(stored.aval.shape, last, values.places(), after.places(), _target(out.aval), _lanes(task, [stored]))
    assert found is not None
    kernel = _assemble(a, task, values, after, r, stored, found, [])
    flops = _flops([eqn], arg.aval.size) + _flops(task.epilogue, out.aval.size)
    read = stored.aval.nbytes + after.bytes_read()
    return [first, Launch(kernel, found.plan, [stored, *after.roots], [out], read, out.aval.nbytes, flops)]
