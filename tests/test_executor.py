"""Tables of steps and the native routine that runs them: control flow, statuses, checks, runs cut into slices."""

from __future__ import annotations

import itertools
import sys

import numpy as np
import pytest

from fxgrad.compile.cache import kernel_addresses
from fxgrad.compile.layout import Place, map_plan
from fxgrad.ir.types import Aval
from fxgrad.kernels.spec import Kernel, Op, Operand
from fxgrad.primitives import elementwise as E
from fxgrad.runtime import launch as native
from fxgrad.runtime import team
from fxgrad.runtime.table import SLICE, UNFIT, Move, Run, Table
from fxgrad.runtime.table import Operand as At

I64 = np.dtype(np.int64)
SPACE = 256


class Program:
    """A table under construction whose slots are `slots` arrays and work space, and its runs."""

    def __init__(self, slots=1, avals=(), status=-1):
        self.table = Table(avals, slots + 1, status)
        self.work = slots

    def copy(self, source, target, nbytes=8, grain=0):
        self.table.pipeline([Run(native.copy_kernel, np.array([nbytes, grain], np.int64), [source, target])])

    def fill(self, target, value, words=1):
        self.table.pipeline([Run(native.fill_kernel, np.array([words, 0, value, 0], np.int64), [target])])

    def add(self, target, value):
        """The word at `target` grows by the word at `value`."""
        kernel, plan = binary(E.add)
        self.table.pipeline([Run(kernel, plan, [target, value, target])])

    def bind(self):
        return native.bind(self.table.finish(team.settings.ctypes.data))

    def run(self, *arrays):
        run = self.bind()
        operands = (*arrays, np.zeros(SPACE, np.uint8))
        native.resume(run, run(*operands), operands)
        return operands[-1].view(np.int64)


def binary(prim, dtype=I64, out=None, n=1):
    """The kernel and the plan of an operation on two contiguous arrays."""
    out = dtype if out is None else np.dtype(out)
    modes, plan = map_plan((n,), [Place((x.itemsize,), 0, x.itemsize) for x in (dtype, dtype, out)], 1)
    operands = [Operand(x, m) for x, m in zip((dtype, dtype, out), modes, strict=True)]
    kernel = Kernel("map", operands[:2], [Op(prim, (), (0, 1), out)], [2], operands[2:])
    return kernel_addresses([kernel])[0], plan


# ---- control -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("turns", [0, 1, 7])
def test_a_counted_loop_moves_its_operands(turns):
    p = Program()
    with p.table.loop(0, turns):
        p.copy(At(p.work, 0), At(0, 0, (Move(0, 8),)))
    out = np.full(8, -1)
    work = p.run(out)
    assert out.tolist() == [*range(turns), *[-1] * (8 - turns)] and work[0] == turns


def test_loops_nest_and_carry_values():
    """x = 0; for i in 0..4: for j in 0..3: x += i; out[i, j] = x."""
    p = Program()
    i, j, x = 0, 8, 16
    with p.table.loop(i, 4):
        with p.table.loop(j, 3):
            p.add(At(p.work, x), At(p.work, i))
            p.copy(At(p.work, x), At(p.work, 64, (Move(j, 8),)))
        p.copy(At(p.work, 64), At(0, 0, (Move(i, 24),)), nbytes=24)
    out = np.zeros((4, 3), np.int64)
    p.run(out)
    want = np.cumsum(np.repeat(np.arange(4), 3)).reshape(4, 3)
    assert np.array_equal(out, want)


