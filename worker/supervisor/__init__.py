"""The process that takes tasks, has them done by children of the zygote, and alone writes results."""
