"""The version of the cost model's features. This module imports neither torch nor TVM."""

from worker.compiler.schedules.version import SCHEDULES_VERSION

FEATURES = f"1.{SCHEDULES_VERSION}"
"""Increase the first number when a feature begins to mean another quantity. Models of other versions are
refused."""
