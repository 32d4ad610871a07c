"""Capture: exports the upload and runs the original on the reference inputs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.export.graph_signature import OutputKind
from torch.utils import _pytree as pytree

from bessemer.contract.dynamic import DynamicShapes, specs_at
from bessemer.contract.model import ModelFormat
from bessemer.contract.options import image_channels
from bessemer.contract.problem import ErrorCode
from bessemer.contract.request import CompilationRequest
from bessemer.contract.structure import CallStructure, Structure, shown
from bessemer.contract.tensor import TensorSpec
from worker.compiler.frontend.complex_tensors import take_parts
from worker.compiler.frontend.constant_items import fold_items
from worker.compiler.frontend.constants import refuse_unfixed
from worker.compiler.frontend.dynamic_shapes import (
    AxisNames,
    DimensionSizes,
    choose_samples,
    describe_program,
)
from worker.compiler.frontend.file_format import recognize
from worker.compiler.frontend.graphs import GraphRecorder
from worker.compiler.frontend.load import load_model
from worker.compiler.frontend.loaded_model import FORWARD, LoadedModel, refuse_empty, tensor_spec
from worker.compiler.frontend.missing_values import with_missing_values
from worker.compiler.frontend.model_errors import at_sizes, model_raised, modifies_input
from worker.compiler.frontend.outputs import describe_outputs, flatten_outputs
from worker.compiler.frontend.requested_dimensions import (
    check_requested_dimensions,
    example_sizes,
    exported_sizes,
    names_by_axis,
    requested_dynamic_shapes,
    with_own_dimensions,
    with_own_dtypes,
)
from worker.compiler.frontend.sample_inputs import (
    Lengths,
    Limits,
    data_limit_bytes,
    index_limits,
    random_inputs,
    refuse_oversized,
)
from worker.compiler.frontend.seeds import draws, take_seed
from worker.compiler.frontend.signature import match_inputs
from worker.compiler.frontend.state import (
    SharedTensors,
    expose_state,
    held_or_zeros,
    shared_state,
    state_name,
)
from worker.compiler.frontend.stateful import refuse_training, runs_differ, sets_attributes
from worker.compiler.frontend.torchscript.convert import ScriptConversionError
from worker.compiler.pipeline.capture_module import capture_module
from worker.compiler.values import (
    Captured,
    MethodName,
    RelaxProgram,
    Sample,
    StageContext,
    Turn,
    Upload,
)
from worker.errors import JobError, failure_of, in_entry
from worker.parameters import count_together
from worker.tensors import as_array, as_tensor

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from worker.compiler.frontend.state import StatefulProgram

    Tensors = tuple[torch.Tensor, ...]

CALLS = 8
"""The runs of a model with state that are compared, and the least number of turns of its entry points."""


def capture(upload: Upload, context: StageContext) -> Captured:
    """Load the model, export each entry point for the request's inputs, and run the original for reference.

    Before: the child is confined, torch uses the target's threads, and the upload is untrusted. After:
    ``program`` takes and returns only tensors, in the order of the specs, and does not change its inputs; two
    runs of the original agree on the references. If it draws random numbers, it takes their seed, and the
    references are its outputs: the original agrees with the export while both draw from torch's generator.
    Sizes that the file leaves dynamic stay so, unless the request names inputs. Entry points agree on the
    first values of a state that they share; ``turns`` has what the originals return when they run in turn.

    Raises:
        JobError: one of the model's codes, ``inputs-missing``, ``constants-missing``, ``inputs-mismatch``,
            ``method-missing``, ``limit-memory``, ``dynamic-shapes-unsupported`` or ``capture-failed``.
    """
    graphs = GraphRecorder(context.output) if upload.request.inspect.graph else None
    first, *others = _with_shared_state(upload.entries, context, graphs)
    refuse_contradicting_states((first, *others))
    refuse_names_of_states((first, *others))
    refuse_missing_images(upload.request.inspect.images, (first, *others))
    if not others:
        return first
    return replace(
        first,
        others=tuple(others),
        turns=tuple(_turns((first, *others))),
        parameters=count_together(map(_held, (first, *others))),
    )


def _held(entry: Captured) -> dict[str, torch.Tensor]:
    """The parameters, buffers and state of an entry point, by name."""
    if isinstance(entry.program, RelaxProgram):
        return {name: as_tensor(array) for name, array in entry.program.weights.items()}
    return {
        **entry.program.state_dict,
        **{name: as_tensor(value) for name, value in entry.initial_buffers.items()},
    }


def _turns(entries: Sequence[Captured]) -> Iterator[Turn]:
    """Load the originals again, and run them in turn, forward and backward, each from the last one's state.

    There are no turns if no run changes a buffer. The original does not draw the numbers that follow from a
    seed, so entry points with a seed take no part.
    """
    players = [entry for entry in entries if entry.seed is None]
    if len(players) < 2 or not any(entry.buffers.writes for entry in entries):
        return
    models = {entry.name: _loaded_anew(entry) for entry in players}
    names = {name for entry in players for name in entry.state_buffers}
    shared = SharedTensors([model.original for model in models.values()], names)
    for number in range(-(-CALLS // len(players))):
        for entry in players[:: -1 if number % 2 else 1]:
            model, samples = models[entry.name], (entry.example, *entry.samples)
            shared.give(model.original)
            with in_entry(entry.upload.entry):
                yield Turn(entry.name, _after_others(entry, model, samples[number % len(samples)]))
            shared.take(model.original)


def _after_others(entry: Captured, model: LoadedModel, sample: Sample) -> Sample:
    """Run the original on the inputs of a sample from the state that it is in."""
    inputs = replace(entry, inputs=sample.inputs).with_complex.inputs[: entry.own_inputs]
    before = _state(entry, model)
    outputs = _run(model, tuple(map(as_tensor, inputs)))
    returned = (*map(as_array, outputs), *_state(entry, model))
    given = (*inputs, *before)
    return Sample(sample.sizes, tuple(map(_parts, given)), tuple(map(_parts, returned)), follows=True)


def _state(entry: Captured, model: LoadedModel) -> tuple[np.ndarray, ...]:
    return tuple(
        as_array(held_or_zeros(model.original, name, as_tensor(first)))
        for name, first in entry.initial_buffers.items()
    )


def _loaded_anew(entry: Captured) -> LoadedModel:
    return load_model(entry.upload.path, replace(entry.upload.selection, method=entry.method), entry.format)


def _with_shared_state(
    uploads: Sequence[Upload], context: StageContext, graphs: GraphRecorder | None
) -> list[Captured]:
    """The entry points, each with the state that it shares with another, even if it only reads or sets it."""
    entries = [_named(upload, context, graphs=graphs) for upload in uploads]
    shared = shared_state([entry.buffers for entry in entries])
    known = {name: value for entry in entries for name, value in entry.initial_buffers.items()}
    return [
        _sharing(upload, context, entry, shared, known)
        for upload, entry in zip(uploads, entries, strict=True)
    ]


def _sharing(
    upload: Upload,
    context: StageContext,
    entry: Captured,
    shared: frozenset[str],
    known: Mapping[str, np.ndarray],
) -> Captured:
    """The entry point with its shared buffers as state.

    A buffer that it only reads, and that begins with other values, is another model's of the same name.
    """
    names = shared & (entry.buffers.reads | entry.buffers.writes)
    if names.issubset(entry.state_buffers):
        return entry
    sharing = _named(upload, context, names)
    only_read, begins = names - entry.buffers.writes, sharing.initial_buffers
    same = (
        _same_value(value, begins[name])
        for name, value in known.items()
        if name in only_read and name in begins
    )
    return sharing if all(same) else entry


def refuse_contradicting_states(entries: Sequence[Captured]) -> None:
    """Refuse entry points that keep different things under one name.

    Raises:
        JobError: ``model-stateful``.
    """
    known: dict[str, np.ndarray] = {}
    for entry in entries:
        for name, value in entry.initial_buffers.items():
            shared = known.setdefault(name, value)
            if not _same_value(shared, value):
                detail = (
                    f"entry '{entry.upload.entry}': the state '{name}' begins as {value.dtype}"
                    f"{list(value.shape)} with other values than in an earlier entry"
                )
                raise JobError(ErrorCode.MODEL_STATEFUL, detail)


def refuse_names_of_states(entries: Sequence[Captured]) -> None:
    """Refuse a state with the name of a tensor of any entry point, or of another state.

    Raises:
        JobError: ``model-stateful``.
    """
    held: dict[str, str] = {}
    for buffer in dict.fromkeys(buffer for entry in entries for buffer in entry.state_buffers):
        name = state_name(buffer)
        known = held.setdefault(name, buffer)
        if known != buffer:
            detail = f"the states '{known}' and '{buffer}' would both be named '{name}'; rename one"
            raise JobError(ErrorCode.MODEL_STATEFUL, detail)
    for entry in entries:
        own = (*entry.input_specs[: entry.own_inputs], *entry.output_specs[: entry.own_outputs])
        for name in (spec.name for spec in own if spec.name in held):
            detail = (
                f"an input or output is named '{name}', as is the state that the model keeps in "
                f"'{held[name]}'; rename the argument or the key of the result"
            )
            with in_entry(entry.upload.entry):
                raise JobError(ErrorCode.MODEL_STATEFUL, detail)


def refuse_missing_images(images: Mapping[str, tuple[int, int]], entries: Sequence[Captured]) -> None:
    """Refuse to show images of inputs that hold none of that size.

    Raises:
        JobError: ``inputs-mismatch``.
    """
    shapes = {spec.name: spec.shape for entry in reversed(entries) for spec in entry.input_specs}
    for name, (height, width) in images.items():
        wanted = f"`inspect.images` shows '{name}' as {height} by {width} pixels"
        if name not in shapes:
            detail = f"{wanted}, but the model has no such input; it has {', '.join(map(repr, shapes))}"
            raise JobError(ErrorCode.INPUTS_MISMATCH, detail)
        if image_channels(shapes[name], height, width) is None:
            shape = "x".join(map(str, shapes[name]))
            detail = f"{wanted}, but {shape} is neither one image of 1 or 3 channels nor a batch of them"
            raise JobError(ErrorCode.INPUTS_MISMATCH, detail)


def _same_value(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two arrays have equal bits."""
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


