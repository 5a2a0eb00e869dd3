"""From Python into a kernel: three small native functions that read NumPy arrays without NumPy's help.

    launch(kernel, plan, operands)                       run the kernel on a tuple of arrays, given by id
    launch_checked(kernel, plan, operands, expected)     the same, if the leading arrays are as expected: 0; else 1, nothing run
    check(operands, expected)                            0 if the arrays are as expected

All arguments are addresses. "As expected" means: an ndarray itself, of the dtype object and shape expected, aligned and
C-contiguous. The caller keeps the tuple and the plan alive during the call. The layout of an array object (data 16 bytes from
its start, flags at 64) is NumPy's public ABI from 1.7 on; a self-test confirms it, and ctypes takes over when it fails.
numba compiles them once for a machine.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from fxgrad.compile.native import Native, native_functions
from fxgrad.ir.types import Aval

__all__ = ["address_of", "check", "expected_table", "launch", "launch_checked", "native"]

_HEAD = object.__basicsize__
_DATA, _NDIM, _SHAPE, _DESCR, _FLAGS = _HEAD, _HEAD + 8, _HEAD + 16, _HEAD + 40, _HEAD + 48
_TYPE = _HEAD - 8
_SIZE, _ITEMS = _HEAD, tuple.__basicsize__
_WANTED = 0x0001 | 0x0100  # NPY_ARRAY_C_CONTIGUOUS, NPY_ARRAY_ALIGNED

_FUNCTIONS = (Native("launch", 3, True), Native("launch_checked", 4, True), Native("check", 2, False))


def _dispatchers() -> list[Any]:
    """The three functions, compiled by numba."""
    from numba import njit, types

    run, compare, n = run_intrinsic(), check_intrinsic(), types.intp

    @njit(types.void(n, n, n), nogil=True)
    def launch(kernel: int, plan: int, operands: int) -> None:
        run(kernel, plan, operands)

    @njit(n(n, n, n, n), nogil=True)
    def launch_checked(kernel: int, plan: int, operands: int, expected: int) -> int:
        bad = compare(operands, expected)
        if bad == 0:
            run(kernel, plan, operands)
        return bad

    @njit(n(n, n))
    def check(operands: int, expected: int) -> int:
        return compare(operands, expected)

    return [launch, launch_checked, check]


def _word(b: Any, start: Any, offset: int, bits: int = 64) -> Any:
    """The integer at a byte offset from a pointer."""
    from llvmlite import ir

    place = b.gep(start, [ir.Constant(ir.IntType(64), offset)], source_etype=ir.IntType(8))
    return b.load(place, typ=ir.IntType(bits))


def _entry_of(b: Any, start: Any, i: Any) -> Any:
    """The i-th of the 64-bit integers at a pointer."""
    from llvmlite import ir

    return b.load(b.gep(start, [i], source_etype=ir.IntType(64)), typ=ir.IntType(64))


def run_intrinsic() -> Any:
    """Numba intrinsic: collect the data pointers of the tuple's arrays and call the kernel."""
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic

    from fxgrad.kernels.loops import I8, I64, KERNEL_TYPE, PTR, Loop, i64

    @intrinsic
    def run(typing_context: Any, kernel: Any, plan: Any, operands: Any) -> Any:
        def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
            tup, plan = b.inttoptr(args[2], PTR), b.inttoptr(args[1], PTR)
            count = _word(b, tup, _SIZE)
            pointers = b.alloca(I64, size=count)
            pointers.type = ir.PointerType()
            items = b.gep(tup, [i64(_ITEMS)], source_etype=I8)
            loop = Loop(b, i64(0), count, 1)
            item = b.inttoptr(_entry_of(b, items, loop.i), PTR)
            b.store(_word(b, item, _DATA), b.gep(pointers, [loop.i], source_etype=I64))
            loop.end()
            fn = b.inttoptr(args[0], KERNEL_TYPE.as_pointer())
            b.call(fn, [pointers, plan, i64(0), _word(b, plan, 0)])
            return context.get_dummy_value()

        return types.void(*[types.intp] * 3), codegen

    return run


def check_intrinsic() -> Any:
    """Numba intrinsic: how many of the tuple's leading items are not the arrays expected."""
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic

    from fxgrad.kernels.loops import I1, I8, I64, PTR, Loop, i64

    @intrinsic
    def compare(typing_context: Any, operands: Any, expected: Any) -> Any:
        def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
            tup, table = b.inttoptr(args[0], PTR), b.inttoptr(args[1], PTR)
            items, kind = b.gep(tup, [i64(_ITEMS)], source_etype=I8), _word(b, table, 8)
            loop = Loop(b, i64(0), _word(b, table, 0), 1, [i64(0)])
            item = b.inttoptr(_entry_of(b, items, loop.i), PTR)
            record = b.gep(table, [_entry_of(b, table, b.add(loop.i, i64(2)))], source_etype=I64)
            entry, inside, shape, after = b.block, *(b.append_basic_block(n) for n in ("array", "shape", "next"))
            b.cbranch(b.icmp_unsigned("==", _word(b, item, _TYPE), kind), inside, after)
            b.position_at_end(inside)
            good, ndim = _compare_fields(b, item, record)
            b.cbranch(good, shape, after)
            b.position_at_end(shape)
            same = _compare_shape(b, item, record, ndim)
            last = b.block
            b.branch(after)
            b.position_at_end(after)
            fine, no = b.phi(I1), ir.Constant(I1, 0)
            for value, block in ((no, entry), (no, inside), (same, last)):
                fine.add_incoming(value, block)
            loop.end([b.add(loop.carried[0], b.zext(b.not_(fine), I64))])
            return loop.carried[0]

        return types.intp(types.intp, types.intp), codegen

    return compare


