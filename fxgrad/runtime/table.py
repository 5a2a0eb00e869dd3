"""Tables of steps for the executor: what their words mean, and how they are written.

A program is one int64 array, of which nothing points outside but the addresses of kernels and of constants:

    header | steps | launches | operands | moves | targets of switches | what arguments are expected | plans

The steps:

    pipeline      kernels run one after the other on the same rows, cut into chunks by rows
    set           a word becomes a value
    jump          go to a step
    repeat        a word grows by one; go to a step while it is below a value (the end of a loop)
    unless        go to a step unless a byte is true (a loop while something holds)
    switch        go to the step that an integer of 1, 4 or 8 bytes selects (clamped)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from fxgrad.ir.types import Aval

__all__ = ["Move", "Operand", "Run", "Table", "expected_words"]

# ---- words: of the settings, of a team, of a program's header, of a step -----------------------------------------------------

TEAM, THREADS, SPIN, SLICE, CLOCK, NONE = range(6)

TICKET, DONE, OWNER, SLEEPERS, WAITING, STOP = 0, 8, 16, 24, 32, 33  # the busy ones on cache lines of their own
JOB_STEP, JOB_POINTERS, JOB_START, JOB_GRAIN, JOB_END, TEAM_SETTINGS, CALLERS_CORE = range(40, 47)
MUTEX, WORK, FINISHED, TEAM_WORDS = 48, 64, 80, 96
CHUNK_BITS = 20  # of TICKET: its low bits are the next chunk, as many above it the number of chunks, the rest counts the jobs

EXPECTED, OPERANDS, FLAGS, STEPS, COUNT, SCRATCH, STATUS, SETTINGS, HEADER_WORDS = range(9)
RELEASE, PARALLEL = 1, 2  # flags: worth giving up the GIL; worth several threads

KIND, EXTENT, GRAIN, BLOCK, LAUNCHES, LENGTH, UNITS, UNIT, ROWS, ROOM, STEP_OPERANDS, POINTERS, STEP_WORDS = range(13)
TARGET, VALUE, WIDTH = 1, 2, 3  # of steps of control, in place of extent, grain and block
PIPELINE, SET, REPEAT, JUMP, UNLESS, SWITCH = range(6)
KERNEL, PLAN, SCALE, FIRST_POINTER, LAUNCH_WORDS = range(5)
SLOT, OFFSET, MOVES, FIRST_MOVE, PASSING, OPERAND_WORDS = range(6)
COUNTER, STRIDE, MASK, MOVE_WORDS = range(4)

# ---- what a run answers ------------------------------------------------------------------------------------------------------

UNFIT, START, FIRST_STATUS = -1, -2, 2  # a status s that a step has set is answered as -(s + FIRST_STATUS)
POSITION_BITS = 43  # of a token: (step, unit in the step)


_MANY_STEPS = 64  # small ones take so long together that other threads should have the GIL
ENDLESS = 1 << 62  # turns of a loop that something else ends


class Move(NamedTuple):
    """How a loop moves an operand: by `stride` bytes times a word, at the offset `counter` of the last slot, masked.

    The mask is -1 for a slice of a stacked array, and 1 for what changes place with another at every turn.
    """

    counter: int
    stride: int
    mask: int = -1


class Operand(NamedTuple):
    """Where data lies: `offset` bytes into a slot, an array given to the run; without a slot (-1) the offset is an address.

    The loops around it move it further. Data that only passes from kernel to kernel of a pipeline, `passing` bytes a row, lies in
    the memory that a thread has for a block of rows, from `offset` on.
    """

    slot: int
    offset: int = 0
    moves: tuple[Move, ...] = ()
    passing: int = 0


class Run(NamedTuple):
    """A kernel in a pipeline: its address, its plan, its operands, and its units a row (0: it counts the pipeline's units)."""

    kernel: int
    plan: np.ndarray
    operands: Sequence[Operand]
    scale: int = 0


def expected_words(avals: Sequence[Aval]) -> list[int]:
    """What arguments are compared with: their number, the ndarray type, where each one's record begins; the records.

    A record is the dtype object, the rank, the shape.
    """
    starts: list[int] = []
    records: list[int] = []
    for a in avals:
        starts.append(2 + len(avals) + len(records))
        records += [id(a.dtype), a.ndim, *a.shape]
    return [len(avals), id(np.ndarray), *starts, *records]


class Table:
    """Collects steps; `finish` gives the program's words.

    Args:
        avals: what the leading slots have to be; a run compares them.
        slots: how many arrays a run is given: arguments, results, and last, if counters or a status need it, work space.
        status: offset in the last slot of a word that steps may set to stop the run; -1: none.
    """

    def __init__(self, avals: Sequence[Aval], slots: int, status: int = -1):
        self.avals, self.slots, self.status = list(avals), slots, status
        self.steps: list[list[int]] = []
        self._runs: list[Run] = []
        self._operands: list[Operand] = []
        self._targets: list[int] = []
        self._flags = 0

    def pipeline(
        self, runs: Sequence[Run], rows: tuple[int, int, int] = (0, 0, 0), block: int = 0, lead: int = 0,
        room: int = 0, where: Operand | None = None,
    ) -> None:  # fmt: skip
        """Kernels on the same rows: units of the one numbered `lead` map to rows by `rows`, (units, unit, rows of a batch).

        `block` units at a time go through all kernels (0: a whole chunk), so that what one writes the next finds in cache; what
        passes between them takes `room` bytes a block, for the calling thread at `where`.
        A plan's grain below 0: units follow from one another, one thread does them in order, -grain at a time.
        """
        extent, grain = (int(n) for n in runs[lead].plan[:2])
        pointers = sum(len(r.operands) for r in runs) + (where is not None)
        self.steps.append(
            [PIPELINE, extent, grain, block, len(self._runs), len(runs), *rows, room, len(self._operands), pointers]
        )
        self._runs += runs
        self._operands += [x for r in runs for x in r.operands] + ([] if where is None else [where])
        if grain == 0 or extent >= grain:
            self._flags |= RELEASE
        if grain > 0 and extent >= 2 * grain:
            self._flags |= PARALLEL

    def _control(self, kind: int, operand: Operand | None, target: int = 0, value: int = 0) -> list[int]:
        step = [kind, target, value, 0, 0, 0, 0, 0, 0, 0, len(self._operands), int(operand is not None)]
        if operand is not None:
            self._operands.append(operand)
        self.steps.append(step)
        self._flags |= RELEASE
        return step

    def set(self, place: Operand, value: int) -> None:
        """The word at `place` becomes `value`."""
        self._control(SET, place, value=value)

    @contextmanager
    def loop(self, counter: int, turns: int) -> Iterator[None]:
        """The steps added inside run `turns` times; `counter` is the offset in the last slot of a word that counts."""
        place = Operand(self.slots - 1, counter)
        self.set(place, 0)
        skip = self._control(JUMP, None) if turns <= 0 else None
        head = len(self.steps)
        yield
        self._control(REPEAT, place, head, turns)
        if skip is not None:
            skip[TARGET] = len(self.steps)

    @contextmanager
    def loop_while(self, predicate: Operand, counter: int, test: Callable[[], None] = lambda: None) -> Iterator[None]:
        """The steps added inside run as long as the byte `predicate` is true before them.

        `test` adds the steps that find it; `counter` is the offset in the last slot of a word that counts the turns.
        """
        place = Operand(self.slots - 1, counter)
        self.set(place, 0)
        head = len(self.steps)
        test()
        leave = self._control(UNLESS, predicate)
        yield
        self._control(REPEAT, place, head, ENDLESS)
        leave[TARGET] = len(self.steps)

    @contextmanager
    def branch(self, index: Operand, arms: int, width: int = 8) -> Iterator[Iterator[int]]:
        """One of several groups of steps, selected by `index`, an integer of `width` bytes, clamped.

        To be used as `for arm in b: add its steps`.
        """
        start = len(self._targets)
        self._control(SWITCH, index, start, arms)[WIDTH] = width
        self._targets += [0] * arms
        ends: list[list[int]] = []

        def each() -> Iterator[int]:
            for arm in range(arms):
                self._targets[start + arm] = len(self.steps)
                yield arm
                ends.append(self._control(JUMP, None))

        yield each()
        for end in ends:
            end[TARGET] = len(self.steps)

    def finish(self, settings: int) -> np.ndarray:
        """The words of the program; `settings` is the address of the executor's settings."""
        steps = HEADER_WORDS
        launches = steps + STEP_WORDS * len(self.steps)
        operands = launches + LAUNCH_WORDS * len(self._runs)
        moves = operands + OPERAND_WORDS * len(self._operands)
        targets = moves + MOVE_WORDS * sum(len(x.moves) for x in self._operands)
        expected = targets + len(self._targets)
        checks = expected_words(self.avals)
        plans = expected + len(checks)
        words = np.empty(plans + sum([len(r.plan) for r in self._runs]), np.int64)
        scratch = max([s[POINTERS] for s in self.steps], default=0)
        if len(self.steps) > _MANY_STEPS:
            self._flags |= RELEASE
        words[:HEADER_WORDS] = expected, self.slots, self._flags, steps, len(self.steps), scratch, self.status, settings
        rows: list[int] = []
        for i, step in enumerate(self.steps):
            row = [*step, *[0] * (STEP_WORDS - len(step))]
            row[LAUNCHES] = launches + LAUNCH_WORDS * step[LAUNCHES] - (steps + STEP_WORDS * i)  # from the step on
            row[STEP_OPERANDS] = operands + OPERAND_WORDS * step[STEP_OPERANDS] - (steps + STEP_WORDS * i)
            if step[KIND] == SWITCH:
                row[TARGET] = targets + step[TARGET]
            rows += row
        words[steps:launches] = rows
        words[expected:plans] = checks
        words[targets:expected] = self._targets
        rows = []
        moved: list[int] = []
        for x in self._operands:
            rows += [x.slot, x.offset, len(x.moves), moves + len(moved), x.passing]
            for move in x.moves:
                moved += move
        words[operands:moves] = rows
        words[moves:targets] = moved
        self._write_runs(words, launches, plans)
        return words

    def _write_runs(self, words: np.ndarray, launches: int, plans: int) -> None:
        start = words.ctypes.data
        first: dict[int, int] = {}  # pointers are counted within a step
        for step in self.steps:
            if step[KIND] == PIPELINE:
                count = 0
                for i in range(step[LAUNCHES], step[LAUNCHES] + step[LENGTH]):
                    first[i] = count
                    count += len(self._runs[i].operands)
        for i, r in enumerate(self._runs):
            row = launches + LAUNCH_WORDS * i
            words[row : row + LAUNCH_WORDS] = r.kernel, start + 8 * plans, r.scale, first[i]
            words[plans : plans + len(r.plan)] = r.plan
            plans += len(r.plan)