def _named(
    upload: Upload,
    context: StageContext,
    shared: frozenset[str] = frozenset(),
    graphs: GraphRecorder | None = None,
) -> Captured:
    with in_entry(upload.entry):
        form = recognize(upload.path)
        if form is ModelFormat.IR_MODULE:
            return capture_module(upload, context)
        return _capture(upload, form, shared, graphs)


def _capture(
    upload: Upload, form: ModelFormat, shared: frozenset[str], graphs: GraphRecorder | None
) -> Captured:
    request = upload.asked
    model = load_model(upload.path, upload.selection, form)
    if upload.entry is None and model.method != FORWARD and model.other_methods:
        listed = ", ".join(map(repr, sorted((model.method, *model.other_methods))))
        raise JobError(ErrorCode.MODEL_FORWARD_MISSING, f"the model has {listed}, but no '{FORWARD}'")
    refuse_unfixed(model.constants, request.constants)
    request = with_own_dtypes(with_own_dimensions(request, model.arguments), model.arguments)
    if model.format is ModelFormat.PT2:
        check_requested_dimensions(request.inputs, request.dimensions, model.arguments)
    sizes = example_sizes(request.inputs, request.dimensions, model.arguments)
    specs = match_inputs(tuple(spec.at(sizes) for spec in request.inputs), model.arguments)
    refuse_oversized(specs, data_limit_bytes())
    seed = request.verify.seed
    examples = _own_examples(model, specs)
    with at_sizes(sizes):
        if examples is None:
            inputs, limits, (outputs, names, returns) = _first_run(model, specs, seed)
        else:
            inputs, limits, (outputs, names, returns) = examples, {}, _run_named(model, examples)
    if graphs is not None:
        graphs.add_upload(upload.entry, model, inputs)
    program = _export_as_asked(model, request, inputs, exported_sizes(sizes))
    if graphs is not None:
        graphs.add_program(upload.entry, model, program)
    refuse_training(program, model.original)
    limits |= index_limits(program, specs)
    if limits and examples is None:
        inputs = random_inputs(specs, limits, seed)
        with at_sizes(sizes):
            outputs = _run(model, inputs)
    output_specs = tuple(map(tensor_spec, names, outputs))
    dynamic = _describe_dynamic(program, specs, output_specs, names_by_axis(request.inputs))
    refuse_empty(output_specs, dynamic.outputs)
    captured = Captured(
        upload=upload,
        format=model.format,
        program=program,
        input_specs=specs,
        output_specs=output_specs,
        inputs=tuple(map(as_array, inputs)),
        references=tuple(map(as_array, outputs)),
        parameters=model.parameters,
        dynamic=dynamic,
        method=MethodName(model.method),
        other_methods=model.other_methods,
        call=CallStructure(arguments=model.call.arguments, returns=returns),
    )
    stateful = _exposed_state(program, shared)
    captured = replace(captured, buffers=stateful.use)
    if stateful.buffers:
        further = (random_inputs(specs, limits, seed + number) for number in range(1, CALLS))
        return _with_parts(_with_seed(_with_state(captured, stateful, (inputs, *further))))
    if sets_attributes(model.original):
        _run(model, random_inputs(specs, limits, seed + 1))
    _check_repeatable(model, program, inputs, outputs)
    return _with_parts(_with_seed(replace(captured, samples=_samples(model, captured, limits, seed))))


