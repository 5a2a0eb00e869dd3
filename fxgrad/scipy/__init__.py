"""The parts of SciPy that differentiable code needs."""

from fxgrad.scipy import linalg, special

__all__ = ["linalg", "special"]
