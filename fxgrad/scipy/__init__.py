"""The parts of SciPy that differentiable code needs."""

from fxgrad.scipy import special, stats

__all__ = ["special", "stats"]
