"""Linear algebra: systems of equations, inverses, determinants, the matrix exponential."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fxgrad import errors
from fxgrad.ir.types import Aval, aval_of
from fxgrad.primitives import complex as cx
from fxgrad.primitives.base import Doc, Linear, Primitive, add_tangents, register, type_error, zeros
from fxgrad.primitives.complex import real_dtype
from fxgrad.primitives.elementwise import lin_mul, neg
from fxgrad.primitives.matrices import (
    DIAGONAL,
    LOWER,
    UPPER,
    adjoint,
    batch_stack,
    columns,
    conj,
    from_triangle,
    inner_product,
    matrix_types,
    minus,
    mm,
    part,
    rows,
    turn,
)  # fmt: skip
from fxgrad.primitives.shape import concatenate
from fxgrad.runtime import dense

_INT = np.dtype(np.int64)


def library(f: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A call of numpy.linalg, whose LinAlgError becomes ours."""
    try:
        return f(*args, **kwargs)
    except errors.FxError:
        raise
    except np.linalg.LinAlgError as problem:
        raise refusal(str(problem)) from None


_REASONS = {
    "Singular matrix": (
        "It has no inverse, so the system has no solution or more than one.",
        "Use np.linalg.lstsq or np.linalg.pinv, or add a small multiple of np.eye(n).",
    ),
    "Matrix is not positive definite": (
        "The factorisation meets a diagonal element that is not positive; NumPy reads one triangle of the matrix only.",
        "Add a small multiple of np.eye(n), or look at np.linalg.eigvalsh(a).",
    ),
}


def refusal(what: str) -> errors.FxLinAlgError:
    """The error for a matrix that LAPACK does not take."""
    why, fix = _REASONS.get(
        what,
        ("The iteration needs finite numbers, and in rare cases does not end.", "Look for NaN and inf: np.isfinite(a).all()."),
    )
    return errors.FxLinAlgError(what, why=why, fix=fix)


# ---- systems -------------------------------------------------------------------------------------------------------------


def _system_typ(name: str) -> Callable[..., list[Aval]]:
    def typ(a: Aval, b: Aval, **params: Any) -> list[Aval]:
        shape = matrix_types(name, (a, b), square=True)
        if b.shape[-2] != shape[-1]:
            raise type_error(name, (a, b), "The right-hand side must have as many rows as the matrix.")
        return [b]

    return typ


def _solve_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, trans: bool) -> tuple[list, list]:
    (a, b), (ta, tb) = primals, tangents
    x = solve(a, b, trans=trans)
    moved = None if ta is None else mm(turn(ta) if trans else ta, x, strong=0)
    return [x], [solve(a, minus(tb, moved), trans=trans)]


def _solve_numpy(a: Any, b: Any, *, trans: bool) -> Any:
    return library(np.linalg.solve, dense.transposed(a) if trans else a, b)


solve = register(
    Primitive(
        "solve",
        "host",
        _system_typ("solve"),
        Doc("a^-1 b (trans: of the transpose of a)", "-a^-T g x^T, a^-T g", "Giles (2008), 2.3"),
        jvp=_solve_jvp,
        transpose=lambda cts, inputs, *, trans: [None, solve(inputs[0], cts[0], trans=not trans)],
        batch=batch_stack(lambda: solve),
        numpy=_solve_numpy,
        cheap=False,
    )
)


def _applied(a: Any, op: str) -> Any:
    return a if op == "n" else turn(a) if op == "t" else adjoint(a)


def _triangular_jvp(
    primals: Sequence[Any], tangents: Sequence[Any], *, lower: bool, op: str, unit: bool, checked: bool
) -> tuple[list, list]:
    (a, b), (ta, tb) = primals, tangents
    params = {"lower": lower, "op": op, "unit": unit}
    x = triangular_solve(a, b, **params, checked=checked)
    moved = None
    if ta is not None:
        read = part(ta, LOWER if lower else UPPER)
        if unit:
            read = minus(read, part(read, DIAGONAL))
        moved = mm(_applied(read, op), x, strong=0)
    return [x], [triangular_solve(a, minus(tb, moved), **params, checked=False)]


