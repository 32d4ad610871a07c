"""The Python client. ``Client`` blocks, ``AsyncClient`` does not; both share every piece of logic.

Seams: the clients name what there is to do; ``operations`` holds each as a generator of steps, without input
or output; ``transport`` performs the steps over HTTP; the documents are those of ``bessemer.contract``.
"""

from bessemer.client.async_client import AsyncClient
from bessemer.client.async_job import AsyncJob
from bessemer.client.client import Client
from bessemer.client.job import Job

__all__ = ["AsyncClient", "AsyncJob", "Client", "Job"]
