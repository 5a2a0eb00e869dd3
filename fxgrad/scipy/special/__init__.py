"""Special functions, as scipy.special; right at infinities, and free of NaN where the limits exist."""

from fxgrad.scipy.special.elementwise import *  # noqa: F403
from fxgrad.scipy.special.elementwise import __all__ as _elementwise
from fxgrad.scipy.special.elementwise import softplus_of as softplus_of
from fxgrad.scipy.special.gammas import *  # noqa: F403
from fxgrad.scipy.special.gammas import __all__ as _gammas
from fxgrad.scipy.special.sums import *  # noqa: F403
from fxgrad.scipy.special.sums import __all__ as _sums

__all__ = sorted([*_elementwise, *_gammas, *_sums])  # noqa: PLE0605
