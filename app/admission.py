"""Whether a request for a compilation can be accepted. Pure functions of the documents."""

from collections.abc import Collection, Container, Mapping, Sequence
from itertools import zip_longest
from types import MappingProxyType

from pydantic_core import PydanticCustomError

from bessemer.contract.base import Digest
from bessemer.contract.capability import Needs, needs_of, no_gpu
from bessemer.contract.dynamic import DYNAMIC_ON_GPU, EXPORT_DYNAMIC, shown_shape, unknown_dimension
from bessemer.contract.extension import Extension
from bessemer.contract.model import Inspection, Model, ModelFormat, Signature, misspelled_method
from bessemer.contract.names import did_you_mean
from bessemer.contract.offers import joined_offers, unknown_name
from bessemer.contract.problem import ErrorCode, FieldError, Problem, make_problem
from bessemer.contract.queue import QueueName
from bessemer.contract.request import OURS, Constant, Parameters, Submission
from bessemer.contract.service import Worker
from bessemer.contract.target import Target, gpus_of, triple_of
from bessemer.contract.target_names import UNSUPPORTED, unknown_part
from bessemer.contract.tensor import InputSpec, TensorSpec
from bessemer.contract.triple import not_runnable, runs_on_workers

REJECTED_STATUS = 422
BY_EXTENSIONS = (
    ErrorCode.MODEL_LOAD_FAILED,
    ErrorCode.MODEL_LEAF_UNAVAILABLE,
    ErrorCode.MODEL_OPERATOR_UNAVAILABLE,
    ErrorCode.MODEL_MODULE_INVALID,
)
"""Why inspection, which loads no extensions, may reject a model that needs one for operators or classes."""


def refusal(
    request: Submission,
    model: Model | None,
    others: Mapping[Digest, Model | None] = MappingProxyType({}),
) -> Problem | None:
    """Why a request cannot be accepted, or None if it can.

    A model that is still being inspected is accepted: the job reads the same signature.

    Args:
        request: the request.
        model: the model that the request names; None if it does not exist.
        others: the same for the models of its entries.
    """
    models = {**others, request.model: model}
    refusals = (_model_refusal(digest, models.get(digest), request) for digest in request.models)
    problem = next(filter(None, refusals), None) or _targets_refusal(request) or _unmeasured_refusal(request)
    if problem is not None:
        return problem
    known = {digest: one.inspection for digest, one in models.items() if one and one.inspection}
    problem = _on_gpu_refusal(request, known) if any(map(gpus_of, request.targets)) else None
    if problem is not None:
        return problem
    if not request.entries:
        inspection = known.get(request.model)
        return None if inspection is None else _arguments_refusal(request, inspection)
    inspected = ((name, known.get(entry.model or request.model)) for name, entry in request.entries.items())
    return next(filter(None, (_entry_refusal(request, name, each) for name, each in inspected if each)), None)


def extensions_refusal(extensions: Mapping[Digest, Extension | None]) -> Problem | None:
    """The problem of the first extension that does not exist."""
    missing = (missing_extension(digest) for digest, found in extensions.items() if found is None)
    return next(missing, None)


def missing_model(digest: Digest) -> Problem:
    """The problem of a model that does not exist."""
    return make_problem(ErrorCode.MODEL_MISSING, f"Model {digest} not found.")


def missing_extension(digest: Digest) -> Problem:
    """The problem of an extension that does not exist."""
    return make_problem(ErrorCode.EXTENSION_MISSING, f"Extension {digest} not found.")


def _model_refusal(digest: Digest, model: Model | None, request: Submission) -> Problem | None:
    if model is None:
        return missing_model(digest)
    if model.problem is None or not model.defective:
        return None
    if request.extensions and model.problem.code in BY_EXTENSIONS:
        return None
    return model.problem.model_copy(update={"status": REJECTED_STATUS})


def _entry_refusal(request: Submission, name: str, inspection: Inspection) -> Problem | None:
    """Refuse an entry that does not fit the inspection, which has one method's signature only.

    The job reads the signatures of the other methods.
    """
    methods = (inspection.method, *inspection.other_methods)
    asked = request.entries[name].method
    if asked is not None and asked not in methods:
        detail = f"entry '{name}': the model has {', '.join(map(repr, methods))}, but no '{asked}'"
        errors = (FieldError(field=f"entries.{name}.method", message=f"the model has no method '{asked}'"),)
        return make_problem(ErrorCode.METHOD_MISSING, detail, errors=errors)
    meant = misspelled_method(name, methods, inspection.method) if asked is None else ""
    if meant:
        errors = (FieldError(field=f"entries.{name}", message=f"the model has no method '{name}'"),)
        return make_problem(ErrorCode.METHOD_MISSING, f"entry {meant}", errors=errors)
    chosen = asked or (name if name in methods else inspection.method)
    return _arguments_refusal(request.for_entry(name), inspection) if chosen == inspection.method else None


