"""The manifest's rules and the paths of a bundle's files."""

import re
from pathlib import Path, PurePosixPath

import pytest
from pydantic import TypeAdapter, ValidationError

from bessemer.bundle import manifest
from bessemer.bundle.manifest import BundlePath

PATHS: TypeAdapter[str] = TypeAdapter(BundlePath)


@pytest.mark.parametrize("path", ["model.so", "lib/libtvm_runtime.so", "SHA256SUMS", "a/b-c/d_e.1"])
def test_plain_relative_paths_are_taken(path: str) -> None:
    assert PATHS.validate_python(path) == path


@pytest.mark.parametrize(
    "path", ["", "/etc/passwd", "../x", "a/../b", "a//b", "a/", ".hidden", "a b", "a\n", "ä"]
)
def test_paths_outside_the_bundle_are_refused(path: str) -> None:
    with pytest.raises(ValidationError):
        PATHS.validate_python(path)


def test_the_readme_names_the_files_of_a_bundle_as_they_are() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    table = readme.partition("## What comes back")[2].partition("\n\n")[2].partition("\n\n")[0]
    named = {name for row in table.splitlines() for name in re.findall(r"`([^`]+)`", row.split("|")[1])}
    folders = (
        PurePosixPath(manifest.RUNTIME_LIBRARY).parent,
        manifest.RECORDS_FOLDER,
        manifest.LICENSES_FOLDER,
        manifest.CMAKE_FOLDER,
        manifest.EXAMPLES_FOLDER,
    )
    assert named == {
        manifest.LIBRARY,
        manifest.RUNNER,
        manifest.PROGRAM,
        manifest.HEADER,
        manifest.TYPED_HEADER,
        manifest.README,
        manifest.MANIFEST,
        manifest.REPORT,
        manifest.REPORT_PAGE,
        manifest.REFERENCE_INPUTS,
        manifest.REFERENCE_OUTPUTS,
        manifest.CHECKSUMS,
        manifest.SBOM,
        *manifest.PROVENANCE,
        *(f"{folder}/" for folder in folders),
    }
