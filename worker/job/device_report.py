"""Writes what a device found into a bundle's report, inside a fresh confined child.

The child never opened the upload. It compares what the device reports with the bundle's manifest: each output
of each entry point must have been compared, and agree.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from bessemer.bundle.manifest import ARCHIVE, CHECKSUMS, MANIFEST, REPORT, REPORT_PAGE, Manifest
from bessemer.contract.problem import ErrorCode
from bessemer.contract.report import DeviceRun, Execution, Report
from worker.errors import JobError, failure_of
from worker.job.bundle_check import report_files
from worker.job.folder import JobFolder
from worker.job.unpacking import read_manifest, unpacked
from worker.package.archive import checksums, describe, write_archive
from worker.protocol.messages import Amended
from worker.protocol.order import AmendWork
from worker.protocol.sender import Sender
from worker.report.render import PARTS, render_part

CHANGED = (REPORT, REPORT_PAGE, MANIFEST, CHECKSUMS)


def amend_bundle(work: AmendWork, folder: JobFolder, sender: Sender) -> Amended:
    """Write the bundle in ``folder`` again, with a report of what a device found, and report its digests.

    Raises:
        JobError: ``verify-mismatch``: an output differs on the device, or was not compared;
            ``verify-crashed``: the bundle cannot be read.
    """
    bundle, _ = unpacked(folder, ErrorCode.VERIFY_CRASHED)
    manifest = read_manifest(bundle, ErrorCode.VERIFY_CRASHED)
    if manifest.model != work.model:
        raise JobError(ErrorCode.VERIFY_MISMATCH, "the bundle's manifest names another model")
    for complaint in complaints(work.run, manifest):
        raise JobError(ErrorCode.VERIFY_MISMATCH, f"on device '{work.run.name}': {complaint}")
    try:
        _write_report(bundle, work.run)
        _write_bundle(bundle, manifest, folder.output / ARCHIVE)
        for name in CHANGED:
            shutil.copyfile(bundle / name, folder.output / name)
    except (OSError, ValidationError, ValueError) as error:
        detail = f"the bundle's report cannot be written: {error}"
        raise failure_of(ErrorCode.VERIFY_CRASHED, error, detail) from error
    report_files(bundle, sender)
    return Amended(files=(ARCHIVE, *CHANGED))


def complaints(run: DeviceRun, manifest: Manifest) -> Iterator[str]:
    """What contradicts that a device verified a bundle."""
    entries = {entry.name: entry for entry in run.entries}
    for point in manifest.entry_points:
        found = entries.get(point.name)
        outputs = {} if found is None else {output.name: output for output in found.outputs}
        where = f"entry '{point.name}': " if manifest.entries else ""
        for spec in point.outputs:
            output = outputs.get(spec.name)
            if output is None:
                yield f"{where}output '{spec.name}' was not compared"
            elif output.mismatches:
                largest = output.max_absolute_error
                by = "a value that is not finite" if largest is None else f"up to {largest:.3g}"
                yield (
                    f"{where}output '{spec.name}': {output.mismatches} of {output.elements} elements differ "
                    f"from the reference, by {by}"
                )


def _write_report(bundle: Path, run: DeviceRun) -> None:
    report = Report.read_json((bundle / REPORT).read_bytes()).model_copy(
        update={"verified": True, "execution": Execution.DEVICE, "device": run}
    )
    (bundle / REPORT).write_text(report.model_dump_json(indent=2) + "\n", encoding="utf-8")
    page = (bundle / REPORT_PAGE).read_text(encoding="utf-8")
    for part in PARTS:
        marked = re.compile(rf"<!--{part}-->.*?<!--/{part}-->", re.S)
        text = f"<!--{part}-->{render_part(part, report)}<!--/{part}-->"
        page = marked.sub(lambda _, text=text: text, page, count=1)  # type: ignore[misc]
    (bundle / REPORT_PAGE).write_text(page, encoding="utf-8")


def _write_bundle(bundle: Path, manifest: Manifest, archive: Path) -> None:
    files = tuple(describe(bundle, file.path) for file in manifest.files)
    text = manifest.model_copy(update={"files": files}).model_dump_json(indent=2) + "\n"
    (bundle / MANIFEST).write_text(text, encoding="utf-8")
    (bundle / CHECKSUMS).write_text(checksums((*files, describe(bundle, MANIFEST))), encoding="utf-8")
    paths = (*(file.path for file in files), MANIFEST, CHECKSUMS)
    write_archive(bundle, paths, archive)
