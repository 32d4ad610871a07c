"""The preflight: a report on a model after a trial translation."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import torch
from torch.export.graph_signature import InputKind

from bessemer.contract.report import OperatorUse, Preflight
from bessemer.contract.stage import Stage
from worker.compiler.frontend.torchscript.module_state import memory_of
from worker.compiler.translation.decompositions import calls_of, decomposed
from worker.compiler.translation.importer import Importer
from worker.compiler.translation.names import operator_name
from worker.compiler.translation.operator_counts import count_operators
from worker.compiler.values import RelaxProgram
from worker.errors import JobError, OperatorsUnsupportedError
from worker.snapshots.work import example_shape, flops_of, peak_bytes, tensor_bytes

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from worker.compiler.values import Captured


def make_preflight(captured: Captured, finding: JobError | None) -> Preflight:
    """Describe a program and the problem that keeps it from compiling, if any.

    Args:
        captured: the model.
        finding: the failure of translate, if it failed.
    """
    if isinstance(captured.program, RelaxProgram):
        return _of_module(captured, captured.program, finding)
    program = _core_program(captured.program)
    operators = _operators(program)
    return Preflight(
        compiles=finding is None,
        problems=() if finding is None else (finding.problem(Stage.TRANSLATE),),
        rule_template=finding.template if isinstance(finding, OperatorsUnsupportedError) else "",
        operators=operators,
        flops=sum(use.flops for use in operators),
        sizes=_sizes(captured, captured.program),
        parameters=captured.parameters,
        parameter_bytes=_parameter_bytes(program),
        peak_activation_bytes=peak_bytes(program.graph, _not_computed(program)),
    )


def _of_module(captured: Captured, program: RelaxProgram, finding: JobError | None) -> Preflight:
    """An IRModule's operators are Relax operators, which all have a lowering. Work is not counted."""
    calls = count_operators(program.module)
    return Preflight(
        compiles=finding is None,
        problems=() if finding is None else (finding.problem(Stage.TRANSLATE),),
        operators=tuple(
            OperatorUse(name=f"relax.{name}", calls=count, flops=0, supported=True)
            for name, count in calls.items()
        ),
        flops=None,
        parameters=captured.parameters,
        parameter_bytes=sum(array.nbytes for array in program.weights.values()),
        peak_activation_bytes=None,
    )


def _core_program(program: ExportedProgram) -> ExportedProgram:
    """The decomposed program, or the exported one if torch cannot decompose it."""
    try:
        return decomposed(program)
    except JobError:
        return program


def _sizes(captured: Captured, program: ExportedProgram) -> dict[str, int]:
    """The dynamic sizes that the program was exported for."""
    if not captured.dynamic.inputs:
        return {}
    values = {node.name: node.meta.get("val") for node in program.graph.find_nodes(op="placeholder")}
    taken = (values[name] for name in program.graph_signature.user_inputs)
    specs = tuple(
        spec.model_copy(update={"shape": example_shape(value)})
        for spec, value in zip(captured.input_specs, taken, strict=True)
    )
    return captured.dynamic.sizes(specs)


def _operators(program: ExportedProgram) -> tuple[OperatorUse, ...]:
    importer = Importer()
    calls: Counter[str] = Counter()
    flops: Counter[str] = Counter()
    supported: dict[str, bool] = {}
    for node in calls_of(program):
        name = operator_name(node)
        calls[name] += 1
        flops[name] += flops_of(node)
        supported[name] = supported.get(name, True) and importer.can_translate(node)
    return tuple(
        OperatorUse(name=name, calls=count, flops=flops[name], supported=supported[name])
        for name, count in calls.most_common()
    )


def _parameter_bytes(program: ExportedProgram) -> int:
    """The bytes of distinct tensors; tensors that share memory count once."""
    held = (*program.state_dict.values(), *program.constants.values())
    tensors = {memory_of(tensor): tensor for tensor in held if isinstance(tensor, torch.Tensor)}
    return tensor_bytes(tensors.values())


def _not_computed(program: ExportedProgram) -> frozenset[str]:
    specs = program.graph_signature.input_specs
    return frozenset(
        str(getattr(spec.arg, "name", "")) for spec in specs if spec.kind != InputKind.USER_INPUT
    )
