"""Where the values of a compiled program lie: liveness, reuse in place, offsets in one arena.

A value that a step writes lives from that step to the last one that reads it. Values that are never alive together share memory,
and a map kernel may write its result over an operand that nobody needs after it, when it visits both element by element in the
same order: each vector is read before it is written, in whatever chunks and on whatever threads the kernel runs. Such values form
a chain that lies in one place: in a result if its last member is one, in a donated argument if its first is one, or in the arena.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fxgrad.compile.kernelize import Launch
from fxgrad.ir.types import Aval, Var

if TYPE_CHECKING:
    from fxgrad.compile.lower import Step

__all__ = ["Memory", "Place", "plan_memory"]

ALIGNMENT = 64
_LARGE = 1 << 20  # bytes of an arena that are worth a second look
_FEW = 2000  # chains: what an order costs grows with their square
_HEADER, _NDIM = 6, 3  # of the plan of a map kernel: words before the sizes, and which of them is their number
_PAST = 2  # of an operand's record: whether stores to it bypass the caches


class Place(NamedTuple):
    """`space` is argument, result, arena or block; `number` tells which argument or result; `offset` is in bytes.

    A block is memory for some rows of a pipeline, which its kernels hand on; there `number` is the bytes a row.
    """

    space: str
    number: int
    offset: int = 0


class Memory(NamedTuple):
    """Where every value lies that kernels touch, but those that library calls made; the arena's size; results in arguments.

    `lives` has the first and the last step of each value in the arena.
    """

    places: dict[Var, Place]
    arena: int
    donated: dict[int, int]  # result -> the argument whose memory it takes
    lives: dict[Var, tuple[int, int]]


class _Chain:
    """Values one after the other in the same memory."""

    def __init__(self, v: Var, birth: int, death: int):
        self.values, self.birth, self.death = [v], birth, death

    @property
    def size(self) -> int:
        return self.values[0].aval.nbytes


def plan_memory(
    steps: Sequence[Step],
    inputs: Sequence[Var],
    results: Mapping[Var, int],
    kept: Iterable[Var] = (),
    donated: Iterable[int] = (),
    reuse: bool = True,
    carries: Mapping[int, int] | None = None,
) -> Memory:
    """Places for the values of a program.

    Args:
        steps: in the order in which they run.
        inputs: the arguments.
        results: the values that are results, and which.
        kept: other values that must last to the end.
        donated: numbers of arguments whose memory may be reused.
        reuse: False gives every value memory of its own (for tests).
        carries: of the body of a loop, the argument that a result is the next value of: its memory may be reused, but of all
            results this one alone may end there.
    Returns:
        The places.
    """
    birth = {v: i for i, s in enumerate(steps) if s.kind != "host" for v in (*s.writes, *s.scratch)}
    death = {v: i for i, s in enumerate(steps) for v in (*s.writes, *s.scratch, *s.reads)} | dict.fromkeys(results, len(steps))
    death |= dict.fromkeys(kept, len(steps))
    if any(birth.get(v, -1) > i for i, s in enumerate(steps) for v in s.reads):
        raise AssertionError("a step reads what a later one writes")
    shared = {v for s in steps if s.kind == "host" for v in s.reads}  # what a library call answers may be a view of them
    shared |= {*kept, *results}
    given = {inputs[i]: i for i in (donated if carries is None else carries.values()) if inputs[i] not in shared}
    chains = {v: _Chain(v, b, death[v]) for v, b in birth.items()}
    chains |= {v: _Chain(v, -1, death.get(v, -1)) for v in given}

    def fits(old: _Chain, w: Var) -> bool:
        first = given.get(old.values[0])
        return first is None or carries is None or w not in results or carries.get(results[w]) == first

    for i, step in enumerate(steps):
        for launch in step.launches:
            for v, before in launch.over:
                _follow(chains, v, before)
            if reuse:
                _join(i, step, launch, chains, death, fits, given, results)
        if reuse:
            _join_copies(i, step, chains, death, fits)
    places = _passing_places(steps, chains) if reuse else {}
    return _settle(
        [c for c in dict.fromkeys(chains.values()) if c.values[0] not in places], inputs, results, given, places, reuse, carries
    )


# ---- in place --------------------------------------------------------------------------------------------------------------


_Fits = Callable[[_Chain, Var], bool]  # whether a value may join a chain


def _join(
    i: int, step: Step, launch: Launch, chains: dict[Var, _Chain], death: Mapping[Var, int], fits: _Fits,
    given: Mapping[Var, int], results: Mapping[Var, int],
) -> None:  # fmt: skip
    """Let each result of a map kernel take the place of an operand that dies in this step, where that is possible.

    Of the program's results it is one that was given to it, if there is one: the arena is not theirs to end in.
    """
    if getattr(launch.kernel, "form", None) != "map":
        return
    others = [v for other in step.launches if other is not launch for v in other.reads]
    partly = {v for v, _ in launch.over}
    for w in launch.writes:
        if w in partly:
            continue
        for v in sorted(dict.fromkeys(launch.reads), key=lambda v: v not in given or w not in results):
            old = chains.get(v)
            if old is None or death[v] != i or v in others or old.values[-1] is not v:
                continue
            if old is not chains[w] and fits(old, w) and _same_walk(launch, v, w):
                _append(old, w, chains)
                _record(launch, w)[_PAST] = 0  # its lines are in cache: they have just been read
                break


def _append(old: _Chain, w: Var, chains: dict[Var, _Chain]) -> None:
    new = chains[w]
    old.values += new.values
    old.death = new.death
    for x in new.values:
        chains[x] = old


def _follow(chains: dict[Var, _Chain], v: Var, before: Var) -> None:
    """A value that is another one with a part written anew lies where that lay."""
    old = chains[before]
    if old.values[-1] is not before:
        raise AssertionError("two values are to take one's memory")
    _append(old, v, chains)


def _join_copies(i: int, step: Step, chains: dict[Var, _Chain], death: Mapping[Var, int], fits: _Fits) -> None:
    """Let what would begin as a copy of a value lie where that lies, if it dies in this step and nothing else there reads it."""
    for v, w in step.in_place:
        old = chains.get(v)
        if old is None or death[v] != i or step.reads.count(v) != 1 or old.values[-1] is not v:
            continue
        if old is not chains[w] and v.aval.nbytes == w.aval.nbytes and fits(old, w):
            _append(old, w, chains)


def _same_walk(launch: Launch, v: Var, w: Var) -> bool:
    """Whether a map kernel, whenever it reads v, reads it where it writes w."""
    if v.aval.nbytes != w.aval.nbytes or v.aval.dtype.itemsize != w.aval.dtype.itemsize:
        return False
    written = _record(launch, w).copy()
    written[_PAST] = 0
    records = _records(launch)
    return all(bool(np.array_equal(r, written)) for x, r in zip(launch.reads, records, strict=False) if x is v)


def _records(launch: Launch) -> np.ndarray:
    """Offset, strides and the flag for stores past the caches, a row for each operand; a view of the plan."""
    ndim = int(launch.plan[_NDIM])
    start, width, count = _HEADER + ndim, ndim + 3, len(launch.reads) + len(launch.writes)
    return launch.plan[start : start + width * count].reshape(-1, width)


def _record(launch: Launch, w: Var) -> np.ndarray:
    return _records(launch)[len(launch.reads) + launch.writes.index(w)]


# ---- what passes from kernel to kernel -------------------------------------------------------------------------------------


def _passing_places(steps: Sequence[Step], chains: dict[Var, _Chain]) -> dict[Var, Place]:
    """Places for chains that only kernels of the pipeline that makes them see: room for a block of rows, not for all.

    So they stay in cache. The room of the calling thread becomes a value of the arena; the others have memory of their own.
    """
    places: dict[Var, Place] = {}
    for i, step in enumerate(steps):
        if not step.block:
            continue
        handed = {v for launch in step.launches for v in launch.reads}
        rows, end = step.block * max(1, step.rows[1]), 0
        for v in step.writes:
            c = chains[v]
            if v not in places and c.birth == c.death == i and handed.issuperset(c.values):
                row = v.aval.nbytes // step.all_rows
                places |= dict.fromkeys(c.values, Place("block", row, end))
                end += -(-row * rows // ALIGNMENT) * ALIGNMENT
        for launch in step.launches:
            if getattr(launch.kernel, "form", None) == "map":
                for v in launch.writes:
                    if v in places:
                        _record(launch, v)[_PAST] = 0
        if end:
            step.room = Var(Aval((end,), np.dtype(np.uint8)))
            chains[step.room] = _Chain(step.room, i, i)
    return places


# ---- places ----------------------------------------------------------------------------------------------------------------


def _settle(
    chains: list[_Chain], inputs: Sequence[Var], results: Mapping[Var, int], given: Mapping[Var, int], places: dict[Var, Place],
    reuse: bool, carries: Mapping[int, int] | None,
) -> Memory:  # fmt: skip
    places |= {v: Place("argument", i) for i, v in enumerate(inputs)}
    donated: dict[int, int] = {}
    free = {given[c.values[0]]: c for c in chains if c.values[0] in given and c.values[-1] not in results}
    inside: list[_Chain] = []
    for c in chains:
        first, last = c.values[0], c.values[-1]
        if first in given:
            place = Place("argument", given[first])
        elif last in results:
            wanted = None if carries is None else carries.get(results[last], -1)
            place = (_in_argument(c, free, wanted) if reuse else None) or Place("result", results[last])
        else:
            inside.append(c)
            continue
        if place.space == "argument" and last in results:
            donated[results[last]] = place.number
        places |= dict.fromkeys(c.values, place)
    offsets, size = _offsets(inside, reuse)
    for c, offset in zip(inside, offsets, strict=True):
        places |= dict.fromkeys(c.values, Place("arena", 0, offset))
    return Memory(places, size, donated, {v: (c.birth, c.death) for c in inside for v in c.values})


def _in_argument(c: _Chain, free: dict[int, _Chain], wanted: int | None) -> Place | None:
    """A donated argument of the size of a result (the one `wanted`, if any), no longer needed when the result is begun."""
    for index, old in free.items():
        v = old.values[0]
        if wanted is not None and index != wanted:
            continue
        if old.size == c.size and v.aval.dtype == c.values[-1].aval.dtype and old.death < c.birth:
            del free[index]
            return Place("argument", index)
    return None


def _offsets(chains: Sequence[_Chain], reuse: bool) -> tuple[list[int], int]:
    """Offsets in the arena, and its size: the largest first, each in the smallest gap that is free while it lives.

    A large arena is laid out in other orders too, for the smallest: of chains of about the same size those that live longest
    first, and by size times the root of the life.
    """
    count = len(chains)
    sizes = [max(ALIGNMENT, -(-c.size // ALIGNMENT) * ALIGNMENT) for c in chains]
    births, deaths = np.array([c.birth for c in chains]), np.array([c.death for c in chains])
    lives = [c.death - c.birth + 1 for c in chains]

    def by_size(i: int) -> tuple[float, ...]:
        return -sizes[i], chains[i].birth

    def by_class(i: int) -> tuple[float, ...]:
        return -sizes[i].bit_length(), -lives[i], chains[i].birth

    def by_both(i: int) -> tuple[float, ...]:
        return -sizes[i] * math.sqrt(lives[i]), chains[i].birth

    def beside(i: int) -> list[int]:
        """The chains that are there at some time when chain i is."""
        return np.flatnonzero((births <= deaths[i]) & (births[i] <= deaths)).tolist() if reuse else list(range(count))

    if count > _FEW:
        return _laid_out(sorted(range(count), key=by_size), sizes, beside)
    neighbours = [beside(i) for i in range(count)]
    best = _laid_out(sorted(range(count), key=by_size), sizes, neighbours.__getitem__)
    for key in (by_class, by_both) if reuse and best[1] >= _LARGE else ():
        best = min(best, _laid_out(sorted(range(count), key=key), sizes, neighbours.__getitem__), key=lambda found: found[1])
    return best


def _laid_out(order: Sequence[int], sizes: Sequence[int], beside: Callable[[int], list[int]]) -> tuple[list[int], int]:
    """Offsets of the chains placed in this order, and where the last one ends; `beside` tells which may not overlap."""
    offsets = [-1] * len(sizes)
    last = 0
    for i in order:
        taken = sorted([(offsets[j], offsets[j] + sizes[j]) for j in beside(i) if offsets[j] >= 0])
        offsets[i] = _gap(taken, sizes[i])
        last = max(last, offsets[i] + sizes[i])
    return offsets, last


def _gap(taken: Sequence[tuple[int, int]], size: int) -> int:
    best: tuple[int, int] | None = None
    end = 0
    for start, stop in taken:
        if start > end and start - end >= size and (best is None or start - end < best[0]):
            best = start - end, end
        if stop > end:
            end = stop
    return end if best is None else best[1]
