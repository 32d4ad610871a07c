"""Functions of kernel libraries that stand for operators, linked into the libraries that call them."""
