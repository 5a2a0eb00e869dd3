"""From a task to kernels: operands and their strides, the kernel's structure, the plan of its sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fxgrad.compile.analysis import Analysis
from fxgrad.compile.fuse import Task
from fxgrad.compile.gathers import gather_in_rows, gather_views
from fxgrad.compile.layout import (
    Layout,
    MapPlan,
    Place,
    across,
    cols_plan,
    contiguous,
    element_dtype,
    map_plan,
    row_plan,
    split_plans,
)
from fxgrad.compile.passes import Input, Rows, RowSpace, sorted_params
from fxgrad.compile.pieces import Box, Chosen, boxes, settled, within
from fxgrad.compile.tape import Tape
from fxgrad.compile.updates import Update, is_update, outside
from fxgrad.ir.program import Eqn
from fxgrad.ir.types import Atom, Aval, Lit, Var
from fxgrad.kernels.indexed import IndexKernel
from fxgrad.kernels.matmul import ProductKernel
from fxgrad.kernels.spec import Kernel, Moved, Op, Operand, reduction_block, weight
from fxgrad.kernels.tape import TapeKernel

__all__ = ["Launch", "Values", "coded", "copy_launch", "fill_launch", "flops_of", "launches", "operands_of"]

Ints = tuple[int, ...]
_Part = tuple[Atom, Layout, Var]  # what is written, where, in which array
_Access = tuple[Var, Layout, tuple[Var, int] | None]  # an operand of a map kernel: see `Values`
_MANY_ROWS = 16  # enough for any team


class Launch(NamedTuple):
    """One kernel run: its operands in the order of the pointers, and what it writes; `why` it is not one with the next.

    In a pipeline of several, `scale` is the number of its units a row; 0: it counts the units of the pipeline.

    `rows` = (units, unit, m), if its units of work are rows of a product: unit u is, of batch u // units with its m rows,
    those from (u % units) * unit on, at most `unit`.
    `over` are (written, before): values of which only a part is written, in the memory of what they were before.
    """

    kernel: Kernel | ProductKernel | TapeKernel | IndexKernel
    plan: np.ndarray
    reads: list[Var]
    writes: list[Var]
    bytes_read: int
    bytes_written: int
    flops: int
    rows: tuple[int, int, int] | None = None
    scale: int = 0
    why: str = ""  # empty: the task's reasons
    over: tuple[tuple[Var, Var], ...] = ()
    codes: tuple[tuple[int, Eqn], ...] = ()  # equations that may stop the program, and the words of the plan for their codes


class Values:
    """Numbers the values of a kernel: operands in order of first use, then operations.

    In a `box` of the space everything is read there; `chosen` are what stands for the results in pieces. An operand is a view of
    a stored value, and whose it is, if it is a gather's (the result, and which operand).
    """

    def __init__(
        self, a: Analysis, eqns: Sequence[Eqn], more: Sequence[Atom], ndim: int,
        box: Box | None = None, chosen: Chosen | None = None,
    ):  # fmt: skip
        self.a, self.ndim, self.box, self.chosen = a, ndim, box, chosen or {}
        self.made = {v for e in eqns for v in e.outputs}
        self.accesses: dict[_Access, int] = {}
        keys = [k for e in eqns if e.outputs[0] not in self.chosen for k in self._keys(e)]
        for key in (*keys, *(self._access(x) for x in more)):
            if key is not None:
                self.accesses.setdefault(key, len(self.accesses))
        self.number: dict[Var, int] = {}
        self.moved: list[Moved] = []
        self.gathers: list[Eqn] = []  # those that move, then those that are operations

    def _keys(self, e: Eqn) -> list[_Access | None]:
        """What an equation reads, operand by operand; None for what is made here."""
        if e.prim.name != "gather":
            return [self._access(x) for x in e.inputs]
        views = gather_views(self.a, e)
        found: list[_Access | None] = [self._part(views.root, views.layout, (e.outputs[0], 0))]
        for k, i in enumerate(views.indices, 1):
            root = None if i.atom in self.made else self.a.root(i.atom)
            found.append(self._part(root, i.layout, (e.outputs[0], k)) if isinstance(root, Var) else None)
        return found

    def _part(self, root: Var, layout: Layout, by: tuple[Var, int] | None = None) -> _Access:
        return root, layout if self.box is None else within(layout, self.box, (0,) * self.ndim), by

    def _access(self, x: Atom) -> _Access | None:
        if type(x) is Var and x in self.chosen:
            root, layout = self.chosen[x]
            if layout is not None:
                return (root, layout, None) if type(root) is Var else None
            x = root
        if type(x) is Var and x in self.made:
            return None
        root, layout = self.a.access(x)
        if type(root) is not Var:
            return None
        if not layout.shape and self.ndim:
            return root, Layout((), (0,) * self.ndim, layout.offset), None
        return self._part(root, layout)

    def ref(self, x: Atom) -> int | Lit:
        """A value by number."""
        key = self._access(x)
        if key is not None:
            return self.accesses[key]
        if type(x) is Var and x in self.chosen:
            x = self.chosen[x][0]
        if type(x) is Var and x in self.made:
            return self.number[x]
        root = self.a.root(x)
        assert isinstance(root, Lit)
        return root

    def ops(self, eqns: Sequence[Eqn], start: int, modes: Sequence[str]) -> list[Op]:
        """The operations, numbered from `start`, for operands of these modes: a gather of whole rows is none, it moves one."""
        out = []
        moving = [e for e in eqns if e.prim.name == "gather" and self._moves(e, modes)]
        self.moved = [self._move(e) for e in moving]
        self.gathers = moving + [e for e in eqns if e.prim.name == "gather" and e not in moving]
        self.number.update((e.outputs[0], m.operand) for e, m in zip(moving, self.moved, strict=True))
        for e in eqns:
            if e in moving:
                continue
            args = self._gather_args(e) if e.prim.name == "gather" else tuple(map(self.ref, e.inputs))
            if e.prim.name == "gather":
                e = Eqn(e.prim, e.inputs, {}, e.outputs)
            out.append(Op(e.prim, sorted_params(e), args, e.outputs[0].aval.dtype))
            self.number[e.outputs[0]] = start + len(out) - 1
        return out

    def _moves(self, e: Eqn, modes: Sequence[str]) -> bool:
        return all(key is not None and modes[self.accesses[key]] == "splat" for key in self._keys(e)[1:])

    def _move(self, e: Eqn) -> Moved:
        x, *indices = [self.accesses[key] for key in self._keys(e) if key is not None]
        views = gather_views(self.a, e).indices
        found = [(k, Lit(np.int64(i.length)), Lit(np.int64(i.stride))) for k, i in zip(indices, views, strict=True)]
        return Moved(x, Lit(np.int64(0)), tuple(found))

    def _gather_args(self, e: Eqn) -> tuple[int | Lit, ...]:
        """The array, a code, and for each index array: index, positions, bytes from one to the next."""
        keys = self._keys(e)
        assert keys[0] is not None
        args: list[int | Lit] = [self.accesses[keys[0]], Lit(np.int64(0))]
        for i, key in zip(gather_views(self.a, e).indices, keys[1:], strict=True):
            args.append(self.ref(i.atom) if key is None else self.accesses[key])
            args += [Lit(np.int64(i.length)), Lit(np.int64(i.stride))]
        return tuple(args)

    def modes(self, modes: Sequence[str], ops: Sequence[Op]) -> tuple[str, ...]:
        """The modes of operands and results, with those of gathers."""
        out = list(modes)
        for op in ops:
            if op.prim.name == "gather":
                k = op.args[0]
                assert isinstance(k, int)
                out[k] = "indirect"
        for m in self.moved:
            for k, _, _ in m.indices:
                out[k] = "index"
        return tuple(out)

    @property
    def roots(self) -> list[Var]:
        return [root for root, _, _ in self.accesses]

    def places(self, order: Sequence[int] | None = None) -> list[Place]:
        """How the operands lie in the iteration space, its axes taken in `order`."""
        out = []
        for root, layout, _ in self.accesses:
            strides = layout.strides if order is None else tuple(layout.strides[d] for d in order)
            out.append(Place(strides, layout.offset, element_dtype(root.aval.dtype).itemsize))
        return out

    def bytes_read(self) -> int:
        total = 0
        for root, layout, by in self.accesses:
            moving = (
                layout.shape
                if by is not None and by[1] == 0
                else [n for n, s in zip(layout.shape, layout.strides, strict=False) if s]
            )
            touched = math.prod(moving) if layout.shape else 1
            total += min(touched, root.aval.size) * root.aval.dtype.itemsize
        return total


def flops_of(eqns: Sequence[Eqn], size: int) -> int:
    return sum([1 if e.prim.cheap else 20 for e in eqns]) * size


def operands_of(avals: Sequence[Aval], modes: Sequence[str]) -> list[Operand]:
    return [Operand(element_dtype(a.dtype), m) for a, m in zip(avals, modes, strict=True)]


def _wholes(aval: Aval) -> list[Layout]:
    """Where a kernel writes a result; of a complex one, its two parts."""
    whole = contiguous(aval.shape, aval.dtype.itemsize)
    return [whole._replace(offset=at) for at in range(0, aval.dtype.itemsize, element_dtype(aval.dtype).itemsize)]


class _Results:
    """What a map kernel computes and stores for some values: the operations, their results, and where each is written."""

    def __init__(self, eqns: Sequence[Eqn], stored: Sequence[Atom]):
        self.eqns: list[Eqn] = []
        parts: dict[Var, list[Atom]] = {}
        for e in eqns:
            if e.prim.name == "complex":  # no operation: its operands are written side by side
                parts[e.outputs[0]] = list(e.inputs)
            else:
                self.eqns.append(e)
        self.values: list[Atom] = [x for v in stored for x in (parts.get(v, [v]) if type(v) is Var else [v])]
        self.writes = [v for v in stored if type(v) is Var for _ in parts.get(v, [v])]
        self.wholes = [x for v in stored for x in _wholes(v.aval)]


def launches(a: Analysis, task: Task) -> list[Launch]:
    """The kernels of a task; several, when a reduction needs its operand brought in order first or is split."""
    if task.kind == "tape":
        return tape_launches(a, task)
    if task.updates:
        return update_launches(a, task)
    if task.pieces:
        return _in_boxes(a, task)
    if task.kind == "map":
        return [_map(a, task, list(task.stored), task.shape, None)]
    if task.rows is not None:
        return row_launches(task.rows)
    assert task.reduce is not None
    space = a.row_space(task.shape, task.reduce.params["axes"])
    made = {v for e in task.all_eqns for v in e.outputs}
    if all(_walks(a, e, space, made) for e in task.all_eqns):
        return row_launches(Rows(a, task.all_eqns, task.stored, space))
    return _ordered_reduce(a, task)


def _walks(a: Analysis, e: Eqn, space: RowSpace, made: set[Var]) -> bool:
    if e.prim.name == "gather":
        return gather_in_rows(a, e, space, made.__contains__) is not None
    kind = space.kind(e.inputs[0].aval.shape if e.prim.kind == "reduce" else e.outputs[0].aval.shape)
    return all(space.walk(a.access(x)[1], kind if x.aval.shape else "scalar") is not None for x in e.inputs)


def row_launches(rows: Rows) -> list[Launch]:
    """The launch of a row kernel, or of a column kernel if that reads memory better.

    There are two if there are few rows and they are long: blocks of rows, then rows from these.
    """
    space, places = rows.space, rows.places()
    roots = [x.root for x in rows.inputs]
    n = len(roots)
    work = weight([op.prim for s in rows.stages for op in s.ops])
    settled = rows.gathers or any(p.along is not None for p in places)  # how these are read depends on which kernel it is
    columns = space.columns if settled else across(space.rows, space.n, places, rows.lanes)
    if columns:
        rows = rows.without_keeping()
        places += rows.end_places()
    modes, plan = (cols_plan if columns else row_plan)(space.rows, space.n, places, work)
    modes += ("splat",) * (n + len(rows.full) + len(rows.ends) - len(modes))
    operands = operands_of([v.aval for v in (*roots, *rows.full, *rows.ends)], rows.modes(modes))
    results = [rows.number[v] for v in rows.ends]
    moved, gathers = rows.moves()
    kernel = Kernel("cols" if columns else "row", operands[:n], (), results, operands[n:], rows.stages, moved)
    written = sum(v.aval.nbytes for v in (*rows.full, *rows.ends))
    sizes = (*space.rows, space.n)
    read = sum([_touched(x, sizes) for x in rows.inputs])
    flops = sum(flops_of([e], e.inputs[0].aval.size if e.prim.kind == "reduce" else v.aval.size) for v, e in rows.maker.items())
    whole = coded(Launch(kernel, plan, roots, [*rows.full, *rows.ends], read, written, flops), gathers)
    if columns or not kernel.splits or space.count >= _MANY_ROWS or space.n < 2 * reduction_block(kernel.folds[0].dtype):
        return [whole]
    return _split(rows, whole, places, work)


def _split(rows: Rows, whole: Launch, places: Sequence[Place], work: float) -> list[Launch]:
    """Blocks of rows, and rows from their blocks' results, by the same kernel."""
    space, kernel, roots = rows.space, whole.kernel, whole.reads
    assert isinstance(kernel, Kernel)
    block = reduction_block(kernel.folds[0].dtype)
    first, last = split_plans(space.rows, space.n, places, block, work)
    blocks = [Var(Aval((space.count, -(-space.n // block)), f.dtype)) for f in kernel.folds]
    full, ends, partial = (sum(v.aval.nbytes for v in vs) for vs in (rows.full, rows.ends, blocks))
    why = "few rows and long: a team shares their blocks"
    gathers = [e for _, e in whole.codes]
    parts = [
        Launch(kernel, first, roots, [*rows.full, *blocks], whole.bytes_read, full + partial, whole.flops, why=why),
        Launch(kernel, last, [*roots, *rows.full, *blocks], rows.ends, partial, ends, 0),
    ]
    return [coded(x, gathers) for x in parts]


def _touched(x: Input, sizes: Ints) -> int:
    """Bytes of an operand that are read, each counted once."""
    if x.by is not None:
        moving = math.prod(sizes)
    else:
        walks = [x.strides, *[i.strides for i, _, _ in x.indices]]
        moving = math.prod([n for n, steps in zip(sizes, zip(*walks, strict=True), strict=True) if any(steps)])
    return min(moving, x.root.aval.size) * x.root.aval.dtype.itemsize


def _map(
    a: Analysis, task: Task, stored: Sequence[Atom], shape: Ints, order: Sequence[int] | None, target: Var | None = None
) -> Launch:  # fmt: skip
    """A map kernel; `order` permutes the iteration space, `target` then receives the only result."""
    results = _Results(task.eqns, stored)
    values = Values(a, results.eqns, results.values, len(shape))
    writes = [target] if target is not None else results.writes
    targets = _wholes(target.aval) if target is not None else results.wholes
    sizes = [element_dtype(v.aval.dtype).itemsize for v in writes]
    places = values.places(order) + [Place(x.strides, x.offset, n) for x, n in zip(targets, sizes, strict=True)]
    space = shape if order is None else tuple(shape[d] for d in order)
    plan: MapPlan = map_plan(space, places, len(writes), weight([e.prim for e in results.eqns]))
    n = len(values.accesses)
    ops = values.ops(results.eqns, n, plan.modes)
    operands = operands_of([v.aval for v in (*values.roots, *writes)], values.modes(plan.modes, ops))
    kernel = Kernel("map", operands[:n], ops, [values.ref(v) for v in results.values], operands[n:], (), values.moved)
    size = math.prod(shape)
    written = sum(v.aval.nbytes for v in dict.fromkeys(writes))
    launch = Launch(kernel, plan.plan, values.roots, writes, values.bytes_read(), written, flops_of(results.eqns, size))
    return coded(launch, values.gathers)


def _in_boxes(a: Analysis, task: Task) -> list[Launch]:
    """A map kernel for each box of the space; all but the first are said to read the results that they complete."""
    r = _Results(task.eqns, task.stored)
    return _regions(a, task, r.eqns, r.values, r.wholes, r.writes)


def _over_box(
    values: Values, eqns: Sequence[Eqn], results: Sequence[Atom], parts: Sequence[Layout], writes: list[Var]
) -> Launch:  # fmt: skip
    """A map kernel over the shape of `parts`, which are where in `writes` the results go."""
    shape, n = parts[0].shape, len(values.accesses)
    sizes = [element_dtype(v.aval.dtype).itemsize for v in writes]
    targets = [Place(x.strides, x.offset, size) for x, size in zip(parts, sizes, strict=True)]
    modes, plan = map_plan(shape, values.places() + targets, len(writes), weight([e.prim for e in eqns]))
    ops = values.ops(eqns, n, modes)
    operands = operands_of([v.aval for v in (*values.roots, *writes)], values.modes(modes, ops))
    kernel = Kernel("map", operands[:n], ops, [values.ref(v) for v in results], operands[n:], (), values.moved)
    size = math.prod(shape)
    written = size * sum(sizes)
    return coded(Launch(kernel, plan, values.roots, writes, values.bytes_read(), written, flops_of(eqns, size)), values.gathers)


def coded(launch: Launch, eqns: Sequence[Eqn]) -> Launch:
    """A launch with the places of the codes of those equations that may stop the program."""
    assert isinstance(launch.kernel, Kernel)
    return launch._replace(codes=tuple((len(launch.plan) + n, e) for n, e in zip(launch.kernel.codes, eqns, strict=True)))


def update_launches(a: Analysis, task: Task) -> list[Launch]:
    """The kernel that writes regions of arrays, and other results; before it, what is outside where arrays are copies."""
    out, _, over = _begun(task)
    again: list[_Part] = []  # to arrays that are begun
    once: list[_Part] = []
    for u in task.updates:
        parts = [(value, place, u.home) for value, place in u.parts]
        again += parts[1:] if u.over else parts
        once += parts[:1] if u.over else []
    homes = {u.home for u in task.updates}
    r = _Results([e for e in task.eqns if not is_update(e)], [v for v in task.stored if v not in homes])
    plain: list[_Part] = list(zip(r.values, r.wholes, r.writes, strict=True))
    every = [*again, *once, *plain]
    results, wholes, writes = [v for v, _, _ in every], [place for _, place, _ in every], [home for _, _, home in every]
    eqns = r.eqns
    aside = next((u for u in task.updates if u.aside), None)
    if aside is not None:
        kept = Var(Aval(aside.place.shape, aside.home.aval.dtype))
        launches = _regions(a, task, eqns, results, [contiguous(kept.aval.shape, kept.aval.dtype.itemsize)], [kept])
        out += [x._replace(why="the kernel reads other places of what it updates") for x in launches]
        last = copy_launch(kept, contiguous(kept.aval.shape, kept.aval.dtype.itemsize), aside.home, aside.place)
        return [*out, last._replace(over=over)]
    launches = _regions(a, task, eqns, results, wholes, writes, len(again))
    return [*out, launches[0]._replace(over=over), *launches[1:]]


def _begun(task: Task) -> tuple[list[Launch], list[Var], tuple[tuple[Var, Var], ...]]:
    """Copies of what updates leave as it was, the arrays so made, and (updated, before) for those that are updated in place."""
    out: list[Launch] = []
    fresh = [u for u in task.updates if not u.over]
    for u in fresh:
        for i, (source, target) in enumerate(outside(u)):
            launch = copy_launch(u.base, source, u.home, target)
            out.append(launch._replace(why=_why_copied(u)) if not i else _completing(launch, 1))
    return out, [u.home for u in fresh], tuple((u.home, u.base) for u in task.updates if u.over and isinstance(u.base, Var))


def tape_launches(a: Analysis, task: Task) -> list[Launch]:
    """A list of scalar operations, after copies of the arrays of which it writes elements, where those are not its own."""
    out, fresh, over = _begun(task)
    tape = Tape(a, task)
    kernel, scratch = tape.kernel(), tape.scratch()
    plain = [v for v in task.stored if v not in {u.home for u in task.updates}]
    reads, writes = [*tape.roots, *fresh], [*(v for v, _ in over), *plain, scratch]
    plan = tape.plan(kernel, [*reads, *writes], scratch)
    moved = 8 * len(tape.code)
    return [*out, Launch(kernel, plan, reads, writes, moved, moved, flops_of(task.eqns, 1), over=over)]


def _why_copied(u: Update) -> str:
    return f"'{u.eqn.prim.name}' copies: what was before is needed later, or is not this program's to change"


def _regions(
    a: Analysis, task: Task, eqns: Sequence[Eqn], results: Sequence[Atom], wholes: Sequence[Layout], writes: list[Var],
    begun: int = 0,
) -> list[Launch]:  # fmt: skip
    """The results computed and written where `wholes` says, box by box if some are in pieces; the first `begun` exist already."""
    out: list[Launch] = []
    ndim = len(task.shape)
    for box, chosen in boxes(a, task.pieces, task.shape):
        needed = settled(eqns, results, chosen)
        values = Values(a, needed, results, ndim, box, chosen)
        parts = [within(whole, box, (0,) * ndim) for whole in wholes]
        launch = _over_box(values, needed, results, parts, writes)
        out.append(_completing(launch, len(writes) if out else begun))
    return out


def _completing(launch: Launch, begun: int) -> Launch:
    """A launch that writes more of its first values, which an earlier one has begun: it is said to read them."""
    reads, writes = [*launch.reads, *launch.writes[:begun]], launch.writes[begun:]
    return launch._replace(reads=reads, writes=writes, why="" if writes else "one piece after the other")


def copy_launch(root: Atom, layout: Layout, out: Var, target: Layout | None = None) -> Launch:
    """The kernel that writes a view of a value, of which the memory is not in order, into `out`, or into a part of it."""
    target = contiguous(out.aval.shape, out.aval.dtype.itemsize) if target is None else target
    place = Place(target.strides, target.offset, out.aval.dtype.itemsize)
    written = math.prod(target.shape) * out.aval.dtype.itemsize
    if isinstance(root, Lit):
        modes, plan = map_plan(target.shape, [place], 1)
        kernel = Kernel("map", [], [], [Lit(out.aval.dtype.type(root.value))], operands_of([out.aval], modes))
        return Launch(kernel, plan, [], [out], 0, written, 0)
    places = [Place(layout.strides, layout.offset, out.aval.dtype.itemsize), place]
    modes, plan = map_plan(layout.shape, places, 1)
    source, aim = operands_of([out.aval, out.aval], modes)
    touched = math.prod(n for n, s in zip(layout.shape, layout.strides, strict=True) if s) * out.aval.dtype.itemsize
    return Launch(Kernel("map", [source], [], [0], [aim]), plan, [root], [out], touched, written, 0)


def fill_launch(target: Var, value: Any) -> Launch:
    """A kernel that writes one value everywhere."""
    return copy_launch(Lit(target.aval.dtype.type(value)), contiguous(target.aval.shape, target.aval.dtype.itemsize), target)


def _ordered_reduce(a: Analysis, task: Task) -> list[Launch]:
    """First what is reduced, stored with the reduced axes last and in order; then its reduction along rows."""
    eqn = task.reduce
    assert eqn is not None
    arg, out = eqn.inputs[0], task.stored[0]
    axes: Ints = eqn.params["axes"]
    order = (*(d for d in range(len(task.shape)) if d not in axes), *axes)
    stored = Var(Aval(tuple(task.shape[d] for d in order), arg.aval.dtype))
    first = _map(a, task, [arg], task.shape, order, stored)._replace(why="the reduced axes are not walked as one")
    kept = tuple(task.shape[d] for d in range(len(task.shape)) if d not in axes)
    last = tuple(range(len(kept), len(task.shape)))
    reduce = Eqn(eqn.prim, [stored], {"axes": last}, eqn.outputs)
    return [first, *row_launches(Rows(a, [reduce, *task.epilogue], [out], RowSpace(stored.aval.shape, last)))]
