"""Writes the tables of a model's calls as C, compiles them for the target, and holds its parameters.

Emits three kinds of objects::

    tables.o       entries, tensors, calls and their arguments, as plan.h declares them
    parameters.o   the parameters, aligned to pages: to huge ones where the system can map a file with them
    model.o …      the same C for every model: it opens sessions and runs the calls
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import NamedTuple

import tvm_ffi

from bessemer.contract.tensor import TensorSpec
from bessemer.contract.triple import System, system_of
from worker.compiler.codegen.cuda.kernels import GpuFunction
from worker.compiler.codegen.standalone.elf_object import (
    DataSection,
    Reserved,
    insert_data,
    write_data_object,
    write_placing_script,
)
from worker.compiler.codegen.standalone.parameters import Parameters, content_of
from worker.compiler.codegen.standalone.plan import ALIGNMENT, CallPlan, Memory, PlannedTensor
from worker.compiler.codegen.standalone.sources import (
    FREESTANDING,
    GPU_SOURCES,
    MIN_HUGE_BYTES,
    PARAMETERS_SECTION,
    compile_source,
    fixed_objects,
    library_sources,
)

PARAMETERS_OBJECT = "parameters.S.o"
_SYMBOL_OF_PARAMETERS = "bessemer_parameters"
_PAGE_BYTES = 1 << 12
_HUGE_PAGE_BYTES = 1 << 21
_PARAMETERS = """\
#if defined(__APPLE__)
.section __DATA,__const
.private_extern _bessemer_parameters
#define NAME _bessemer_parameters
#else
.section .rdata,"dr"
#define NAME bessemer_parameters
#endif
.p2align 12
.globl NAME
NAME:
.incbin "{path}"
"""


@dataclass(frozen=True)
class EntryTensors:
    """An entry point: the tensors that its callers pass and get, and the state that a session keeps.

    The library's function takes the states after the inputs and returns them after the outputs.
    """

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    states: tuple[TensorSpec, ...] = ()


@dataclass(frozen=True)
class PlannedEntry:
    """An entry point with its calls."""

    tensors: EntryTensors
    plan: CallPlan


@dataclass(frozen=True)
class State:
    """What a session keeps between calls; ``initial`` is the index of a parameter, or None for zeros."""

    spec: TensorSpec
    initial: int | None


@dataclass(frozen=True)
class Interface:
    """What C can call: entry points, and the states that they share. Without entries, it can call nothing."""

    entries: tuple[PlannedEntry, ...] = ()
    states: tuple[State, ...] = ()


@dataclass(frozen=True)
class GpuProgram:
    """The kernels of a library for a GPU.

    Attributes:
        code: the fat binary.
        functions: the launches of each function that entries call.
        architectures: what the binary has machine code for, in words.
        cuda_version: the version of the CUDA compilers.
    """

    code: Path
    functions: Mapping[str, GpuFunction]
    architectures: str
    cuda_version: str

    @property
    def kernels(self) -> dict[str, int]:
        """The dynamic shared memory of each kernel, in bytes."""
        launches = (launch for function in self.functions.values() for launch in function.launches)
        return {launch.kernel: launch.shared_bytes for launch in launches}


class OwnObjects(NamedTuple):
    """What a library needs besides its kernels.

    Attributes:
        objects: the objects of the tables, the parameters and the fixed sources.
        script: the linker script that places large parameters last in memory; None if there are none.
    """

    objects: tuple[Path, ...]
    script: Path | None

    @property
    def linked(self) -> tuple[Path, ...]:
        """What the linker gets."""
        return self.objects if self.script is None else (*self.objects, self.script)


def write_objects(
    interface: Interface,
    parameters: Parameters,
    triple: str,
    folder: Path,
    gpu: GpuProgram | None = None,
) -> OwnObjects:
    """Compile everything that a library needs besides its kernels.

    On Linux, the object of large parameters only reserves room: see ``insert_parameters``.

    Args:
        interface: what C can call.
        parameters: the parameters of all entry points.
        triple: the target's.
        folder: an empty folder for the objects.
        gpu: the kernels, if a GPU runs them.

    Raises:
        LinkError: the compiler failed.
    """
    starts = _starts(parameters)
    (folder / "tables.c").write_text(tables(interface, parameters, starts, gpu))
    own = (folder / "tables.c.o", folder / PARAMETERS_OBJECT)
    compile_source(folder / "tables.c", own[0], triple, *FREESTANDING)
    script = None
    if system_of(triple) is not System.LINUX:
        _assemble_parameters(own[1], _content_bytes(parameters), triple)
    elif _are_large(parameters):
        room = Reserved(sum(map(len, _content_bytes(parameters))))
        write_data_object(own[1], own[0], _section_of(parameters), room)
        script = write_placing_script(folder, PARAMETERS_SECTION)
    else:
        write_data_object(own[1], own[0], _section_of(parameters), _content_bytes(parameters))
    if gpu is None:
        fixed = library_sources(triple, with_entries=bool(interface.entries))
        return OwnObjects((*own, *fixed_objects(fixed, triple, folder)), script)
    code = folder / "gpu_code.o"
    section = DataSection(".bessemer_gpu_code", "bessemer_gpu_code", _PAGE_BYTES)
    write_data_object(code, own[0], section, (gpu.code.read_bytes(),))
    return OwnObjects((*own, code, *fixed_objects(GPU_SOURCES, triple, folder)), script)


def insert_parameters(library: Path, own: OwnObjects, parameters: Parameters) -> None:
    """Write large parameters into a linked library, which has room for them."""
    if own.script is not None:
        insert_data(library, PARAMETERS_SECTION, _content_bytes(parameters))


def complete_parameters(own: OwnObjects, parameters: Parameters) -> None:
    """Write large parameters into their object, which others will link."""
    if own.script is not None:
        tables_object, parameters_object, *_ = own.objects
        write_data_object(
            parameters_object, tables_object, _section_of(parameters), _content_bytes(parameters)
        )


def _section_of(parameters: Parameters) -> DataSection:
    alignment = _HUGE_PAGE_BYTES if _are_large(parameters) else _PAGE_BYTES
    return DataSection(PARAMETERS_SECTION, _SYMBOL_OF_PARAMETERS, alignment)


def _assemble_parameters(made: Path, content: Iterable[memoryview | bytes], triple: str) -> None:
    data, source = made.with_name("parameters.bin"), made.with_name("parameters.S")
    with data.open("wb") as file:
        file.writelines(content)
    source.write_text(_PARAMETERS.format(path=data))
    compile_source(source, made, triple, *FREESTANDING)
    data.unlink()


def _starts(parameters: Parameters) -> tuple[int, ...]:
    """The first byte of each parameter; they follow one another, aligned."""
    starts, end = [], 0
    for tensor in parameters.tensors:
        starts.append(end + -end % ALIGNMENT)
        end = starts[-1] + content_of(tensor).nbytes
    return tuple(starts)


def _are_large(parameters: Parameters) -> bool:
    """Whether the parameters lie in huge pages."""
    return sum(content_of(tensor).nbytes for tensor in parameters.tensors) >= MIN_HUGE_BYTES


def _content_bytes(parameters: Parameters) -> Iterator[memoryview | bytes]:
    """The bytes of the parameters, each from its start, and one more, so that there is at least one."""
    end = 0
    for tensor, start in zip(parameters.tensors, _starts(parameters), strict=True):
        content = content_of(tensor)
        yield bytes(start - end)
        yield content.data
        end = start + content.nbytes
    yield b"\0"


def tables(
    interface: Interface, parameters: Parameters, starts: Sequence[int], gpu: GpuProgram | None = None
) -> str:
    """The tables as C.

    Args:
        interface: what C can call.
        parameters: the parameters.
        starts: the first byte of each parameter.
        gpu: the kernels, if a GPU runs them.
    """
    writer = _Writer(starts)
    writer.parameters(parameters)
    if gpu is not None:
        writer.kernels(gpu)
    for number, entry in enumerate(interface.entries):
        writer.entry(number, entry, interface.states, gpu)
    if interface.entries:
        writer.model(interface)
    return "\n".join(writer.lines) + "\n"


_SYMBOL = "__tvm_ffi_"
"""The prefix of the symbol under which TVM compiles a function."""

_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"})


@dataclass
class _Writer:
    starts: Sequence[int]
    lines: list[str] = field(default_factory=lambda: ['#include "plan.h"', ""])
    _rows: dict[tuple[int, ...], str] = field(default_factory=dict)
    _kernels: dict[str, str] = field(default_factory=dict)

    def row(self, numbers: tuple[int, ...]) -> str:
        """The name of an array of sizes or strides."""
        if numbers not in self._rows:
            self._rows[numbers] = f"row_{len(self._rows)}"
            self.lines.append(
                f"static const int64_t {self._rows[numbers]}[] = {{{_listed(numbers or (0,))}}};"
            )
        return self._rows[numbers]

    def array(self, declaration: str, items: Iterable[str]) -> None:
        listed = list(items)
        body = "".join(f"    {item},\n" for item in listed)
        if listed:
            self.lines.append(f"{declaration}[] = {{\n{body}}};")
        else:
            self.lines.append(f"{declaration}[1];")

    def numbers(self, name: str, numbers: Iterable[int]) -> None:
        self.array(f"static const int32_t {name}", map(str, numbers))

    def parameters(self, parameters: Parameters) -> None:
        items = []
        for tensor, start in zip(parameters.tensors, self.starts, strict=True):
            code, bits = _coded(str(tensor.dtype))
            size = tuple(tensor.shape)
            items.append(
                f"{{{{(void *)(bessemer_parameters + {start}), BESSEMER_CPU, 0, {len(size)}, {code}, {bits}, "
                f"1, {self.row(size)}, {self.row(_strides(size))}, 0}}, 0, 0}}"
            )
        self.array("bessemer_managed bessemer_parameter_tensors", items)
        end = self.starts[-1] + content_of(parameters.tensors[-1]).size if self.starts else 0
        self.lines.append(f"const uint64_t bessemer_parameter_bytes = {end};")
        self.lines.append(f"void *bessemer_handles[{max(len(items), 1)}];")

    def kernels(self, gpu: GpuProgram) -> None:
        kernels = gpu.kernels
        self.array(
            "const bessemer_gpu_kernel bessemer_gpu_kernels",
            (f'{{"{name}", {shared_bytes}}}' for name, shared_bytes in kernels.items()),
        )
        self.lines.append(f"const int32_t bessemer_gpu_kernel_count = {len(kernels)};")
        self.lines.append(f'const char bessemer_gpu_architectures[] = "{gpu.architectures}";')
        self.lines.append(f'const char bessemer_cuda_version[] = "{gpu.cuda_version}";')

    def entry(
        self, number: int, entry: PlannedEntry, states: Sequence[State], gpu: GpuProgram | None
    ) -> None:
        plan, tensors = entry.plan, entry.tensors
        self.array(f"static const bessemer_planned_tensor tensors_{number}", map(self._tensor, plan.tensors))
        if gpu is None:
            self._calls(number, plan)
        else:
            self._launches(number, plan, gpu)
        self.numbers(f"outputs_{number}", plan.outputs)
        self.numbers(f"direct_{number}", (int(one in plan.direct) for one in range(len(plan.outputs))))
        names = [state.spec.name for state in states]
        self.numbers(f"states_{number}", (names.index(spec.name) for spec in tensors.states))
        self.array(f"static const bessemer_tensor inputs_specs_{number}", map(self._spec, tensors.inputs))
        self.array(f"static const bessemer_tensor outputs_specs_{number}", map(self._spec, tensors.outputs))

    def _calls(self, number: int, plan: CallPlan) -> None:
        self.numbers(f"arguments_{number}", (one for call in plan.calls for one in call.arguments))
        calls, first = [], 0
        for call in plan.calls:
            calls.append(f"{{{self._kernel(call.function)}, {first}, {len(call.arguments)}}}")
            first += len(call.arguments)
        self.array(f"static const bessemer_call calls_{number}", calls)
        counts = f"calls_{number}, {len(calls)}, 0, 0, arguments_{number}, {first}"
        self.lines.append(f"#define STEPS_{number} {counts}")

    def _launches(self, number: int, plan: CallPlan, gpu: GpuProgram) -> None:
        kernels = list(gpu.kernels)
        launches: list[str] = []
        arguments: list[int] = []
        for call in plan.calls:
            for launch in gpu.functions[call.function].launches:
                grid, block = _listed(launch.grid), _listed(launch.block)
                kernel = kernels.index(launch.kernel)
                launches.append(f"{{{kernel}, {{{grid}}}, {{{block}}}, {len(arguments)}}}")
                arguments += (call.arguments[argument] for argument in launch.arguments)
        self.numbers(f"arguments_{number}", arguments)
        self.array(f"static const bessemer_launch launches_{number}", launches)
        counts = f"0, 0, launches_{number}, {len(launches)}, arguments_{number}, {len(arguments)}"
        self.lines.append(f"#define STEPS_{number} {counts}")

    def model(self, interface: Interface) -> None:
        entries = interface.entries
        self.array(
            "const bessemer_entry bessemer_entries",
            (
                f'{{"{entry.tensors.name}", inputs_specs_{number}, {len(entry.tensors.inputs)}, '
                f"outputs_specs_{number}, {len(entry.tensors.outputs)}}}"
                for number, entry in enumerate(entries)
            ),
        )
        self.array(
            "const bessemer_plan bessemer_plans",
            (
                f"{{tensors_{number}, {len(entry.plan.tensors)}, STEPS_{number}, "
                f"outputs_{number}, direct_{number}, "
                f"states_{number}, {len(entry.tensors.states)}}}"
                for number, entry in enumerate(entries)
            ),
        )
        self.array(
            "const bessemer_tensor bessemer_states", (self._spec(one.spec) for one in interface.states)
        )
        self.array(
            "const unsigned char *const bessemer_initial_states",
            (
                "0" if one.initial is None else f"bessemer_parameters + {self.starts[one.initial]}"
                for one in interface.states
            ),
        )
        self.lines.append(f"const int32_t bessemer_state_count = {len(interface.states)};")
        self.lines.append(f"const int32_t bessemer_entry_count = {len(entries)};")
        arena = max(entry.plan.arena_bytes for entry in entries)
        self.lines.append(f"const uint64_t bessemer_arena_bytes = {arena};")

    def _tensor(self, tensor: PlannedTensor) -> str:
        code, bits = _coded(tensor.dtype)
        number = self.starts[tensor.number] if tensor.memory is Memory.PARAMETER else tensor.number
        shape, strides = self.row(tensor.shape), self.row(_strides(tensor.shape))
        memory = f"BESSEMER_{tensor.memory.name}"
        return f"{{{memory}, {number}, {shape}, {strides}, {len(tensor.shape)}, {code}, {bits}}}"

    def _kernel(self, function: str) -> str:
        """A C identifier for a function, whose name may not be one, such as ``fused_<lambda>_relu``."""
        if function not in self._kernels:
            self._kernels[function] = f"kernel_{len(self._kernels)}"
            symbol = f"{_SYMBOL}{function}".translate(_ESCAPES)
            self.lines.append(
                f'extern bessemer_kernel_function {self._kernels[function]} BESSEMER_SYMBOL("{symbol}");'
            )
        return self._kernels[function]

    def _spec(self, spec: TensorSpec) -> str:
        size = _bytes(spec.shape, spec.dtype.value)
        return f'{{"{spec.name}", "{spec.dtype.value}", {self.row(spec.shape)}, {len(spec.shape)}, {size}}}'


def _coded(dtype: str) -> tuple[int, int]:
    """DLPack's code and the bits of a type."""
    made = tvm_ffi.dtype(dtype)
    return int(made.type_code), int(made.bits)


def _bytes(shape: tuple[int, ...], dtype: str) -> int:
    return prod(shape) * -(-_coded(dtype)[1] // 8)


def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


def _listed(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers))
