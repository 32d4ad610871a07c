"""Package: writes the bundle, everything needed to run and to trust the library."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import numpy as np

import bessemer.bundle
from bessemer.bundle.manifest import (
    ARCHIVE,
    CHECKSUMS,
    CMAKE_FOLDER,
    DATABASE_FILES,
    EXAMPLES_FOLDER,
    HEADER,
    IMPORT_LIBRARY,
    LIBRARIES,
    LICENSES_FOLDER,
    MANIFEST,
    PARAMETERS,
    README,
    RECORDS_FOLDER,
    REPORT,
    REPORT_PAGE,
    RUNNER,
    SBOM,
    STATE_FOLDER,
    STATIC_LIBRARY,
    TYPED_HEADER,
    Manifest,
)
from bessemer.contract.base import Document, now
from bessemer.contract.graph import GRAPH_PICTURE
from bessemer.contract.job import REFERENCE
from bessemer.contract.problem import ErrorCode
from bessemer.contract.request import CompilationRequest
from bessemer.contract.triple import runs_on_workers
from worker.compiler.codegen.standalone.sources import SOURCES
from worker.compiler.kernels.kernel import SharedLibrary
from worker.compiler.kernels.registry import bundle_paths, kernels_among, libraries_of
from worker.compiler.tuning.record_marks import write_marks
from worker.compiler.values import Benchmarked, Built, Captured, Packaged, StageContext
from worker.errors import failure_of
from worker.measure.machine import remember
from worker.package.archive import (
    checksums,
    describe,
    storable,
    write_archive,
    write_arrays,
    write_reference,
)
from worker.package.c_package.files import CMAKE_PACKAGE, EXAMPLES
from worker.package.c_package.header import typed_header
from worker.package.dependencies import check_linkage
from worker.package.document import kept_state, make_manifest, make_report, reference_of
from worker.package.readme import readme
from worker.package.runtime import license_sources, runtime_sources
from worker.package.sbom import make_sbom
from worker.report.pictures import Picture, draw_picture
from worker.report.render import render

ARTIFACTS = (ARCHIVE, *LIBRARIES, MANIFEST, REPORT, REPORT_PAGE, RUNNER, SBOM, CHECKSUMS, REFERENCE)
"""Files that can be downloaded singly. The archive lacks the last and adds the runtime and the licenses."""

_RUNNER_SOURCE = Path(bessemer.bundle.__path__[0]) / RUNNER

# Read once per zygote: a confined job has no /proc, and neither value changes.
remember()
license_sources()


def package(benchmarked: Benchmarked, context: StageContext) -> Packaged:
    """Write the bundle.

    Before: the library is verified and measured. After: ``context.output`` holds the files of the bundle and
    ``bundle.tar.zst`` with exactly these files. ``SHA256SUMS`` lists them all. The library needs only the
    libraries of the bundle and the system's C library.

    Raises:
        JobError: ``package-failed``: a file cannot be written, or the library needs one that is missing.
    """
    try:
        write_bundle(benchmarked, context, now())
    except (OSError, ValueError) as error:
        raise failure_of(ErrorCode.PACKAGE_FAILED, error, str(error)) from error
    singly = tuple(name for name in ARTIFACTS if (context.output / name).is_file())
    return Packaged(benchmarked=benchmarked, files=(*singly, *_single_records(benchmarked, context)))


def _single_records(benchmarked: Benchmarked, context: StageContext) -> tuple[str, ...]:
    """The files of MetaSchedule's database, copied beside the archive."""
    records = benchmarked.verified.built.tuned.records
    names = [name for name in DATABASE_FILES if records is not None and (records / name).is_file()]
    for name in names:
        shutil.copyfile(context.output / RECORDS_FOLDER / name, context.output / name)
    return tuple(names)


def write_bundle(benchmarked: Benchmarked, context: StageContext, created_at: datetime) -> None:
    """Write the bundle's files and their archive. The same arguments give the same bytes."""
    folder = context.output
    built = benchmarked.verified.built
    if runs_on_workers(built.captured.upload.target.resolved.triple):
        check_linkage(built.library, (library.path.name for library in _kernel_libraries(built)))
    if built.tuned.records is not None:
        write_marks(built.tuned.records, context.extensions)
    manifest = make_manifest(benchmarked, created_at)
    paths = (
        *_copy_parts(benchmarked, folder),
        *_write_header(manifest, folder),
        *_write_references(benchmarked, folder),
        *_write_report(benchmarked, context, created_at),
    )
    index = _write_index(manifest, benchmarked.captured.upload.request, folder, paths, built.no_program)
    write_archive(folder, (*paths, *index), folder / ARCHIVE)


def _copy_parts(benchmarked: Benchmarked, folder: Path) -> tuple[str, ...]:
    built = benchmarked.verified.built
    sources = {
        built.library.name: built.library,
        **({} if built.parameters is None else {PARAMETERS: built.parameters.path}),
        **_program_sources(built),
        **_python_sources(built),
        **bundle_paths(_kernel_libraries(built)),
        **license_sources(),
        **_kernel_licenses(built),
        **_record_sources(built.tuned.records),
    }
    for path, source in sources.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if source == built.library != target:
            os.link(source, target)  # it can be large
        elif source != target:
            shutil.copyfile(source, target)
    return tuple(sources)


