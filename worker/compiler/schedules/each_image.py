"""Functions of images whose number is known only when the library runs: the loops of one image, repeated::

    for image in batch:                                   # in parallel if one image is too little for threads
        the loops that a family writes for a batch of one

Loops of one image read and write views of the batch's tensors, so that their indices have fixed ranges. TVM
aligns tensors, and so views, to whole vectors: images of other sizes are left to the loops of open sizes.
Buffers that the loops of one image allocate are inside the loop over images.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import TensorLoad
from tvm.tirx.analysis import undefined_vars

from worker.compiler.schedules import nest
from worker.compiler.schedules.annotations import OF_IMAGES, UNCLAIMED
from worker.compiler.schedules.blocks import Block, name_of_family, read_blocks
from worker.compiler.schedules.processors import MULTIPLY_ADDS_PER_THREAD, Machine, threads_pay


def of_one_image(schedule: s_tir.Schedule, machine: Machine) -> s_tir.Schedule | None:
    """The function of images for a batch of one; None if it cannot be computed image by image.

    It can if the batch is dynamic, each of its blocks has one axis over the batch, and this axis indexes
    every dimension of the batch's size and nothing else.
    """
    function = schedule.mod["main"]
    if not any(name_of_family(schedule, family) for family in OF_IMAGES):
        return None
    dynamic = tuple(filter(_is_dynamic, function.params))
    batch = next((tensor.shape[0] for tensor in dynamic if _is_batch(tensor, machine)), None)
    if not all(_is_batch(tensor, machine) and tensor.shape[0].same_as(batch) for tensor in dynamic):
        return None
    blocks = read_blocks(schedule, may_be_dynamic=True)
    if batch is None or not blocks or not all(_computes_by_image(block, batch) for block in blocks):
        return None
    ones = {tensor: _of_one(tensor) for tensor in dynamic}
    return s_tir.Schedule(tvm.IRModule({"main": function.specialize(ones)}))


def for_each_image(whole: s_tir.Schedule, one: tirx.PrimFunc, machine: Machine) -> tirx.PrimFunc:
    """The loops of one image for each image of a batch.

    Args:
        whole: the function of a batch of dynamic size.
        one: ``of_one_image`` of it, with its loops.
        machine: the processor.
    """
    function, root = whole.mod["main"], one.body.block
    pairs = [pair for pair in zip(one.params, function.params, strict=True) if _is_dynamic(pair[1])]
    batch = pairs[0][1].shape[0]
    work = sum(
        block.iterations // block.spatial[-1].extent for block in read_blocks(whole, may_be_dynamic=True)
    )

    def of_image(image: Any) -> tirx.Stmt:
        return nest.sequence(*(_view(own, tensor, image) for own, tensor in pairs), root.body)

    parallel = not _is_parallel(root.body) and threads_pay(machine.threads, work, MULTIPLY_ADDS_PER_THREAD)
    loop = nest.tasks(batch, of_image, nest.dtype_of(batch), parallel=parallel)
    looped = nest.with_loops(function, loop, root.alloc_buffers)
    is_unclaimed = UNCLAIMED in (one.attrs or {})
    return looped.with_attr(UNCLAIMED, True) if is_unclaimed else looped


def _is_dynamic(parameter: Any) -> bool:
    """Whether a parameter is a tensor of dynamic sizes, or a size."""
    shape = getattr(parameter, "shape", None)
    return shape is None or not all(isinstance(size, tirx.IntImm) for size in shape)


def _is_batch(parameter: Any, machine: Machine) -> bool:
    """Whether a tensor has a dynamic number of parts of fixed sizes, each of whole vectors."""
    batch, *sizes = getattr(parameter, "shape", (None,))
    if not isinstance(batch, tirx.Var) or not all(isinstance(size, tirx.IntImm) for size in sizes):
        return False
    return prod(map(int, sizes)) * nest.bits_of(parameter.dtype) % machine.vector_bits == 0


def _computes_by_image(block: Block, batch: tirx.Var) -> bool:
    """Whether a block computes each image from the same image of other tensors."""
    dynamic = [axis for axis in block.axes if axis.is_dynamic]
    if len(dynamic) != 1 or dynamic[0].reduces or not dynamic[0].size.same_as(batch):
        return False
    image = dynamic[0].var
    others: list[Any] = []

    def without_image(buffer: Any, indices: Sequence[Any]) -> list[Any]:
        places = list(zip(buffer.shape, indices, strict=True))
        others.extend(index for size, index in places if size.same_as(batch) and not index.same_as(image))
        return [zero if size.same_as(batch) else index for size, index in places]

    def load(each: Any) -> Any:
        return tirx.BufferLoad(each.source, without_image(each.source, each.indices))

    def store(each: Any) -> Any:
        return nest.store(each.buffer, each.value, *without_image(each.buffer, each.indices))

    zero = nest.constant(0, nest.dtype_of(image))
    parts = [part for part in (block.body.body, block.body.init) if part is not None]
    rest = [tvm_ffi.structural_map(part, [(TensorLoad, load), (tirx.BufferStore, store)]) for part in parts]
    used = [variable for part in rest for variable in undefined_vars(part, [])]
    return not others and not any(variable.same_as(image) or variable.same_as(batch) for variable in used)


def _of_one(tensor: Any) -> Any:
    one = nest.constant(1, nest.dtype_of(tensor.shape[0]))
    return tirx.decl_buffer((one, *tensor.shape[1:]), tensor.dtype, tensor.name)


def _view(own: Any, tensor: Any, image: Any) -> tirx.Stmt:
    """The declaration of a tensor of one image as a part of the tensor of all."""
    zeros = (nest.constant(0, nest.dtype_of(image)) for _ in tensor.shape[1:])
    return tirx.DeclBuffer(own, data=tirx.address_of(tensor[(image, *zeros)]))


def _is_parallel(loops: tirx.Stmt) -> bool:
    """Whether threads divide any loop."""
    kinds: list[tirx.ForKind] = []
    tvm_ffi.structural_walk(loops, (tirx.For, lambda loop: kinds.append(loop.kind)))
    return tirx.ForKind.PARALLEL in kinds
