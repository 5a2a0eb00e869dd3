"""Every function of the standard: dtypes and shapes of results, broadcasting, keywords; plain, under jit and vmap."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fxgrad as fx
import fxgrad.numpy as xp
from fxgrad.testing.bits import assert_same_bits
from tests.array_api import calls


def _close(what: str, got: Any, want: Any) -> None:
    if isinstance(want, (tuple, list)):
        assert len(got) == len(want), what
        for g, w in zip(got, want, strict=True):
            _close(what, g, w)
        return
    if not isinstance(want, (np.ndarray, np.generic)):
        assert got == want, what
        return
    got, want = np.asarray(got), np.asarray(want)
    assert (got.dtype, got.shape) == (want.dtype, want.shape), f"{what}: {got.dtype}{got.shape}, not {want.dtype}{want.shape}"
    if want.dtype.kind in "fc":
        eps = float(np.finfo(want.dtype).eps)
        np.testing.assert_allclose(got, want, rtol=64 * eps, atol=64 * eps, err_msg=what)
    else:
        np.testing.assert_array_equal(got, want, err_msg=what)


@pytest.mark.parametrize("names", [calls.UNARY, calls.BINARY], ids=["unary", "binary"])
@pytest.mark.parametrize("dtype", calls.KINDS["all"])
def test_elementwise(names: dict[str, str], dtype: str) -> None:
    """Values of all shapes; operands of one dtype give what NumPy gives, Python numbers leave it alone."""
    count = 1 if names is calls.UNARY else 2
    todo = [n for n, kinds in names.items() if dtype in calls.KINDS[kinds]]
    operands = [
        [calls.values(dtype, s, 7 * j + k) for k, s in enumerate(shapes[:count])] for j, shapes in enumerate(calls.SHAPES)
    ]

    def everything(operands: list[list[Any]], np_: Any = xp) -> list[list[Any]]:
        return [[_apply(np_, name, xs) for xs in operands] for name in todo]

    with np.errstate(all="ignore"):
        want = everything(operands, np)
    got, compiled = everything(operands), fx.jit(everything)(operands)
    for name, *results in zip(todo, got, compiled, want, strict=True):
        for xs, plain, fast, oracle in zip(operands, *results, strict=True):
            _close(f"{name}({[a.shape for a in xs]})", plain, oracle)
            assert_same_bits(fast, np.asarray(plain) if np.ndim(plain) else plain, name)


def _apply(np_: Any, name: str, xs: list[Any]) -> Any:
    """acosh is defined from 1 on."""
    f = getattr(np_, name)
    return f(*xs) if name != "acosh" or xs[0].dtype.kind == "c" else f(xs[0] + 1)


@pytest.mark.parametrize("dtype", ["float32", "int16", "complex64"])
def test_elementwise_under_vmap(dtype: str) -> None:
    batch = calls.values(dtype, (3, 4), 5)
    todo = [n for n, kinds in calls.UNARY.items() if dtype in calls.KINDS[kinds]]
    f = lambda x: [_apply(xp, name, [x]) for name in todo]  # noqa: E731
    for name, got, rows in zip(todo, fx.vmap(f)(batch), zip(*[f(row) for row in batch], strict=True), strict=True):
        assert_same_bits(got, np.stack(rows), name)


def test_promotion_of_every_pair() -> None:
    """The standard's tables are NumPy's within a kind; the mixed pairs it leaves open too."""
    dtypes = calls.KINDS["n"]
    pairs = [(a, b) for a in dtypes for b in dtypes]
    arrays = {d: calls.values(d, (2,), 0) for d in dtypes}
    found = fx.jit(lambda arrays: [arrays[a] + arrays[b] for a, b in pairs])(arrays)
    for (a, b), y in zip(pairs, found, strict=True):
        assert y.dtype == np.result_type(a, b) == xp.result_type(arrays[a], arrays[b]) == xp.add(arrays[a], arrays[b]).dtype
    for d in dtypes:
        for number in (True, 3, *([0.5] if d in calls.KINDS["fc"] else []), *([1j] if d in calls.KINDS["c"] else [])):
            assert xp.multiply(arrays[d], number).dtype == d


def _function(np_: Any, space: str, name: str) -> Callable[..., Any]:
    return getattr(getattr(np_, space) if space else np_, name)


def test_calls() -> None:
    """All calls at once, so that compiling them is one kernel unit."""
    arrays = [[a if isinstance(a, np.ndarray) else None for a in args] for _, _, args, _ in calls.CALLS]

    def everything(arrays: list[list[Any]]) -> list[Any]:
        out = []
        for given, (space, name, args, kwargs) in zip(arrays, calls.CALLS, strict=True):
            found = _function(xp, space, name)(*[a if g is None else g for g, a in zip(given, args, strict=True)], **kwargs)
            out.append(list(found) if isinstance(found, tuple) else found)
        return out

    plain = everything(arrays)
    traced = [k for k, y in enumerate(plain) if not isinstance(y, (bool, np.dtype))]
    compiled = dict(
        zip(traced, fx.jit(lambda arrays: [y for k, y in enumerate(everything(arrays)) if k in traced])(arrays), strict=True)
    )
    for k, (space, name, args, kwargs) in enumerate(calls.CALLS):
        _close(f"{space} {name} {kwargs}", plain[k], _function(np, space, name)(*args, **kwargs))
        if k in compiled:
            assert_same_bits(compiled[k], plain[k], f"{name} {kwargs}")


@pytest.mark.parametrize("name, args", calls.BY_VALUE)
def test_calls_whose_shapes_depend_on_values(name: str, args: tuple) -> None:
    _close(name, getattr(xp, name)(*args), getattr(np, name)(*args))


def test_factorisations_multiply_back() -> None:
    for a in (calls.x[0], calls.stack, calls.x[:0]):
        q, r = xp.linalg.qr(a, mode="reduced")
        np.testing.assert_allclose(q @ r, a, atol=1e-13)
        u, s, vh = xp.linalg.svd(a, full_matrices=False)
        np.testing.assert_allclose((u * s[..., None, :]) @ vh, a, atol=1e-13)
    w, v = xp.linalg.eigh(calls.stack)
    np.testing.assert_allclose((v * w[..., None, :]) @ xp.matrix_transpose(v), calls.stack, atol=1e-13)


def test_descending_order() -> None:
    x = calls.n
    assert_same_bits(xp.sort(x, axis=1, descending=True), -np.sort(-x, axis=1))
    assert_same_bits(xp.argsort(x, axis=1, descending=True, stable=True), np.argsort(-x, axis=1, stable=True))


@pytest.mark.parametrize("name", calls.SIGNATURES)
def test_signatures(name: str) -> None:
    """What the standard calls positional-only may have another name here; keywords have the standard's."""
    space, _, last = name.rpartition(".")
    signature = inspect.signature(_function(xp, space, last))
    first, both, keywords = (part.split() for part in f" {calls.SIGNATURES[name]} / ".split("/")[:3])
    signature.bind(*first, *both, **dict.fromkeys(keywords))
    accepted = {p.name for p in signature.parameters.values() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    takes_any = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
    if not first:
        signature.bind(**dict.fromkeys(both), **dict.fromkeys(keywords))
    assert takes_any or {*both, *keywords} <= accepted, f"{name}{signature}"