def test_a_loop_while_something_holds():
    """while x < limit: x += step."""
    less, plan = binary(E.lt, out=np.bool_)
    for limit, step, want in ((10, 3, 12), (0, 3, 0), (-5, 1, 0), (9, 3, 9)):
        p = Program()

        def compare(p=p):
            p.table.pipeline([Run(less, plan, [At(p.work, 0), At(0, 0), At(p.work, 32)])])

        with p.table.loop_while(At(p.work, 32), 40, compare):
            p.add(At(p.work, 0), At(0, 8))
        work = p.run(np.array([limit, step]))
        assert work[0] == want and work[5] == -(-max(limit, 0) // step)


def test_operands_move_with_several_loops_and_change_places():
    """out[i, j] = x[j, i]; and two words take turns."""
    p = Program(2)
    i, j = 0, 8
    with p.table.loop(i, 3), p.table.loop(j, 4):
        p.copy(At(0, 0, (Move(j, 24), Move(i, 8))), At(1, 0, (Move(i, 32), Move(j, 8))))
        p.add(At(p.work, 16, (Move(j, 8, 1),)), At(1, 0))
    x, out = np.arange(12).reshape(4, 3) + 5, np.zeros((3, 4), np.int64)
    work = p.run(x, out)
    assert np.array_equal(out, x.T) and work[2:4].tolist() == [30, 30]


@pytest.mark.parametrize("dtype", [np.bool_, np.int32])
def test_a_branch_reads_narrow_integers(dtype):
    p = Program()
    with p.table.branch(At(0, 0), 2, np.dtype(dtype).itemsize) as arms:
        for arm in arms:
            p.fill(At(p.work, 0), 100 + arm)
    assert [p.run(np.array([v], dtype))[0] for v in (0, 1)] == [100, 101]
    if dtype is np.int32:
        assert p.run(np.array([-7], dtype))[0] == 100 and p.run(np.array([9], dtype))[0] == 101


@pytest.mark.parametrize("index", [-3, 0, 1, 2, 9])
def test_a_branch_runs_one_arm(index):
    p = Program()
    with p.table.branch(At(0, 0), 3) as arms:
        for arm in arms:
            p.fill(At(p.work, 8 * arm), 100 + arm)
            if arm == 1:
                with p.table.loop(64, 5):
                    p.add(At(p.work, 8), At(0, 8))
    p.fill(At(p.work, 32), 7)
    work = p.run(np.array([index, 2]))
    arm = min(max(index, 0), 2)
    assert work[arm] == (111 if arm == 1 else 100 + arm) and np.count_nonzero(work[:3]) == 1 and work[4] == 7


def test_an_empty_program_does_nothing():
    assert not Program().run(np.zeros(1)).any()


# ---- statuses and checks -----------------------------------------------------------------------------------------------


def test_a_status_stops_the_run():
    p = Program(status=128)
    p.fill(At(0, 0), 1)
    p.copy(At(0, 16), At(p.work, 128))
    p.fill(At(0, 8), 1)
    for status in (0, 5):
        out = np.array([0, 0, status])
        if status:
            with pytest.raises(native.KernelStatus, match="status 5") as caught:
                p.run(out)
            assert caught.value.status == 5
        else:
            p.run(out)
        assert out.tolist() == [1, int(not status), status]


def test_arguments_are_checked_before_anything_runs():
    p = Program(2, [Aval((2, 3), np.float32)])
    p.fill(At(1, 0), 1)
    run, work = p.bind(), np.zeros(SPACE, np.uint8)
    good = np.zeros((2, 3), np.float32)
    bad = [good.T, good.astype("f8"), good[0], good.reshape(3, 2), good[:, ::-1], np.float32(0), None, [good], good.astype(">f4")]
    for x, fine in [(good, True), *zip(bad, itertools.repeat(False), strict=False)]:
        out = np.zeros(1, np.int64)
        assert run(x, out, work) == (None if fine else UNFIT)
        assert out[0] == fine
    with pytest.raises(ValueError, match="not as expected"):
        native.resume(run, UNFIT, (good.T, np.zeros(1), work))


def test_calls_leave_reference_counts_alone():
    p = Program()
    p.fill(At(0, 0), 1)
    run, x, work = p.bind(), np.zeros(1), np.zeros(SPACE, np.uint8)
    before = sys.getrefcount(None), sys.getrefcount(x), sys.getrefcount(run)
    for _ in range(10_000):
        run(x, work)
    after = sys.getrefcount(None), sys.getrefcount(x), sys.getrefcount(run)
    assert all(abs(a - b) < 100 for a, b in zip(before, after, strict=True))


# ---- memory kernels ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("n", [1, 7, 8, 9, 100_003])
def test_fills_and_copies(n, threads, use_threads):
    use_threads(threads)
    x = np.random.default_rng(0).integers(0, 255, n, dtype=np.uint8)
    out = np.zeros((2, n + 16), np.uint8)
    p = Program(2)
    p.copy(At(0, 0), At(1, 8), n, grain=4096)
    plan = np.array([-(-n // 8), 512, 0x0807060504030201, n % 8], np.int64)
    p.table.pipeline([Run(native.fill_kernel, plan, [At(1, n + 16 + 8)])])
    p.run(x, out)
    assert np.array_equal(out[0, 8:-8], x) and np.array_equal(out[1, 8:-8], np.resize(np.arange(1, 9), n))
    assert not out[:, :8].any() and not out[:, -8:].any()


# ---- slices ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_run_cut_into_slices_gives_the_same(threads, use_threads):
    """With no time at all, every chunk ends a slice: each step goes on where it stopped, and does nothing twice."""
    use_threads(threads)
    n = 200_000
    kernel, plan = binary(E.add, n=n)
    p = Program(2)
    with p.table.loop(0, 3):
        p.table.pipeline([Run(kernel, plan, [At(0, 0), At(1, 0), At(0, 0)])])
    x, y = np.arange(n), np.arange(n)[::-1].copy()
    run, operands = p.bind(), (x, y, np.zeros(SPACE, np.uint8))
    slices = 0

    def counted(*args):
        nonlocal slices
        slices += 1
        return run(*args)

    length = team.settings[SLICE]
    team.settings[SLICE] = 0
    try:
        native.resume(counted, counted(*operands), operands)
    finally:
        team.settings[SLICE] = length
    assert np.array_equal(x, np.arange(n) + 3 * y) and slices > 6


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_pipelines_run_rows_in_step(threads, use_threads):
    """The second kernel of a pipeline finds the rows that the first has written; batches of 5 rows in units of 2."""
    use_threads(threads)
    batches, rows, width = 40, 5, 1000
    units, n = 3, batches * rows * width
    (add, plan), scale = binary(E.add, n=n), width
    unit_plan = plan.copy()
    unit_plan[:2] = batches * units, 1
    # the lead counts units of rows itself here by copying whole rows: a copy kernel with scale
    p = Program(3)
    copy = np.array([batches * units, 1], np.int64)
    p.table.pipeline(
        [
            Run(native.copy_kernel, copy, [At(0, 0), At(3, 0)]),
            Run(native.copy_kernel, copy, [At(0, 0), At(1, 0)], scale=8 * width),
            Run(add, unit_plan, [At(1, 0), At(1, 0), At(2, 0)], scale=scale),
        ],
        (units, 2, rows),
        1,
    )
    x = np.arange(n)
    y, z = np.zeros_like(x), np.zeros_like(x)
    p.run(x, y, z)
    assert np.array_equal(y, x) and np.array_equal(z, 2 * x)
