"""The passes of a row kernel: when each value of a row is computed, what is kept for later passes and what is computed again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fxgrad.compile.analysis import Analysis
from fxgrad.compile.gathers import RowGather, gather_in_rows
from fxgrad.compile.layout import Along, Layout, Place, apply_view, collapse, contiguous, element_dtype, row_place
from fxgrad.ir.program import Eqn
from fxgrad.ir.types import Atom, Lit, Var
from fxgrad.kernels.spec import PACK_DIMS, Fold, Moved, Op, Params, Stage, cost, lanes_of_reduction

__all__ = ["Input", "RowSpace", "Rows", "sorted_params"]

Ints = tuple[int, ...]
_NEAR = 32  # bytes between neighbours up to which a walk along rows is worth more than a copy in order
_KEEP = 4  # cheap operations and loads from which on a value is kept: what a load and a store of the first-level cache cost


class Input(NamedTuple):
    """An operand: a stored array, how it lies over rows and along them, and what moves its start in each row.

    `indices` are (index, positions, bytes from one to the next); a `place` is itself such an index; `by` is the result of the
    gather that reads the operand at computed places.
    """

    root: Var
    strides: tuple
    offset: int
    indices: tuple[tuple[Input, int, int], ...] = ()
    place: bool = False
    by: Var | None = None


class RowSpace:
    """Rows of n elements: an array of some shape with its reduced axes taken as one.

    Of a space of `columns` the last axis is no reduced one, so that vectors can run across the rows.
    """

    def __init__(self, shape: Ints, axes: Ints):
        self.shape, self.axes = shape, axes
        self.kept = tuple(d for d in range(len(shape)) if d not in axes)
        self.rows = tuple(shape[d] for d in self.kept)
        self.n, self.count = math.prod(shape[d] for d in axes), math.prod(self.rows)
        long = [d for d in range(len(shape)) if shape[d] != 1]
        self.trailing = [d for d in long if d in axes] == long[len(long) - sum(d in axes for d in long) :]
        self.columns = not self.trailing and bool(shape) and len(shape) - 1 not in axes
        self.last = max((d for d in self.kept if shape[d] != 1), default=0)  # the axis along which vectors run in columns
        self._places: dict[Any, tuple | None] = {}
        self._kinds: dict[Ints, str] = {}
        self._aligned: dict[Any, bool] = {}

    def kind(self, shape: Ints) -> str:
        """What an operation of this shape computes: `full` rows, one value a `row`, one `scalar`, or nothing of this space."""
        found = self._kinds.get(shape)
        if found is None:
            found = self._kinds[shape] = self._kind(math.prod(shape))
        return found

    def _kind(self, size: int) -> str:
        return "row" if size == self.count else "scalar" if size == 1 else "full" if size == self.count * self.n else ""

    def walk(self, layout: Layout, kind: str) -> tuple | None:
        """Strides over rows and along them, or how to walk along them; None when there is no walk that kernels know."""
        key = (layout.shape, layout.strides, kind)
        if key not in self._places:
            self._places[key] = self._walk(layout, kind)
        return self._places[key]

    def _walk(self, x: Layout, kind: str) -> tuple | None:
        if not any(x.strides) or kind == "scalar":
            return (0,) * (len(self.rows) + 1)
        if kind == "row":
            found = apply_view("reshape", x, {"shape": self.rows})
            return None if found is None else (*found.strides, 0)
        if x.shape == self.shape:
            length, (steps,) = collapse(tuple(x.shape[d] for d in self.axes), [tuple(x.strides[d] for d in self.axes)])
            along: Any = steps[0] if steps else 0
            if len(length) > 1:
                near = x.strides[self.last] if self.columns else steps[-1]
                if len(length) > PACK_DIMS or abs(near) > _NEAR:
                    return None
                along = Along(length, steps)
            return (*(x.strides[d] for d in self.kept), along)
        found = apply_view("reshape", x, {"shape": (*self.rows, self.n)}) if self.trailing else None
        return None if found is None else found.strides

    def aligned(self, layout: Layout, kind: str, itemsize: int, of: str) -> bool:
        """Whether operations of `kind` read, through the layout, the row they are at (or its value) of what is of kind `of`."""
        key = layout, kind, itemsize, of
        found = self._aligned.get(key)
        if found is None:
            found = self._aligned[key] = self._is_aligned(layout, kind, itemsize, of)
        return found

    def _is_aligned(self, layout: Layout, kind: str, itemsize: int, of: str) -> bool:
        if of == "scalar":
            return not any(s for n, s in zip(layout.shape, layout.strides, strict=True) if n > 1)
        if (of, kind) not in (("full", "full"), ("row", "row"), ("row", "full")):
            return False
        strides = self.walk(layout, kind)
        target = self.walk(contiguous(self.shape if of == "full" else self.rows, itemsize), of)
        if strides is None or target is None:
            return False
        return all(n == 1 or s == t for n, s, t in zip((*self.rows, self.n), strides, target, strict=True))


def sorted_params(e: Eqn) -> Params:
    """An equation's parameters as those of an operation."""
    return tuple(sorted(e.params.items())) if e.params else ()


