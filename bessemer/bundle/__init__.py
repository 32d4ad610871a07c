"""The bundle: what a compilation hands out, and how it is run."""
