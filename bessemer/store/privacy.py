"""Keeps the stored data from the other users of a machine."""

import logging
import stat
from contextlib import suppress
from pathlib import Path

PRIVATE = 0o700

log = logging.getLogger(__name__)


def keep_private(folder: Path) -> None:
    """Create a folder that only this user can enter, or close one that others can enter.

    Does nothing if the folder can neither be created nor changed: then nothing is stored there, or a warning
    says that others can read it.
    """
    with suppress(OSError):
        folder.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
    try:
        mode = stat.S_IMODE(folder.stat().st_mode)
        if mode & ~PRIVATE:
            folder.chmod(PRIVATE)
            log.warning("other users could read %s (mode %o); its mode is 700 now", folder, mode)
    except FileNotFoundError:
        return
    except OSError as error:
        log.warning("other users may be able to read %s: %s", folder, error)