def _triangular_transpose(cts: Sequence[Any], inputs: Sequence[Any], *, lower: bool, op: str, unit: bool, checked: bool) -> list:
    a, g, params = inputs[0], cts[0], {"lower": lower, "unit": unit, "checked": False}
    if op == "c":
        return [None, conj(triangular_solve(a, conj(g), op="n", **params))]
    return [None, triangular_solve(a, g, op="t" if op == "n" else "n", **params)]


triangular_solve = register(
    Primitive(
        "triangular_solve",
        "host",
        _system_typ("triangular_solve"),
        Doc(
            "op(a)^-1 b of a triangle of a (op: n as it is, t transposed, c conjugate transposed; unit: ones on the diagonal)",
            "the triangle of -a^-T g x^T, a^-T g",
            "Giles (2008), 2.3",
        ),
        jvp=_triangular_jvp,
        transpose=_triangular_transpose,
        batch=batch_stack(lambda: triangular_solve),
        numpy=lambda a, b, *, lower, op, unit, checked: dense.solve_triangular(
            a, b, lower=lower, op=op, unit=unit, checked=checked
        ),
        cheap=False,
    )
)

# ---- inverses ------------------------------------------------------------------------------------------------------------


def _inv_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, checked: bool) -> tuple[list, list]:
    y = inv(primals[0], checked=checked)
    return [y], [neg(mm(mm(y, tangents[0], strong=1), y, strong=0))]


def _inv_numpy(a: Any, *, checked: bool) -> Any:
    return library(np.linalg.inv, a) if checked else dense.inverse_or_nan(a)


inv = register(
    Primitive(
        "inv",
        "host",
        lambda a, *, checked: [a.with_shape(matrix_types("inv", (a,), square=True))],
        Doc("a^-1; a singular matrix is an error (checked) or NaN", "-y^T g y^T", "Giles (2008), 2.2.3"),
        jvp=_inv_jvp,
        batch=batch_stack(lambda: inv),
        numpy=_inv_numpy,
        cheap=False,
    )
)


def _pinv_typ(a: Aval, *, rcond: float | None, hermitian: bool) -> list[Aval]:
    shape = matrix_types("pinv", (a,), square=hermitian)
    return [a.with_shape((*shape[:-2], shape[-1], shape[-2]))]


def _pinv_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, rcond: float | None, hermitian: bool) -> tuple[list, list]:
    """-P t P + (P P^H t^H (1 - A P)) + (1 - P A) t^H P^H P, for tangents along which the rank stays."""
    a, t = primals[0], tangents[0]
    p = pinv(a, rcond=rcond, hermitian=hermitian)
    if hermitian:
        a, t = from_triangle(a, lower=True), from_triangle(t, lower=True)
    th, ph = adjoint(t), adjoint(p)
    left = mm(mm(p, ph), th, strong=1)
    right = mm(th, mm(ph, p), strong=0)
    outer = add_tangents(
        [minus(left, mm(mm(left, a, strong=0), p, strong=0)), minus(right, mm(p, mm(a, right, strong=1), strong=1))]
    )
    return [p], [minus(outer, mm(mm(p, t, strong=1), p, strong=0))]


def _pinv_numpy(a: Any, *, rcond: float | None, hermitian: bool) -> Any:
    return library(np.linalg.pinv, a, rcond, hermitian)


pinv = register(
    Primitive(
        "pinv",
        "host",
        _pinv_typ,
        Doc("the pseudo-inverse", "three products, right where the rank is constant", "Golub, Pereyra (1973), (4.12)"),
        jvp=_pinv_jvp,
        batch=batch_stack(lambda: pinv),
        numpy=_pinv_numpy,
        cheap=False,
    )
)