def _arguments_refusal(request: Submission, inspection: Inspection) -> Problem | None:
    return (
        _constants_refusal(request.constants, inspection.signature)
        or _inputs_refusal(request.inputs, inspection.signature)
        or _fixed_axes_refusal(request.inputs, inspection)
        or _dimensions_refusal(request, inspection)
    )


def _dimensions_refusal(request: Submission, inspection: Inspection) -> Problem | None:
    """Refuse ranges of dimensions that the model does not have."""
    own = {
        dimension.name: str(dimension).partition(" from ")[2]
        for dimension in inspection.signature.dynamic.dimensions
    }
    unknown = next((name for name in request.dimensions if name not in own), None)
    if request.inputs or unknown is None:
        return None
    message = unknown_dimension(unknown, own)
    return _refused(ErrorCode.INPUTS_MISMATCH, "dimensions", message)


def time_refusal(search_seconds: float, workers: Sequence[Worker]) -> Problem | None:
    """Why no live worker allows a search this much time, or None if one may.

    Args:
        search_seconds: the time limit of the search.
        workers: the live workers.
    """
    limits = [worker.limit_seconds for worker in workers if QueueName.COMPILE in worker.queues]
    known = [limit for limit in limits if limit is not None]
    if not known or len(known) < len(limits) or search_seconds < max(known):
        return None
    message = (
        f"the search may take {search_seconds:g} s, but the service ends every compilation after "
        f"{max(known):g} s: reduce it, or raise BESSEMER_LIMIT_WALL_SECONDS on a worker"
    )
    return _refused(ErrorCode.REQUEST_INVALID, "tune.seconds", message)


def offers_refusal(request: Submission, workers: Sequence[Worker]) -> Problem | None:
    """The first name of a request that no live worker knows, or None.

    An extension of the request may define the name.

    Args:
        request: the request.
        workers: the live workers. Without any, or if one does not report its names, nothing is known.
    """
    reports = [worker.offers for worker in workers if QueueName.COMPILE in worker.queues]
    offers = [each for each in reports if each is not None]
    if request.extensions or not offers or len(offers) < len(reports):
        return None
    unknown = unknown_name(request, joined_offers(offers))
    return None if unknown is None else _refused(unknown.code, unknown.field, unknown.message)


def gpu_refusal(
    targets: Sequence[Target],
    is_verified: bool,
    workers: Sequence[Worker],
    on_devices: Container[str] = (),
) -> Problem | None:
    """Why no library for these GPUs would be verified, or None if one may be.

    A compilation may wait until a worker with its processor starts. A GPU that no worker or device has may
    never come, so the request is refused.

    Args:
        targets: the request's targets.
        is_verified: whether it asks for verification.
        workers: the live workers. Without any, nothing is known.
        on_devices: the platforms that live devices run.
    """
    if not (is_verified and workers):
        return None
    for target in targets:
        needs = needs_of(target)
        if needs is None or not needs.gpus or needs.platform in on_devices:
            continue
        if not any(gpu.runs(needs.gpus) for worker in workers for gpu in worker.capability.gpus):
            return _without_gpu(needs)
    return None


def _without_gpu(needs: Needs) -> Problem:
    message = (
        f"no live worker or device has {no_gpu(needs.gpus)}, so nothing can verify the library: ask for "
        "`verification: none`, or start a worker on a machine with such a GPU"
    )
    return _refused(ErrorCode.TARGET_NOT_RUNNABLE, "verification", message)


def device_refusal(name: str, known: Collection[str]) -> Problem | None:
    """Why a request cannot name a device, or None if it can.

    Args:
        name: the device's name.
        known: the names of the devices that the tenant may use, live or lost.
    """
    if name in known:
        return None
    message = (
        f"no device is named '{name}'{did_you_mean(name, known)} "
        "(start it before you submit; `bessemer devices` lists the live ones)"
    )
    return _refused(ErrorCode.REQUEST_INVALID, "device", message)


def priority_refusal(priority: int, highest: int) -> Problem | None:
    """Why a tenant may not request a priority, or None if it may.

    Args:
        priority: the requested priority.
        highest: the highest that the tenant may request.
    """
    if priority <= highest:
        return None
    message = f"{priority} is higher than your tenant's highest priority, {highest}"
    return _refused(ErrorCode.REQUEST_INVALID, "priority", message)


