"""Losses, in optax's form: one number an example or an element, no reduction; take `np.mean` of them.

Only `mse` and `mae`, whose names say so, are means over all elements.
"""

from __future__ import annotations

from typing import Any

import fxgrad.numpy as fnp
from fxgrad import errors
from fxgrad.api.programs import stop_gradient
from fxgrad.nn.activations import log_sigmoid, log_softmax, relu
from fxgrad.nn.common import as_float, constant, wide
from fxgrad.numpy.core import as_dtype, canonical_axis, tensor
from fxgrad.numpy.indexing import within
from fxgrad.scipy import special

__all__ = [
    "absolute_error", "cosine_distance", "cosine_similarity", "hinge_loss", "huber_loss", "kl_divergence", "l2_loss",
    "log_cosh", "mae", "mse", "nll_loss", "sigmoid_binary_cross_entropy", "sigmoid_focal_loss", "smooth_l1_loss",
    "smooth_labels", "softmax_cross_entropy", "softmax_cross_entropy_with_integer_labels", "squared_error",
]  # fmt: skip


def _pair(name: str, a: Any, b: Any) -> tuple[Any, Any]:
    """Floating operands of one shape: a column against a row would broadcast to a matrix, silently."""
    a, b = as_float(tensor(a)), as_float(tensor(b))
    if a.shape != b.shape:
        raise errors.FxValueError(
            f"{name} got operands of shapes {a.shape} and {b.shape}",
            why="It compares them element by element; broadcasting here hides mistakes.",
            fix="Give both one shape: y[:, None] or np.squeeze(y, -1) for a column, np.broadcast_to if it is meant.",
        )
    return a, b


# ---- regression ----------------------------------------------------------------------------------------------------------


def squared_error(predictions: Any, targets: Any) -> Any:
    """(predictions - targets)**2, elementwise.

    Arguments:
        predictions, targets: of one shape, here and below.

    Raises:
        FxValueError: the shapes differ (they are not broadcast).

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.nn.squared_error(np.array([1.0, 2.0]), np.array([1.0, 4.0]))
        array([0., 4.])
    """
    return fnp.square(fnp.subtract(*_pair("squared_error", predictions, targets)))


def l2_loss(predictions: Any, targets: Any) -> Any:
    """Half the squared error, elementwise.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.nn.l2_loss(np.array([1.0, 2.0]), np.array([1.0, 4.0]))
        array([0., 2.])
    """
    return fnp.multiply(0.5, squared_error(predictions, targets))


def absolute_error(predictions: Any, targets: Any) -> Any:
    """|predictions - targets|, elementwise; its slope at 0 is 0.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.nn.absolute_error(np.array([1.0, 2.0]), np.array([1.0, 4.0]))
        array([0., 2.])
    """
    return fnp.abs(fnp.subtract(*_pair("absolute_error", predictions, targets)))


def mse(predictions: Any, targets: Any) -> Any:
    """The mean squared error over all elements, as PyTorch's mse_loss: a scalar.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.nn.mse(np.array([1.0, 2.0]), np.array([1.0, 4.0]))
        np.float64(2.0)
    """
    return fnp.mean(fnp.square(fnp.subtract(*_pair("mse", predictions, targets))))


def mae(predictions: Any, targets: Any) -> Any:
    """The mean absolute error over all elements, as PyTorch's l1_loss: a scalar.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.nn.mae(np.array([1.0, 2.0]), np.array([1.0, 4.0]))
        np.float64(1.0)
    """
    return fnp.mean(fnp.abs(fnp.subtract(*_pair("mae", predictions, targets))))


def huber_loss(predictions: Any, targets: Any, delta: float = 1.0) -> Any:
    """Half the squared error up to an error of delta, from there on a line, elementwise (Huber, 1964).

    Arguments:
        delta: a positive number.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.nn.huber_loss(np.array([0.5, 3.0]), np.zeros(2))
        array([0.125, 2.5  ])
    """
    error = fnp.abs(fnp.subtract(*_pair("huber_loss", predictions, targets)))
    near = fnp.minimum(error, _positive("huber_loss", "delta", delta))
    # near * (error - near / 2) is both: error**2 / 2 within, delta * (error - delta / 2) beyond
    return fnp.multiply(near, fnp.subtract(error, fnp.multiply(0.5, near)))


def smooth_l1_loss(predictions: Any, targets: Any, beta: float = 1.0) -> Any:
    """huber_loss with delta=beta, over beta: slope 1 beyond beta, elementwise (Girshick, 2015).

    Arguments:
        beta: a positive number.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.nn.smooth_l1_loss(np.array([0.5, 3.0]), np.zeros(2), beta=0.5)
        array([0.25, 2.75])
    """
    return fnp.divide(huber_loss(predictions, targets, _positive("smooth_l1_loss", "beta", beta)), beta)


def _positive(name: str, argument: str, value: float) -> float:
    if not value > 0:
        raise errors.FxValueError(
            f"{name} got {argument}={value!r}",
            why="It is the error at which the square becomes a line.",
            fix="Pass a positive number; for lines alone use absolute_error.",
        )
    return value


