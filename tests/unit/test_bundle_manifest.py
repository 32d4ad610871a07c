"""The manifest's own rules."""

import pytest
from pydantic import TypeAdapter, ValidationError

from bessemer.bundle.manifest import BundlePath

PATHS: TypeAdapter[str] = TypeAdapter(BundlePath)


@pytest.mark.parametrize("path", ["model.so", "lib/libtvm_runtime.so", "SHA256SUMS", "a/b-c/d_e.1"])
def test_plain_relative_paths_are_taken(path: str) -> None:
    assert PATHS.validate_python(path) == path


@pytest.mark.parametrize(
    "path", ["", "/etc/passwd", "../x", "a/../b", "a//b", "a/", ".hidden", "a b", "a\n", "ä"]
)
def test_paths_that_lead_elsewhere_are_refused(path: str) -> None:
    with pytest.raises(ValidationError):
        PATHS.validate_python(path)
