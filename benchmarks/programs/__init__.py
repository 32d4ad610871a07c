"""Compares how programs start and run a model: a bundle's own, and ONNX Runtime's, in C and in Python."""
