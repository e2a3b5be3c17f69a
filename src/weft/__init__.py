"""Weft trains graph neural networks on many workers: a PyG model and a graph in, an exact plan out, and run."""

__version__ = "0.1.0"