def _targets_refusal(request: Submission) -> Problem | None:
    is_one = not isinstance(request.target, tuple)
    for index, target in enumerate(request.targets):
        name = "target" if is_one else f"target[{index}]"
        problem = _target_refusal(target, name) or _verification_refusal(request, target)
        if problem is not None:
            return problem
    return None


def _target_refusal(target: Target, name: str) -> Problem | None:
    """Refuse an unknown part of a target, which would end in a failed build.

    The contract accepts it, because the contract also reads requests of earlier compilations.
    """
    found = unknown_part(target)
    if found is None:
        return None
    field, error = found
    is_unsupported = isinstance(error, PydanticCustomError) and error.type == UNSUPPORTED
    code = ErrorCode.TARGET_UNSUPPORTED if is_unsupported else ErrorCode.REQUEST_INVALID
    message = error.message() if isinstance(error, PydanticCustomError) else str(error)
    return _refused(code, f"{name}.{field}", message)


def _on_gpu_refusal(request: Submission, known: Mapping[Digest, Inspection]) -> Problem | None:
    """Refuse what libraries for GPUs do not support.

    These are static linking, kernel libraries, separate parameters and dynamic sizes.
    """
    unfit = (
        (
            request.static_library,
            "static_library",
            "a library for a GPU cannot be linked statically: leave it out",
        ),
        (
            any(kernel != OURS for kernel in request.kernels.values()),
            "kernels",
            "kernel libraries are for processors: leave it out",
        ),
        (
            request.parameters is Parameters.SEPARATE,
            "parameters",
            "a library for a GPU holds its parameters: set it to `bound`",
        ),
    )
    errors = tuple(
        FieldError(field=field, message=f"{reason}, or choose a processor as the target")
        for is_given, field, reason in unfit
        if is_given
    )
    return _refused_fields(errors) or _dynamic_on_gpu(request, known)


def _dynamic_on_gpu(request: Submission, known: Mapping[Digest, Inspection]) -> Problem | None:
    names = tuple(request.entries) or (None,)
    for name in names:
        entry = request if name is None else request.for_entry(name)
        inspection = known.get(entry.model)
        own = () if inspection is None or entry.inputs else inspection.signature.dynamic.dimensions
        sizes = (*entry.dimensions, *(dimension.name for dimension in own))
        if sizes:
            place = "dimensions" if entry.dimensions else "inputs"
            field = place if name is None else f"entries.{name}.{place}"
            message = f"{DYNAMIC_ON_GPU}: fix {', '.join(map(repr, sizes))}, as in `--input x=1x3x224x224`"
            return _refused(ErrorCode.DYNAMIC_SHAPES_UNSUPPORTED, field, message)
    return None


def _unmeasured_refusal(request: Submission) -> Problem | None:
    """Refuse options that need a measurement on a worker's processor, if no target is measured there."""
    is_measured = request.device is None and any(
        runs_on_workers(triple_of(target)) and not gpus_of(target) for target in request.targets
    )
    if is_measured and request.is_verified:
        return None
    condition = "with verification only" if is_measured else "on the worker's processor only"
    asked = (
        (request.benchmark.compare, "benchmark.compare", "other runtimes are timed"),
        (request.tune.publish_early, "tune.publish_early", "early bundles are made for targets measured"),
    )
    return _refused_fields(
        tuple(
            FieldError(field=field, message=f"{what} {condition}: leave it out")
            for is_given, field, what in asked
            if is_given
        )
    )


def _refused_fields(errors: tuple[FieldError, ...]) -> Problem | None:
    """The problem of all invalid fields; None if there are none."""
    if not errors:
        return None
    detail = "; ".join(f"{error.field}: {error.message}" for error in errors)
    return make_problem(ErrorCode.REQUEST_INVALID, detail, errors=errors)


def _verification_refusal(request: Submission, target: Target) -> Problem | None:
    """Refuse a library that no worker can verify."""
    triple = triple_of(target)
    if runs_on_workers(triple) or not request.is_verified:
        return None
    return _refused(ErrorCode.TARGET_NOT_RUNNABLE, "verification", not_runnable(triple))


