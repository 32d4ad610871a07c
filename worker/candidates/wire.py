"""Length-prefixed pickles over pipes, between processes of one job: one trust domain."""

import os
import pickle
import struct
from typing import Any

_LENGTH = struct.Struct("<Q")
_CHUNK_BYTES = 1 << 20


def send(descriptor: int, value: Any) -> None:
    """Write one value.

    Raises:
        BrokenPipeError: nobody reads any more.
    """
    payload = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    _write(descriptor, _LENGTH.pack(len(payload)))
    _write(descriptor, payload)


def receive(descriptor: int) -> Any:
    """Read one value; waits for it.

    Raises:
        EOFError: the writer is gone.
    """
    (length,) = _LENGTH.unpack(_read(descriptor, _LENGTH.size))
    return pickle.loads(_read(descriptor, length))


def _write(descriptor: int, payload: bytes) -> None:
    view = memoryview(payload)
    while view:
        written = os.write(descriptor, view[:_CHUNK_BYTES])
        view = view[written:]


def _read(descriptor: int, length: int) -> bytearray:
    buffer = bytearray()
    while len(buffer) < length:
        chunk = os.read(descriptor, min(length - len(buffer), _CHUNK_BYTES))
        if not chunk:
            raise EOFError("the process at the other end is gone")
        buffer += chunk
    return buffer
