"""Benchmarks against peers: `python -m bench`."""
