"""Kernels of other libraries in place of operators, linked into the compiled library."""
