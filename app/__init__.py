"""The HTTP front end. Imports ``bessemer`` only: never torch, TVM or ``worker``."""