def _first_run(
    model: LoadedModel, specs: tuple[TensorSpec, ...], seed: int
) -> tuple[Tensors, Limits, tuple[Tensors, tuple[str, ...], Structure]]:
    """Inputs that the model takes, limits of their numbers, and what it returns.

    For example, offsets have to begin with 0, floats may be category numbers or shares, and sequences have
    lengths of at least 1.

    Raises:
        JobError: the error for the first inputs, if the model raises for all.
    """
    zeros: Limits = {spec.name: 1 for spec in specs if spec.dtype.is_integer}
    shares: Limits = {spec.name: 1 for spec in specs if spec.dtype.is_float}
    lengths: Limits = {
        spec.name: Lengths(1) for spec in specs if spec.dtype.is_integer and len(spec.shape) == 1
    }
    refusal: JobError | None = None
    for limits in ({}, zeros, shares, zeros | shares, zeros | lengths):
        inputs = random_inputs(specs, limits, seed)
        try:
            return inputs, limits, _run_named(model, inputs)
        except JobError as error:
            if error.code is not ErrorCode.MODEL_RAISED:
                raise
            refusal = refusal or error
    assert refusal is not None
    raise refusal


def _exposed_state(program: ExportedProgram, shared: frozenset[str]) -> StatefulProgram:
    try:
        return expose_state(program, shared)
    except Exception as error:
        raise failure_of(ErrorCode.CAPTURE_FAILED, error) from error


