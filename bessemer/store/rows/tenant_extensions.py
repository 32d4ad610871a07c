"""A tenant's uploaded extensions."""

from bessemer.contract.extension import Extension, ExtensionPage
from bessemer.store.errors import ExtensionInUseError
from bessemer.store.rows.tables import EXTENSIONS
from bessemer.store.rows.tenant_uploads import TenantUploads


class TenantExtensions(TenantUploads[Extension]):
    """A tenant's extensions by digest. Only jobs that name an extension open it."""

    name = EXTENSIONS.c.digest
    document = Extension
    shown_columns = tuple(EXTENSIONS.c[name] for name in Extension.model_fields)
    _in_use = ExtensionInUseError

    def page(self, limit: int, cursor: str | None = None) -> ExtensionPage:
        """Extensions, newest first.

        Raises:
            CursorInvalidError: ``cursor`` is not the ``next`` of an earlier page.
        """
        page = self._page(limit, cursor)
        return ExtensionPage(items=tuple(map(self._shown, page.rows)), next=page.next)
