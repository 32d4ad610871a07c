"""Wraps a TensorIR function in a Relax function, and tells which of its buffers are inputs and outputs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, s_tir, te, tirx
from tvm.ir import PrimType, TensorLoad

from bessemer.contract.problem import ErrorCode
from worker.candidates.library import MAIN
from worker.errors import JobError

KERNEL_OF_MAIN = "main_kernel"
"""The new name of a TensorIR function ``main``, which a Relax function ``main`` then calls."""


@dataclass(frozen=True)
class BufferRoles:
    """The parameters of a function that are inputs, and those that are outputs, in order.

    A parameter in both is updated: the function reads it before it writes it.
    """

    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]


def buffer_roles(name: str, function: tirx.PrimFunc) -> BufferRoles:
    """Divide a function's parameters into inputs and outputs, which are the buffers that it writes.

    Blocks that only call an intrinsic read and write what they declare.

    Raises:
        JobError: ``model-signature-unsupported``: a parameter is not a buffer, or none is written.
    """
    for parameter in function.params:
        if isinstance(parameter.ty, PrimType) or not hasattr(parameter.ty, "shape"):
            detail = (
                f"'{name}' takes '{parameter.name}', which is not a buffer; call it from a Relax function"
            )
            raise JobError(ErrorCode.MODEL_SIGNATURE_UNSUPPORTED, detail)
    found = _accesses(function)
    outputs = tuple(one for one in function.params if one in found.writes)
    if not outputs:
        detail = f"'{name}' writes to none of its buffers, so it has no output"
        raise JobError(ErrorCode.MODEL_SIGNATURE_UNSUPPORTED, detail)
    inputs = tuple(one for one in function.params if one not in outputs or one in found.reads)
    return BufferRoles(inputs, outputs)


@dataclass
class _Accesses:
    """The buffers that a function reads before it writes them, and those that it writes."""

    sources: dict[Any, Any]
    reads: set[Any] = field(default_factory=set)
    writes: set[Any] = field(default_factory=set)

    def read(self, buffer: Any) -> None:
        """Note that a buffer, or a part of one, is read."""
        source = self._source_of(buffer)
        if source not in self.writes:
            self.reads.add(source)

    def write(self, buffer: Any) -> None:
        """Note that a buffer, or a part of one, is written."""
        self.writes.add(self._source_of(buffer))

    def declared(self, block: s_tir.SBlock) -> None:
        """Note what a block declares of buffers that no statement in it names."""
        known = self.reads | self.writes
        for note, regions in ((self.read, block.reads), (self.write, block.writes)):
            for region in regions:
                if self._source_of(region.source) not in known:
                    note(region.source)

    def _source_of(self, buffer: Any) -> Any:
        while buffer in self.sources:
            buffer = self.sources[buffer]
        return buffer


def _accesses(function: tirx.PrimFunc) -> _Accesses:
    sources: dict[Any, Any] = {}

    def matched(block: s_tir.SBlock) -> None:
        sources.update({one.buffer: one.source.source for one in block.match_buffers})

    tvm_ffi.structural_walk(function.body, (s_tir.SBlock, matched))
    found = _Accesses(sources)
    # in the order of execution: a block's initialization before its body, a value before its store
    tvm_ffi.structural_walk(
        function.body,
        [
            (TensorLoad, lambda load: found.read(load.source)),
            (tirx.BufferStore, lambda store: found.write(store.buffer)),
            (s_tir.SBlock, found.declared),
        ],
    )
    return found


def with_relax_function(module: tvm.IRModule, name: str) -> tvm.IRModule:
    """Add a Relax function ``main`` that calls the TensorIR function ``name``.

    Inputs keep their order. The function's own parameters are reordered if outputs are not the last.

    Raises:
        JobError: ``model-signature-unsupported``.
    """
    function = module[name]
    roles = buffer_roles(name, function)
    sizes = _sizes(function)
    builder = relax.BlockBuilder()
    for variable, other in module.functions_items():
        if variable.name_hint != name:
            builder.add_func(other, variable.name_hint)
    returned = [one for one in roles.outputs if one not in roles.inputs]
    ordered = tirx.PrimFunc([*roles.inputs, *returned], function.body, function.ret_type, function.attrs)
    called = builder.add_func(ordered.without_attr("global_symbol"), name if name != MAIN else KERNEL_OF_MAIN)
    arguments = [relax.Var(one.name, _type(one, sizes)) for one in roles.inputs]
    with builder.function(MAIN, arguments):
        with builder.dataflow():
            result = builder.emit_output(_call(builder, called, roles, arguments, sizes))
        builder.emit_func_output(result)
    return builder.get()


def _call(
    builder: relax.BlockBuilder,
    called: tvm.ir.GlobalVar,
    roles: BufferRoles,
    arguments: list[relax.Var],
    sizes: dict[Any, Any],
) -> relax.Expr:
    types = [_type(one, sizes) for one in roles.outputs]
    places = [roles.inputs.index(one) if one in roles.inputs else -1 for one in roles.outputs]
    if all(place < 0 for place in places):
        return relax.call_tir(called, relax.Tuple(arguments), types if len(types) > 1 else types[0])
    own = [
        builder.emit_te(_copy, argument, primfunc_name_hint="copy") if place in places else argument
        for place, argument in enumerate(arguments)
    ]
    return relax.op.call_tir_inplace(called, relax.Tuple(own), places, types if len(types) > 1 else types[0])


def _copy(tensor: te.Tensor) -> te.Tensor:
    return te.compute(tensor.shape, lambda *index: tensor(*index), name="copy")


def _sizes(function: tirx.PrimFunc) -> dict[Any, Any]:
    """A 64-bit variable of Relax for each symbolic size of the buffers."""
    found: dict[Any, Any] = {}

    def visit(variable: tvm.ir.Var) -> None:
        found.setdefault(variable, tirx.Var(variable.name, "int64"))

    for parameter in function.params:
        for size in parameter.ty.shape:
            tvm_ffi.structural_walk(size, (tvm.ir.Var, visit))
    return found


def _type(parameter: Any, sizes: dict[Any, Any]) -> relax.TensorType:
    shape = [_size(one, sizes) for one in parameter.ty.shape]
    return relax.TensorType(shape, parameter.ty.dtype)


def _size(size: Any, sizes: dict[Any, Any]) -> Any:
    if isinstance(size, tirx.IntImm):
        return tirx.IntImm("int64", size.value)
    if size in sizes:
        return sizes[size]
    return tirx.Cast("int64", tvm_ffi.structural_map(size, (tvm.ir.Var, lambda one: sizes.get(one, one))))