def _with_state(captured: Captured, stateful: StatefulProgram, calls: tuple[Tensors, ...]) -> Captured:
    """Load the original again, and run it beside the program with exposed state.

    Raises:
        JobError: ``model-stateful``: the program does not do in every call what the original does.
    """
    model = _loaded_anew(captured)
    program = stateful.program.module(check_guards=False)
    state = stateful.initial(model.original)
    samples = []
    for number, inputs in enumerate(calls):
        outputs, _, returns = _run_named(model, inputs)
        _refuse_other_structure(captured, returns)
        with torch.inference_mode(), _torch_seed():
            results = program(*(tensor.clone() for tensor in (*inputs, *state)))
        own, after = results[: len(outputs)], results[len(outputs) :]
        if not all(map(_close, outputs, own)):
            raise runs_differ(model.original, captured.exported)
        given, returned = (tuple(map(as_array, each)) for each in ((*inputs, *state), (*outputs, *after)))
        samples.append(Sample({}, given, returned, follows=number > 0))
        state = after
    specs = tuple(map(tensor_spec, stateful.names, state))
    return replace(
        captured,
        program=stateful.program,
        input_specs=(*captured.input_specs, *specs),
        output_specs=(*captured.output_specs, *specs),
        inputs=samples[0].inputs,
        references=samples[0].references,
        samples=tuple(samples[1:]),
        state_buffers=stateful.buffers,
    )


def _with_seed(captured: Captured) -> Captured:
    """Make random numbers a function of one more input, before the state, and compute the references so.

    Raises:
        JobError: ``model-stateful``: the exported program does not draw the numbers that the original draws.
    """
    try:
        taken = {spec.name for spec in (*captured.input_specs, *captured.output_specs)}
        taken |= {argument.name for argument in captured.call.arguments}
        seeded = take_seed(captured.exported, taken, captured.states)
    except Exception as error:
        raise failure_of(ErrorCode.CAPTURE_FAILED, error) from error
    if seeded is None:
        return captured
    run, own, samples = seeded.program.module(check_guards=False), captured.own_inputs, list[Sample]()
    for number, sample in enumerate((captured.example, *captured.samples)):
        states = samples[-1].references[captured.own_outputs :] if sample.follows else sample.inputs[own:]
        seed = np.asarray(captured.upload.asked.verify.seed + number, np.int64)
        inputs = (*sample.inputs[:own], seed, *states)
        with torch.inference_mode():
            outputs = flatten_outputs(run(*map(as_tensor, inputs)))
        samples.append(replace(sample, inputs=inputs, references=tuple(map(as_array, outputs))))
    return replace(
        captured,
        program=seeded.program,
        input_specs=(*captured.input_specs[:own], seeded.spec, *captured.input_specs[own:]),
        inputs=samples[0].inputs,
        references=samples[0].references,
        samples=tuple(samples[1:]),
        seed=seeded.spec.name,
    )


