"""Latency of the example models against other runtimes."""
