"""Gathers inside kernels over rows and columns, reductions over axes that are no single walk: every way has the same bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxgrad as fx
import fxgrad.numpy as fnp
from fxgrad import nn
from fxgrad.compile import lower
from fxgrad.compile.inline import flatten
from fxgrad.errors import FxIndexError
from fxgrad.testing.bits import assert_same_bits
from tests.works import check, work

RNG = np.random.default_rng(0)
TABLE = RNG.standard_normal((23, 70))
WEIGHTS = RNG.standard_normal((31, 70))
PLACES = RNG.integers(-23, 23, 31)
CUBE = RNG.standard_normal((6, 7, 53))
DEEP = RNG.standard_normal((3, 5, 4, 6, 18))


def lowered(f: Callable[..., Any], *args: Any) -> Any:
    return lower._compile(flatten(fx.make_ir(f)(*args)), True)


def kernels(f: Callable[..., Any], *args: Any) -> list[str]:
    return [s.title for s in lowered(f, *args).steps]


def embedded(t: Any) -> Any:
    return nn.layer_norm(t[PLACES])


def cross_entropy(x: Any, labels: Any) -> Any:
    picked = fnp.take_along_axis(x, labels[:, None], -1)[:, 0]
    return fnp.mean(nn.logsumexp(x, -1) - picked)


GATHERS: dict[str, tuple[Callable[..., Any], tuple]] = {
    "embedding and layer norm": (embedded, (TABLE,)),
    "embedding twice": (lambda t: (embedded(t), t[PLACES] * 2.0), (TABLE,)),
    "two tables": (lambda t, u: np.sum(t[PLACES] * u[PLACES[::-1]], -1), (TABLE, TABLE + 1)),
    "two indices": (lambda t: np.sum(np.exp(t.reshape(23, 7, 10)[PLACES, PLACES % 7]), -1), (TABLE,)),
    "small integers": (
        lambda t: np.max(t[PLACES.astype(np.int8)], -1) + np.min(t[(PLACES % 23).astype(np.uint32)], -1),
        (TABLE,),
    ),
    "part of a table": (lambda t: np.sum(t[3:, 1:60:2][PLACES % 20], -1), (TABLE,)),
    "table and transposed": (lambda t: np.sum(fnp.transpose(t)[PLACES % 23] * 2.0, -1), (TABLE,)),
    "rows of a column": (lambda t, w: np.sum(t[PLACES] * w, 0), (TABLE, WEIGHTS)),
    "columns of three axes": (lambda t: np.mean(t[PLACES.reshape(31, 1)], (0,)), (TABLE,)),
    "along a row": (lambda t, w: np.sum(t[0, 2:][PLACES] * w[:, 3]), (TABLE, WEIGHTS)),
    "along many rows": (lambda t: np.sum(t[PLACES[:20].reshape(4, 5)] * 1.5, 1), (TABLE[:, 0],)),
    "take along": (lambda t: np.sum(fnp.take_along_axis(t, fnp.argsort(t, -1), -1) * TABLE, -1), (TABLE,)),
    "computed index": (lambda t: np.sum(t[:, 0][fnp.asarray(PLACES) // 2 + 3] * 2.0), (TABLE,)),
    "everything": (lambda t, w: np.sum(t[PLACES] * w), (TABLE, WEIGHTS)),
    "cross entropy": (cross_entropy, (TABLE, PLACES[:23])),
    "rows of length one": (lambda t: np.sum(t[PLACES, :1] + 1.0, -1), (TABLE,)),
}

REDUCTIONS: dict[str, tuple[Callable[..., Any], tuple]] = {
    "outer and inner": (lambda x: np.sum(x, (0, 2)), (CUBE,)),
    "maximum": (lambda x: np.max(x * 2.0, (0, 2)), (CUBE,)),
    "variance": (lambda x: np.var(x, (0, 2)), (CUBE,)),
    "normalised": (lambda x: (x - np.mean(x, (0, 2), keepdims=True)) / np.std(x, (0, 2), keepdims=True), (CUBE,)),
    "transposed": (lambda x: np.sum(fnp.transpose(x, (1, 0, 2)) * 2.0, (0, 2)), (CUBE,)),
    "reversed": (lambda x: np.sum(x[::-1, :, ::-1], (0, 2)), (CUBE,)),
    "every second": (lambda x: np.sum(x[:, 1:6, ::2] * x[:, :5, ::2], (0, 2)), (CUBE,)),
    "three apart": (lambda x: np.sum(x, (0, 2, 4)), (DEEP,)),
    "two apart": (lambda x: np.sum(x * x, (1, 3)), (DEEP,)),
    "columns of two": (lambda x: np.mean(x[:, :, ::2], (0, 2)), (DEEP,)),
    "columns, and more": (lambda x: x - np.max(x, (0, 2), keepdims=True), (DEEP,)),
    "far neighbours": (lambda x: np.sum(fnp.transpose(x, (2, 1, 0)), (0, 1)), (CUBE,)),
    "all of a transposed one": (lambda x: np.sum(fnp.transpose(x, (2, 0, 1))), (CUBE,)),
    "broadcast operands": (lambda x: np.sum(x * np.arange(6.0)[:, None, None] + np.arange(53.0), (0, 2)), (CUBE,)),
    "long rows": (lambda x: np.sum(fnp.reshape(x, (90, 2, 1080 // 20)) * 2.0, (0, 2)), (np.resize(DEEP, 90 * 2 * 54),)),
    "blocks of one row": (lambda x: np.sum(x[:, 1:, :]), (RNG.standard_normal((40, 30, 31)),)),
    "whether any": (lambda x: np.any(x > 2.5, (0, 2)), (CUBE,)),
}


def single(args: tuple) -> tuple:
    return tuple(x.astype(np.float32) if x.dtype == np.float64 else x for x in args)


def sum_of(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, *rest: sum(np.sum(r * r) for r in fx.tree.leaves(f(x, *rest)) if r.dtype.kind == "f")


@pytest.mark.parametrize("table", ["GATHERS", "REDUCTIONS"])
def test_same_bits(table, use_threads, cut_finely):
    works = []
    for name, (f, args) in globals()[table].items():
        for kind, given in (("", args), ("single", single(args))):
            works.append(work(f"{name} {kind}", f, *given))
        if name != "whether any":
            works.append(work(f"gradient of {name}", fx.grad(sum_of(f)), *args))
    check(works, use_threads)


@pytest.mark.parametrize("axes", [(0, 2), (0, 1, 3), (0, 2, 4), (1, 3), (0, 3), (2, 4), (0, 2, 3), (1, 2, 4)])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.int8])
def test_the_tree_is_that_of_the_reduced_elements_in_order(axes, dtype):
    """Where they lie changes nothing: brought side by side before they are reduced, they give the same bits."""
    x = (RNG.standard_normal((7, 5, 24, 6, 18)) * 10).astype(dtype)
    y = np.ascontiguousarray(np.moveaxis(x, axes, range(-len(axes), 0)))
    for f in (fnp.sum, fnp.max):
        expected = fx.jit(lambda t, f=f: f(t, tuple(range(5 - len(axes), 5))))(y)
        assert_same_bits([fx.jit(lambda t, f=f: f(t, axes))(x), f(x, axes)], [expected, expected])


def test_values():
    """Against NumPy, since the answers above are those of our own operations."""
    for name, (f, args) in {**GATHERS, **REDUCTIONS}.items():
        if name in ("embedding and layer norm", "embedding twice", "cross entropy", "take along"):
            continue
        expected = f(*args)
        np.testing.assert_allclose(fx.jit(f)(*args), expected, rtol=1e-12, atol=1e-12, err_msg=name)


@pytest.mark.parametrize(
    "name, count",
    [
        ("embedding and layer norm", 1),
        ("two tables", 1),
        ("two indices", 1),
        ("rows of a column", 1),
        ("along a row", 1),
        ("embedding twice", 1),
    ],
)
def test_gathers_are_part_of_the_kernel(name, count):
    f, args = GATHERS[name]
    found = kernels(f, *args)
    assert len(found) == count and all("gather" in title for title in found)


@pytest.mark.parametrize("name", ["outer and inner", "variance", "normalised", "transposed", "three apart", "two apart"])
def test_no_copy_in_order(name):
    f, args = REDUCTIONS[name]
    done = lowered(f, *args)
    assert [s.kind for s in done.steps] == ["kernel"]
    assert done.memory_analysis().temp_bytes < args[0].nbytes / 4


def test_far_neighbours_are_copied():
    f, args = REDUCTIONS["far neighbours"]
    steps = lowered(f, *args).steps
    assert len(steps) == 2 and "not walked as one" in steps[0].why[0]


BEYOND = {
    "row": embedded,
    "column": lambda t: np.sum(t[PLACES], 0),
    "elements": lambda t: np.sum(t[:, 0][PLACES] * 2.0),
    "stored": lambda t: np.sum(t[PLACES]),
}


@pytest.mark.parametrize("f", BEYOND.values(), ids=BEYOND)
@pytest.mark.parametrize("wrong", [23, -24, 1 << 40])
def test_out_of_bounds(f, wrong, monkeypatch):
    bad = PLACES.copy()
    bad[17] = wrong
    monkeypatch.setitem(globals(), "PLACES", bad)
    with pytest.raises(FxIndexError, match=f"index {wrong} is out of bounds for axis 0 with size 23"):
        fx.jit(f)(TABLE)


def test_out_of_bounds_of_split_rows(monkeypatch):
    """A row that is cut into blocks, whose kernels have other operands."""
    long = RNG.standard_normal(50_000)
    places = RNG.integers(0, 50_000, 60_000)
    f = fx.jit(lambda x, i: np.sum(x[i] * x[i]))
    assert len(kernels(lambda x, i: np.sum(x[i] * x[i]), long, places)) == 2
    np.testing.assert_allclose(f(long, places), np.sum(long[places] ** 2), rtol=1e-12)
    places[-1] = 50_000
    with pytest.raises(FxIndexError, match="index 50000"):
        f(long, places)


LABELS = RNG.integers(0, 70, 23)


def by_arange(x: Any) -> Any:
    return fnp.mean(nn.logsumexp(x, -1) - x[fnp.arange(23), fnp.asarray(LABELS)])


def into_a_stranger(x: Any) -> Any:
    """Signed zeros met by what is scattered, and by nothing."""
    g = fnp.zeros_like(x).at[fnp.arange(23), LABELS].add(-x[:, 0] * 0.0)
    return x * -0.0 + g


def met_twice(x: Any) -> Any:
    return np.sin(x) + fnp.zeros_like(x).at[np.arange(23) // 2, LABELS].add(x[:, 1])


SCATTERED: dict[str, Callable[..., Any]] = {
    "labels": fx.value_and_grad(lambda x: cross_entropy(x, LABELS)),
    "by arange": fx.value_and_grad(by_arange),
    "into a stranger": into_a_stranger,
    "met twice": met_twice,
}


@pytest.mark.parametrize("name", SCATTERED)
def test_scattered_into_what_it_is_added_to(name, use_threads, cut_finely):
    f = SCATTERED[name]
    x = TABLE.copy()
    x[::3, ::2] = -0.0
    x[2, 5] = np.inf
    x[4] = -np.inf
    x[6, 3] = np.nan
    check([work(name, f, x), work(f"{name} single", f, x.astype(np.float32))], use_threads)


def test_no_zeros_are_made_for_labels():
    f = SCATTERED["labels"]
    done = lowered(f, TABLE)
    assert done.memory_analysis().temp_bytes < TABLE.nbytes / 2
    assert not any(s.kind == "fill" and s.writes[0].aval.nbytes == TABLE.nbytes for s in done.steps)
    twice = lowered(met_twice, TABLE)
    assert any(s.kind == "fill" and s.writes[0].aval.nbytes == TABLE.nbytes for s in twice.steps)


def test_wrong_labels_raise_in_the_gradient():
    f = fx.jit(fx.grad(cross_entropy))
    with pytest.raises(FxIndexError, match="index 70 is out of bounds for axis 1 with size 70"):
        f(TABLE, np.full(23, 70))


def test_logsumexp_and_its_gradient_share_the_exponentials():
    (kernel,) = lowered(fx.value_and_grad(lambda x: np.sum(nn.logsumexp(x, -1))), TABLE.repeat(3, 1)).steps[:1]
    assert kernel.title.split().count("exp") == kernel.title.split().count("max") == 1


MAPS: dict[str, tuple[Callable[..., Any], tuple]] = {
    "lookup": (lambda t, w: t[PLACES] * 2.0 + w, (TABLE, WEIGHTS)),
    "two from one table": (lambda t, w: t[PLACES] * t[PLACES[::-1]] + w, (TABLE, WEIGHTS)),
    "an index that counts": (lambda t, w, i: t[i] * i[:, None] + w, (TABLE, WEIGHTS, PLACES)),
    "of a transposed one": (lambda t, w: fnp.transpose(t)[PLACES] + w[:, :23], (TABLE, WEIGHTS)),
    "one number a row": (lambda t, w: fnp.broadcast_to(t[:, 3][PLACES][:, None], (31, 70)) * w, (TABLE, WEIGHTS)),
    "one row": (lambda t, w: t[PLACES[:1]] + w[:1], (TABLE, WEIGHTS)),
    "one column": (lambda t, w: t[PLACES, :1] + w[:, :1], (TABLE, WEIGHTS)),
    "rows and elements": (lambda t, w: t[PLACES] + fnp.take_along_axis(w, np.argsort(w, -1), -1), (TABLE, WEIGHTS)),
    "stored and used": (lambda t, w: (t[PLACES], t[PLACES] + w), (TABLE, WEIGHTS)),
}


def test_same_bits_of_maps(use_threads, cut_finely):
    works = []
    for name, (f, args) in MAPS.items():
        works += [work(name, f, *args), work(f"{name}, single", f, *single(args))]
    check(works, use_threads)


def test_a_lookup_begins_its_rows_where_the_index_leads():
    text = lowered(MAPS["lookup"][0], TABLE, WEIGHTS).text
    assert " index" in text and "= gather" not in text
    f = fx.jit(MAPS["an index that counts"][0])
    with pytest.raises(FxIndexError, match="index -24 is out of bounds for axis 0 with size 23"):
        f(TABLE, WEIGHTS, np.where(np.arange(31) == 30, -24, PLACES))