def _lstsq_typ(a: Aval, b: Aval, *, rcond: float | None) -> list[Aval]:
    *lead, m, n = matrix_types("lstsq", (a, b))
    if b.shape[-2] != m:
        raise type_error("lstsq", (a, b), "The right-hand side must have as many rows as the matrix.")
    spectrum = Aval((*lead, min(m, n)), real_dtype(a.dtype))
    return [a.with_shape((*lead, n, b.shape[-1])), Aval(tuple(lead), _INT), spectrum]


def _lstsq_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, rcond: float | None) -> tuple[list, list]:
    from fxgrad.primitives.decompositions import svdvals_tangent

    (a, b), (ta, tb) = primals, tangents
    x, rank, s = lstsq(a, b, rcond=rcond)
    p = pinv(a, rcond=rcond, hermitian=False)
    if ta is None:
        return [x, rank, s], [mm(p, tb, strong=1), None, None]
    th = adjoint(ta)
    direct = mm(p, minus(tb, mm(ta, x, strong=0)), strong=1)
    residual = mm(th, minus(b, mm(a, x)), strong=0)
    into_null = mm(th, mm(adjoint(p), x), strong=0)
    dx = [
        direct,
        mm(p, mm(adjoint(p), residual, strong=1), strong=1),
        minus(into_null, mm(p, mm(a, into_null, strong=1), strong=1)),
    ]
    return [x, rank, s], [add_tangents(dx), None, svdvals_tangent(a, ta)]


def _lstsq_numpy(a: Any, b: Any, *, rcond: float | None) -> list:
    return list(library(dense.lstsq, a, b, rcond))


lstsq = register(
    Primitive(
        "lstsq",
        "host",
        _lstsq_typ,
        Doc(
            "the least-squares solution of a x = b of smallest norm; the rank of a; its singular values",
            "that of pinv(a) @ b, without forming it",
            "Golub, Pereyra (1973)",
        ),
        jvp=_lstsq_jvp,
        batch=batch_stack(lambda: lstsq),
        numpy=_lstsq_numpy,
        cheap=False,
    )
)

# ---- determinants --------------------------------------------------------------------------------------------------------


def _det_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[list, list]:
    return [det(primals[0])], [inner_product(tangents[0], turn(minors(primals[0])))]


det = register(
    Primitive(
        "det",
        "host",
        lambda a: [a.with_shape(matrix_types("det", (a,), square=True)[:-2])],
        Doc("the determinant", "g * the transpose of the adjugate, without division", "Jacobi's formula"),
        jvp=_det_jvp,
        batch=batch_stack(lambda: det),
        numpy=lambda a: library(np.linalg.det, a),
        cheap=False,
    )
)


def _minors_typ(a: Aval, *directions: Aval) -> list[Aval]:
    matrix_types("minors", (a, *directions), square=True)
    return [a]


def _minors_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[list, list]:
    (a, *directions), (ta, *td) = primals, tangents
    terms = [minors(a, *directions[:i], t, *directions[i + 1 :]) for i, t in enumerate(td) if t is not None]
    if ta is not None:
        if len(directions) == 2:
            raise errors.UnsupportedError(
                "the fourth derivative of a determinant is not supported",
                why="Minors of up to three rows and columns are implemented.",
                fix="Where the matrix is regular, write np.multiply(*...) of np.linalg.slogdet: sign * np.exp(logdet).",
            )
        terms.append(minors(a, *directions, ta))
    return [minors(*primals)], [add_tangents(terms)]


def _minors_transpose(cts: Sequence[Any], inputs: Sequence[Any]) -> list:
    """The form is symmetric in its directions and its argument: their places can be exchanged."""
    (i,) = [i for i, x in enumerate(inputs) if isinstance(x, Linear)]
    out: list[Any] = [None] * len(inputs)
    out[i] = turn(minors(*inputs[:i], turn(cts[0]), *inputs[i + 1 :]))
    return out


