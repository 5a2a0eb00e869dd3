"""The short way through a jitted function: taken from the third call on, with the same results and the same care."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict, namedtuple
from typing import Any

import numpy as np
import pytest

import fxgrad as fx
from fxgrad.compile.jit import _MISS
from fxgrad.testing.bits import assert_same_bits

Pair = namedtuple("Pair", "left right")


@fx.tree.register_dataclass
@dataclasses.dataclass
class Layer:
    w: Any
    kind: str = dataclasses.field(default="dense", metadata={"static": True})


def ones(*shape: int, k: float = 1) -> np.ndarray:
    return np.full(shape or (3,), k, np.float32)


def deep(k: float = 1.0) -> dict:
    """Four containers."""
    return {"a": ones(k=k), "b": [ones(2), (ones(k=2 * k),)], "c": {"d": ones(k=k + 1)}}


TREES = {
    "array": (ones(),),
    "several": (ones(), ones(k=2), ones(2, 2)),
    "tuple": ((ones(), (ones(k=2),)), ()),
    "list": ([ones(), [ones(k=2), None]],),
    "dict": ({"b": ones(), "a": ones(k=2), "c": {}},),
    "one key": ({"a": [ones()]},),
    "integer keys": ({2: ones(), 1: ones(k=2)},),
    "nested": ({"layers": [{"w": ones(2, 2), "b": ones()}, {"b": ones(k=2), "w": ones()}], "step": (ones(),)}, ones()),
    "ordered": (OrderedDict(b=ones(), a=ones(k=2)),),
    "default": (defaultdict(list, x=ones()),),
    "named": (Pair(ones(), Pair(ones(k=2), None)),),
    "registered": ([Layer(ones()), Layer(ones(k=2), "other")],),
    "repeated": ([deep(k=i) for i in range(3)], {"a": deep(), "b": [deep(k=7)]}),
    "none": (None, ones()),
    "numbers": (ones(), 2.0, 3, True, np.float32(4), np.int64(5)),
    "only numbers": (2.0,),
}


def double(*args: Any) -> Any:
    return fx.tree.map(lambda x: x * 2 if type(x) is not bool else x, args)


def leaves_and_structure(tree: Any) -> tuple[list, Any]:
    return fx.tree.flatten(tree)


@pytest.mark.parametrize("name", TREES)
def test_trees_of_every_kind(name: str) -> None:
    args = TREES[name]
    f = fx.jit(double)
    first = f(*args)
    second = f(*args)
    assert f._quick is not None and f._quick(args) is not _MISS
    third = f(*args)
    assert f.cache_info() == (2, 1, 1)
    for found in (second, third):
        (a, shape), (b, expected) = leaves_and_structure(found), leaves_and_structure(first)
        assert shape == expected and str(shape) == str(expected)
        assert_same_bits(a, b)
        assert [type(x) for x in a] == [type(x) for x in b]


@pytest.mark.parametrize(
    "other",
    [
        ({"a": ones(), "b": ones()},),
        ({"a": ones(), "c": ones(), "d": ones()},),
        ({"a": ones()},),
        (OrderedDict(a=ones(), c=ones()),),
        ({"a": ones(), "c": [ones()]},),
        ({"a": ones(4), "c": ones()},),
        ({"a": ones().astype("f8"), "c": ones()},),
        ({"a": 1.0, "c": ones()},),
        ({"a": np.float32(1), "c": ones()},),
        ([ones(), ones()],),
        (ones(), ones()),
        ({"a": ones(), "c": ones()}, ones()),
        (),
    ],
)
def test_what_differs_goes_the_long_way(other: Any) -> None:
    f, usual = fx.jit(double), ({"a": ones(), "c": ones(k=2)},)
    want = [f(*usual) for _ in range(3)][-1]
    assert f._quick(other) is _MISS
    found, expected = leaves_and_structure(f(*other)), leaves_and_structure(double(*other))
    assert found[1] == expected[1]
    assert_same_bits(found[0], expected[0])
    assert_same_bits(fx.tree.leaves(f(*usual)), fx.tree.leaves(want))


def test_a_tree_that_is_there_often_is_taken_apart_by_one_function() -> None:
    f, usual = fx.jit(double), ([deep(), deep(k=2)], deep(k=3))
    for _ in range(3):
        f(*usual)
    assert f._quick(usual) is not _MISS
    for wrong in ({**deep(), "c": {"e": ones()}}, {"a": ones()}, [deep()], {**deep(), "b": [ones(), ones()]}, ones()):
        assert f._quick(([deep(), wrong], deep())) is _MISS
        assert f._quick(([deep(), deep()], wrong)) is _MISS
    assert f._quick(([deep(), {**deep(), "a": ones(4)}], deep())) is _MISS


def test_layouts_that_need_a_copy() -> None:
    f, x = fx.jit(lambda x, y: x * 2 + y), np.arange(12, dtype="f4").reshape(3, 4)
    for _ in range(3):
        f(x, x)
    for y in (x.T.copy().T, np.repeat(x, 2, 1)[:, ::2], x.astype(">f4"), x[::-1]):
        for _ in range(2):
            assert_same_bits(f(y, x), np.asarray(y, "f4") * 2 + x)
            assert_same_bits(f(x, y), x * 2 + np.asarray(y, "f4"))


def test_numbers_keep_their_kind() -> None:
    f, x = fx.jit(lambda x, a: x * a), ones()
    for a in (2.0, 3.0, 2, 7, True, np.float64(2), np.float32(3), 4.0, np.float64(5), float("nan"), 2**62):
        for _ in range(3):
            assert_same_bits(f(x, a), x * a)
    for _ in range(2):
        with pytest.raises(OverflowError):
            f(x, 2**70)
    assert_same_bits(f(x, 2), x * 2)


def test_keys_equal_to_the_usual_ones() -> None:
    """1, 1.0 and True are one key of a dict; the tree is the same."""
    f = fx.jit(lambda d: d[1] * 2)
    for _ in range(3):
        f({1: ones()})
    assert_same_bits(f({True: ones(k=3)}), ones(k=6))
    assert f.cache_info().misses == 1


def test_within_transforms_and_with_jit_off() -> None:
    f, x = fx.jit(lambda x: np.sum(x * x)), ones()
    for _ in range(3):
        f(x)
    assert_same_bits(fx.grad(f)(x), 2 * x)
    assert_same_bits(fx.vmap(f)(np.stack([x, x])), np.stack([f(x), f(x)]))
    hits = f.cache_info().hits
    with fx.disable_jit():
        assert f(x) == 3
    assert f(x) == 3 and f.cache_info().hits == hits + 2


def test_guards_are_asked_at_each_call() -> None:
    scale, table = 2.0, np.ones(3)
    read_while_tracing = np.ones(2)

    def g(x: Any) -> Any:
        return x * scale + table * float(read_while_tracing.sum())

    f, x = fx.jit(g), np.ones(3)
    for change in (None, "scale", "table", "contents", "shape", "clear"):
        if change == "scale":
            scale = 5.0
        elif change == "table":
            table = np.full(3, 7.0)
        elif change == "contents":
            table[0] = -1
            read_while_tracing[0] = 9
        elif change == "shape":
            table = np.full(1, 7.0)
        elif change == "clear":
            f.clear_cache()
        for _ in range(3):
            assert_same_bits(f(x), g(x), f"{change}")


def test_captured_arrays_in_every_layout() -> None:
    base = np.arange(12.0).reshape(3, 4)
    captured = base.T
    f = fx.jit(lambda x: x + captured)
    for k in range(4):
        base[0, 1] = k
        assert_same_bits(f(base.T), base.T + captured)


def test_very_deep_and_very_wide_trees() -> None:
    deep: Any = ones()
    for _ in range(60):
        deep = [deep]
    wide = [ones(k=k) for k in range(700)]
    for tree in (deep, wide):
        f = fx.jit(lambda t: fx.tree.map(lambda x: x + 1, t))
        for _ in range(3):
            found = f(tree)
            assert fx.tree.structure(found) == fx.tree.structure(tree)
            assert_same_bits(fx.tree.leaves(found), [x + 1 for x in fx.tree.leaves(tree)])
