"""Control flow that compiles: cond, switch, while_loop, fori_loop, scan, map and associative_scan, in JAX's forms.

Each traces the functions it is given once, with values of which only shapes and dtypes are known; what they close over, traced or
not, becomes an operand. A carry that starts as a Python number takes the dtype that the body gives it.
"""

from fxgrad.control.branches import cond, switch
from fxgrad.control.derived import associative_scan, map
from fxgrad.control.loops import fori_loop, scan, while_loop

__all__ = ["associative_scan", "cond", "fori_loop", "map", "scan", "switch", "while_loop"]
