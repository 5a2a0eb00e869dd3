"""Deconvolution: a signal blurred by way of the Fourier transform, compared with what was measured."""

import numpy as np


def problem(rng, small=True):
    n, m = (16, 5) if small else (65536, 129)
    return rng.standard_normal(n), rng.random(m) / m, rng.standard_normal(n + m - 1)


def convolve(signal, kernel):
    length = len(signal) + len(kernel) - 1
    size = 1
    while size < length:
        size *= 2
    spectrum = np.fft.rfft(signal, size) * np.fft.rfft(kernel, size)
    return np.fft.irfft(spectrum, size)[:length]


def run(signal, kernel, measured):
    blurred = convolve(signal, kernel)
    roughness = np.sum((signal[1:] - signal[:-1]) ** 2)
    return np.mean((blurred - measured) ** 2) + 0.01 * roughness / len(signal)
