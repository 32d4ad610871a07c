"""Search spaces and tensor intrinsics by hand, which a request names for a function."""