def log_cosh(predictions: Any, targets: Any) -> Any:
    """log(cosh(predictions - targets)), elementwise, without overflow.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.nn.log_cosh(np.array([0.0, 1000.0]), np.zeros(2)).round(4)
        array([  0.    , 999.3069])
    """
    error = fnp.subtract(*_pair("log_cosh", predictions, targets))
    return fnp.subtract(fnp.logaddexp(error, fnp.negative(error)), fnp.log(constant(error, 2)))


def cosine_similarity(predictions: Any, targets: Any, epsilon: float = 0.0, axis: int = -1) -> Any:
    """The cosine of the angle between vectors.

    Arguments:
        predictions, targets: (..., n).
        epsilon: the least length that is divided by; the default leaves zero vectors at NaN, PyTorch has 1e-8.
        axis: along which the vectors lie.

    Returns:
        (...,), from -1 to 1.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.nn.cosine_similarity(np.array([3.0, 4.0]), np.array([4.0, 3.0]))
        np.float64(0.96)
    """
    a, b = _pair("cosine_similarity", predictions, targets)
    lengths = [fnp.maximum(fnp.sqrt(fnp.sum(fnp.square(x), axis)), epsilon) for x in (a, b)]
    return fnp.divide(fnp.sum(fnp.multiply(a, b), axis), fnp.multiply(*lengths))


def cosine_distance(predictions: Any, targets: Any, epsilon: float = 0.0, axis: int = -1) -> Any:
    """1 - cosine_similarity; arguments as there.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.nn.cosine_distance(np.array([1.0, 0.0]), np.array([0.0, 2.0]))
        np.float64(1.0)
    """
    return fnp.subtract(1, cosine_similarity(predictions, targets, epsilon, axis))


# ---- classification --------------------------------------------------------------------------------------------------------


def softmax_cross_entropy(logits: Any, labels: Any, axis: int = -1) -> Any:
    """-sum(labels * log_softmax(logits)): the cross entropy of label distributions and softmax(logits).

    Arguments:
        logits: (..., C).
        labels: (..., C), distributions over the classes, one-hot rows for instance. A probability of 0 meets a logit of -inf
            as 0.
        axis: of the classes.

    Returns:
        (...,), one number an example.

    Raises:
        FxValueError: the shapes differ.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.nn.softmax_cross_entropy(np.array([0.0, 0.0]), np.array([0.5, 0.5])).round(4)
        np.float64(0.6931)
    """
    logits, labels = _pair("softmax_cross_entropy", logits, labels)
    terms = fnp.multiply(labels, log_softmax(logits, axis))
    return fnp.negative(fnp.sum(fnp.where(fnp.equal(labels, 0), constant(terms, 0), terms), axis))


def _at_labels(name: str, x: Any, labels: Any, axis: int) -> Any:
    """The entries of x at integer labels along an axis.

    A sum of one entry and zeros, which is exact: unlike a gather, whose transpose scatters, it stays in the kernel of the rows.
    """
    labels = tensor(labels)
    axis = canonical_axis(axis, x.ndim)
    classes = x.shape[axis]
    if labels.dtype.kind not in "iu":
        raise errors.FxTypeError(
            f"{name} got labels of dtype {labels.dtype}",
            why="A label is the number of a class.",
            fix="Pass integers; for distributions over classes use softmax_cross_entropy.",
        )
    if labels.shape != (*x.shape[:axis], *x.shape[axis + 1 :]):
        raise errors.FxValueError(
            f"{name} got scores of shape {x.shape} and labels of shape {labels.shape}",
            why="There is one label for each row of scores along the axis of classes.",
            fix="Leave the axis of classes out of the labels' shape: np.argmax(labels, -1) if they are one-hot.",
        )
    labels = within(labels, classes, name + ": label {i} is not one of {n} classes")
    numbers = fnp.reshape(fnp.arange(classes), (classes,) + (1,) * (x.ndim - 1 - axis))
    return fnp.sum(fnp.where(fnp.equal(fnp.expand_dims(labels, axis), numbers), x, constant(x, 0)), axis)


def softmax_cross_entropy_with_integer_labels(logits: Any, labels: Any, axis: int = -1) -> Any:
    """-log(softmax(logits)) at the labels: PyTorch's cross_entropy with reduction="none".

    Arguments:
        logits: (..., C).
        labels: (...,), integers from 0 to C - 1.
        axis: of the classes in logits.

    Returns:
        (...,), one number an example.

    Raises:
        FxValueError: a label is not in range (of traced labels, when the compiled function runs); shapes do not fit.
        FxTypeError: labels are no integers.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.nn.softmax_cross_entropy_with_integer_labels(np.array([[0.0, 0.0], [0.0, 9.0]]), np.array([0, 1])).round(4)
        array([6.931e-01, 1.000e-04])
    """
    logits = as_float(tensor(logits))
    z = wide(logits)
    at_label = _at_labels("softmax_cross_entropy_with_integer_labels", z, labels, axis)
    peak = stop_gradient(fnp.max(z, axis, keepdims=True))
    total = fnp.sum(fnp.exp(fnp.subtract(z, peak)), axis)
    # log_softmax's very differences; the entry is picked before the maximum is taken off, so that both come from one pass
    return as_dtype(fnp.subtract(fnp.log(total), fnp.subtract(at_label, fnp.squeeze(peak, axis))), logits.dtype)