def _with_parts(captured: Captured) -> Captured:
    """Replace complex inputs and outputs by real ones with a last axis for the parts."""
    specs = (*captured.input_specs, *captured.output_specs)
    names = frozenset(spec.name for spec in specs if spec.dtype.is_complex)
    held = {**captured.exported.state_dict, **captured.exported.constants}.values()
    if not names and not any(isinstance(one, torch.Tensor) and one.is_complex() for one in held):
        return captured
    try:
        program = take_parts(captured.exported)
    except Exception as error:
        raise failure_of(ErrorCode.CAPTURE_FAILED, error) from error
    return replace(
        captured,
        program=program,
        input_specs=tuple(map(_part_spec, captured.input_specs)),
        output_specs=tuple(map(_part_spec, captured.output_specs)),
        inputs=tuple(map(_parts, captured.inputs)),
        references=tuple(map(_parts, captured.references)),
        samples=tuple(
            replace(
                sample,
                inputs=tuple(map(_parts, sample.inputs)),
                references=tuple(map(_parts, sample.references)),
            )
            for sample in captured.samples
        ),
        complex_names=names,
    )


def _part_spec(spec: TensorSpec) -> TensorSpec:
    if not spec.dtype.is_complex:
        return spec
    try:
        return TensorSpec(name=spec.name, shape=(*spec.shape, 2), dtype=spec.dtype.part)
    except ValueError as error:
        detail = (
            f"'{spec.name}' is complex and has {len(spec.shape)} axes, of which Bessemer supports one fewer"
        )
        raise JobError(ErrorCode.MODEL_TENSORS_UNSUPPORTED, detail) from error


def _parts(array: np.ndarray) -> np.ndarray:
    return np.stack((array.real, array.imag), -1) if np.iscomplexobj(array) else array


def _export_as_asked(
    model: LoadedModel, request: CompilationRequest, inputs: Tensors, sizes: DimensionSizes
) -> ExportedProgram:
    """Export with the dynamic sizes of the request, or with the file's own if the request names no inputs."""
    if request.dimensions:
        chosen = match_inputs(tuple(spec.at(sizes) for spec in request.inputs), model.arguments)
        dims = requested_dynamic_shapes(request.inputs, request.dimensions, (spec.name for spec in chosen))
        examples = random_inputs(chosen, {}, request.verify.seed)
        return _export(model, lambda: model.export(examples, dims), ErrorCode.DYNAMIC_SHAPES_UNSUPPORTED)
    if model.export_dynamic is not None and not request.inputs:
        own = model.export_dynamic
        return _export(model, lambda: own(inputs), ErrorCode.DYNAMIC_SHAPES_UNSUPPORTED)
    return _export(model, lambda: model.export(inputs, None), ErrorCode.CAPTURE_FAILED)


def _describe_dynamic(
    program: ExportedProgram,
    specs: tuple[TensorSpec, ...],
    outputs: tuple[TensorSpec, ...],
    given: AxisNames,
) -> DynamicShapes:
    found = describe_program(program, specs, outputs, given)
    for axis in found.inputs:
        if axis.dimension is None:
            own = f"axis {axis.axis} of '{axis.tensor}'"
            detail = f"the size of {own} depends on several dimensions: give it as a number in `inputs`"
            raise JobError(ErrorCode.DYNAMIC_SHAPES_UNSUPPORTED, detail)
    return found


def _samples(model: LoadedModel, captured: Captured, limits: Limits, seed: int) -> tuple[Sample, ...]:
    """Run the original on inputs of other sizes."""
    samples = []
    dynamic, specs = captured.dynamic, captured.input_specs
    for number, sizes in enumerate(choose_samples(dynamic.dimensions, dynamic.sizes(specs)), 1):
        inputs = random_inputs(specs_at(specs, dynamic.inputs, sizes), limits, seed + number)
        with at_sizes(sizes):
            outputs, _, returns = _run_named(model, inputs)
        _refuse_other_structure(captured, returns)
        samples.append(Sample(sizes, tuple(map(as_array, inputs)), tuple(map(as_array, outputs))))
    return tuple(samples)


