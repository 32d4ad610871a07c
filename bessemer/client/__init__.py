"""The Python client. ``Client`` blocks, ``AsyncClient`` does not; both share every piece of logic.

Seams: the clients name what there is to do; ``operations`` holds each as a generator of steps, without input
or output; ``transport`` performs the steps over HTTP; the documents are those of ``bessemer.contract``.
"""

from bessemer.client.async_client import AsyncClient, AsyncJob
from bessemer.client.client import Client, Job

__all__ = ["AsyncClient", "AsyncJob", "Client", "Job"]
