"""Every law for every case and shape."""

from __future__ import annotations

import numpy as np
import pytest

import fxgrad as fx
from fxgrad.ir.program import Program, subprograms
from fxgrad.primitives.base import REGISTRY
from tests import laws
from tests.cases import CASES, Case

ALL = [pytest.param(c, id=c.name) for c in CASES]
DIFFERENTIABLE = [pytest.param(c, id=c.name) for c in CASES if c.differentiable and "float64" in c.dtypes]
FORWARD = [
    pytest.param(c, id=c.name) for c in CASES if c.differentiable and "float64" in c.dtypes and not c.extra.get("reverse_only")
]


@pytest.mark.parametrize("case", ALL)
def test_values_and_modes(case: Case) -> None:
    for shapes in case.shapes:
        for dtype in case.dtypes:
            args = case.arrays(shapes, dtype)
            laws.value(case, args)
            laws.eager_is_compiled(case, args)
            if case.differentiable:
                laws.derivatives_are_compiled(case, args)
                laws.gradients_match_inputs(case, args)


@pytest.mark.parametrize("case", DIFFERENTIABLE)
def test_derivatives(case: Case) -> None:
    for shapes in case.shapes:
        args = case.arrays(shapes)
        laws.vjp_is_difference(case, args)
        laws.three_uses_sum(case, args)
        if not case.extra.get("reverse_only"):
            laws.jvp_is_difference(case, args)
            laws.dot_product_identity(case, args)
            laws.linearize_is_jvp(case, args)


@pytest.mark.parametrize("case", [c for c in FORWARD if c.values[0].smooth])
def test_second_order(case: Case) -> None:
    for shapes in case.shapes:
        laws.second_order(case, case.arrays(shapes))


@pytest.mark.parametrize("case", ALL)
def test_vmap(case: Case) -> None:
    for shapes in case.shapes:
        args = case.arrays(shapes)
        laws.vmap_is_loop(case, args)
        if case.differentiable and "float64" in case.dtypes:
            laws.vmap_of_gradient_is_loop(case, args)


@pytest.mark.parametrize("case", ALL)
def test_layouts(case: Case) -> None:
    for shapes in case.shapes:
        laws.layouts_do_not_matter(case, case.arrays(shapes))


@pytest.mark.parametrize("case", ALL)
def test_text(case: Case) -> None:
    for shapes in case.shapes:
        laws.prints_and_parses(case, case.arrays(shapes))


def _primitives_of(program: Program, found: set[str]) -> None:
    for eqn in program.eqns:
        found.add(eqn.prim.name)
        for inner in subprograms(eqn):
            _primitives_of(inner, found)


def test_every_primitive_has_a_case() -> None:
    found: set[str] = set()
    for case in CASES:
        args = case.arrays(case.shapes[0])
        _primitives_of(fx.make_ir(case.f)(*args), found)
        if case.differentiable:
            _primitives_of(fx.make_ir(fx.grad(lambda *xs, c=case: np.sum(c.f(*xs))))(*args), found)
    missing = set(REGISTRY) - found - {"custom_vjp_linear"}
    assert not missing, f"primitives without a case in tests/cases.py: {sorted(missing)}"


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_every_primitive_is_documented(name: str) -> None:
    doc = REGISTRY[name].doc
    assert doc.forward and doc.backward
