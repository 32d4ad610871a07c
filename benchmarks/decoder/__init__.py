"""Tokens per second of a small language model against other runtimes."""
