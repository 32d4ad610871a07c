"""Reads the reports of compilations. Jobs write them and models may be hostile, so reports are untrusted."""

import logging
from dataclasses import dataclass

from pydantic import ValidationError

from app.service import TenantService
from bessemer.bundle.manifest import REPORT
from bessemer.contract.job import Compilation
from bessemer.contract.report import Report
from bessemer.store.errors import BlobMissingError, DamagedError

MAX_REPORT_BYTES = 8 << 20
"""A larger report is not read; pages offer it as a download."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StoredReport:
    """A report, or a sentence that says why there is none; both are empty if none is expected."""

    report: Report | None = None
    missing: str = ""


def read_report(service: TenantService, job: Compilation) -> StoredReport:
    """The report of a compilation. Blocks.

    Raises:
        StoreUnavailableError: the store is unavailable.
    """
    file = next((file for file in job.artifacts if file.name == REPORT), None)
    if file is None:
        return StoredReport()
    if file.size_bytes > MAX_REPORT_BYTES:
        return StoredReport(missing="The report is too large for this page. Download it below.")
    try:
        data = b"".join(service.data.artifacts.stream(file.digest, 0, file.size_bytes))
        return StoredReport(Report.read_json(data))
    except (BlobMissingError, DamagedError) as error:
        log.warning("the report of %s cannot be read: %s", job.id, error)
        return StoredReport(
            missing="The report is missing in the store. The figures below are the service's."
        )
    except ValidationError:
        return StoredReport(missing="The report cannot be read. The figures below are the service's.")
