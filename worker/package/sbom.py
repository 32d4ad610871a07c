"""The software bill of materials of a bundle, in CycloneDX's format."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from bessemer.bundle.manifest import (
    FFI_LIBRARY,
    LIBRARIES_FOLDER,
    RUNNER,
    RUNTIME_EXTRA_LIBRARY,
    RUNTIME_LIBRARY,
    BundleFile,
    Manifest,
)
from bessemer.contract.request import CompilationRequest

SPECIFICATION = "1.6"
TOOLS = ("bessemer", "torch", "apache-tvm", "apache-tvm-ffi", "ziglang")
OWNERS = {
    FFI_LIBRARY: "apache-tvm-ffi",
    RUNTIME_LIBRARY: "apache-tvm",
    RUNTIME_EXTRA_LIBRARY: "apache-tvm",
    f"{LIBRARIES_FOLDER}/libscipy_openblas.so": "scipy-openblas32",
}
"""The packages that the libraries of a bundle come from."""

RUNNER_NEEDS = ("numpy", "apache-tvm-ffi")

Component = dict[str, Any]


def make_sbom(manifest: Manifest, request: CompilationRequest) -> Component:
    """The bill of materials of a bundle with the manifest's files.

    Args:
        manifest: its files, versions and date.
        request: names the models.
    """
    files = {file.path: file for file in manifest.files}
    models = [_model(digest, request) for digest in request.models]
    libraries = [_library(files[path]) for path in sorted(files) if path.startswith(f"{LIBRARIES_FOLDER}/")]
    programs = [_file("application", files[path]) for path in (manifest.program, RUNNER) if path in files]
    needed = [_package(name) | {"scope": "optional"} for name in RUNNER_NEEDS] if RUNNER in files else []
    library = _file("library", files[manifest.library])
    made = f"{files[manifest.library].digest} {manifest.created_at.isoformat()}"
    return {
        "bomFormat": "CycloneDX",
        "specVersion": SPECIFICATION,
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, made)}",
        "version": 1,
        "metadata": {
            "timestamp": manifest.created_at.isoformat(),
            "tools": {"components": [_tool(name, manifest.versions[name]) for name in TOOLS]},
            "component": library,
        },
        "components": [*models, *libraries, *programs, *needed],
        "dependencies": [
            {"ref": manifest.library, "dependsOn": [each["bom-ref"] for each in (*models, *libraries)]},
            *(
                {"ref": each["bom-ref"], "dependsOn": list(_needs(each, manifest.library, needed))}
                for each in programs
            ),
        ],
    }


def _needs(program: Component, library: str, needed: list[Component]) -> Iterator[str]:
    yield library
    if program["bom-ref"] == RUNNER:
        yield from (each["bom-ref"] for each in needed)


def _model(digest: str, request: CompilationRequest) -> Component:
    name = request.name if digest == request.model and request.name else digest[:12]
    hashes = [{"alg": "SHA-256", "content": digest}]
    return {"type": "machine-learning-model", "bom-ref": f"model:{digest}", "name": name, "hashes": hashes}


def _file(kind: str, file: BundleFile) -> Component:
    hashes = [{"alg": "SHA-256", "content": file.digest}]
    return {"type": kind, "bom-ref": file.path, "name": file.path, "hashes": hashes}


def _library(file: BundleFile) -> Component:
    """A library, with its package if that is known."""
    owner = OWNERS.get(file.path)
    if owner is None:
        return _file("library", file)
    package = _package(owner)
    known: Component = {key: package[key] for key in ("version", "purl") if key in package}
    return {**_file("library", file), "group": owner, **known}


def _package(name: str) -> Component:
    try:
        found = version(name)
    except PackageNotFoundError:
        return {"type": "library", "bom-ref": f"pkg:pypi/{name}", "name": name, "purl": f"pkg:pypi/{name}"}
    purl = f"pkg:pypi/{name}@{found}"
    return {"type": "library", "bom-ref": purl, "name": name, "version": found, "purl": purl}


def _tool(name: str, found: str) -> Component:
    return {"type": "application", "name": name, "version": found, "purl": f"pkg:pypi/{name}@{found}"}
