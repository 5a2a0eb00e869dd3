"""Control flow: equations that run one program of several (cond), or one until a test fails (while_loop) or so many times (scan).

Their programs are closed and have no consts: what a body captures is an operand, `consts`. Layouts:

    cond          (index, *operands)                          branches: (*operands) -> (*outs)
    while_loop    (*cond_consts, *body_consts, *carry)        cond: (*cond_consts, *carry) -> bool[]
                                                              body: (*body_consts, *carry) -> (*carry)
    scan          (*consts, *init, *xs) -> (*carry, *ys)      body: (*consts, *carry, *x slices) -> (*carry, *y slices)
    while_tape, tape_scan                                     the halves of a while_loop in reverse, see those modules
"""

from fxgrad.primitives.cond import cond
from fxgrad.primitives.scan import scan, tape_scan
from fxgrad.primitives.while_loop import while_loop, while_tape

__all__ = ["cond", "scan", "tape_scan", "while_loop", "while_tape"]