class Rows:
    """A row kernel of equations in order: operands, stages, and where each stored value is.

    Without `keep` every pass computes what it needs anew.
    `inputs` are (root, place) in the order of their numbers; `full` the stored values along rows, `ends` those of one a row.
    """

    def __init__(self, a: Analysis, eqns: Sequence[Eqn], stored: Sequence[Var], space: RowSpace, keep: bool = True):
        self.a, self.space, self.keep = a, space, keep
        self.maker = {e.outputs[0]: e for e in eqns}
        self.order = {e.outputs[0]: i for i, e in enumerate(eqns)}
        self.kinds = {v: space.kind(v.aval.shape) for v in self.maker}
        self.gathers = {v: self._gather(e) for v, e in self.maker.items() if e.prim.name == "gather"}
        self.full = [v for v in stored if self.kinds[v] == "full"]
        self.ends = [v for v in stored if self.kinds[v] != "full"]
        self.inputs: dict[Input, int] = {}
        self.moved: dict[Var, Input] = {}  # the results of gathers that are operands read elsewhere
        self.read: list[Eqn] = []  # gathers in the order of their operations
        self.args: dict[Var, list[Any]] = {}
        for v, e in self.maker.items():
            self.args[v] = self._gathered(v, e) if v in self.gathers else [self._resolve(x, e) for x in e.inputs]
        self.stage: dict[Var, int] = {}
        self.again: dict[Var, dict[Any, int]] = {}  # operations and loads, with their costs, to compute a value anew
        self.folds: list[list[Var]] = []
        for v, e in self.maker.items():
            if v in self.moved:
                self.stage[v] = 0
            else:
                self._date(v, e)
        self.stages = self._number(*self._demand())

    def _resolve(self, x: Atom, e: Eqn) -> Any:
        """An operand: a variable made here, a literal, or an input."""
        if type(x) is Var and x in self.maker:
            return self.moved.get(x, x)
        root, layout = self.a.access(x)
        if not isinstance(root, Var) or root in self.maker:
            return root
        kind = self.space.kind(e.inputs[0].aval.shape if e.prim.kind == "reduce" else e.outputs[0].aval.shape)
        strides = self.space.walk(layout, kind if layout.shape else "scalar")
        assert strides is not None
        return self._input(Input(root, strides, layout.offset))

    def _input(self, key: Input) -> Input:
        self.inputs.setdefault(key, len(self.inputs))
        return key

    def _gather(self, e: Eqn) -> RowGather:
        found = gather_in_rows(self.a, e, self.space, self.maker.__contains__)
        assert found is not None
        return found

    def _gathered(self, v: Var, e: Eqn) -> list[Any]:
        """The operands of a gather: the array, a code, and of each index where it lies, positions and stride.

        One that a row has a single place of is an input that moves, and its result is that.
        """
        g, kind = self.gathers[v], self.kinds[v]
        parts: list[tuple[Any, int, int]] = []
        for i in g.views.indices:
            if i.atom in self.maker:
                parts.append((i.atom, i.length, i.stride))
                continue
            root, strides = self.a.root(i.atom), self.space.walk(i.layout, kind)
            assert isinstance(root, Var) and strides is not None
            parts.append((self._input(Input(root, strides, i.layout.offset, (), g.moves)), i.length, i.stride))
        if g.moves:
            self.moved[v] = self._input(Input(g.views.root, g.strides, g.views.layout.offset, tuple(parts)))
            return []
        x = self._input(Input(g.views.root, g.strides, g.views.layout.offset, by=v))
        words = [w for part, *numbers in parts for w in (part, *(Lit(np.int64(n)) for n in numbers))]
        return [x, Lit(np.int64(0)), *words]

    # ---- in which pass -----------------------------------------------------------------------------------------------------

    def _date(self, v: Var, e: Eqn) -> None:
        """The first pass that can compute a full value; the first that can use a row's one."""
        first = max([self.stage[x] for x in self.args[v] if type(x) is Var], default=0)
        if e.prim.kind == "reduce":
            lanes = self._lanes(v)
            while first < len(self.folds) and any(self._lanes(u) != lanes for u in self.folds[first]):
                first += 1
            self.folds += [[] for _ in range(first + 1 - len(self.folds))]
            self.folds[first].append(v)
            first += 1
        elif self.keep and self.kinds[v] == "full":
            self.again[v] = {v: cost(e.prim)}
            for x in self.args[v]:
                if self._is_full(x):
                    self.again[v].update({(x, "kept"): 1} if self._keeps(x) else self.again[x])
                elif type(x) is Input and x.strides[-1]:
                    self.again[v][x] = 1
        self.stage[v] = first

    def _lanes(self, v: Var) -> int:
        return lanes_of_reduction(self.maker[v].inputs[0].aval.dtype)

    def _keeps(self, v: Var) -> bool:
        return self.keep and sum(self.again[v].values()) >= _KEEP

    def _demand(self) -> tuple[list[set[Var]], list[set[Var]]]:
        """For every pass, what it computes and what it keeps; found from the last pass to the first."""
        passes = 1 + max([self.stage[v] for v in self.full] + [len(self.folds) - 1])
        computed: list[set[Var]] = [set() for _ in range(passes)]
        keeps: list[set[Var]] = [set() for _ in range(passes)]
        self.folds += [[] for _ in range(passes - len(self.folds))]
        for q in range(passes - 1, -1, -1):
            stack = [v for v in self.full if self.stage[v] == q] + list(keeps[q])
            stack += [x for r in self.folds[q] for x in self.args[r] if self._is_full(x)]
            while stack:
                v = stack.pop()
                if v in computed[q] or v in self.moved:
                    continue
                if self.stage[v] < q and self._keeps(v):
                    keeps[self.stage[v]].add(v)
                    continue
                computed[q].add(v)
                stack += [x for x in self.args[v] if self._is_full(x)]
        return computed, keeps

    def _is_full(self, x: Any) -> bool:
        return type(x) is Var and self.kinds[x] == "full"

    # ---- the stages --------------------------------------------------------------------------------------------------------

    def _number(self, computed: list[set[Var]], keeps: list[set[Var]]) -> list[Stage]:
        self.number: dict[Var, int] = {}  # of values that outlive their pass
        count, passes = len(self.inputs), len(computed)
        self.number.update((v, self.inputs[key]) for v, key in self.moved.items())
        singles = [
            v for v, e in self.maker.items() if self.kinds[v] != "full" and e.prim.kind != "reduce" and v not in self.moved
        ]
        stages = []
        for q in range(passes + 1):
            before = [v for v in singles if min(self.stage[v], passes) == q]
            ops: list[Op] = []
            for v in before:
                ops.append(self._op(v, self.number))
                self.number[v] = count + len(ops) - 1
            count += len(ops)
            if q == passes:
                stages += [Stage(tuple(ops))] if ops else []
                break
            local = dict(self.number)
            body: list[Op] = []
            for v in sorted(computed[q], key=self.order.__getitem__):
                body.append(self._op(v, local))
                local[v] = count + len(body) - 1
            count += len(body)
            kept = sorted(keeps[q], key=self.order.__getitem__)
            self.number.update((v, local[v]) for v in kept)
            folds = [self._fold(r, local) for r in self.folds[q]]
            stores = tuple((local[v], i) for i, v in enumerate(self.full) if self.stage[v] == q)
            stages.append(Stage(tuple(ops), tuple(body), tuple(folds), stores, tuple(local[v] for v in kept)))
            self.number.update((r, count + i) for i, r in enumerate(self.folds[q]))
            count += len(folds)
        return stages

    def _ref(self, x: Any, local: dict[Var, int]) -> int | Lit:
        return local[x] if type(x) is Var else x if type(x) is Lit else self.inputs[x]

    def _op(self, v: Var, local: dict[Var, int]) -> Op:
        e = self.maker[v]
        args = tuple([self._ref(x, local) for x in self.args[v]])
        if v in self.gathers:
            self.read.append(e)
            return Op(e.prim, (), args, v.aval.dtype)
        return Op(e.prim, sorted_params(e), args, v.aval.dtype)

    def _fold(self, v: Var, local: dict[Var, int]) -> Fold:
        (x,) = self.args[v]
        return Fold(self.maker[v].prim, self._ref(x, local), self.maker[v].inputs[0].aval.dtype)

    # ---- what a kernel and its plan need -------------------------------------------------------------------------------------

    def places(self) -> list[Place]:
        """How inputs and outputs along rows lie over the space."""
        out = [row_place(x.strides, x.offset, element_dtype(x.root.aval.dtype).itemsize, x.place) for x in self.inputs]
        for v in self.full:
            strides = self.space.walk(contiguous(v.aval.shape, v.aval.dtype.itemsize), "full")
            assert strides is not None
            out.append(row_place(strides, 0, v.aval.dtype.itemsize))
        return out

    def modes(self, modes: Sequence[str]) -> list[str]:
        """The modes of operands, with those that are read at computed places."""
        taken = ["indirect" if x.by is not None else m for x, m in zip(self.inputs, modes, strict=False)]
        return [*taken, *modes[len(taken) :]]

    def moves(self) -> tuple[list[Moved], list[Eqn]]:
        """The operands that move, and the gathers that the kernel has, in the order of their codes."""
        moved = [
            Moved(self.inputs[x], zero, tuple((self.inputs[i], Lit(np.int64(n)), Lit(np.int64(s))) for i, n, s in x.indices))
            for x in dict.fromkeys(self.moved.values())
            for zero in [Lit(np.int64(0))]
        ]
        eqns = {x: self.maker[v] for v, x in reversed(self.moved.items())}
        return moved, [*(eqns[x] for x in dict.fromkeys(self.moved.values())), *self.read]

    def end_places(self) -> list[Place]:
        """How the outputs of one value a row lie."""
        sizes = [v.aval.dtype.itemsize for v in self.ends]
        return [Place((*contiguous(self.space.rows, size).strides, 0), 0, size) for size in sizes]

    def without_keeping(self) -> Rows:
        """The same, every pass computing what it needs anew."""
        if not any(s.keeps for s in self.stages):
            return self
        return Rows(self.a, list(self.maker.values()), [*self.full, *self.ends], self.space, keep=False)

    @property
    def lanes(self) -> int:
        """Elements of a vector, as the kernel will have it."""
        touched = [x for v, e in self.maker.items() for x in ((v,) if v in self.moved else (*e.inputs, *e.outputs))]
        sizes = [x.aval.dtype.itemsize for x in touched]
        return 16 if max(sizes) <= 4 else 8

    @property
    def needs_cache(self) -> bool:
        """Whether there is more than one pass."""
        return sum(s.passes for s in self.stages) > 1

    @property
    def row_bytes(self) -> int:
        """Bytes of a row that have to stay in cache from pass to pass."""
        each = [p.itemsize for p in self.places() if p.strides[-1] or p.along is not None]
        return self.space.n * sum(each) + self.kept_bytes

    @property
    def kept_bytes(self) -> int:
        """Bytes of a row's kept values."""
        kept = [v for v in self.number if self.kinds[v] == "full" and v not in self.moved]
        return self.space.n * sum(v.aval.dtype.itemsize for v in kept)
