"""One digest that identifies the compiler: its code and all installed packages."""

from __future__ import annotations

import hashlib
import platform
from importlib.metadata import distributions
from pathlib import Path

import bessemer
import worker


def compiler_digest() -> str:
    """The SHA-256 of our code, of Python's version, and of the names and versions of all packages."""
    digest = hashlib.sha256(platform.python_version().encode())
    installed = {f"{each.metadata['Name']}=={each.version}" for each in distributions()}
    digest.update("\n".join(sorted(installed)).encode())
    for package in (bessemer, worker):
        root = Path(package.__path__[0])
        for path in sorted(root.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(f"{path.relative_to(root)}\0".encode())
                digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
