"""fx.explain: what a compiled function does, where its time goes, and what the machine would allow."""

from fxgrad.explain.report import Explanation, explain

__all__ = ["Explanation", "explain"]
