"""The executor: one native routine that runs a table of steps, and the team of threads that helps it.

numba compiles this file once for a machine (`launch.py` asks for it, `compile/native.py` keeps the code); it works on addresses
and 64-bit words. `table.py` writes the tables and says what their fields mean, `team.py` starts the threads.

**A run.** `run` compares the arguments with what the program expects, then follows the steps. It keeps the GIL when there is
little to do. It answers 0; or UNFIT, nothing done; or START, nothing done, the team's threads are wanted first; or a
negative status that a step has set; or, after SLICE nanoseconds, the place where it stopped, to be called with again: in between
Python handles signals, and if that raises, the call ends there.

**The team.** A step is cut into chunks of whole grains. Workers and caller draw them from one word, TICKET, which holds
(generation, number of chunks, next chunk): adding 1 draws a chunk and tells, in one atomic operation, which job it belongs to and
whether it exists. A job's fields stay as they are until all its chunks are done, so a worker that comes late reads either the
fields of a chunk it owns or nothing. Workers spin briefly for the next job, then sleep.
"""

from __future__ import annotations

import sys

from numba import types

from fxgrad.compile.native import ADDRESS, FUNCTION, WITHOUT_GIL
from fxgrad.runtime.intrinsics import (
    add,
    byte,
    call_kernel,
    exchange,
    external,
    field,
    half,
    load,
    nth,
    pause,
    procedure,
    routine,
    stack,
    store,
    swap_if_zero,
    word,
    write,
)
from fxgrad.runtime.table import (
    BLOCK,
    CALLERS_CORE,
    CHUNK_BITS,
    CLOCK,
    COUNT,
    COUNTER,
    DONE,
    EXPECTED,
    EXTENT,
    FINISHED,
    FIRST_MOVE,
    FIRST_POINTER,
    FIRST_STATUS,
    FLAGS,
    GRAIN,
    HEADER_WORDS,
    JOB_END,
    JOB_GRAIN,
    JOB_POINTERS,
    JOB_START,
    JOB_STEP,
    JUMP,
    KERNEL,
    LAUNCH_WORDS,
    LAUNCHES,
    LENGTH,
    MASK,
    MOVE_WORDS,
    MOVES,
    MUTEX,
    NONE,
    OFFSET,
    OPERAND_WORDS,
    OPERANDS,
    OWNER,
    PARALLEL,
    PASSING,
    PIPELINE,
    PLAN,
    POINTERS,
    POSITION_BITS,
    RELEASE,
    REPEAT,
    ROOM,
    ROWS,
    SCALE,
    SCRATCH,
    SET,
    SETTINGS,
    SLEEPERS,
    SLICE,
    SLOT,
    SPIN,
    START,
    STATUS,
    STEP_OPERANDS,
    STEP_WORDS,
    STEPS,
    STOP,
    STRIDE,
    TARGET,
    TEAM,
    TEAM_SETTINGS,
    THREADS,
    TICKET,
    UNFIT,
    UNIT,
    UNITS,
    UNLESS,
    VALUE,
    WAITING,
    WIDTH,
    WORK,
)  # fmt: skip

N, I = types.intp, types.int32

save_thread = external("PyEval_SaveThread", (), N)
increase_references = external("Py_IncRef", (N,))
restore_thread = external("PyEval_RestoreThread", (N,))
to_python = external("PyLong_FromLongLong", (types.int64,), N)
from_python = external("PyLong_AsLongLong", (N,), types.int64)
lock, unlock = external("pthread_mutex_lock", (N,), I), external("pthread_mutex_unlock", (N,), I)
wait_for, signal_one = external("pthread_cond_wait", (N, N), I), external("pthread_cond_signal", (N,), I)
signal_all = external("pthread_cond_broadcast", (N,), I)
make_mutex, make_condition = external("pthread_mutex_init", (N, N), I), external("pthread_cond_init", (N, N), I)
clock_gettime = external("clock_gettime", (I, N), I)
copy_bytes = external("memcpy", (N, N, N), N)
allocate, release = external("malloc", (N,), N), external("free", (N,))

