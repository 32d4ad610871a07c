"""What a process that died of a signal left in its log: where Python was, and where machine code was.

``faulthandler`` writes Python's frames, and TVM's own handler the native ones after a SIGSEGV. A job can
write anything into its log: what is read here is told as text and decides nothing.
"""

import re

MAX_FRAMES = 4

_PYTHON = re.compile(
    r"^Fatal Python error: .*\n\n.*Stack \(most recent call first\):\n((?:  File .*\n)+)", re.M
)
_PYTHON_FRAME = re.compile(r'File "([^"]+)", line (\d+) in (.+)')
_NATIVE = re.compile(r"^!+ \w+ encountered !+\n((?:  File .*\n?)+)", re.M)
_NATIVE_FRAME = re.compile(r'File "([^"]*)", line \d+, in (.+)')
_SIGNAL_FRAME = "libc_sigaction"


def crash_site(log: str) -> str:
    """The innermost frames of a crash, such as ``in strlen, string_at; Python at model.py:3 (forward)``.

    Returns:
        Nothing where the log tells of no crash.
    """
    native, python = _native_frames(log), _python_frames(log)
    parts = [f"in {', '.join(native)}" if native else "", f"Python at {', '.join(python)}" if python else ""]
    return "; ".join(filter(None, parts))


def _python_frames(log: str) -> list[str]:
    found = _PYTHON.findall(log)
    frames = _PYTHON_FRAME.findall(found[-1])[:MAX_FRAMES] if found else []
    return [f"{file}:{line} ({function})" for file, line, function in frames]


def _native_frames(log: str) -> list[str]:
    """The frames below the last signal handler's."""
    found = _NATIVE.findall(log)
    frames = _NATIVE_FRAME.findall(found[-1]) if found else []
    handlers = [index for index, (file, _) in enumerate(frames) if _SIGNAL_FRAME in file]
    below = frames[handlers[-1] + 1 :] if handlers else frames
    return [function for _, function in below[:MAX_FRAMES]]