def _fixed_axes_refusal(inputs: tuple[InputSpec, ...], inspection: Inspection) -> Problem | None:
    """Refuse other sizes for axes that the export of a `.pt2` fixed. Jobs export only the other formats."""
    if inspection.format is not ModelFormat.PT2:
        return None
    signature = inspection.signature
    dynamic = {(axis.tensor, axis.axis) for axis in signature.dynamic.inputs}
    exported = {spec.name: spec.shape for spec in signature.inputs}
    changed = [
        (index, given.name, axis, size, own)
        for index, given in enumerate(inputs)
        for axis, (size, own) in enumerate(zip(given.shape, exported.get(given.name, ()), strict=False))
        if size != own and (given.name, axis) not in dynamic
    ]
    if not changed:
        return None
    errors = tuple(
        FieldError(
            field=f"inputs[{index}].shape[{axis}]",
            message=f"expected {own}, not {size}: the export fixed axis {axis} of '{name}'",
        )
        for index, name, axis, size, own in changed
    )
    is_named = any(isinstance(size, str) for _, _, _, size, _ in changed)
    code = ErrorCode.DYNAMIC_SHAPES_UNSUPPORTED if is_named else ErrorCode.INPUTS_MISMATCH
    detail = f"{'; '.join(error.message for error in errors)}. {EXPORT_DYNAMIC}"
    return make_problem(code, detail, errors=errors)


def _constants_refusal(constants: Mapping[str, Constant], signature: Signature) -> Problem | None:
    of_containers = {name.partition(".")[0] for name in constants if signature.covers(name)}
    given = of_containers.union(constants)
    missing = [each for each in signature.constants if each.required and each.name not in given]
    if not missing:
        return None
    errors = tuple(
        FieldError(
            field=f"constants.{each.name}", message=f"required: the argument '{each.name}' is {each.type}"
        )
        for each in missing
    )
    detail = f"{'; '.join(f'{each.name} has the type {each.type} and no default' for each in missing)}."
    names = [each.name for each in signature.constants]
    unknown = [name for name in constants if name not in names and not signature.covers(name)]
    if unknown:
        detail += f" The model has no constant {', '.join(unknown)}; it has {', '.join(names)}."
    return make_problem(ErrorCode.CONSTANTS_MISSING, detail, errors=errors)


def _inputs_refusal(inputs: tuple[InputSpec, ...], signature: Signature) -> Problem | None:
    if inputs:
        errors = _contradictions(inputs, signature)
        if not errors:
            return None
        detail = f"{'; '.join(error.message for error in errors)}. {_arguments(signature)}"
        return make_problem(ErrorCode.INPUTS_MISMATCH, detail, errors=errors)
    if signature.inputs or not signature.input_names:
        return None
    error = FieldError(field="inputs", message="required: the model file does not contain input shapes")
    return make_problem(ErrorCode.INPUTS_MISSING, _arguments(signature), errors=(error,))


def _contradictions(inputs: tuple[InputSpec, ...], signature: Signature) -> tuple[FieldError, ...]:
    """The mismatches with the signature; inputs may come in any order.

    Inputs may be missing unless the signature has the shapes of all: they may be optional.
    """
    known = {spec.name: spec for spec in signature.inputs}
    errors: list[FieldError] = []
    for index, given in enumerate(inputs):
        if given.name not in signature.input_names and not signature.covers(given.name):
            message = f"the model has no input '{given.name}'"
            errors.append(FieldError(field=f"inputs[{index}].name", message=message))
        elif given.name in known:
            errors.extend(_spec_contradictions(index, given, known[given.name]))
    if set(known) == set(signature.input_names):
        absent = ", ".join(sorted(set(known) - {given.name for given in inputs}))
        if absent:
            errors.append(FieldError(field="inputs", message=f"not given: {absent}"))
    return tuple(errors)


def _spec_contradictions(index: int, given: InputSpec, known: TensorSpec) -> list[FieldError]:
    errors: list[FieldError] = []
    if len(given.shape) != len(known.shape):
        message = f"'{given.name}' has rank {len(given.shape)}, the model takes rank {len(known.shape)}"
        errors.append(FieldError(field=f"inputs[{index}].shape", message=message))
    if given.dtype not in (None, known.dtype):
        message = f"'{given.name}' is {given.dtype}, the model takes {known.dtype}"
        errors.append(FieldError(field=f"inputs[{index}].dtype", message=message))
    return errors


def _arguments(signature: Signature) -> str:
    """The model's arguments in the syntax of the command line, as far as they are known."""
    parts = [
        str(name) if spec is None else shown_shape(spec, signature.dynamic.inputs)
        for name, spec in zip_longest(signature.input_names, signature.inputs)
    ]
    return f"The model takes, in this order: {', '.join(parts)}."


def _refused(code: ErrorCode, field: str, message: str) -> Problem:
    errors = (FieldError(field=field, message=message),)
    return make_problem(code, f"{field}: {message}", errors=errors)
