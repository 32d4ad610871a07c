"""How one app process bears thousands of queued jobs: ``make bench-service``."""
