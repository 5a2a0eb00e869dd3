"""Trees of arrays in files: safetensors, with the structure of the tree in the metadata. Nothing is pickled, nothing is run."""

from fxgrad.io.files import load, metadata, save

__all__ = ["load", "metadata", "save"]
