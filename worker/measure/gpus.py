"""The GPUs of this machine, found once by a process of its own."""

import logging
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from bessemer.contract.capability import Gpu

_PROBE = Path(__file__).with_name("gpu_probe.py")
_SECONDS = 20.0
_KILLED_SECONDS = 2.0
_GPUS = TypeAdapter(tuple[Gpu, ...])

log = logging.getLogger(__name__)


@cache
def gpus_here() -> tuple[Gpu, ...]:
    """The NVIDIA GPUs that this machine's driver offers; none if there is no driver or it cannot be used."""
    return probed_gpus((sys.executable, "-I", "-S", str(_PROBE)), _SECONDS)


def probed_gpus(command: Sequence[str], seconds: float) -> tuple[Gpu, ...]:
    """The GPUs that a command prints.

    Args:
        command: prints them as JSON.
        seconds: how long it may take. A process that a broken driver blocks in the kernel is abandoned.
    """
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    except OSError as error:
        log.warning("cannot look for GPUs: %s", error)
        return ()
    try:
        output, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_KILLED_SECONDS)
        log.warning("cannot look for GPUs: the driver did not answer within %g s", seconds)
        return ()
    if process.returncode != 0:
        log.warning("cannot use the GPUs: %s", _last_line(errors) or f"status {process.returncode}")
        return ()
    try:
        return _GPUS.validate_json(output)
    except ValidationError as error:
        log.warning("cannot use the GPUs: %s", error.errors()[0]["msg"])
        return ()


def _last_line(text: bytes) -> str:
    lines = text.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""
