"""numba's target for functions of words (compile/words.py): its arithmetic is Python's."""

import ctypes
import itertools

import pytest

from fxgrad.compile import native
from fxgrad.compile.codegen import load_object
from fxgrad.runtime.intrinsics import byte, field, half, nth, procedure, routine, stack, word, write

SMALL = (-17, -8, -1, 0, 1, 2, 3, 8, 63)


@routine
def quotient(x, y):
    return x // y


@routine
def remainder(x, y):
    return x % y


@routine
def mixed(x, y):
    z = min(x, y) * 3 - max(x, y) + abs(x - y)
    z += -x & 255 | (y & 7) << 2
    return z >> 1


@routine
def ordered(x, y):
    low = x < y or x == y
    high = x > y and x != y
    if not low:
        return 2 if high and x >= y else 3
    return 1 if x <= y and not high else 0


@routine(inline=True)
def square(x):
    return x * x


@routine
def loops(x, y):
    total = x
    for i in range(y):
        for j in range(i, 2 * i):
            total = (total * 3 + square(j)) % 1000003
            if total < 1000:
                break
    while total > 1 << 10:
        total = total // 7
    return total


@procedure
def put(address, value):
    write(address, 1, value)


@routine
def memory(x, y):
    place = stack(3)
    write(place, 0, x)
    put(place, y)
    write(nth(place, 2), 0, -1)
    return field(place, 0) * 5 + word(nth(place, 1)) + half(nth(place, 2)) + byte(place + 16)


ROUTINES = {r.body.__name__: r for r in (quotient, remainder, mixed, ordered, loops, memory)}


@pytest.fixture(scope="module")
def compiled():
    unit = "test_words"
    data = native._compile(unit, {name: (r, native.ADDRESS) for name, r in ROUTINES.items()})
    code = data.partition(b"\n")[2]
    addresses = load_object(unit, code, [f"{unit}_{name}" for name in ROUTINES])
    kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
    return {name: kind(address) for name, address in zip(ROUTINES, addresses, strict=True)}


@pytest.mark.parametrize("name", ["quotient", "remainder", "mixed", "ordered", "loops"])
def test_words_compute_as_python_does(compiled, name, monkeypatch):
    monkeypatch.setitem(globals(), "square", square.body)
    for x, y in itertools.product(SMALL, SMALL):
        if y != 0 or name not in ("quotient", "remainder"):
            assert compiled[name](x, y) == ROUTINES[name].body(x, y), (x, y)


def test_words_of_memory(compiled):
    for x, y in itertools.product(SMALL, SMALL):
        assert compiled["memory"](x, y) == 5 * x + y - 2


def test_intrinsics_are_for_machine_code_alone():
    with pytest.raises(NotImplementedError):
        word(0)