def nll_loss(log_probs: Any, labels: Any, axis: int = -1) -> Any:
    """-log_probs at the labels: the negative log-likelihood of logarithms of probabilities.

    Arguments:
        log_probs: (..., C), as log_softmax gives them.
        labels, axis: as for softmax_cross_entropy_with_integer_labels; so are errors.

    Returns:
        (...,), one number an example.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.nn.nll_loss(np.log(np.array([[0.5, 0.5], [0.1, 0.9]])), np.array([0, 1])).round(4)
        array([0.6931, 0.1054])
    """
    log_probs = as_float(tensor(log_probs))
    return fnp.negative(_at_labels("nll_loss", log_probs, labels, axis))


def sigmoid_binary_cross_entropy(logits: Any, labels: Any) -> Any:
    """-labels * log(sigmoid(logits)) - (1 - labels) * log(1 - sigmoid(logits)), elementwise, without overflow.

    Arguments:
        logits: any shape.
        labels: the same shape, from 0 to 1.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.nn.sigmoid_binary_cross_entropy(np.array([0.0, 1000.0]), np.array([1.0, 0.0])).round(4)
        array([6.931e-01, 1.000e+03])
    """
    logits, labels = _pair("sigmoid_binary_cross_entropy", logits, labels)
    positive = fnp.multiply(labels, log_sigmoid(logits))
    negative = fnp.multiply(fnp.subtract(1, labels), log_sigmoid(fnp.negative(logits)))
    return fnp.subtract(fnp.negative(positive), negative)


def sigmoid_focal_loss(logits: Any, labels: Any, alpha: float | None = None, gamma: float = 2.0) -> Any:
    """Binary cross entropy times (1 - p)**gamma, p being the probability of the truth, elementwise (Lin et al., 2017).

    Arguments:
        logits, labels: as for sigmoid_binary_cross_entropy.
        alpha: the weight of label 1, that of label 0 being 1 - alpha; None for no weights.
        gamma: how much less what is certain counts.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.nn.sigmoid_focal_loss(np.array([0.0]), np.array([1.0])).round(4)
        array([0.1733])
    """
    logits, labels = _pair("sigmoid_focal_loss", logits, labels)
    p = special.expit(logits)
    missed = fnp.add(fnp.multiply(labels, fnp.subtract(1, p)), fnp.multiply(fnp.subtract(1, labels), p))
    loss = fnp.multiply(fnp.power(missed, gamma), sigmoid_binary_cross_entropy(logits, labels))
    if alpha is None:
        return loss
    weight = fnp.add(fnp.multiply(alpha, labels), fnp.multiply(1 - alpha, fnp.subtract(1, labels)))
    return fnp.multiply(weight, loss)


def hinge_loss(predictions: Any, targets: Any) -> Any:
    """max(0, 1 - predictions * targets), elementwise, of targets -1 and 1; its slope is 0 at the corner.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.nn.hinge_loss(np.array([0.5, 0.5, 2.0]), np.array([1.0, -1.0, 1.0]))
        array([0.5, 1.5, 0. ])
    """
    return relu(fnp.subtract(1, fnp.multiply(*_pair("hinge_loss", predictions, targets))))


def kl_divergence(log_predictions: Any, targets: Any, axis: int = -1) -> Any:
    """sum(targets * (log(targets) - log_predictions)): the divergence of predictions from targets (Kullback and Leibler, 1951).

    Arguments:
        log_predictions: (..., C), logarithms of probabilities.
        targets: (..., C), probabilities; 0 contributes nothing.
        axis: of the classes.

    Returns:
        (...,), one number an example; PyTorch's kl_div sums over what it is told to.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.nn.kl_divergence(np.log(np.array([0.5, 0.5])), np.array([1.0, 0.0])).round(4)
        np.float64(0.6931)
    """
    log_predictions, targets = _pair("kl_divergence", log_predictions, targets)
    cross = fnp.multiply(targets, log_predictions)
    cross = fnp.where(fnp.equal(targets, 0), constant(cross, 0), cross)
    return fnp.sum(fnp.subtract(special.xlogy(targets, targets), cross), axis)


def smooth_labels(labels: Any, alpha: float) -> Any:
    """(1 - alpha) * labels + alpha / C: label distributions mixed with the uniform one (Szegedy et al., 2016).

    Arguments:
        labels: (..., C), distributions.
        alpha: a number from 0 to 1.

    Example:
        >>> import numpy as np, fxgrad as fx
        >>> fx.nn.smooth_labels(np.array([0.0, 1.0]), 0.5)
        array([0.25, 0.75])
    """
    labels = as_float(tensor(labels))
    return fnp.add(fnp.multiply(1 - alpha, labels), alpha / labels.shape[-1])
