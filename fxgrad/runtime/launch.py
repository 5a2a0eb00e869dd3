"""From Python into machine code: launches of one kernel, and runs of whole programs.

    launch(kernel, plan, operands)                       run a kernel on a tuple of arrays, given by id
    launch_checked(kernel, plan, operands, expected)     the same, if the leading arrays are as expected: 0; else UNFIT
    bind(words)                                          a program as a builtin function of its arrays
    resume(run, status, arrays)                          what to do when it does not answer None

All arguments of the launches are addresses. "As expected" means: an ndarray itself, of the dtype object and shape expected,
aligned and C-contiguous. The caller keeps the tuple alive during the call, and the plan (an `Address` does). The machine code
reads array and tuple objects without NumPy's help: their layout (data 16 bytes from an array's start, flags at 64) is public ABI;
a self-test confirms it. numba compiles it once for a machine.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad.compile.native import builtin, load_native
from fxgrad.ir.types import Aval
from fxgrad.runtime import team
from fxgrad.runtime.table import FIRST_STATUS, START, UNFIT, expected_words

__all__ = [
    "Address",
    "KernelStatus",
    "address_of",
    "bind",
    "copy_kernel",
    "expected_table",
    "fill_kernel",
    "launch",
    "launch_checked",
    "ramp_kernel",
    "resume",
]

_HEAD = object.__basicsize__
_DATA, _NDIM, _SHAPE, _DESCR, _FLAGS = _HEAD, _HEAD + 8, _HEAD + 16, _HEAD + 40, _HEAD + 48
_TYPE, _SIZE, _ITEMS = _HEAD - 8, _HEAD, tuple.__basicsize__
_WANTED = 0x0001 | 0x0100  # NPY_ARRAY_C_CONTIGUOUS, NPY_ARRAY_ALIGNED


def _layout_as_known() -> bool:
    """Whether array and tuple objects look as the executor believes, told from objects whose contents are known."""
    a, t = np.zeros((3, 4), np.float32), np.zeros((3, 4), np.float64).T
    pair = (a, t)

    def word(obj: Any, offset: int) -> int:
        return ctypes.c_int64.from_address(id(obj) + offset).value

    def flags(obj: Any) -> int:
        return ctypes.c_int32.from_address(id(obj) + _FLAGS).value & _WANTED

    return (
        (_HEAD, _ITEMS, ctypes.sizeof(ctypes.c_void_p)) == (16, 24, 8)
        and all(
            word(x, _DATA) == x.ctypes.data and word(x, _DESCR) == id(x.dtype) and word(x, _TYPE) == id(np.ndarray) for x in pair
        )
        and [ctypes.c_int64.from_address(word(t, _SHAPE) + 8 * i).value for i in range(2)] == [4, 3]
        and ctypes.c_int32.from_address(id(t) + _NDIM).value == 2
        and (flags(a), flags(t)) == (_WANTED, 0x0100)
        and word(pair, _SIZE) == 2
        and [word(pair, _ITEMS + 8 * i) for i in range(2)] == [id(a), id(t)]
    )


def _executor() -> dict[str, Any]:
    """The executor's functions, for numba to compile."""
    from fxgrad.runtime.executor import EXPORTS

    return EXPORTS


if not _layout_as_known():
    raise ImportError("fxgrad's executor reads NumPy arrays as 64-bit CPython lays them out; this interpreter does not")
native = load_native("executor", _executor)
fill_kernel, copy_kernel, ramp_kernel = native["fill_kernel"], native["copy_kernel"], native["ramp_kernel"]
_launch = native["launch_checked"]
team.get_num_threads()
_settings = team.settings.ctypes.data


# ---- programs --------------------------------------------------------------------------------------------------------------


def bind(words: np.ndarray) -> Callable[..., int | None]:
    """A program as a builtin function of its arrays: arguments, results, work space. None: done; else a status for `resume`."""
    return builtin("run", native["call"], words)


class KernelStatus(RuntimeError):
    """A step of a program has set its status word, which is `self.status`."""

    def __init__(self, status: int):
        super().__init__(f"a step of a compiled program stopped it with status {status}")
        self.status = status


def resume(run: Callable[..., int | None], status: int | None, arrays: tuple[np.ndarray, ...]) -> None:
    """Go on with a run that answered `status`, to its end. Between two slices of it Python handles signals, which may raise."""
    while status is not None:
        if status > 0:
            status = run(*arrays, status)
        elif status == START:
            team.start()
            status = run(*arrays)
        elif status == UNFIT:
            raise ValueError("the arrays given to a program are not as expected")
        else:
            raise KernelStatus(-status - FIRST_STATUS)


# ---- single kernels ----------------------------------------------------------------------------------------------------------


class Address(int):
    """The address of an array's data, which keeps the array alive."""

    array: np.ndarray


def address_of(a: np.ndarray) -> Address:
    """Address of the array's data (plans and tables), valid as long as the answer lives."""
    address = Address(a.ctypes.data)
    address.array = a
    return address


def expected_table(avals: Sequence[Aval]) -> Address:
    """Address of what `launch_checked` compares with."""
    return address_of(np.array(expected_words(avals), np.int64))


_nothing_expected = expected_table([])


def launch(kernel: int, plan: int, operands: int) -> None:
    """Run a kernel on a tuple of arrays."""
    while _launch(_settings, kernel, plan, operands, _nothing_expected):
        team.start()


def launch_checked(kernel: int, plan: int, operands: int, expected: int) -> int:
    """`launch`, if the leading arrays are as expected: 0; else UNFIT, nothing is done."""
    bad = _launch(_settings, kernel, plan, operands, expected)
    while bad == START:
        team.start()
        bad = _launch(_settings, kernel, plan, operands, expected)
    return bad
