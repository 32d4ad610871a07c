"""Lowers, compiles and links a scheduled module to a shared library."""
