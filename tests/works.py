"""A program, its answer op by op, and the comparison of every way to run it compiled: fused or not, among any number of threads.

The fixture `cut_finely` has small programs shared out too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

import fxgrad as fx
from fxgrad.compile import lower
from fxgrad.compile.lower import Executable
from fxgrad.ir.program import Program
from fxgrad.runtime import team
from fxgrad.runtime.eager import EagerPlan
from fxgrad.runtime.table import CHUNK_BITS, TEAM, TICKET
from fxgrad.testing.bits import assert_same_bits
from fxgrad.tree import leaves
from tests.programs import check_ownership

F = Callable[..., Any]
THREADS = (1, 2, 3, 8)


class Work(NamedTuple):
    """A program, what it is run on, and the answer."""

    what: str
    program: Program
    arrays: list[Any]
    answer: list[Any]


def work(what: str, f: F, *args: Any, answer: Any = None) -> Work:
    """What `f` does with the arguments; the answer is by default that of its operations one by one."""
    program = fx.make_ir(f)(*args)
    arrays = [*program.consts, *leaves(args)]
    if answer is None:
        answer = EagerPlan(program).run(arrays)
    return Work(what, program, arrays, [np.asarray(x) for x in leaves(answer)])


def shared_steps() -> int:
    """How many steps the present team has shared among its threads."""
    return int(team._teams[-1].words[TICKET]) >> 2 * CHUNK_BITS if team.settings[TEAM] else 0


def can_be_shared(executable: Executable, grain: int | None) -> bool:
    """Whether a step has work for two threads, of `grain` units or (None) as much as its plan says is worth one."""
    plans = [s.launches[s.lead].plan for s in executable.steps if s.launches]
    return any(p[1] and p[0] >= 2 * (grain or p[1]) for p in plans)


def check(works: Iterable[Work], use_threads: Callable[[int], None], grain: int | None = 1) -> int:
    """All works, fused and not, with every number of threads; how many of these programs a team shared."""
    todo = []
    for w in works:
        for fusion in (True, False):
            executable = lower._compile(w.program, fusion)
            todo.append((w, f"{w.what}, {'fused' if fusion else 'not fused'}", executable, can_be_shared(executable, grain)))
    for n in THREADS:
        use_threads(n)
        for w, what, executable, shared in todo:
            before, start = [np.asarray(x).tobytes() for x in w.arrays], shared_steps()
            found = executable(*w.arrays)
            assert_same_bits(found, w.answer, f"{what}, {n} threads")
            assert [np.asarray(x).tobytes() for x in w.arrays] == before, f"{what} wrote to an operand"
            check_ownership(found, w.arrays, w.program)
            assert shared_steps() > start or n == 1 or not shared, f"{what}: {n} threads, but no step was shared"
    return sum(t[3] for t in todo)
