"""The quotas of tenants: ``BESSEMER_QUOTA_…`` for every tenant, and a TOML file for some of them.

```toml
[tenants.vision]
running_jobs = 4
stored_bytes = "unlimited"
```
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import ValidationError

from bessemer.contract.access import Tenant
from bessemer.contract.base import Document
from bessemer.contract.error_words import in_words
from bessemer.contract.usage import Quota
from bessemer.store.settings import StoreSettings


class QuotaFileError(Exception):
    """The file that ``BESSEMER_QUOTAS`` names cannot be used."""


class _QuotaFile(Document):
    tenants: dict[Tenant, Quota]


@dataclass(frozen=True)
class Quotas:
    """The quota of each tenant.

    Attributes:
        default: the quota of the tenants that the file does not name.
        by_tenant: the others.
    """

    default: Quota
    by_tenant: Mapping[Tenant, Quota] = field(default_factory=dict)

    def of(self, tenant: Tenant) -> Quota:
        """A tenant's quota."""
        return self.by_tenant.get(tenant, self.default)


DEFAULT_QUOTAS = Quotas(Quota())


def read_quotas(settings: StoreSettings) -> Quotas:
    """Read the quotas. A tenant's table in the file changes the fields that it names.

    Raises:
        QuotaFileError: the file cannot be read, or is not valid; the message names the field.
    """
    default = Quota(**{name: getattr(settings, f"quota_{name}") for name in Quota.model_fields})
    path = settings.quotas
    if path is None:
        return Quotas(default)
    try:
        given = _QuotaFile.model_validate(tomllib.loads(path.read_text(encoding="utf-8")), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part != "[key]")
        raise QuotaFileError(f"BESSEMER_QUOTAS: {path}: {where}: {in_words(first)}") from error
    except (OSError, ValueError) as error:
        raise QuotaFileError(f"BESSEMER_QUOTAS: {path}: {error}") from error
    changed = {
        tenant: default.model_copy(update={name: getattr(quota, name) for name in quota.model_fields_set})
        for tenant, quota in given.tenants.items()
    }
    return Quotas(default, changed)