LINE = 64  # bytes
LOW, GENERATIONS = (1 << CHUNK_BITS) - 1, (1 << 23) - 1
CHUNKS_A_THREAD = 4
CHUNKS_ALONE, GRAINS_ALONE = 16, 16  # at most so many chunks; grains that are worth a look at the clock
CORE_WORDS = 16  # of a set of cores
SMALL_STEPS = 64  # steps without much work after which the clock is looked at, which takes as long as one of them

HEAD = 16  # a Python object begins with its reference count and its type
DATA, RANK, SHAPE, DTYPE, ARRAY_FLAGS = HEAD, HEAD + 8, HEAD + 16, HEAD + 40, HEAD + 48
USABLE = 0x0001 | 0x0100  # C-contiguous, aligned
TUPLE_SIZE, TUPLE_ITEMS = 16, 24


@routine(inline=True)
def nanoseconds(settings, scratch):
    clock_gettime(field(settings, CLOCK), scratch)
    return word(scratch) * 1_000_000_000 + field(scratch, 1)


# ---- arguments -------------------------------------------------------------------------------------------------------------


@routine(inline=True)
def unfit(items, expected):
    """Whether an object is not what is expected: an ndarray itself, of this dtype object and shape, usable in place."""
    count, kind = field(expected, 0), field(expected, 1)
    for i in range(count):
        record, array = nth(expected, field(expected, 2 + i)), field(items, i)
        rank = field(record, 1)
        good = word(array + 8) == kind
        if good:
            good = word(array + DTYPE) == word(record) and half(array + RANK) == rank
            good = good and half(array + ARRAY_FLAGS) & USABLE == USABLE
        if good:
            shape = word(array + SHAPE)
            for d in range(rank):
                good = good and field(shape, d) == field(record, 2 + d)
        if not good:
            return 1
    return 0


@procedure(inline=True)
def collect(items, count, slots):
    """The arrays' data pointers."""
    for i in range(count):
        write(slots, i, word(field(items, i) + DATA))


# ---- one chunk of a step ---------------------------------------------------------------------------------------------------


@routine(inline=True)
def row_of(step, unit):
    """The row with which a unit of a pipeline begins."""
    units = field(step, UNITS)
    if units == 0:
        return unit
    rows = field(step, ROWS)
    return unit // units * rows + min(unit % units * field(step, UNIT), rows)


@procedure(inline=True)
def run_rows(step, pointers, lo, hi):
    """All the launches of a pipeline on the same rows, which stay in cache from one to the next."""
    launch = nth(step, field(step, LAUNCHES))
    for _ in range(field(step, LENGTH)):
        scale = field(launch, SCALE)
        first, last = lo, hi
        if scale != 0:
            first, last = row_of(step, lo) * scale, row_of(step, hi) * scale
        call_kernel(field(launch, KERNEL), nth(pointers, field(launch, FIRST_POINTER)), field(launch, PLAN), first, last)
        launch = nth(launch, LAUNCH_WORDS)


@procedure
def run_blocks(step, pointers, lo, hi, own):
    """Block by block; what passes from kernel to kernel lies, for every block, in the same memory.

    `own`: of a worker, the address and the size of memory that it keeps for this; 0: the last operand is this memory.
    """
    count, block, room = field(step, POINTERS), field(step, BLOCK), field(step, ROOM)
    operands, moved = nth(step, field(step, STEP_OPERANDS)), stack(count)
    start = field(pointers, count - 1)
    if own != 0:
        if field(own, 1) < room:
            release(word(own))
            write(own, 0, allocate(room + LINE))
            write(own, 1, room)
        start = (word(own) + LINE - 1) // LINE * LINE
    while lo < hi:
        end = min(lo + block, hi)
        row = row_of(step, lo)
        for i in range(count):
            place, passing = field(pointers, i), field(operands, OPERAND_WORDS * i + PASSING)
            write(moved, i, place if passing == 0 else start + place - row * passing)
        run_rows(step, moved, lo, end)
        lo = end


