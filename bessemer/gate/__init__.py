"""The gate: whether a model is still as correct, fast and small as before."""
