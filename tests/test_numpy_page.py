"""docs/numpy.md says what is so: every name has a row, and what it calls differentiable or constant is."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import fxgrad as fx
import fxgrad.numpy as fnp
from fxgrad.numpy import missing, registry
from tests.test_docs import same

v, M = np.array([0.31, 0.52, 0.83]), np.array([[0.9, 0.21, 0.13], [0.22, 0.8, 0.34], [0.17, 0.35, 0.7]])
i = np.array([2, 0, 1])
GENERIC: list[tuple[Any, ...]] = [
    (v,), (M,), (v, v[::-1].copy()), (M, M.T.copy()), (v, i), (M, 1), (v, 1), (v, (3,)), (i, v), ([v, v],),
    (v > 0.4, v), (0.3, v),
    (i, i), (2, 2), (3,), ((v, v),), (M, 0, 1), (v, v, v), (v, 0, 1), (M, 0, 0.5),
    (3, v),
]  # fmt: skip


def _written(write: Any) -> Any:
    """What an in-place function leaves in a copy of its operand."""

    def probe(x: Any) -> Any:
        y = fnp.concatenate([x, x])
        write(y, x)
        return y

    return probe


PROBES: dict[str, Any] = {
    "copyto": _written(lambda y, x: fnp.copyto(y, x[0])),
    "fill_diagonal": lambda x: (m := fnp.outer(x, x), fnp.fill_diagonal(m, x[0]))[0],
    "place": _written(lambda y, x: fnp.place(y, y > 0.4, x)),
    "put": _written(lambda y, x: fnp.put(y, i, x)),
    "put_along_axis": _written(lambda y, x: fnp.put_along_axis(y, i, x, 0)),
    "putmask": _written(lambda y, x: fnp.putmask(y, y > 0.4, x[0])),  # where none of these will do
    "apply_along_axis": lambda x: fnp.apply_along_axis(fnp.sum, 0, x),
    "apply_over_axes": lambda x: fnp.apply_over_axes(fnp.sum, x, (0,)),
    "average": lambda x: fnp.average(x),
    "choose": lambda x: fnp.choose(i, [x, x, x]),
    "clip": lambda x: fnp.clip(x, 0, 1),
    "einsum": lambda x: fnp.einsum("i->", x),
    "full": lambda x: fnp.full((3,), x),
    "full_like": lambda x: fnp.full_like(v, x),
    "geomspace": lambda x: fnp.geomspace(x[0], 3.0, 4),
    "interp": lambda x: fnp.interp(0.5, [0, 1, 2], x),
    "kaiser": lambda x: fnp.kaiser(5, x[0]),
    "linspace": lambda x: fnp.linspace(x[0], 3.0, 4),
    "logspace": lambda x: fnp.logspace(x[0], 3.0, 4),
    "nextafter": lambda x: fnp.nextafter(x, 2.0),
    "piecewise": lambda x: fnp.piecewise(x, [x > 0.4], [lambda y: y * y]),
    "vectorize": lambda x: fnp.vectorize(lambda y: y * y)(x),
    "fromfunction": lambda x: fnp.fromfunction(lambda k: k * x, (3,)),
    "fromiter": lambda x: fnp.fromiter((y for y in x), float),
    "histogram": lambda x: fnp.histogram(v, 2, weights=x)[0],
    "insert": lambda x: fnp.insert(x, 1, 2.0),
    "pad": lambda x: fnp.pad(x, 1),
    "poly": lambda x: fnp.poly(x),
    "acosh": lambda x: fnp.acosh(x + 1),
    "arccosh": lambda x: fnp.arccosh(x + 1),
    "diag_indices": lambda x: fnp.diag_indices(3),
    "ix_": lambda x: fnp.ix_(i, i),
    "dsplit": lambda x: fnp.dsplit(x[None, None], 3),
    "einsum_path": lambda x: fnp.einsum_path("i,i", x, x),
    "ndenumerate": lambda x: [y for _, y in fnp.ndenumerate(x)],
    "permute_dims": lambda x: fnp.permute_dims(x[None], (1, 0)),
    "polyfit": lambda x: fnp.polyfit(i, x, 1),
    "split": lambda x: fnp.split(x, 3),
    "quantile": lambda x: fnp.quantile(x, 0.3),
    "percentile": lambda x: fnp.percentile(x, 30),
    "nanquantile": lambda x: fnp.nanquantile(x, 0.3),
    "nanpercentile": lambda x: fnp.nanpercentile(x, 30),
    "select": lambda x: fnp.select([x > 0.4], [x]),
    "setdiff1d": lambda x: fnp.setdiff1d(x, [0.31]),
    "intersect1d": lambda x: fnp.intersect1d(x, [0.31, 0.52]),
    "setxor1d": lambda x: fnp.setxor1d(x, [0.31, 7.0]),
    "where": lambda x: fnp.where(x > 0.4, x, 0.0),
    "compress": lambda x: fnp.compress(v > 0.4, x),
    "extract": lambda x: fnp.extract(v > 0.4, x),
    "take_along_axis": lambda x: fnp.take_along_axis(x, i, 0),
    "spacing": lambda x: fnp.spacing(x),
}


def test_page_is_generated() -> None:
    same(registry.numpy_page(), "numpy")


def test_every_name_has_a_row() -> None:
    page = registry.numpy_page()
    spelled = [f"| `{module}.{name}` |" for module, _, _, name in registry.names()]
    assert len(set(spelled)) == len(spelled) > 540
    assert not [s for s in spelled if s not in page]
    assert set(np.__all__) <= {name for module, _, _, name in registry.names() if module == "np"}


def test_absent_names_of_the_main_namespace_have_a_reason() -> None:
    absent = [n for n in np.__all__ if not hasattr(fnp, n)]
    assert not [n for n in absent if n not in missing.ABSENT and not n.startswith("_")]
    for name in absent:
        if not name.startswith("_"):
            with pytest.raises(fx.UnsupportedError, match=f"np.{name} is not supported"):
                getattr(fnp, name)


def _floats(tree: Any) -> list[Any]:
    return [y for y in fx.tree.leaves(tree) if hasattr(y, "dtype") and y.dtype.kind in "fc"]


def _varies(f: Any, *args: Any) -> bool | None:
    """Whether the result of f moves with its float arguments; None if f does not take them."""
    places = [k for k, a in enumerate(args) if np.asarray(fx.tree.leaves(a)[0]).dtype.kind == "f"]
    if not places:
        return None

    def g(*xs: Any) -> Any:
        full = list(args)
        for k, x in zip(places, xs, strict=True):
            full[k] = x
        return tuple(_floats(f(*full)))

    primals = tuple(args[k] for k in places)
    tangents = fx.tree.map(lambda x: np.asarray(x) * 0 + np.arange(1.0, 1.0 + np.size(x)).reshape(np.shape(x)), primals)
    try:
        _, out = fx.jvp(g, primals, tangents)
    except (TypeError, ValueError, IndexError, KeyError, AttributeError):
        return None
    return any(np.any(np.nan_to_num(np.asarray(t)) != 0) for t in fx.tree.leaves(out))


FUNCTIONS = sorted(
    name
    for module, original, ours, name in registry.names()
    if module == "np" and registry.status(ours, original, name) in ("differentiable", "constant") and callable(getattr(fnp, name))
)


LINALG = [
    name for module, _, ours, name in registry.names() if module == "np.linalg" and hasattr(ours, name) and name != "LinAlgError"
]
SYMMETRIC = M @ M.T + np.eye(3)
FOR_MATRICES: list[tuple[Any, ...]] = [
    (SYMMETRIC,), (M, 2), (M, v), (M, M.T.copy()), (v, v[::-1].copy()), ([M, M],), (M[None] * np.eye(3)[:, :, None], v),
    (np.eye(4).reshape(2, 2, 2, 2) + 0.1,),
]  # fmt: skip


@pytest.mark.parametrize("name", LINALG)
def test_status_in_linalg(name: str) -> None:
    answers = [_varies(getattr(fnp.linalg, name), *args) for args in FOR_MATRICES]
    assert (True not in answers) if name in registry.CONSTANT else (True in answers)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_status(name: str) -> None:
    """Differentiable functions have results that move with their arguments; constant ones have none that do."""
    function, constant = getattr(fnp, name), name in registry.CONSTANT
    answers = [_varies(PROBES[name], v)] if name in PROBES else [_varies(function, *args) for args in itertools.chain(GENERIC)]
    if constant or name in ("angle", "imag"):  # of real numbers, those are constant
        assert True not in answers
    else:
        assert True in answers
