"""The Python client: ``Client`` blocks, ``AsyncClient`` does not, and both share all logic.

Each operation is a generator of steps that does no I/O (``operations``, ``submission``, ``invoking``), and
``transport`` performs the steps over HTTP. The documents are those of ``bessemer.contract``.
"""

from bessemer.client.client import AsyncClient, Client
from bessemer.client.group import AsyncGroup, Group
from bessemer.client.job import AsyncJob, Job

__all__ = ["AsyncClient", "AsyncGroup", "AsyncJob", "Client", "Group", "Job"]
