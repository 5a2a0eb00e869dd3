"""Kernels that follow a matrix product row by row, or lead to it, run with it: one after the other on some rows, while in cache.

So products get their epilogues (bias, activation, residual, softmax of scores) and prologues (normalisation, scale, mask) without
a product kernel being compiled for each. What is computed, and where it is stored, stays the same; only the order of the rows
changes, which changes no bit. A kernel joins if, of every value the pipeline writes, it reads no other row than it is at.

Where products take a small matrix of a batch as a whole, the rows are the matrices: any product of the same batches can follow,
whichever way it reads a matrix (attention and its gradient, head by head).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fxgrad.compile.kernelize import Launch
from fxgrad.ir.types import Var
from fxgrad.kernels.matmul import ALONG, PLAN, MatmulKernel
from fxgrad.kernels.matmul_plan import Matrix
from fxgrad.kernels.spec import Kernel

if TYPE_CHECKING:
    from fxgrad.compile.lower import Step

__all__ = ["pipelines"]

WORTH = 1 << 19  # bytes of a value that goes from one kernel to the next: less stays in cache anyway
_PRODUCTS = (
    2  # in a pipeline: the panels of more would push each other out of the second-level cache (not those of small matrices)
)
_LOOK_AHEAD = 3  # steps that are passed over (another product's packing, say) in search of one that joins
_BLOCK_ROWS, _BLOCK_BYTES = 96, 1 << 19  # rows that go through all kernels together: many for the product, few for the cache
_HEADER = 6  # words of a plan before the sizes: see kernels/loops.py


def pipelines(steps: Sequence[Step]) -> list[Step]:
    """The steps, in an order that may differ where it does not matter, with those that belong together made one."""
    rest = list(reversed(steps))
    out: list[Step] = []
    while rest:
        group = _Group(rest.pop())
        passed: list[Step] = []
        while rest and len(passed) <= _LOOK_AHEAD and group.open:
            step = rest.pop()
            if group.take(step, passed):
                out += passed
                passed = []
            else:
                passed.append(step)
                if not group.independent(step):
                    break
        rest += reversed(passed)
        out += group.steps()
    return out


class _Rows(NamedTuple):
    """How units of a product's work map to rows: `units` a batch, `unit` rows each, of m rows; how many rows there are.

    `whole`: the rows are the matrices of the batch.
    """

    units: int
    unit: int
    m: int
    total: int
    whole: bool


class _Group:
    """A pipeline in the making: its steps, and the values they write row by row."""

    def __init__(self, first: Step):
        self.members, self.rows, self.lead = [first], _rows(first), 0
        self.products = int(self.rows is not None)
        self.written: set[Var] = set(first.writes)
        self.open = len(first.launches) == 1 and (self.rows is not None or isinstance(first.launches[0].kernel, Kernel))
        self.open = self.open and not _changes(first)

    def independent(self, step: Step) -> bool:
        """Whether a step may run before the group."""
        return step.kind == "kernel" and self.written.isdisjoint(step.reads) and not _changes(step)

    def take(self, step: Step, before: Sequence[Step]) -> bool:
        """Make a step part of the group, if it follows row by row and all else it reads is there."""
        mine = [v for v in dict.fromkeys(step.reads) if v in self.written]
        if len(step.launches) != 1 or _changes(step) or not any(v.aval.nbytes >= WORTH for v in mine):
            return False
        rows = self.rows or _rows(step)
        product = isinstance(step.launches[0].kernel, MatmulKernel)
        if rows is None or (product and (_rows(step) != rows or (self.products == _PRODUCTS and not rows.whole))):
            return False
        if not all(_aligned(s.launches[0], v, rows, True) for s in self.members for v in s.writes if v in mine):
            return False
        if not all(_aligned(step.launches[0], v, rows, False) for v in mine):
            return False
        if self.rows is None:
            if len(self.members) > 1 or rows.total % int(self.members[0].launches[0].plan[0]) not in (0, rows.total):
                return False
            self.rows, self.lead = rows, len(self.members)
        self.members.append(step)
        self.products += product
        self.written |= set(step.writes)
        return True

    def steps(self) -> list[Step]:
        """The group as one step, or its only step as it is."""
        if len(self.members) == 1:
            return self.members
        from fxgrad.compile.lower import Step

        assert self.rows is not None
        unit = self.members[self.lead].launches[0]
        inside = {v for s in self.members for v in s.writes}
        step = Step(
            "kernel",
            " | ".join(s.title for s in self.members),
            [why for s in self.members for why in s.why],
            [v for s in self.members for v in s.reads if v not in inside],
            [v for s in self.members for v in s.writes],
        )
        for s in self.members:
            (launch,) = s.launches
            counts = isinstance(launch.kernel, MatmulKernel)
            step.launches.append(launch._replace(scale=0 if counts else int(launch.plan[0]) // self.rows.total))
        step.rows, step.lead, step.all_rows = self.rows[:3], self.lead, self.rows.total
        widest = max(sum(v.aval.nbytes for v in s.reads if v in inside) for s in self.members)
        row_bytes = -(-widest // self.rows.total)
        few = max(1, _BLOCK_BYTES // max(1, row_bytes * self.rows.unit))
        height = _fields(unit)["m"] if self.rows.whole else self.rows.unit
        step.block = max(1, min(-(-_BLOCK_ROWS // height), few, int(unit.plan[0])))
        step.equations = sorted({i for s in self.members for i in s.equations})
        for name in ("bytes_read", "bytes_written", "flops"):
            setattr(step, name, sum(getattr(s, name) for s in self.members))
        return [step]


def _changes(step: Step) -> bool:
    """Whether a step writes over what others read before it, or reads where only it knows: it has to stay where it is."""
    return any(launch.over or launch.codes for launch in step.launches)


def _rows(step: Step) -> _Rows | None:
    """The rows of a product whose units of work are rows, or whole matrices."""
    if len(step.launches) != 1:
        return None
    (launch,) = step.launches
    if not isinstance(launch.kernel, MatmulKernel):
        return None
    p = _fields(launch)
    if p["units"] == 1 < p["extent"] and not p["cut"]:
        return _Rows(1, 1, 1, p["extent"], True)
    if launch.rows is None or (p["pack_b"] == ALONG and p["units"] > 1):  # every piece of work would pack b again
        return None
    units, unit, m = launch.rows
    return _Rows(units, unit, m, p["extent"] // units * m, False)


def _fields(launch: Launch) -> dict[str, int]:
    return dict(zip(PLAN, launch.plan.tolist(), strict=False))


def _aligned(launch: Launch, v: Var, rows: _Rows, written: bool) -> bool:
    """Whether a kernel, at a row, touches of v that row alone."""
    if v.aval.nbytes % rows.total:
        return False
    row = v.aval.nbytes // rows.total
    if isinstance(launch.kernel, MatmulKernel):
        return _product_aligned(launch, v, rows, row, written)
    if not isinstance(launch.kernel, Kernel) or launch.kernel.form not in ("map", "row"):
        return False
    extent, _, count, ndim, n, m = launch.plan[:_HEADER].tolist()
    if extent % rows.total or (launch.kernel.form == "row" and m):
        return False
    operands = [*launch.reads, *launch.writes]
    walked = len(operands) - len(launch.kernel.results) * (launch.kernel.form == "row")
    width = ndim + 3
    records = launch.plan[_HEADER + ndim : _HEADER + ndim + width * walked].reshape(-1, width).tolist()
    per, size = extent // rows.total, v.aval.dtype.itemsize
    for k, x in enumerate(operands):
        if x is not v:
            continue
        if k >= walked:  # one value a unit, in order
            good = per * size == row
        elif launch.kernel.form == "map" and count <= 1:
            good = records[k][0] == 0 and records[k][1] == size and per * size == row
        else:
            good = row % per == 0 and _walks(records[k], launch.plan[_HEADER : _HEADER + ndim], n, row // per, size)
        if not good:
            return False
    return True


def _walks(record: Sequence[int], sizes: np.ndarray, n: int, unit: int, size: int) -> bool:
    """Whether the outer dimensions go from unit to unit of so many bytes in order, and the vectors stay inside one."""
    offset, along, _, *strides = record
    step = unit
    for extent, stride in zip(reversed(sizes.tolist()), reversed(strides), strict=True):
        if extent > 1 and stride != step:
            return False
        step *= extent
    return offset >= 0 and along >= 0 and offset + (n - 1) * along + size <= unit


def _product_aligned(launch: Launch, v: Var, rows: _Rows, row: int, written: bool) -> bool:
    """v is the product's result, or its left operand and nothing else; of whole matrices, either or both operands."""
    names = [n for n, x in zip("ab", launch.reads, strict=False) if x is v] if not written else ["c"]
    if not rows.whole and (names not in (["a"], ["c"]) or [*launch.reads, *launch.writes].count(v) != 1):
        return False
    p, size = _fields(launch), v.aval.dtype.itemsize
    sizes = {"a": (p["m"], p["k"]), "b": (p["k"], p["n"]), "c": (p["m"], p["n"])}
    return all(
        _matrices_aligned({f: p[f"{n}_{f}"] for f in Matrix._fields}, *sizes[n], p["inner"], rows, row, size) for n in names
    )


def _matrices_aligned(x: Mapping[str, int], m: int, n: int, inner: int, rows: _Rows, row: int, size: int) -> bool:
    """Whether matrices of m rows and n columns lie one after the other, a row of so many bytes each."""
    steps = [] if rows.whole else [(m, x["row"], row)]
    inside = (n - 1) * x["column"] + ((m - 1) * x["row"] if rows.whole else 0)
    each = row if rows.whole else m * row
    steps += [(inner, x["inner"], each), (rows.total * row // (inner * each), x["outer"], inner * each)]
    within = x["offset"] >= 0 and min(x["column"], x["row"]) > 0 and x["offset"] + inside + size <= row
    return within and all(count == 1 or step == usual for count, step, usual in steps)
