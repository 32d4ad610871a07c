"""Code for NVIDIA GPUs: CUDA from scheduled functions, machine code from CUDA, and the launches of a run."""
