"""A report's figures as words and as geometry, for its own page and for the console. Pure functions."""
