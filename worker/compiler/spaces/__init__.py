"""Hand-written search spaces and tensor intrinsics, which a request assigns to functions."""
