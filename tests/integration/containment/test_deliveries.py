"""Every way in which an upload can run code, and what the code cannot do."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deliveries import UPLOADS, Upload, ahead_of_time_library

Rig = Any

ATTACK = """
    import socket
    attempts = dict(
        read=lambda: open({secret!r}).read(),
        write=lambda: open({planted!r}, "w").write("planted"),
        connect=lambda: socket.create_connection(("127.0.0.1", {port}), 5) and "connected",
        signal=lambda: os.kill({supervisor}, 0),
        look=lambda: len(os.listdir({jobs!r})) > 0,
    )
    found = dict()
    for name, attempt in attempts.items():
        try:
            found[name] = attempt()
        except OSError as error:
            found[name] = type(error).__name__
    return found
"""
SUCCESS = {"read": "the key", "write": 7, "connect": "connected", "signal": None, "look": True}


@pytest.fixture
def outside(rig: Rig, open_folder: Path) -> Iterator[dict[str, Any]]:
    """What the attack reaches for."""
    (open_folder / "secret").write_text("the key")
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield {
            "secret": str(open_folder / "secret"),
            "planted": str(open_folder / "planted"),
            "port": server.getsockname()[1],
            "supervisor": os.getpid(),
            "jobs": str(rig.place.jobs),
        }


@pytest.mark.parametrize("upload", UPLOADS.values(), ids=UPLOADS)
def test_code_in_an_upload_reaches_nothing_outside_its_folder(
    rig: Rig, outside: dict[str, Any], upload: Upload
) -> None:
    body = ATTACK.format(**outside)
    assert rig.unconfined(body, upload).did == SUCCESS, "the attack is real"
    Path(outside["planted"]).unlink()
    outcome = rig.confined(body, upload=upload)
    assert outcome.did == dict.fromkeys(SUCCESS, "PermissionError")
    assert outcome.left_running == ()
    assert not Path(outside["planted"]).exists()


def test_a_compiled_library_beside_an_exported_program_is_not_loaded(rig: Rig) -> None:
    upload = Upload(ahead_of_time_library)
    outcome = rig.unconfined("return 'ran'", upload)
    assert outcome.code == "inspected"
    assert outcome.did is None
