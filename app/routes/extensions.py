"""Uploading and reading extensions."""

from contextlib import aclosing
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from app.http.problems import refuse
from app.http.uploads import declared_bytes, receive_extension, refuse_if_too_large
from app.openapi import document as documentation
from app.openapi.document import LOOKUP, problems
from app.routes.lookup import look_up
from app.service import ServiceDep, TenantService
from bessemer.contract.base import Digest, DigestPrefix
from bessemer.contract.extension import Extension, ExtensionPage
from bessemer.contract.listing import Page
from bessemer.contract.names import Name
from bessemer.contract.problem import ErrorCode

router = APIRouter(prefix="/v1/extensions", tags=["extensions"])

UploadName = Annotated[
    Name | None,
    Query(
        description="The name of the file. The first upload with a name sets it.", examples=["my_rewrites.py"]
    ),
]
PathPrefix = Annotated[
    DigestPrefix,
    Path(
        alias="digest",
        description="The file's SHA-256 in lower-case hexadecimal, or a unique prefix of at "
        "least 4 characters.",
        examples=[documentation.EXTENSION.digest],
    ),
]
PathDigest = Annotated[
    Digest,
    Path(
        description="The file's SHA-256 in lower-case hexadecimal.", examples=[documentation.EXTENSION.digest]
    ),
]


@router.put(
    "/{digest}",
    status_code=201,
    summary="Upload an extension under its digest",
    responses={
        **documentation.answer(
            200, "The extension was already stored.", documentation.EXTENSION, "The URL of the extension."
        ),
        **documentation.answer(
            201, "The extension was stored.", documentation.EXTENSION, "The URL of the extension."
        ),
    }
    | problems(
        ErrorCode.UPLOAD_INCOMPLETE,
        ErrorCode.EXTENSION_TOO_LARGE,
        ErrorCode.EXTENSION_INVALID,
        ErrorCode.DIGEST_MISMATCH,
        ErrorCode.REQUEST_INVALID,
    ),
    openapi_extra=documentation.file_upload(
        "A Python file.", "my_rewrites.py", "/v1/extensions/DIGEST?name=my_rewrites.py", "PUT"
    ),
)
async def put_extension(
    service: ServiceDep,
    request: Request,
    response: Response,
    digest: PathDigest,
    name: UploadName = None,
) -> Extension:
    """Store a Python file whose SHA-256 is known; ask with `HEAD` first whether it is needed at all.

    The file is not opened here. It runs only in the confined process of a job whose request names it.
    """
    refuse_if_too_large(request, service.settings.max_extension_bytes, ErrorCode.EXTENSION_TOO_LARGE)
    async with aclosing(request.stream()) as chunks:
        extension, created = await receive_extension(service, chunks, digest, name, declared_bytes(request))
    response.status_code = 201 if created else 200
    response.headers["Location"] = f"/v1/extensions/{extension.digest}"
    return extension


@router.get(
    "",
    summary="List extensions, newest first",
    responses=documentation.answer(200, "A page of extensions.", documentation.EXTENSIONS)
    | problems(ErrorCode.REQUEST_INVALID),
)
def list_extensions(service: ServiceDep, query: Annotated[Page, Query()]) -> ExtensionPage:
    """To get the next page, pass `next` as `cursor`. New extensions do not shift later pages."""
    return service.data.extensions.page(query.limit, query.cursor)


@router.get(
    "/{digest}",
    summary="Get an extension",
    responses=documentation.answer(200, "The extension.", documentation.EXTENSION) | problems(*LOOKUP),
)
def get_extension(service: ServiceDep, prefix: PathPrefix) -> Extension:
    """Return its name and size."""
    return _found(service, prefix)


@router.head(
    "/{digest}",
    summary="Check whether an extension exists",
    response_class=Response,
    responses=documentation.described(200, "The extension exists.") | problems(*LOOKUP),
)
def head_extension(service: ServiceDep, prefix: PathPrefix) -> Response:
    """Return 200 if the extension exists and need not be uploaded, otherwise 404."""
    return Response(_found(service, prefix).model_dump_json(), media_type="application/json")


@router.delete(
    "/{digest}",
    status_code=204,
    summary="Delete an extension",
    responses=documentation.described(204, "The extension is deleted.")
    | problems(*LOOKUP, ErrorCode.EXTENSION_IN_USE),
)
def delete_extension(service: ServiceDep, prefix: PathPrefix) -> None:
    """Delete an extension, unless an unfinished compilation needs it.

    Finished compilations are not affected, but a library that calls a function of the extension can no longer
    be invoked here.
    """
    digest = _found(service, prefix).digest
    if not service.data.extensions.delete(digest):
        raise refuse(ErrorCode.NOT_FOUND, f"Extension {digest} not found.")


def _found(service: TenantService, prefix: str) -> Extension:
    extensions = service.data.extensions
    extension = look_up("extension", prefix, extensions.get, extensions.starting)
    if extension is None:
        raise refuse(ErrorCode.NOT_FOUND, f"Extension {prefix} not found.")
    return extension
