"""Scatters that compute what they write: which do, and that every way to run them has the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fxgrad as fx
import fxgrad.numpy as fnp
from fxgrad import lax, nn
from fxgrad.errors import FxIndexError
from fxgrad.testing.bits import assert_same_bits
from tests.test_fusion_rows import lowered
from tests.works import check, work

RNG = np.random.default_rng(0)
TABLE = RNG.standard_normal((13, 40))
ROWS = RNG.standard_normal((29, 40))
PLACES = RNG.integers(-13, 13, 29)
DEEP = RNG.standard_normal((5, 13, 3, 20))
START = np.int64(4)


def added(t: Any, u: Any) -> Any:
    return t.at[PLACES].add(u * u + u)


def replaced(t: Any, u: Any) -> Any:
    return (t * 2.0).at[PLACES].set(u * 3.0)


def stored(t: Any, u: Any) -> Any:
    return t.at[PLACES].add(u)


def messages(t: Any, u: Any) -> Any:
    """What one node sends to another, weighted."""
    return fnp.zeros_like(t).at[PLACES].add(t[PLACES[::-1]] * u[:, :1])


def handed_on(t: Any) -> Any:
    return fnp.zeros_like(t).at[PLACES].add(t[PLACES[::-1]])


def in_a_middle_axis(x: Any) -> Any:
    return x.at[:, PLACES[:7]].add(x[:, 3:10] * 0.5)


def of_two_indices(x: Any) -> Any:
    return x.at[PLACES[:9] % 5, PLACES[9:18]].add(fnp.ones((9, 3, 20)) * x[0, 0] - 1.0)


def onto_itself(t: Any) -> Any:
    """Reads the array that it changes."""
    return t.at[PLACES[:13]].set(t[::-1] + t)


def window(x: Any, k: Any, start: Any) -> Any:
    return lax.dynamic_update_slice(x, k * 2.0 + 1.0, (start, 0))


def window_in_a_loop(x: Any) -> Any:
    def turn(i: Any, y: Any) -> Any:
        return lax.dynamic_update_slice(y, -fnp.abs(y[:1] * 0.5 + x[1:2]), (i, 0))

    return fx.fori_loop(0, 6, turn, x * 1.0)


def expensive(t: Any, u: Any) -> Any:
    return t.at[PLACES].add(np.tanh(u) * 2.0)


def twice_needed(t: Any, u: Any) -> Any:
    v = u * 2.0
    return t.at[PLACES].add(v), v


WORKS: dict[str, tuple[Any, tuple, int]] = {  # with the number of kernels
    "added": (added, (TABLE, ROWS), 1),
    "replaced": (replaced, (TABLE, ROWS), 2),
    "stored": (stored, (TABLE, ROWS), 1),
    "messages": (messages, (TABLE, ROWS), 1),
    "handed on": (handed_on, (TABLE,), 1),
    "in a middle axis": (in_a_middle_axis, (DEEP,), 2),
    "of two indices": (of_two_indices, (DEEP,), 1),
    "onto itself": (onto_itself, (TABLE,), 1),
    "window": (window, (TABLE, ROWS[:6], START), 1),
    "window at its end": (window, (TABLE, ROWS[:6], np.int32(99)), 1),
    "window before its begin": (window, (TABLE, ROWS[:6], np.int8(-99)), 1),
    "expensive": (expensive, (TABLE, ROWS), 2),
    "twice needed": (twice_needed, (TABLE, ROWS), 2),
    "in a loop": (window_in_a_loop, (TABLE,), 1),
}


def single(x: Any) -> Any:
    return x.astype(np.float32) if x.dtype == np.float64 else x


def test_same_bits(use_threads, cut_finely):
    works = []
    for name, (f, args, _) in WORKS.items():
        works += [work(name, f, *args), work(f"{name}, single", f, *map(single, args))]
        if name != "in a loop":
            squared = fx.grad(lambda x, *rest, f=f: sum(np.sum(y * y) for y in fx.tree.leaves(f(x, *rest))))
            works.append(work(f"gradient of {name}", squared, *args))
    whole = np.arange(13 * 40).reshape(13, 40)
    works += [work("integers", added, whole.astype(d), (ROWS * 9).astype(d)) for d in (np.int8, np.uint16, np.float16)]
    check(works, use_threads)


def test_against_numpy():
    expected = TABLE.copy()
    np.add.at(expected, PLACES, ROWS * ROWS + ROWS)
    assert_same_bits([fx.jit(added)(TABLE, ROWS)], [expected])
    expected = np.zeros_like(TABLE)
    np.add.at(expected, PLACES, TABLE[PLACES[::-1]] * ROWS[:, :1])
    assert_same_bits([fx.jit(messages)(TABLE, ROWS)], [expected])
    expected = TABLE.copy()
    expected[7:] = ROWS[:6] * 2.0 + 1.0
    assert_same_bits([fx.jit(window)(TABLE, ROWS[:6], np.int64(99))], [expected])


@pytest.mark.parametrize("name", [n for n in WORKS if n != "in a loop"])
def test_what_is_computed_where(name):
    f, args, count = WORKS[name]
    steps = lowered(f, *args).steps
    heavy = [s for s in steps if s.kind == "kernel" and s.bytes_written > 8]
    assert len(heavy) == count and heavy[-1].title.endswith("scatter")


def test_updates_are_not_written_to_memory():
    big = RNG.standard_normal((5000, 40))
    places = RNG.integers(0, 13, 5000)
    done = lowered(lambda t, u, i: t.at[i].add(u * 2.0), TABLE, big, places)
    assert done.memory_analysis().temp_bytes <= 64  # where it says what is out of bounds


@pytest.mark.parametrize("wrong", [13, -14])
@pytest.mark.parametrize("f", [added, stored, replaced, messages])
def test_out_of_bounds(f, wrong, monkeypatch):
    bad = PLACES.copy()
    bad[-2] = wrong
    monkeypatch.setitem(globals(), "PLACES", bad)
    with pytest.raises(FxIndexError, match=f"index {wrong} is out of bounds for axis 0 with size 13"):
        fx.jit(f)(TABLE, ROWS)


def test_a_donated_cache_is_written_in_place():
    def step(cache: Any, k: Any, at: Any) -> Any:
        return window(cache, k, at)

    donating = fx.jit(step, donate_argnums=0)
    cache = TABLE.copy()
    address = cache.ctypes.data
    found = donating(cache, ROWS[:2], START)
    assert found.ctypes.data == address
    assert_same_bits([found], [fx.jit(step)(TABLE, ROWS[:2], START)])


def test_the_gradient_of_an_embedding_behind_a_norm():
    """The norm's kernel keeps what it computes in rows: only the last sum is left to the scatter, or nothing."""
    f = fx.grad(lambda t: np.sum(nn.layer_norm(t[PLACES]) ** 2))
    done = lowered(f, TABLE)
    assert sum("rsqrt" in s.title for s in done.steps) == 1
    assert_same_bits([fx.jit(f)(TABLE)], [f(TABLE)])