def _compare_fields(b: Any, item: Any, record: Any) -> tuple[Any, Any]:
    """Whether dtype object, flags and rank of an array are those of its record; also the rank."""
    from llvmlite import ir

    wanted = ir.Constant(ir.IntType(32), _WANTED)
    ndim = _word(b, record, 8)
    good = b.icmp_unsigned("==", _word(b, item, _DESCR), _word(b, record, 0))
    good = b.and_(good, b.icmp_unsigned("==", b.and_(_word(b, item, _FLAGS, 32), wanted), wanted))
    return b.and_(good, b.icmp_unsigned("==", b.sext(_word(b, item, _NDIM, 32), ir.IntType(64)), ndim)), ndim


def _compare_shape(b: Any, item: Any, record: Any, ndim: Any) -> Any:
    from fxgrad.kernels.loops import I1, PTR, Loop, i64

    shape = b.inttoptr(_word(b, item, _SHAPE), PTR)
    loop = Loop(b, i64(0), ndim, 1, [I1(1)])
    same = b.icmp_unsigned("==", _entry_of(b, shape, loop.i), _entry_of(b, record, b.add(loop.i, i64(2))))
    loop.end([b.and_(loop.carried[0], same)])
    return loop.carried[0]


_keep: list[Any] = []


def address_of(a: np.ndarray) -> int:
    """Address of the array's data; the array is kept alive for good (plans and tables)."""
    _keep.append(a)
    return a.ctypes.data


def expected_table(avals: Sequence[Aval]) -> int:
    """What `check` compares with: count, the ndarray type, where each array's record begins; the records.

    A record is: the dtype object, the rank, the shape.
    """
    starts: list[int] = []
    records: list[int] = []
    for a in avals:
        starts.append(2 + len(avals) + len(records))
        records += [id(a.dtype), a.ndim, *a.shape]
    return address_of(np.array([len(avals), id(np.ndarray), *starts, *records], np.int64))


# ---- without the native functions ------------------------------------------------------------------------------------------


def _table(address: int, n: int) -> list[int]:
    return list((ctypes.c_int64 * n).from_address(address))


def _object(address: int) -> Any:
    return ctypes.cast(address, ctypes.py_object).value


_SIGNATURE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


def slow_launch(kernel: int, plan: int, operands: int) -> None:
    """`launch` through ctypes."""
    arrays = _object(operands)
    pointers = (ctypes.c_void_p * max(len(arrays), 1))(*[a.ctypes.data for a in arrays])
    _SIGNATURE(kernel)(ctypes.addressof(pointers), plan, 0, _table(plan, 1)[0])


def slow_check(operands: int, expected: int) -> int:
    """`check` through NumPy."""
    arrays, count = _object(operands), _table(expected, 1)[0]
    kind, *starts = _table(expected, count + 2)[1:]
    bad = 0
    for a, start in zip(arrays, starts, strict=False):
        descr, ndim = _table(expected + 8 * start, 2)
        shape = _table(expected + 8 * start, 2 + ndim)[2:]
        fine = id(type(a)) == kind and id(a.dtype) == descr and a.flags.c_contiguous and a.flags.aligned
        bad += not (fine and list(a.shape) == shape)
    return bad


def slow_launch_checked(kernel: int, plan: int, operands: int, expected: int) -> int:
    """`launch_checked` without native help."""
    bad = slow_check(operands, expected)
    if not bad:
        slow_launch(kernel, plan, operands)
    return bad


def _layout_as_known() -> bool:
    """Whether array and tuple objects look as this module believes, told from objects whose contents are known."""
    a, t = np.zeros((3, 4), np.float32), np.zeros((3, 4), np.float64).T
    pair = (a, t)

    def word(obj: Any, offset: int) -> int:
        return ctypes.c_int64.from_address(id(obj) + offset).value

    def flags(obj: Any) -> int:
        return ctypes.c_int32.from_address(id(obj) + _FLAGS).value & _WANTED

    return (
        all(word(x, _DATA) == x.ctypes.data and word(x, _DESCR) == id(x.dtype) and word(x, _TYPE) == id(np.ndarray) for x in pair)
        and [ctypes.c_int64.from_address(word(t, _SHAPE) + 8 * i).value for i in range(2)] == [4, 3]
        and ctypes.c_int32.from_address(id(t) + _NDIM).value == 2
        and (flags(a), flags(t)) == (_WANTED, 0x0100)
        and word(pair, _SIZE) == 2
        and [word(pair, _ITEMS + 8 * i) for i in range(2)] == [id(a), id(t)]
    )


def _native() -> tuple[Any, Any, Any] | None:
    if ctypes.sizeof(ctypes.c_void_p) != 8 or not _layout_as_known():
        return None
    launch, launch_checked, check = native_functions("launch", _FUNCTIONS, _dispatchers)
    return launch, launch_checked, check


native = _native()
launch, launch_checked, check = native or (slow_launch, slow_launch_checked, slow_check)
