"""How fast the example models are, beside the other ways to run them."""
