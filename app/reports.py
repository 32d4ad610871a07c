"""Reads the reports of compilations, which their jobs wrote."""

from pydantic import ValidationError

from app.service import TenantService
from bessemer.bundle.manifest import REPORT
from bessemer.contract.job import Compilation
from bessemer.contract.report import Report
from bessemer.store.errors import BlobMissingError, DamagedError

MAX_REPORT_BYTES = 4 << 20
"""A larger report is not read."""


def read_report(service: TenantService, job: Compilation) -> Report | None:
    """A compilation's report; None if there is none yet, or none that can be read. Blocks."""
    file = next((file for file in job.artifacts if file.name == REPORT), None)
    if file is None or file.size_bytes > MAX_REPORT_BYTES:
        return None
    try:
        return Report.read_json(b"".join(service.data.artifacts.stream(file.digest, 0, file.size_bytes)))
    except (ValidationError, BlobMissingError, DamagedError):
        return None
