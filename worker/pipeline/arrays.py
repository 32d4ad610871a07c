"""Tensors as arrays and back, for the stages; see ``worker.tensors``."""

from worker.tensors import as_array, as_tensor

__all__ = ["as_array", "as_tensor"]
