"""Uploading and reading models."""

from contextlib import aclosing
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from app.http.problems import refuse
from app.http.uploads import declared_bytes, receive_model, refuse_if_too_large
from app.openapi import document as documentation
from app.openapi.document import LOOKUP, problems
from app.routes.lookup import look_up
from app.service import ServiceDep, TenantService
from bessemer.contract.base import Digest, DigestPrefix
from bessemer.contract.listing import ModelQuery
from bessemer.contract.model import Model, ModelPage
from bessemer.contract.names import Name
from bessemer.contract.problem import ErrorCode
from bessemer.telemetry.logs import add_log_fields

router = APIRouter(prefix="/v1/models", tags=["models"])

UploadName = Annotated[
    Name | None,
    Query(description="A name for the model. The first upload with a name sets it.", examples=["mlp"]),
]
PathPrefix = Annotated[
    DigestPrefix,
    Path(
        alias="digest",
        description="The file's SHA-256 in lower-case hexadecimal, or a unique prefix of at "
        "least 4 characters.",
        examples=[documentation.MODEL.digest],
    ),
]
PathDigest = Annotated[
    Digest,
    Path(description="The file's SHA-256 in lower-case hexadecimal.", examples=[documentation.MODEL.digest]),
]
MODEL_FILE = "The file that torch saved, unchanged."
UPLOAD_PROBLEMS = (
    ErrorCode.UPLOAD_INCOMPLETE,
    ErrorCode.MODEL_TOO_LARGE,
    ErrorCode.MODEL_EMPTY,
    ErrorCode.DIGEST_MISMATCH,
    ErrorCode.REQUEST_INVALID,
)
UPLOADED = {
    **documentation.answer(
        200, "The model was already stored.", documentation.MODEL, "The URL of the model."
    ),
    **documentation.answer(201, "The model was stored.", documentation.NEW_MODEL, "The URL of the model."),
}


@router.put(
    "/{digest}",
    status_code=201,
    summary="Upload a model under its digest",
    responses=UPLOADED | problems(*UPLOAD_PROBLEMS),
    openapi_extra=documentation.file_upload(MODEL_FILE, "mlp.pt2", "/v1/models/DIGEST", "PUT"),
)
async def put_model(
    service: ServiceDep,
    request: Request,
    response: Response,
    digest: PathDigest,
    name: UploadName = None,
) -> Model:
    """Store a file whose SHA-256 is known; ask with `HEAD` first whether it is needed at all.

    Its state is `inspecting` until a worker has read its format and signature. A model that was rejected
    for a transient reason, such as a lost worker, is inspected again.
    """
    return await _receive(service, request, response, digest, name)


@router.post(
    "",
    status_code=201,
    summary="Upload a model",
    responses=UPLOADED
    | problems(
        ErrorCode.UPLOAD_INCOMPLETE,
        ErrorCode.MODEL_TOO_LARGE,
        ErrorCode.MODEL_EMPTY,
        ErrorCode.REQUEST_INVALID,
    ),
    openapi_extra=documentation.file_upload(MODEL_FILE, "mlp.pt2", "/v1/models"),
)
async def post_model(
    service: ServiceDep, request: Request, response: Response, name: UploadName = None
) -> Model:
    """Store a file. The response has its digest.

    The state is `inspecting` until a worker has read the model's format and signature.
    """
    return await _receive(service, request, response, None, name)


@router.get(
    "",
    summary="List models, newest first",
    responses=documentation.answer(200, "A page of models.", documentation.MODELS)
    | problems(ErrorCode.REQUEST_INVALID),
)
def list_models(service: ServiceDep, query: Annotated[ModelQuery, Query()]) -> ModelPage:
    """To get the next page, pass `next` as `cursor`. New models do not shift later pages."""
    return service.data.models.page(query.limit, query.cursor, query)


@router.get(
    "/{digest}",
    summary="Get a model's state and signature",
    responses=documentation.answer(200, "The model.", documentation.MODEL) | problems(*LOOKUP),
)
def get_model(service: ServiceDep, prefix: PathPrefix) -> Model:
    """The state is `inspecting`, then `ready` with the inspection's result, or `rejected` with a problem."""
    return _found(service, prefix)


@router.head(
    "/{digest}",
    summary="Check whether a model exists",
    response_class=Response,
    responses=documentation.described(200, "The model exists.") | problems(*LOOKUP),
)
def head_model(service: ServiceDep, prefix: PathPrefix) -> Response:
    """Return 200 if the model exists and need not be uploaded, otherwise 404."""
    return Response(_found(service, prefix).model_dump_json(), media_type="application/json")


@router.delete(
    "/{digest}",
    status_code=204,
    summary="Delete a model",
    responses=documentation.described(204, "The model is deleted.")
    | problems(*LOOKUP, ErrorCode.MODEL_IN_USE),
)
def delete_model(service: ServiceDep, prefix: PathPrefix) -> None:
    """Delete a model, unless an unfinished compilation needs it. Finished compilations are not affected."""
    digest = _found(service, prefix).digest
    if not service.data.models.delete(digest):
        raise refuse(ErrorCode.NOT_FOUND, f"Model {digest} not found.")


async def _receive(
    service: TenantService, request: Request, response: Response, expected: Digest | None, name: str | None
) -> Model:
    refuse_if_too_large(request, service.settings.max_upload_bytes)
    async with aclosing(request.stream()) as chunks:
        model, created = await receive_model(service, chunks, expected, name, declared_bytes(request))
    response.status_code = 201 if created else 200
    response.headers["Location"] = f"/v1/models/{model.digest}"
    return model


def _found(service: TenantService, prefix: str) -> Model:
    models = service.data.models
    model = look_up("model", prefix, models.get, models.starting)
    if model is None:
        raise refuse(ErrorCode.NOT_FOUND, f"Model {prefix} not found.")
    add_log_fields(model=model.digest)
    return model
