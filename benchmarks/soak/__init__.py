"""Kills every kind of process at random moments while jobs run, and counts what is lost: ``make soak``."""
