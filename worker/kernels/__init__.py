"""Functions of kernel libraries that stand for operators, and are linked into the libraries that call them."""
