"""The parts of SciPy that differentiable code needs."""

from fxgrad.scipy import special

__all__ = ["special"]
