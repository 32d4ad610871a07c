"""Compile time of random graphs, each verified and bounded by its size."""