def _python_sources(built: Built) -> dict[str, Path]:
    """The runner in Python, and the runtime that it loads, which the worker has for its own platform only.

    Without that runtime, the runner still runs a GPU's library on tensors in the GPU's memory.
    """
    target = built.captured.upload.target
    if target.is_of_this_platform:
        return {RUNNER: _RUNNER_SOURCE, **runtime_sources(built.imports)}
    return {} if target.gpu is None else {RUNNER: _RUNNER_SOURCE}


def _program_sources(built: Built) -> dict[str, Path]:
    """What runs the library without TVM, and what a program in another language needs to call it."""
    if built.program is None:
        return {}
    folder = built.program.parent
    linked = [name for name in (STATIC_LIBRARY, IMPORT_LIBRARY) if (folder / name).exists()]
    return {
        built.program.name: built.program,
        HEADER: SOURCES / HEADER,
        f"{CMAKE_FOLDER}/{CMAKE_PACKAGE.name}": CMAKE_PACKAGE,
        **{f"{EXAMPLES_FOLDER}/{path.name}": path for path in EXAMPLES},
        **{name: folder / name for name in linked},
    }


def _write_header(manifest: Manifest, folder: Path) -> tuple[str, ...]:
    if manifest.program is None:
        return ()
    (folder / TYPED_HEADER).write_text(typed_header(manifest), encoding="utf-8")
    return (TYPED_HEADER,)


def _kernel_libraries(built: Built) -> tuple[SharedLibrary, ...]:
    return libraries_of(kernels_among(built.imports))


def _kernel_licenses(built: Built) -> dict[str, Path]:
    return {
        f"{LICENSES_FOLDER}/{library.path.stem}/{text.name}": text
        for library in _kernel_libraries(built)
        for text in library.licenses
    }


def _record_sources(records: Path | None) -> dict[str, Path]:
    if records is None:
        return {}
    files = sorted((*records.glob("*.json"), *records.glob("*.py"))) if records.is_dir() else [records]
    return {f"{RECORDS_FOLDER}/{path.name}": path for path in files}


def _write_references(benchmarked: Benchmarked, folder: Path) -> tuple[str, ...]:
    captured = benchmarked.captured
    write_reference(folder / REFERENCE, (entry.passed_by_users for entry in captured.entries))
    written: list[str] = []
    for entry in captured.entries:
        passed, files = entry.passed_by_users, reference_of(entry)
        write_arrays(folder / files.inputs, passed.input_specs, passed.inputs)
        write_arrays(folder / files.outputs, passed.output_specs, passed.references)
        written += (files.inputs, files.outputs)
    return *written, *_write_state(captured, folder)


def _write_state(captured: Captured, folder: Path) -> tuple[str, ...]:
    """Write the state before the first run."""
    states = kept_state(captured)
    if states:
        (folder / STATE_FOLDER).mkdir()
        initial = {name: array for entry in captured.entries for name, array in entry.initial_state.items()}
        for name, state in states.items():
            np.save(folder / state.file, storable(initial[name]), allow_pickle=False)
    return tuple(state.file for state in states.values())


def _write_report(benchmarked: Benchmarked, context: StageContext, created_at: datetime) -> tuple[str, ...]:
    report = make_report(benchmarked, context, created_at)
    _write_document(context.output / REPORT, report)
    drawn = context.output / GRAPH_PICTURE
    graph = drawn.read_text(encoding="utf-8") if drawn.is_file() else ""
    page = render(report, graph, tuple(_pictures(benchmarked.captured)))
    (context.output / REPORT_PAGE).write_text(page, encoding="utf-8")
    return REPORT, REPORT_PAGE


def _pictures(captured: Captured) -> Iterator[Picture]:
    """The inputs that the request shows as pictures."""
    arrays = {
        spec.name: array
        for entry in reversed(captured.entries)
        for spec, array in zip(entry.input_specs, entry.inputs, strict=True)
    }
    for name, size in captured.upload.request.inspect.images.items():
        yield draw_picture(name, arrays[name], *size)


def _write_index(
    manifest: Manifest, request: CompilationRequest, folder: Path, paths: tuple[str, ...], no_program: str
) -> tuple[str, ...]:
    """Write the files that name the others: README, bill of materials, manifest and checksums."""
    (folder / README).write_text(readme(manifest, no_program), encoding="utf-8")
    files = tuple(describe(folder, path) for path in sorted((*paths, README)))
    sbom = make_sbom(manifest.model_copy(update={"files": files}), request)
    (folder / SBOM).write_text(json.dumps(sbom, indent=2) + "\n", encoding="utf-8")
    files = tuple(sorted((*files, describe(folder, SBOM)), key=lambda file: file.path))
    _write_document(folder / MANIFEST, manifest.model_copy(update={"files": files}))
    lines = checksums((*files, describe(folder, MANIFEST)))
    (folder / CHECKSUMS).write_text(lines, encoding="utf-8")
    return README, SBOM, MANIFEST, CHECKSUMS


def _write_document(path: Path, document: Document) -> None:
    path.write_text(document.model_dump_json(indent=2) + "\n", encoding="utf-8")
