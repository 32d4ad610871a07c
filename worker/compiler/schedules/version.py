"""The version of the schedules, which tuning records depend on."""

SCHEDULES_VERSION = 1
"""Increase it when a family's plans begin to mean other loops: earlier records then no longer serve."""
