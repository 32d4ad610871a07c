"""Translate: turns the exported program into Relax."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
import tvm
from tvm import relax

from bessemer.bundle.manifest import PARAMETERS
from bessemer.contract.dynamic import DYNAMIC_ON_GPU
from bessemer.contract.options import TranslationLevel
from bessemer.contract.problem import ErrorCode
from bessemer.contract.request import Parameters
from bessemer.contract.tensor import TensorSpec
from worker.compiler.frontend.dynamic_shapes import names_of_symbols
from worker.compiler.layout.separate_parameters import INPUTS
from worker.compiler.legalize.registry import legalization_map
from worker.compiler.pipeline.translate_module import normalized
from worker.compiler.schedules.annotations import STATE
from worker.compiler.schedules.gpu.chips import writing_for
from worker.compiler.source_locations import place_of
from worker.compiler.translation.decompositions import calls_of, decomposed, untranslatable
from worker.compiler.translation.errors import UntranslatableError, advice_on
from worker.compiler.translation.importer import Importer, unbound
from worker.compiler.translation.module_calls import join_modules
from worker.compiler.translation.names import operator_name
from worker.compiler.translation.operator_counts import count_operators
from worker.compiler.translation.registry import rule_book
from worker.compiler.translation.rule_template import rule_template
from worker.compiler.values import Captured, RelaxProgram, StageContext, Translated
from worker.errors import JobError, OperatorsUnsupportedError, failure_of, in_entry, short_message
from worker.parameters import ParameterFile, in_one_file, separable, write_parameters

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch.export import ExportedProgram
    from torch.fx import Node

    from worker.compiler.translation.builders import Express

MAX_PLACES = 200

_WORD = re.compile(r"\b[A-Za-z_]\w*")
_INTEGER = re.compile(r"\bT\.int(?:32|64)\((-?\d+)\)")

_BY_OPEN_SIZES = (ErrorCode.TRANSLATE_FAILED, ErrorCode.OPTIMIZE_FAILED)


def translate(captured: Captured, context: StageContext) -> Translated:
    """Translate the exported program to Relax.

    Before: the program is exported and has run on its inputs. After: ``main`` takes the inputs by their names
    in order and returns a flat tuple of the outputs, with the model's shapes and dtypes. Parameters, buffers
    and constants are bound. At the level of tensor expressions, ``main`` calls TensorIR functions, and
    operators only where they have no expression. If the request asks for separate parameters, these and the
    persistent buffers are arguments after the inputs, and ``context.output`` has their file.

    Raises:
        OperatorsUnsupportedError: lists all operators that cannot be translated, with their places.
        JobError: ``translate-failed``: the importer failed or changed the model's signature;
            ``dynamic-shapes-unsupported`` instead where sizes are dynamic, and always for a GPU.
    """
    for each in captured.entries:
        _refuse_dynamic_on_gpu(each)
    entries = tuple(map(_named, captured.entries))
    named = in_one_file([(entry.captured.name, entry.separate) for entry in entries])
    first, *others = (replace(entry, separate=each) for entry, each in zip(entries, named, strict=True))
    return replace(first, captured=captured, others=tuple(others), parameters=_write(named, context))


def _refuse_dynamic_on_gpu(captured: Captured) -> None:
    dynamic = captured.dynamic
    if captured.upload.target.gpu is None or not (dynamic.dimensions or dynamic.of_data):
        return
    sizes = (*map(str, dynamic.dimensions), *(f"{size}, which depends on data" for size in dynamic.of_data))
    with in_entry(captured.upload.entry):
        raise JobError(ErrorCode.DYNAMIC_SHAPES_UNSUPPORTED, f"{DYNAMIC_ON_GPU}: {'; '.join(sizes)}")


def _named(captured: Captured) -> Translated:
    with in_entry(captured.upload.entry):
        return _translated(captured)


def _translated(captured: Captured) -> Translated:
    if isinstance(captured.program, RelaxProgram):
        module, separate = normalized(captured.program, captured.upload.request.parameters)
        return Translated(captured, module, count_operators(module), separate=separate)
    upload = captured.upload
    importer = Importer(_expressions(upload.request.translate.level))
    try:
        program = decomposed(captured.program)
        join_modules(program, rule_book().modules)
        refuse_unsupported(program, importer)
        separate = _separate(captured, program)
        with upload.target.llvm, writing_for(upload.target.gpu):
            module = _import(importer, unbound(program, frozenset(separate)))
        main = _named_parameters(module["main"], captured.input_specs, len(separate))
        if captured.kept:
            main = main.with_attr(STATE, (captured.own_inputs, captured.own_outputs, captured.kept))
        _check_outputs(main, captured)
    except JobError as error:
        refuse_dynamic_sizes(error, captured)
        raise
    module.update_func(module.get_global_var("main"), main)
    return Translated(
        captured=captured,
        module=module,
        operators=count_operators(module),
        places={name: place_of(node) for name, node in importer.nodes.items()},
        separate=separate,
        nodes=dict(importer.nodes),
    )


def _expressions(level: TranslationLevel) -> Mapping[str, Express] | None:
    """The tensor expressions to emit, which at the level of operators legalization writes later."""
    return legalization_map() if level is TranslationLevel.TENSOR_EXPRESSIONS else None


def _separate(captured: Captured, program: ExportedProgram) -> dict[str, torch.Tensor]:
    wanted = captured.upload.request.parameters is Parameters.SEPARATE
    return separable(program) if wanted else {}


def _write(entries: Sequence[dict[str, torch.Tensor]], context: StageContext) -> ParameterFile | None:
    separate = {name: tensor for tensors in entries for name, tensor in tensors.items()}
    try:
        return write_parameters(context.output / PARAMETERS, separate) if separate else None
    except ValueError as error:
        raise failure_of(ErrorCode.TRANSLATE_FAILED, error, f"its parameters: {error}") from error


def refuse_unsupported(program: ExportedProgram, importer: Importer) -> None:
    """Refuse a program that calls operators without a rule or a converter.

    Raises:
        OperatorsUnsupportedError: with their distinct places in program order, and a rule to fill in, or
            advice where a rule cannot help.
    """
    missing = [node for node in calls_of(program) if not importer.can_translate(node)]
    if missing:
        places = tuple(dict.fromkeys(map(place_of, missing)))
        open_to_rules = [node for node in missing if advice_on(node) is None]
        template = rule_template(open_to_rules) if open_to_rules else ""
        raise OperatorsUnsupportedError(places[:MAX_PLACES], template, _advice(missing))


def _advice(missing: list[Node]) -> tuple[str, ...]:
    found = {operator_name(node): advice_on(node) for node in missing}
    return tuple(f"{name} {advice}" for name, advice in sorted(found.items()) if advice)


def _import(importer: Importer, program: ExportedProgram) -> tvm.IRModule:
    try:
        return importer.from_exported_program(
            program,
            keep_params_as_input=False,
            unwrap_unit_return_tuple=False,
            no_bind_return_tuple=False,
            custom_convert_map=None,
        )
    except Exception as error:
        raise _import_failure(importer, error) from error


def _import_failure(importer: Importer, error: Exception) -> JobError:
    reason = short_message(error)
    if importer.reached is None:
        return failure_of(ErrorCode.TRANSLATE_FAILED, error, reason)
    place = place_of(importer.reached)
    if isinstance(error, UntranslatableError):
        return untranslatable(error, place)
    return failure_of(ErrorCode.TRANSLATE_FAILED, error, f"{place}: {reason}", (place,))


def _named_parameters(main: relax.Function, specs: tuple[TensorSpec, ...], separate: int) -> relax.Function:
    """Give inputs their own names, and mark the arguments after them as parameters."""
    count = len(main.params) - separate
    if count != len(specs):
        raise JobError(ErrorCode.TRANSLATE_FAILED, f"main takes {count} inputs, the model {len(specs)}")
    inputs = [relax.Var(spec.name, old.ty) for spec, old in zip(specs, main.params[:count], strict=True)]
    parameters = [*inputs, *main.params[count:]]
    body = main.bind_params(dict(zip(main.params, parameters, strict=True))).body
    named = relax.Function(parameters, body, main.ret_ty, main.is_pure, main.attrs)
    return named.with_attr(INPUTS, count) if separate else named


def refuse_dynamic_sizes(error: JobError, captured: Captured) -> None:
    """Raise the error as one of dynamic sizes, if any are dynamic, since fixed sizes may compile."""
    if not captured.dynamic.dimensions or error.code not in _BY_OPEN_SIZES:
        return
    dynamic_sizes = ", ".join(map(str, captured.dynamic.dimensions))
    reason, named = _in_words_of_user(error.detail, captured)
    fix = f". Fix {', '.join(map(repr, named))}" if named else ""
    detail = f"with dynamic sizes ({dynamic_sizes}): {reason}{fix}"
    raise JobError(ErrorCode.DYNAMIC_SHAPES_UNSUPPORTED, detail, error.places) from error


def _in_words_of_user(detail: str, captured: Captured) -> tuple[str, tuple[str, ...]]:
    """A message with dimensions for symbols and plain numbers, and the dimensions that it names."""
    program, names = captured.program, dict[str, str]()
    if isinstance(program, torch.export.ExportedProgram):
        names = names_of_symbols(program, captured.input_specs, captured.dynamic)
    detail = _INTEGER.sub(r"\1", detail)
    found = [word for word in _WORD.findall(detail) if word in names]
    named = tuple(dict.fromkeys(names[symbol] for symbol in found))
    return _WORD.sub(lambda word: names.get(word[0], word[0]), detail), named


def _check_outputs(main: relax.Function, captured: Captured) -> None:
    """Compare rank, dtype and fixed sizes with the model's; a dynamic size must stay dynamic.

    The function's own result type lacks sizes of data, which its arguments do not define.
    """
    returned, specs = main.body.body.ty, captured.output_specs
    dynamic = {(axis.tensor, axis.axis) for axis in captured.dynamic.outputs}
    if not isinstance(returned, relax.TupleType) or len(returned.fields) != len(specs):
        raise JobError(ErrorCode.TRANSLATE_FAILED, f"main returns {returned}, the model {len(specs)} tensors")
    for spec, field in zip(specs, returned.fields, strict=True):
        found = _described(field)
        sizes = ("?" if (spec.name, axis) in dynamic else str(size) for axis, size in enumerate(spec.shape))
        wanted = f"{spec.dtype.value}[{','.join(sizes)}]"
        if found != wanted:
            raise JobError(
                ErrorCode.TRANSLATE_FAILED, f"output '{spec.name}' became {found}, the model's is {wanted}"
            )


def _described(field: relax.Type) -> str:
    if not isinstance(field, relax.TensorType) or field.shape is None:
        return str(field)
    return f"{field.dtype}[{','.join(str(getattr(size, 'value', '?')) for size in field.shape)}]"