@procedure(inline=True)
def run_chunk(step, pointers, lo, hi, own):
    if field(step, BLOCK) == 0:
        run_rows(step, pointers, lo, hi)
    else:
        run_blocks(step, pointers, lo, hi, own)


# ---- the team --------------------------------------------------------------------------------------------------------------


@routine(inline=True)
def chunk_start(team, i, total):
    """The unit with which a chunk of the current job begins: chunks are whole grains, as equal as can be."""
    start, grain, end = field(team, JOB_START), field(team, JOB_GRAIN), field(team, JOB_END)
    return min(start + i * ((end - start + grain - 1) // grain) // total * grain, end)


@routine
def draw(team, own):
    """Run one chunk of the current job, if there is one left; its ticket. `own`: see `run_blocks`."""
    ticket = add(team, TICKET, 1)
    i, total = ticket & LOW, ticket >> CHUNK_BITS & LOW
    if i < total:
        lo, hi = chunk_start(team, i, total), chunk_start(team, i + 1, total)
        run_chunk(field(team, JOB_STEP), field(team, JOB_POINTERS), lo, hi, own)
        add(team, DONE, 1)
        if load(team, WAITING) != 0:
            lock(nth(team, MUTEX))
            signal_all(nth(team, FINISHED))
            unlock(nth(team, MUTEX))
    return ticket


@routine
def spin_while(address, value, nanos, settings):
    """Wait, so long at most, until a word is no more `value`; the word."""
    scratch = stack(2)
    start = 0
    while True:
        for _ in range(32):
            found = load(address, 0)
            if found != value:
                return found
            pause()
        now = nanoseconds(settings, scratch)
        start = now if start == 0 else start
        if now - start >= nanos:
            return load(address, 0)


@procedure
def sleep(team, finished):
    """Until there is another job. The caller looks at SLEEPERS after it has written TICKET, so one of the two sees the other."""
    lock(nth(team, MUTEX))
    add(team, SLEEPERS, 1)
    while load(team, TICKET) >> CHUNK_BITS == finished and load(team, STOP) == 0:
        wait_for(nth(team, WORK), nth(team, MUTEX))
    add(team, SLEEPERS, -1)
    unlock(nth(team, MUTEX))


if sys.platform == "linux":
    current_core = external("sched_getcpu", (), I)
    get_cores, set_cores = (external(f"sched_{way}affinity", (I, N, N), I) for way in ("get", "set"))

    @procedure
    def note_core(team):
        """Where the caller runs."""
        write(team, CALLERS_CORE, current_core() + 0)

    @routine
    def step_aside(team, left):
        """Where a worker finds itself on the caller's core, it leaves for good, and may use the core that it left before.

        The system may wake it there although others are idle, and there it waits until the caller is interrupted. Measured
        after OpenBLAS's threads had been busy: for tens of milliseconds products of 1.0 ms took 1.8.
        """
        here = current_core() + 0
        if here != load(team, CALLERS_CORE) or here < 0 or here >= 64 * CORE_WORDS:
            return left
        cores = stack(CORE_WORDS)
        if get_cores(0, 8 * CORE_WORDS, cores) < 0:
            return left
        if left >= 0:
            write(cores, left >> 6, field(cores, left >> 6) | 1 << (left & 63))
        write(cores, here >> 6, field(cores, here >> 6) & (-1 - (1 << (here & 63))))
        set_cores(0, 8 * CORE_WORDS, cores)  # refused if there is no other
        return here

else:

    @procedure
    def note_core(team):
        """Nobody asks."""

    @routine
    def step_aside(team, left):
        """Only Linux tells where a thread runs."""
        return left


@procedure
def work(team):
    """What a thread of the team does until it is told to stop."""
    settings, own = field(team, TEAM_SETTINGS), stack(2)
    write(own, 0, 0)
    write(own, 1, 0)
    finished = 0  # the ticket word's upper part, of the job that has no chunks left
    left = -1  # the core that it keeps away from
    while load(team, STOP) == 0:
        ticket = load(team, TICKET)
        if ticket >> CHUNK_BITS == finished:
            ticket = spin_while(team, ticket, field(settings, SPIN), settings)
        if ticket >> CHUNK_BITS == finished:
            sleep(team, finished)
            continue
        if field(settings, SPIN) > 0:  # a core for every thread
            left = step_aside(team, left)
        ticket = draw(team, own)
        if ticket & LOW >= ticket >> CHUNK_BITS & LOW:
            finished = ticket >> CHUNK_BITS
    release(word(own))


@procedure
def wake(team, wanted):
    if load(team, SLEEPERS) > 0:
        lock(nth(team, MUTEX))
        for _ in range(min(wanted, load(team, SLEEPERS))):
            signal_one(nth(team, WORK))
        unlock(nth(team, MUTEX))


@procedure
def wait_until_done(team, chunks):
    """The last chunks are with the workers."""
    settings = field(team, TEAM_SETTINGS)
    done = load(team, DONE)
    while done < chunks:
        later = spin_while(nth(team, DONE), done, field(settings, SPIN), settings)
        if later == done:
            lock(nth(team, MUTEX))
            store(team, WAITING, 1)
            while load(team, DONE) < chunks:
                wait_for(nth(team, FINISHED), nth(team, MUTEX))
            store(team, WAITING, 0)
            unlock(nth(team, MUTEX))
            return
        done = later


@routine
def run_together(team, step, pointers, start, deadline):
    """A step by all threads, from unit `start` on; the unit up to which it is done, less than all if time ran out."""
    settings = field(team, TEAM_SETTINGS)
    extent, grain, clock = field(step, EXTENT), field(step, GRAIN), stack(2)
    threads = field(settings, THREADS)
    total = min((extent - start + grain - 1) // grain, CHUNKS_A_THREAD * threads)
    write(team, JOB_STEP, step)
    write(team, JOB_POINTERS, pointers)
    write(team, JOB_START, start)
    write(team, JOB_GRAIN, grain)
    write(team, JOB_END, extent)
    store(team, DONE, 0)
    note_core(team)
    generation = (load(team, TICKET) >> 2 * CHUNK_BITS) + 1 & GENERATIONS
    exchange(team, TICKET, generation << 2 * CHUNK_BITS | total << CHUNK_BITS)
    wake(team, min(total, threads) - 1)
    done = total
    while True:
        ticket = draw(team, 0)
        if ticket & LOW >= total:
            break
        if deadline != 0 and nanoseconds(settings, clock) > deadline:
            done = min(total, add(team, TICKET, total) & LOW)  # nobody draws the rest
            break
    wait_until_done(team, done)
    return chunk_start(team, done, total)


@routine(inline=True)
def run_alone(settings, step, pointers, start, deadline):
    """A step by this thread, like `run_together`."""
    extent, grain, clock = field(step, EXTENT), field(step, GRAIN), stack(2)
    if grain == 0 or deadline == 0 or extent - start < 2 * abs(grain):
        run_chunk(step, pointers, start, extent, 0)
        return extent
    chunk = -grain
    if grain > 0:
        chunk = max((extent + CHUNKS_ALONE - 1) // CHUNKS_ALONE + grain - 1, GRAINS_ALONE * grain) // grain * grain
    while start < extent:
        end = min(start + chunk, extent)
        run_chunk(step, pointers, start, end, 0)
        start = end
        if nanoseconds(settings, clock) > deadline:
            break
    return start


# ---- steps -----------------------------------------------------------------------------------------------------------------


@routine(inline=True)
def address(operand, slots, last, program):
    """Where an operand lies: [slot (-1: no slot, the offset is an address), offset, number of moves, the first of them, ...].

    A move is [offset of a word in the last slot, stride, mask]; it moves the operand by the masked word times the stride.
    """
    slot, place, moves = field(operand, SLOT), field(operand, OFFSET), field(operand, MOVES)
    if slot >= 0:
        place += field(slots, slot)
    if moves > 0:
        move, words = nth(program, field(operand, FIRST_MOVE)), field(slots, last)
        for _ in range(moves):
            place += (word(words + field(move, COUNTER)) & field(move, MASK)) * field(move, STRIDE)
            move = nth(move, MOVE_WORDS)
    return place


@routine(inline=True)
def integer(place, width):
    """The signed integer of so many bytes: 8, 4 or 1."""
    if width == 8:
        return word(place)
    if width == 4:
        return half(place)
    return byte(place)


@routine(inline=True)
def jump(step, place, program, following):
    """Which step follows a step of control, whose operand lies at `place`."""
    kind = word(step)
    target, value = field(step, TARGET), field(step, VALUE)
    if kind == REPEAT:
        turn = word(place) + 1
        write(place, 0, turn)
        return target if turn < value else following
    if kind == SET:
        write(place, 0, value)
        return following
    if kind == JUMP:
        return target
    if kind == UNLESS:
        return following if byte(place) != 0 else target
    # SWITCH: `value` targets from word `target` of the program on
    return field(program, target + min(max(integer(place, field(step, WIDTH)), 0), value - 1))


@routine
def follow(program, slots, team, token, deadline):
    """The steps from a token on; 0, the status a step has set, negative, or the token of where time ran out."""
    settings, scratch = field(program, SETTINGS), stack(field(program, SCRATCH) + 2)
    at, position = token >> POSITION_BITS, token & (1 << POSITION_BITS) - 1
    count, last, steps = field(program, COUNT), field(program, OPERANDS) - 1, nth(program, field(program, STEPS))
    status = field(program, STATUS)
    if status >= 0:
        status += field(slots, last)
        if token == 0:
            write(status, 0, 0)
    pointers = nth(scratch, 2)
    small = count - count  # steps since the clock was looked at
    while at < count:
        step = nth(steps, STEP_WORDS * at)
        operands = nth(step, field(step, STEP_OPERANDS))
        for i in range(field(step, POINTERS)):
            write(pointers, i, address(nth(operands, OPERAND_WORDS * i), slots, last, program))
        if word(step) != PIPELINE:
            at = jump(step, word(pointers), program, at + 1)
            small += 1
        else:
            extent, grain = field(step, EXTENT), field(step, GRAIN)
            small += SMALL_STEPS if grain == 0 or 16 * (extent - position) >= grain else 1
            if team != 0 and grain > 0 and extent - position >= 2 * grain:
                position = run_together(team, step, pointers, position, deadline)
            else:
                position = run_alone(settings, step, pointers, position, deadline)
            if status >= 0 and word(status) != 0:
                return -abs(word(status)) - FIRST_STATUS
            if position < extent:
                return at << POSITION_BITS | position
            at, position = at + 1, 0
        if deadline != 0 and at < count and small >= SMALL_STEPS:
            small = 0
            if nanoseconds(settings, scratch) > deadline:
                return at << POSITION_BITS
    return 0


@routine
def run(program, items, token):
    """See the module. `items` is the address of the operands' objects: arguments, results, work space."""
    settings, count, flags = field(program, SETTINGS), field(program, OPERANDS), field(program, FLAGS)
    if token == 0 and unfit(items, nth(program, field(program, EXPECTED))) != 0:
        return UNFIT
    slots = stack(count + 1)
    collect(items, count, slots)
    if flags & RELEASE == 0:
        return follow(program, slots, 0, token, 0)
    team = 0
    if flags & PARALLEL != 0 and field(settings, THREADS) > 1:
        team = field(settings, TEAM)
        if team == 0:
            return START
        if swap_if_zero(team, OWNER, 1) == 0:
            team = 0  # it works for another call
    state = save_thread()
    result = follow(program, slots, team, token, nanoseconds(settings, nth(slots, count)) + field(settings, SLICE))
    if team != 0:
        store(team, OWNER, 0)
    restore_thread(state)
    return result


@routine
def call(self, items, count):
    """`run` as a builtin method of the program, called with the operands, and the token if it goes on: None when all is done."""
    program = word(self + DATA)
    settings, wanted = field(program, SETTINGS), field(program, OPERANDS)
    if count < wanted:
        return to_python(UNFIT)
    token = from_python(field(items, wanted)) if count > wanted else 0
    result = run(program, items, token)
    if result != 0:
        return to_python(result)
    increase_references(field(settings, NONE))
    return field(settings, NONE)


@routine
def launch_checked(settings, kernel, plan, operands, expected):
    """Run a kernel on a tuple of arrays, as a program of one step.

    The leading arrays are compared with what is expected; 0, UNFIT or START (nothing is done).
    """
    count = word(operands + TUPLE_SIZE)
    size = HEADER_WORDS + STEP_WORDS + LAUNCH_WORDS
    program = stack(size + OPERAND_WORDS * count)
    for i in range(size):
        write(program, i, 0)
    step, launch = nth(program, HEADER_WORDS), nth(program, HEADER_WORDS + STEP_WORDS)
    extent, grain = word(plan), field(plan, 1)
    write(program, EXPECTED, (expected - program) // 8)
    write(program, OPERANDS, count)
    write(program, FLAGS, 0 if grain == 0 or extent < 2 * grain else RELEASE | PARALLEL)
    write(program, STEPS, HEADER_WORDS)
    write(program, COUNT, 1)
    write(program, SCRATCH, count)
    write(program, STATUS, -1)
    write(program, SETTINGS, settings)
    write(step, EXTENT, extent)
    write(step, GRAIN, grain)
    write(step, LAUNCHES, STEP_WORDS)
    write(step, LENGTH, 1)
    write(step, STEP_OPERANDS, size - HEADER_WORDS)
    write(step, POINTERS, count)
    write(launch, KERNEL, kernel)
    write(launch, PLAN, plan)
    for i in range(count):
        operand = nth(program, size + OPERAND_WORDS * i)
        write(operand, SLOT, i)
        write(operand, OFFSET, 0)
        write(operand, MOVES, 0)
    token = run(program, operands + TUPLE_ITEMS, 0)
    while token > 0:
        token = run(program, operands + TUPLE_ITEMS, token)
    return token


@procedure
def control_team(team, stop):
    """Prepare a new team, or tell its workers to stop."""
    if stop == 0:
        make_mutex(nth(team, MUTEX), 0)
        make_condition(nth(team, WORK), 0)
        make_condition(nth(team, FINISHED), 0)
    else:
        lock(nth(team, MUTEX))
        store(team, STOP, 1)
        signal_all(nth(team, WORK))
        unlock(nth(team, MUTEX))


# ---- three kernels that every program may use ----------------------------------------------------------------------------------


@procedure
def fill_kernel(pointers, plan, lo, hi):
    """Words lo to hi of memory become the plan's third; the last, if the plan's fourth is not 0, only so many bytes of it."""
    start, pattern, rest = word(pointers), field(plan, 2), field(plan, 3)
    whole = hi - 1 if rest != 0 and hi == word(plan) else hi
    for i in range(lo, whole):
        write(start, i, pattern)
    if whole < hi:
        copy_bytes(nth(start, whole), nth(plan, 2), rest)


@procedure
def copy_kernel(pointers, plan, lo, hi):
    """Bytes lo to hi from the first operand to the second, which lie apart."""
    copy_bytes(field(pointers, 1) + lo, word(pointers) + lo, hi - lo)


@procedure
def ramp_kernel(pointers, plan, lo, hi):
    """Words lo to hi of memory become their own numbers."""
    start = word(pointers)
    for i in range(lo, hi):
        write(start, i, i)


EXPORTS = {
    "call": (call, ADDRESS),
    "fill_kernel": (fill_kernel, ADDRESS),
    "copy_kernel": (copy_kernel, ADDRESS),
    "ramp_kernel": (ramp_kernel, ADDRESS),
    "launch_checked": (launch_checked, FUNCTION),
    "control_team": (control_team, WITHOUT_GIL),
    "work": (work, WITHOUT_GIL),
}
