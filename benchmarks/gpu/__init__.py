"""Benchmarks of libraries for GPUs: prepared where the compiler is, measured where the GPU is."""