def _refuse_other_structure(captured: Captured, returns: Structure) -> None:
    known = captured.call.returns
    if known is not None and returns != known:
        first, found = shown(known)[:200], shown(returns)[:200]
        detail = f"what the model returns depends on its inputs: first {first}, then {found}"
        raise JobError(ErrorCode.MODEL_SIGNATURE_UNSUPPORTED, detail)


def _own_examples(model: LoadedModel, specs: tuple[TensorSpec, ...]) -> Tensors | None:
    """The file's example inputs, if they fit the specs to compile for."""
    if model.examples is None or len(model.examples) != len(specs):
        return None
    found = tuple(tensor_spec(spec.name, tensor) for spec, tensor in zip(specs, model.examples, strict=True))
    return model.examples if found == specs else None


def _run(model: LoadedModel, inputs: Tensors) -> Tensors:
    """The original's outputs, from copies of the inputs."""
    return _run_named(model, inputs)[0]


def _run_named(model: LoadedModel, inputs: Tensors) -> tuple[Tensors, tuple[str, ...], Structure]:
    """The original's outputs, their names, and the structure of the result."""
    copies = tuple(tensor.clone() for tensor in inputs)
    try:
        with torch.inference_mode(), _torchscript_allowed(), _torch_seed():
            result = model.eager(*copies)
    except Exception as error:
        names = [argument.name for argument in model.arguments]
        raised = model_raised(error, model.original, names, inputs)
        raise with_missing_values(raised, error, model.call) from error
    outputs = tuple(tensor.clone() for tensor in flatten_outputs(result))
    changed = [index for index, copy in enumerate(copies) if not _identical(copy, inputs[index])]
    if changed:
        raise modifies_input(model.original, model.arguments[changed[0]].name)
    leaves, structure = pytree.tree_flatten(result)
    return outputs, *describe_outputs(model.returns or structure, leaves)


def _export(model: LoadedModel, export: Callable[[], ExportedProgram], code: ErrorCode) -> ExportedProgram:
    """Export; fail with ``code`` if torch refuses."""
    try:
        with torch.no_grad(), _torchscript_allowed():
            program = fold_items(export())
    except ScriptConversionError as error:
        places = () if error.step is None else (error.step.place(),)
        detail = ": ".join((str(error), *map(str, places)))
        raise failure_of(ErrorCode.CAPTURE_FAILED, error, detail, places) from error
    except JobError:
        raise
    except Exception as error:
        raise failure_of(code, error) from error
    for spec in program.graph_signature.output_specs:
        if spec.kind == OutputKind.USER_INPUT_MUTATION:
            raise JobError(ErrorCode.MODEL_STATEFUL, f"the model modifies its input '{spec.target}'")
    return program


def _check_repeatable(
    model: LoadedModel, program: ExportedProgram, inputs: Tensors, outputs: Tensors
) -> None:
    again = _run(model, inputs)
    if len(again) != len(outputs) or not all(map(_close, outputs, again)):
        raise runs_differ(model.original, program)
    if any(map(draws, program.graph.nodes)):
        run = program.module(check_guards=False)
        with torch.inference_mode(), _torch_seed():
            drawn = flatten_outputs(run(*(tensor.clone() for tensor in inputs)))
        if not all(map(_close, outputs, drawn)):
            raise runs_differ(model.original, program)


def _close(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Equal up to the order in which threads may have summed."""
    return _match(left, right, relative=1e-5, absolute=1e-6)


def _identical(left: torch.Tensor, right: torch.Tensor) -> bool:
    return _match(left, right, relative=0.0, absolute=0.0)


def _match(left: torch.Tensor, right: torch.Tensor, relative: float, absolute: float) -> bool:
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    if not (left.is_floating_point() or left.is_complex()):
        return torch.equal(left, right)
    return torch.allclose(left, right, rtol=relative, atol=absolute, equal_nan=True)


@contextmanager
def _torch_seed() -> Iterator[None]:
    """While the context lasts, torch draws the same numbers every time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def _torchscript_allowed() -> warnings.catch_warnings[None]:
    return warnings.catch_warnings(action="ignore", category=DeprecationWarning)
