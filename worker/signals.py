"""Signals by name."""

import signal


def signal_name(number: int) -> str:
    """``SIGSEGV``; ``signal 40`` for one without a name, as most real-time signals are."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
