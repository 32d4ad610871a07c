"""Latency over the time of a search, beside stock MetaSchedule: ``make bench-tuning``."""
