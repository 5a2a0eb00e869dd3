"""What the distributions share: operands, location and scale, and the classes that hold their functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from fxgrad.doctext import documented
from fxgrad.numpy import elementwise as ew
from fxgrad.primitives import elementwise as e
from fxgrad.primitives import transcendental as tr
from fxgrad.scipy.special.operands import constant, floats

__all__ = ["Continuous", "Discrete", "inside", "outside"]

_METHODS = ("cdf", "sf", "ppf", "isf")


def inside(mask: Any, x: Any, value: float) -> Any:
    """x where mask holds, else a number at which the density is harmless: what is not chosen has no gradient then."""
    return e.select(mask, x, constant(x, value))


def outside(mask: Any, y: Any, value: float) -> Any:
    """y where mask holds, else value."""
    return e.select(mask, y, constant(y, value))


def _bind(
    name: str, shapes: tuple[str, ...], tail: tuple[tuple[str, float], ...], args: tuple, kwargs: dict[str, Any]
) -> list[Any]:
    """x, the shape parameters, and what of `tail` was given, else its default; by position or by name."""
    names = ("x", *shapes, *[n for n, _ in tail])
    given = dict(zip(names, args, strict=False))
    if len(args) > len(names) or any(k not in names or k in given for k in kwargs):
        raise TypeError(f"{name}({', '.join(names)}) got {len(args)} arguments and {', '.join(kwargs) or 'no keywords'}")
    given |= kwargs
    missing = [n for n in names[: 1 + len(shapes)] if n not in given]
    if missing:
        raise TypeError(f"{name}() misses {', '.join(missing)}")
    return [given[n] for n in names[: 1 + len(shapes)]] + [given.get(n, d) for n, d in tail]


def _described(name: str, parameters: str, example: str, gives: str) -> str:
    """The docstring of a distribution; `example` calls a method of it."""
    summary = f"The {name} distribution, as scipy.stats.{name}: shape parameters {parameters}."
    return documented(summary, f"stats.{name}.{example}", gives, "from fxgrad.scipy import stats")


class Continuous:
    """A family with location and scale, made of functions for the standard one: logpdf(x, *shapes), cdf, sf, ppf and isf.

    `example` is a call of a method that gives `gives`. `valid(*shapes)` tells which shape parameters make sense; NaN elsewhere.
    """

    def __init__(
        self,
        name: str,
        shapes: tuple[str, ...],
        logpdf: Callable[..., Any],
        example: str,
        gives: str,
        *,
        cdf: Callable[..., Any] | None = None,
        sf: Callable[..., Any] | None = None,
        ppf: Callable[..., Any] | None = None,
        isf: Callable[..., Any] | None = None,
        valid: Callable[..., Any] | None = None,
    ):
        self.name, self.shapes, self._valid = name, shapes, valid
        self._functions = {"logpdf": logpdf, "cdf": cdf, "sf": sf, "ppf": ppf, "isf": isf}
        self.__doc__ = _described(name, f"{', '.join(shapes) or 'none'}, loc, scale", example, gives)

    def __repr__(self) -> str:
        return f"fxgrad.scipy.stats.{self.name}"

    def _standard(self, method: str, args: tuple, kwargs: dict[str, Any], then: Callable[..., Any]) -> Any:
        tail = (("loc", 0.0), ("scale", 1.0))
        operands = floats(*_bind(f"{self.name}.{method}", self.shapes, tail, args, kwargs))

        def single(x: Any, *rest: Any) -> Any:
            *shapes, loc, scale = rest
            ok = e.gt(scale, constant(x, 0))
            if self._valid is not None:
                ok = e.and_(ok, self._valid(*shapes))
            return outside(ok, then(x, shapes, loc, e.select(ok, scale, constant(x, 1))), math.nan)

        return ew.in_single(single)(*operands)

    def logpdf(self, *args: Any, **kwargs: Any) -> Any:
        """Logarithm of the density at x: logpdf(x, *shapes, loc=0, scale=1); -inf outside the support."""
        density = self._functions["logpdf"]
        assert density is not None

        def then(x: Any, shapes: list[Any], loc: Any, scale: Any) -> Any:
            return e.sub(density(e.div(e.sub(x, loc), scale), *shapes), tr.log(scale))

        return self._standard("logpdf", args, kwargs, then)

    def pdf(self, *args: Any, **kwargs: Any) -> Any:
        """The density at x: pdf(x, *shapes, loc=0, scale=1)."""
        return ew.exp(self.logpdf(*args, **kwargs))

    def _function(self, method: str, args: tuple, kwargs: dict[str, Any]) -> Any:
        function = self._functions[method]
        if function is None:
            raise AttributeError(f"fxgrad.scipy.stats.{self.name} has no {method}")

        def forward(x: Any, shapes: list[Any], loc: Any, scale: Any) -> Any:
            return function(e.div(e.sub(x, loc), scale), *shapes)

        def backward(q: Any, shapes: list[Any], loc: Any, scale: Any) -> Any:
            return e.add(e.mul(function(q, *shapes), scale), loc)

        return self._standard(method, args, kwargs, backward if method in ("ppf", "isf") else forward)

    def cdf(self, *args: Any, **kwargs: Any) -> Any:
        """Probability of at most x: cdf(x, *shapes, loc=0, scale=1)."""
        return self._function("cdf", args, kwargs)

    def sf(self, *args: Any, **kwargs: Any) -> Any:
        """Probability of more than x, without cancellation: sf(x, *shapes, loc=0, scale=1)."""
        return self._function("sf", args, kwargs)

    def ppf(self, *args: Any, **kwargs: Any) -> Any:
        """The quantile of probability q, inverse of cdf: ppf(q, *shapes, loc=0, scale=1)."""
        return self._function("ppf", args, kwargs)

    def isf(self, *args: Any, **kwargs: Any) -> Any:
        """Inverse of sf: isf(q, *shapes, loc=0, scale=1)."""
        return self._function("isf", args, kwargs)

    def logcdf(self, *args: Any, **kwargs: Any) -> Any:
        """Logarithm of cdf, also where that is nearly 1."""
        return _log_of_nearer(self.cdf(*args, **kwargs), self.sf(*args, **kwargs))

    def logsf(self, *args: Any, **kwargs: Any) -> Any:
        """Logarithm of sf, also where that is nearly 1."""
        return _log_of_nearer(self.sf(*args, **kwargs), self.cdf(*args, **kwargs))


def _log_of_nearer(probability: Any, other: Any) -> Any:
    """log(probability), by way of the other one, 1 minus it, where that is the smaller."""
    large = e.gt(probability, constant(probability, 0.5))
    rest = e.select(large, other, constant(other, 0))
    return e.select(large, tr.log1p(e.neg(rest)), tr.log(e.select(large, constant(probability, 1), probability)))


class Discrete:
    """A family of integers with a location: logpmf(k, *shapes), cdf and sf of whole numbers k."""

    def __init__(
        self,
        name: str,
        shapes: tuple[str, ...],
        logpmf: Callable[..., Any],
        example: str,
        gives: str,
        *,
        cdf: Callable[..., Any],
        sf: Callable[..., Any],
        valid: Callable[..., Any],
    ):
        self.name, self.shapes, self._valid = name, shapes, valid
        self._functions = {"logpmf": logpmf, "cdf": cdf, "sf": sf}
        self.__doc__ = _described(name, f"{', '.join(shapes)}, loc", example, gives)

    def __repr__(self) -> str:
        return f"fxgrad.scipy.stats.{self.name}"

    def _at(self, method: str, args: tuple, kwargs: dict[str, Any]) -> Any:
        operands = floats(*_bind(f"{self.name}.{method}", self.shapes, (("loc", 0.0),), args, kwargs))
        function = self._functions[method]

        def single(k: Any, *rest: Any) -> Any:
            *shapes, loc = rest
            n = e.sub(k, loc)
            whole = e.floor(n)
            y = function(whole, *shapes)
            y = outside(e.eq(whole, n), y, -math.inf) if method == "logpmf" else y
            return outside(e.and_(self._valid(*shapes), e.eq(n, n)), y, math.nan)

        return ew.in_single(single)(*operands)

    def logpmf(self, *args: Any, **kwargs: Any) -> Any:
        """Logarithm of the probability of k: logpmf(k, *shapes, loc=0); -inf outside the support."""
        return self._at("logpmf", args, kwargs)

    def pmf(self, *args: Any, **kwargs: Any) -> Any:
        """Probability of k: pmf(k, *shapes, loc=0)."""
        return ew.exp(self.logpmf(*args, **kwargs))

    def cdf(self, *args: Any, **kwargs: Any) -> Any:
        """Probability of at most k: cdf(k, *shapes, loc=0)."""
        return self._at("cdf", args, kwargs)

    def sf(self, *args: Any, **kwargs: Any) -> Any:
        """Probability of more than k: sf(k, *shapes, loc=0)."""
        return self._at("sf", args, kwargs)
