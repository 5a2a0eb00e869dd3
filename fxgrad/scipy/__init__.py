"""The parts of SciPy that differentiable code needs."""

from fxgrad.scipy import linalg, special, stats

__all__ = ["linalg", "special", "stats"]