minors = register(
    Primitive(
        "minors",
        "host",
        _minors_typ,
        Doc(
            "M with tr(M x) the derivative of det(a) along x and the directions given; the adjugate if there are none",
            "minors with one more direction",
            "Magnus, Neudecker (2019), 8.4",
        ),
        jvp=_minors_jvp,
        transpose=_minors_transpose,
        batch=batch_stack(lambda: minors),
        numpy=lambda a, *directions: library(dense.minors, a, *directions),
        cheap=False,
    )
)


def _slogdet_typ(a: Aval) -> list[Aval]:
    lead = matrix_types("slogdet", (a,), square=True)[:-2]
    return [a.with_shape(lead), Aval(lead, real_dtype(a.dtype))]


def _slogdet_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[list, list]:
    a = primals[0]
    sign, log = slogdet(a)
    moved = inner_product(tangents[0], turn(inv(a, checked=False)))
    if aval_of(sign).dtype.kind != "c":
        return [sign, log], [None, moved]
    turning = cx.complex_(zeros(aval_of(log)), cx.imag(moved))
    return [sign, log], [lin_mul(turning, sign), cx.real(moved)]


slogdet = register(
    Primitive(
        "slogdet",
        "host",
        _slogdet_typ,
        Doc(
            "the sign of the determinant and the log of its absolute value",
            "0 (complex: i Im tr(a^-1 t) sign), g * a^-T (NaN if a is singular)",
            "Jacobi's formula",
        ),
        jvp=_slogdet_jvp,
        batch=batch_stack(lambda: slogdet),
        numpy=lambda a: list(library(np.linalg.slogdet, a)),
        cheap=False,
    )
)

# ---- the matrix exponential ------------------------------------------------------------------------------------------------


def _expm_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[list, list]:
    return [expm(primals[0])], [expm_along(primals[0], tangents[0])]


expm = register(
    Primitive(
        "expm",
        "host",
        lambda a: [a.with_shape(matrix_types("expm", (a,), square=True))],
        Doc("the matrix exponential", "its derivative at a^T along g", "Al-Mohy, Higham (2009)"),
        jvp=_expm_jvp,
        batch=batch_stack(lambda: expm),
        numpy=lambda a: library(dense.expm, a),
        cheap=False,
    )
)


def _along_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[list, list]:
    """By the derivative of a product, exp([[a, e], [0, a]]) has the first derivative in its corner; so has its derivative."""
    (a, e), (ta, te) = primals, tangents
    terms = [] if te is None else [expm_along(a, te)]
    if ta is not None:
        n = aval_of(a).shape[-1]
        both = expm_along(_corner(a, e), _corner(ta, zeros(aval_of(ta))))
        terms.append(columns(rows(both, 0, n), n, 2 * n))
    return [expm_along(a, e)], [add_tangents(terms)]


def _corner(a: Any, e: Any) -> Any:
    """[[a, e], [0, a]]."""
    n = aval_of(a).ndim
    top = concatenate(a, e, axis=n - 1)
    return concatenate(top, concatenate(zeros(aval_of(a)), a, axis=n - 1), axis=n - 2)


def _along_typ(a: Aval, e: Aval) -> list[Aval]:
    if matrix_types("expm_along", (a, e), square=True) != e.shape:
        raise type_error("expm_along", (a, e), "Matrix and direction must have one shape.")
    return [a]


expm_along = register(
    Primitive(
        "expm_along",
        "host",
        _along_typ,
        Doc(
            "the derivative of expm at a along e",
            "that of [[a, e], [0, a]], in the corner; itself at a^T along g",
            "Higham (2008), 3.6",
        ),
        jvp=_along_jvp,
        transpose=lambda cts, inputs: [None, turn(expm_along(inputs[0], turn(cts[0])))],
        batch=batch_stack(lambda: expm_along),
        numpy=lambda a, e: library(dense.expm, a, e),
        cheap=False,
    )
)
