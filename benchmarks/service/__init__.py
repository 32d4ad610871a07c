"""One app process with thousands of queued jobs: ``make bench-service``."""
