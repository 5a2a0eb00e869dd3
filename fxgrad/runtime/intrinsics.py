"""What the executor needs of the machine and C: words in memory, atomics, calls through addresses. All addresses are integers.

These are numba intrinsics, one LLVM instruction or two each; only `executor.py` and `launch.py` use them.
"""

from __future__ import annotations

import functools
import platform
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import types

from fxgrad.compile.words import Routine, operation
from fxgrad.kernels.loops import I8, I32, I64, KERNEL_TYPE, PTR

__all__ = [
    "add", "byte", "call_kernel", "exchange", "external", "field", "half", "load", "nth", "pause", "procedure", "routine",
    "stack", "store", "swap_if_zero", "word", "write",
]  # fmt: skip

N = types.intp


def _intrinsic(arity: int, emit: Callable[..., Any], result: Any = N) -> Any:
    """A function of `arity` integers for the executor; `emit(b, *args)` gives its value."""

    def function(*words: int) -> int:
        raise NotImplementedError("only the executor's machine code can do this")

    operation(function, result(*[N] * arity), emit)
    return function


def routine(f: Callable[..., Any] | None = None, *, inline: bool = False, result: Any = N) -> Any:
    """A function of integers that answers one; `inline`: it becomes part of those that call it."""
    if f is None:
        return functools.partial(routine, inline=inline, result=result)
    return Routine(f, result, inline)


procedure = functools.partial(routine, result=types.void)  # a function of integers that answers nothing


def _at(b: Any, address: Any) -> Any:
    return b.inttoptr(address, PTR)


def _word(b: Any, address: Any, i: Any) -> Any:
    return b.gep(b.inttoptr(address, I64.as_pointer()), [i])


def _narrow(t: Any) -> Callable[[Any, Any], Any]:
    return lambda b, address: b.sext(b.load(_at(b, address), typ=t), I64)


def _stack(b: Any, words: Any) -> Any:
    room = b.alloca(I64, size=words)
    room.align = 64
    return b.ptrtoint(room, I64)


def _call_kernel(b: Any, kernel: Any, pointers: Any, plan: Any, lo: Any, hi: Any) -> Any:
    fn = b.inttoptr(kernel, KERNEL_TYPE.as_pointer())
    return b.call(fn, [_at(b, pointers), _at(b, plan), lo, hi])


def _pause(b: Any) -> Any:
    """Tells the CPU that this loop waits for another core."""
    machine = platform.machine().lower()
    if machine in ("x86_64", "amd64", "i686"):
        return b.call(b.module.declare_intrinsic("llvm.x86.sse2.pause", (), ir.FunctionType(ir.VoidType(), [])), [])
    if machine in ("aarch64", "arm64"):
        hint = b.module.declare_intrinsic("llvm.aarch64.hint", (), ir.FunctionType(ir.VoidType(), [I32]))
        return b.call(hint, [ir.Constant(I32, 1)])
    return None


def _swap_if_zero(b: Any, address: Any, i: Any, value: Any) -> Any:
    """Whether the word was 0 and is `value` now."""
    found = b.cmpxchg(_word(b, address, i), ir.Constant(I64, 0), value, "seq_cst", "seq_cst")
    return b.zext(b.extract_value(found, 1), I64)


word = _intrinsic(1, lambda b, address: b.load(_at(b, address), typ=I64))
half = _intrinsic(1, _narrow(I32))  # 32 bits, signed
byte = _intrinsic(1, _narrow(I8))
# The i-th word from an address on: where it is, reading and writing it; then atomically, answering what it was before.
nth = _intrinsic(2, lambda b, address, i: b.ptrtoint(_word(b, address, i), I64))
field = _intrinsic(2, lambda b, address, i: b.load(_word(b, address, i), typ=I64))
write = _intrinsic(3, lambda b, address, i, value: b.store(value, _word(b, address, i)), types.void)
load = _intrinsic(2, lambda b, address, i: b.load_atomic(_word(b, address, i), "seq_cst", 8))
store = _intrinsic(3, lambda b, address, i, value: b.store_atomic(value, _word(b, address, i), "seq_cst", 8), types.void)
add = _intrinsic(3, lambda b, address, i, value: b.atomic_rmw("add", _word(b, address, i), value, "seq_cst"))
exchange = _intrinsic(3, lambda b, address, i, value: b.atomic_rmw("xchg", _word(b, address, i), value, "seq_cst"))
swap_if_zero = _intrinsic(3, _swap_if_zero)
stack = _intrinsic(1, _stack)  # words that live until the calling function returns
pause = _intrinsic(0, _pause, types.void)
call_kernel = _intrinsic(5, _call_kernel, types.void)


def external(name: str, arguments: Sequence[Any] = (), result: Any = types.void) -> Any:
    """A C function of this process."""
    return types.ExternalFunction(name, result(*arguments))
