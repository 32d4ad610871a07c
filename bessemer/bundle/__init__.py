"""The bundle that a compilation produces, and its runner."""
