"""How fast a library loads, how much memory it takes, and what processes share: ``make bench-loading``."""
