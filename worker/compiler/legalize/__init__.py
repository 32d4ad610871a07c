"""How operators of Relax become TensorIR.

Rules of installed packages come first, then ours, then TVM's. Ours are for operators whose TVM form loses
accuracy or is not vectorized.
"""
