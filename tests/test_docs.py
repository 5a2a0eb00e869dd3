"""The generated pages are those in the repository, and their numbers are those of the code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench import accuracy
from fxgrad import docs
from fxgrad.ir.types import Aval
from fxgrad.kernels.spec import lanes_of_reduction, reduction_block
from fxgrad.primitives.base import REGISTRY

DOCS = Path(__file__).resolve().parent.parent / "docs"
WITHIN_ONE = {"exp", "log", "tanh", "logistic", "sin", "cos", "sqrt", "rsqrt", "log1p", "expm1", "erf", "hypot"}
PART = 61  # of the float32 points of bench.accuracy that are measured again, one in so many
POINTS64 = 2000  # in float64
ROUNDING = 1e-3  # what the reference in float64 may be off


@pytest.fixture(scope="module")
def data() -> dict[str, Any]:
    return json.loads((DOCS / "numerics.json").read_text())


def same(page: str, name: str) -> None:
    written = (DOCS / f"{name}.md").read_text()
    if written != page:
        pairs = enumerate(zip([*written.split("\n"), "(end)"], [*page.split("\n"), "(end)"], strict=False), 1)
        line, (old, new) = next((i, p) for i, p in pairs if p[0] != p[1])
        pytest.fail(f"docs/{name}.md is not what `make docs` writes; line {line}:\n  {old}\nshould be\n  {new}")


def test_operations_page_is_generated() -> None:
    same(docs.ops_page(), "ops")


def test_numerics_page_is_generated() -> None:
    same(docs.numerics_page(), "numerics")


def test_every_operation_has_a_row() -> None:
    rows = [line for line in docs.ops_page().split("\n") if line.startswith("| `")]
    assert sorted(row.removeprefix("| `").split("`")[0].split("[")[0].split()[0] for row in rows) == sorted(REGISTRY)
    assert not [row for row in rows if " - | " in row], "an operation without a derivation reference"


def test_dtypes_of_the_page_are_those_of_the_type_rules() -> None:
    assert docs._dtypes(REGISTRY["exp"]) == "float, complex"
    assert docs._dtypes(REGISTRY["select"]) == docs._dtypes(REGISTRY["gather"]) == "all"
    assert docs._dtypes(REGISTRY["and"]) == "bool, int, uint"
    assert docs._dtypes(REGISTRY["dot"]) == docs._dtypes(REGISTRY["add"]) == "float, complex, int, uint"
    REGISTRY["exp"].typ(Aval((3,), np.dtype(np.float16)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_reductions_are_as_the_page_has_them(dtype: type) -> None:
    """A sum by the four rules of docs/numerics.md, in plain Python, has the bits of the library's."""
    import fxgrad.numpy as fnp

    page = docs.numerics_page()
    lanes, block = lanes_of_reduction(np.dtype(dtype)), reduction_block(np.dtype(dtype))
    assert f"{block:,}" in page and f"lane l of {lanes_of_reduction(np.dtype(np.float32))}" in page
    x = np.random.default_rng(0).normal(size=2 * block + 77).astype(dtype)
    total: Any = None
    for start in range(0, x.size, block):
        part = x[start : start + block]
        sums = [None] * lanes
        for i, value in enumerate(part):
            before = sums[i % lanes]
            sums[i % lanes] = value if before is None else before + value
        while len(sums) > 1:
            half = len(sums) // 2
            sums = [a if b is None else b if a is None else a + b for a, b in zip(sums[:half], sums[half:], strict=True)]
        total = sums[0] if total is None else total + sums[0]
    assert fnp.sum(x) == total


def test_bounds_are_those_promised(data: dict[str, Any]) -> None:
    entries = data["functions"]
    assert set(entries) == set(accuracy.FUNCTIONS)
    for name, entry in entries.items():
        if (bound := accuracy.FUNCTIONS[name].bound) is not None:
            assert entry["bound"] == bound == (1 if name in WITHIN_ONE else 2)
            assert max(entry[d]["max_ulp"] for d in ("float32", "float64")) <= bound, name
            assert entry["float32"]["points"] > 10**7 and entry["float64"]["points"] > 0.99e6


@pytest.mark.parametrize("name", accuracy.FUNCTIONS)
def test_measured_errors_hold(name: str, data: dict[str, Any]) -> None:
    """A part of the points measured again: within the bound promised, and nothing worse than what was measured."""
    function, entry = accuracy.FUNCTIONS[name], data["functions"][name]
    part = PART if function.bound else 10 * PART
    found = {
        "float32": accuracy.measure32(function, part),
        "float64": accuracy.measure64(function, max(1, function.count // POINTS64), function.count),
    }
    for dtype, measured in found.items():
        assert measured.points > 1000
        at = f"{measured.max_ulp} ulp at {measured.at} in {dtype}"
        assert function.bound is None or measured.max_ulp <= function.bound, at
        assert measured.max_ulp <= entry[dtype]["max_ulp"] + ROUNDING, f"{at}; run `make accuracy` if the kernel was changed"
    for dtype in found:  # and the worst point found is still what it was
        args = [np.full(1, x, dtype) for x in entry[dtype]["at"]]
        error = accuracy.errors_of(accuracy.compute(function, args), accuracy.exact_values(name, [a.astype(float) for a in args]))
        assert abs(error[0] - entry[dtype]["max_ulp"]) <= ROUNDING, f"{error[0]} ulp at {args}; the table says otherwise"
