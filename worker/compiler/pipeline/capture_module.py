"""Captures an IRModule: fixes its sizes, and computes reference outputs."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import tvm
from tvm import relax

from bessemer.contract.dynamic import DataDimension, DynamicAxis, DynamicShapes, specs_at
from bessemer.contract.model import ModelFormat
from bessemer.contract.options import ARRAYS, LOWERING
from bessemer.contract.problem import ErrorCode
from bessemer.contract.report import ReferenceSource
from bessemer.contract.structure import CallStructure
from bessemer.contract.tensor import TensorSpec
from worker.candidates.client import LibraryCrashedError, ModelProcess
from worker.candidates.library import MAIN
from worker.compiler.codegen.plain_lowering import build_plain
from worker.compiler.frontend.dynamic_shapes import (
    AffineSize,
    AxisNames,
    SymbolicAxis,
    choose_samples,
    describe_inputs,
)
from worker.compiler.frontend.ir_modules.entry import (
    ModuleEntry,
    affine,
    element_type,
    open_entry,
    symbol_names,
)
from worker.compiler.frontend.ir_modules.module_file import ModuleFile, read_module_file
from worker.compiler.frontend.ir_modules.reference import FUNCTION, reference_of
from worker.compiler.frontend.ir_modules.widened import widened, widened_array
from worker.compiler.frontend.loaded_model import Argument, refuse_empty
from worker.compiler.frontend.requested_dimensions import (
    check_requested_dimensions,
    example_sizes,
    names_by_axis,
    with_own_dimensions,
    with_own_dtypes,
)
from worker.compiler.frontend.sample_inputs import data_limit_bytes, random_inputs, refuse_oversized
from worker.compiler.frontend.signature import match_inputs
from worker.compiler.kernels.functions import function_book
from worker.compiler.kernels.registry import kernels_among
from worker.compiler.values import Captured, MethodName, RelaxProgram, Sample, StageContext, Upload
from worker.errors import JobError, failure_of
from worker.tensors import as_array

if TYPE_CHECKING:
    from bessemer.contract.request import CompilationRequest

    Arrays = tuple[np.ndarray[Any, Any], ...]

_IN_BUNDLES = ("vm.builtin.", "tvm.contrib.sort.", "tvm.contrib.random.")
"""The prefixes of functions of a bundle's runtime."""

_log = logging.getLogger(__name__)


def capture_module(upload: Upload, context: StageContext) -> Captured:
    """Read the module, fix the sizes that the request fixes, and compute references.

    Before: the child is confined, and the upload is untrusted. After: ``program.module`` has one public Relax
    function, ``main``, which takes the inputs in the order of the specs and then the weights. The references
    are the outputs of the source that the request names.

    Raises:
        JobError: one of the model's codes, ``inputs-missing``, ``inputs-mismatch``, ``method-missing``,
            ``reference-missing``, ``library-function-missing``, ``limit-memory``,
            ``dynamic-shapes-unsupported`` or ``capture-failed``.
    """
    request = upload.asked
    file = read_module_file(upload.path)
    entry = open_entry(file, upload.method)
    if upload.entry is None and entry.function != MAIN and entry.other_functions:
        listed = ", ".join(map(repr, sorted((entry.function, *entry.other_functions))))
        detail = f"the module has {listed}, but no '{MAIN}'; name the function in `entries`"
        raise JobError(ErrorCode.MODEL_FORWARD_MISSING, detail)
    _refuse_unknown_functions(entry.module, file.registered)
    given = _given_inputs(file, entry)
    request = with_own_dtypes(with_own_dimensions(request, entry.arguments), entry.arguments)
    sizes = example_sizes(request.inputs, request.dimensions, entry.arguments)
    asked = tuple(spec.at(sizes) for spec in request.inputs)
    specs = match_inputs(asked or tuple(given.values()), entry.arguments)
    check_requested_dimensions(request.inputs, request.dimensions, entry.arguments)
    refuse_oversized(specs, data_limit_bytes())
    entry, names = _sized(entry, request, specs)
    dynamic = describe_inputs(
        ((argument.name, _in_range(argument, request, names)) for argument in entry.arguments), names
    )
    inputs = _inputs(file, given, specs, request.verify.seed)
    with ExitStack() as processes:
        references = _References(file, entry, upload, context, processes)
        sample = references.sample({}, inputs)
        outputs = tuple(map(_output_spec, entry.outputs, entry.main.ret_ty.fields, sample.references))
        dynamic = _with_outputs(dynamic, entry, names, outputs)
        refuse_empty(outputs, dynamic.outputs)
        samples = tuple(_samples(references, dynamic, specs, request.verify.seed))
    return Captured(
        upload=upload,
        format=ModelFormat.IR_MODULE,
        program=RelaxProgram(entry.module, entry.weights, references.source, references.name),
        input_specs=specs,
        output_specs=outputs,
        inputs=sample.inputs,
        references=sample.references,
        exact=sample.exact,
        parameters=entry.parameters,
        dynamic=dynamic,
        samples=samples,
        method=MethodName(entry.function),
        other_methods=entry.other_functions,
        call=CallStructure(arguments=entry.structures, returns=entry.returns),
    )


def _refuse_unknown_functions(module: tvm.IRModule, registered: frozenset[str]) -> None:
    """Refuse calls of packed functions that a library's user lacks, such as those of the compiler."""
    names: set[str] = set()

    def visit(expression: relax.Expr) -> None:
        if isinstance(expression, relax.ExternFunc):
            names.add(str(expression.global_symbol))

    for function in relax.transform.DeadCodeElimination([MAIN])(module).functions.values():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, visit)
    known = {*(kernel.symbol for kernel in kernels_among(names)), *function_book()}
    unknown = sorted(name for name in names - known if not name.startswith(_IN_BUNDLES))
    if unknown and registered.issuperset(unknown):
        detail = (
            f"the module's own file registers {', '.join(map(repr, unknown))}, but is not loaded where the "
            "library runs; bring it as an extension as well: --extension FILE.py"
        )
        raise JobError(ErrorCode.LIBRARY_FUNCTION_MISSING, detail)
    if unknown:
        detail = (
            f"the module calls {', '.join(map(repr, unknown))}, which neither TVM's runtime nor a kernel nor "
            "an extension defines; bring the Python file that defines it with --extension"
        )
        raise JobError(ErrorCode.LIBRARY_FUNCTION_MISSING, detail)


def _given_inputs(file: ModuleFile, entry: ModuleEntry) -> dict[str, TensorSpec]:
    """The specs of the inputs among the uploaded arrays."""
    return {
        argument.name: _spec(argument.name, file.reference[argument.name])
        for argument in entry.arguments
        if argument.name in file.reference
    }


def _spec(name: str, array: np.ndarray[Any, Any]) -> TensorSpec:
    try:
        return TensorSpec.model_validate({"name": name, "shape": array.shape, "dtype": array.dtype.name})
    except ValueError as error:
        detail = f"'{name}' of the reference is {array.dtype.name}{list(array.shape)}"
        raise JobError(ErrorCode.MODEL_TENSORS_UNSUPPORTED, detail) from error


def _sized(
    entry: ModuleEntry, request: CompilationRequest, specs: tuple[TensorSpec, ...]
) -> tuple[ModuleEntry, AxisNames]:
    """The entry with the sizes that the request fixes, and the names of the others by input and axis."""
    if not request.inputs:
        entry = entry.shaped(specs)
        return entry, symbol_names(entry.arguments)
    asked = {spec.name: spec for spec in request.inputs}
    fixed: dict[str, int] = {}
    for argument in entry.arguments:
        for axis in argument.symbolic_axes:
            size = asked[argument.name].shape[axis.axis]
            if axis.size.symbol is not None and isinstance(size, int):
                fixed.setdefault(axis.size.symbol, (size - axis.size.offset) // axis.size.factor)
    return entry.at(fixed).shaped(specs), names_by_axis(request.inputs)


def _in_range(argument: Argument, request: CompilationRequest, names: AxisNames) -> tuple[SymbolicAxis, ...]:
    """The symbolic axes of an input, in the ranges of the request."""
    ranges = request.dimensions
    return tuple(
        replace(axis, minimum=found.minimum, maximum=found.maximum)
        if (found := ranges.get(names.get((argument.name, axis.axis), ""))) is not None
        else axis
        for axis in argument.symbolic_axes
    )


def _inputs(
    file: ModuleFile, given: Mapping[str, TensorSpec], specs: tuple[TensorSpec, ...], seed: int
) -> Arrays:
    """The uploaded inputs if they fit, else random ones."""
    if all(given.get(spec.name) == spec for spec in specs) and specs:
        return tuple(file.reference[spec.name] for spec in specs)
    return tuple(map(as_array, random_inputs(specs, {}, seed)))


def _samples(
    references: _References, dynamic: DynamicShapes, specs: tuple[TensorSpec, ...], seed: int
) -> Iterator[Sample]:
    for number, sizes in enumerate(choose_samples(dynamic.dimensions, dynamic.sizes(specs)), 1):
        inputs = random_inputs(specs_at(specs, dynamic.inputs, sizes), {}, seed + number)
        yield references.sample(sizes, tuple(map(as_array, inputs)))


def _output_spec(name: str, ty: Any, array: np.ndarray[Any, Any]) -> TensorSpec:
    return TensorSpec(name=name, shape=array.shape, dtype=element_type(name, ty))


def _with_outputs(
    dynamic: DynamicShapes, entry: ModuleEntry, names: AxisNames, outputs: tuple[TensorSpec, ...]
) -> DynamicShapes:
    """The dynamic sizes with those of the outputs. A size that no input has depends on data."""
    own = symbol_names(entry.arguments)
    dimensions = {symbol: names[key] for key, symbol in own.items() if key in names}
    axes, of_data = [], dict[str, DataDimension]()
    for spec, ty in zip(outputs, entry.main.body.body.ty.fields, strict=True):
        sizes = [AffineSize(None)] * len(spec.shape) if ty.shape is None else list(map(affine, ty.shape))
        for axis, size in enumerate(sizes):
            if isinstance(size, int):
                continue
            if size.symbol in dimensions:
                axes.append(
                    DynamicAxis(
                        tensor=spec.name,
                        axis=axis,
                        dimension=dimensions[size.symbol],
                        factor=size.factor,
                        offset=size.offset,
                    )
                )
            elif size.symbol is None and ty.shape is not None:
                axes.append(DynamicAxis(tensor=spec.name, axis=axis))
            else:
                key = size.symbol or f"{spec.name}_{axis}"
                name = of_data.setdefault(key, DataDimension(name=f"{spec.name}_{axis}")).name
                axes.append(DynamicAxis(tensor=spec.name, axis=axis, dimension=name))
    return dynamic.model_copy(update={"outputs": tuple(axes), "of_data": tuple(of_data.values())})


@dataclass
class _References:
    """Computes reference outputs. The lowering is built once, when it is first needed."""

    file: ModuleFile
    entry: ModuleEntry
    upload: Upload
    context: StageContext
    processes: ExitStack
    lowering: ModelProcess | None = None
    exact: ModelProcess | None = None

    def __post_init__(self) -> None:
        wanted = self.upload.asked.verify.reference
        arrays, functions = self.file.reference, self.file.functions
        if wanted is None:
            wanted = ARRAYS if arrays else FUNCTION if FUNCTION in functions else LOWERING
        self.name: str | None = None
        if wanted == LOWERING:
            self.source = ReferenceSource.LOWERING
        elif wanted == ARRAYS:
            self.source = ReferenceSource.ARRAYS
            self._check_arrays()
        else:
            self.source, self.name = ReferenceSource.FUNCTION, wanted
            if wanted not in functions:
                listed = ", ".join(sorted(functions)) or "none"
                detail = f"the module's file defines no function '{wanted}'; its functions are: {listed}"
                raise JobError(ErrorCode.REFERENCE_MISSING, detail)

    def _check_arrays(self) -> None:
        wanted = (*(argument.name for argument in self.entry.arguments), *self.entry.outputs)
        missing = [name for name in wanted if name not in self.file.reference]
        if missing:
            found = ", ".join(self.file.reference) or "no arrays"
            detail = f"the reference lacks {', '.join(missing)}; it has {found}"
            raise JobError(ErrorCode.REFERENCE_MISSING, detail)

    def sample(self, sizes: dict[str, int], inputs: Arrays) -> Sample:
        """The inputs with the outputs of the source; at other sizes than the arrays', of the lowering."""
        match self.source:
            case ReferenceSource.ARRAYS if not sizes:
                outputs = tuple(self.file.reference[name] for name in self.entry.outputs)
                return Sample(sizes, inputs, self._checked(outputs))
            case ReferenceSource.FUNCTION:
                return Sample(sizes, inputs, self._checked(self._computed(inputs)), exact=self._exact(inputs))
        return Sample(sizes, inputs, self._lowered(inputs), exact=self._exact(inputs))

    def _exact(self, inputs: Arrays) -> Arrays | None:
        """The lowering's outputs in float64; None if TVM cannot compute them so."""
        try:
            if self.exact is None:
                self.exact = self._opened(widened(self.entry.module), "exact")
            return self.exact.run(tuple(map(widened_array, (*inputs, *self.entry.weights.values()))))
        except Exception as error:
            _log.info("no float64 reference: %s", error)
            return None

    def _computed(self, inputs: Arrays) -> Arrays:
        assert self.name is not None
        return reference_of(self.file, self.entry, self.name)(inputs, self._filled_outputs())

    def _filled_outputs(self) -> tuple[TensorSpec, ...]:
        """The outputs, which a function may fill if their sizes are fixed; none otherwise."""
        specs = []
        for name, ty in zip(self.entry.outputs, self.entry.main.ret_ty.fields, strict=True):
            shape = [AffineSize(None)] if ty.shape is None else list(map(affine, ty.shape))
            if not all(isinstance(size, int) for size in shape):
                return ()
            specs.append(TensorSpec(name=name, shape=tuple(shape), dtype=element_type(name, ty)))
        return tuple(specs)

    def _checked(self, outputs: Arrays) -> Arrays:
        """The outputs in the module's dtypes. Raises ``verify-mismatch`` if shapes or their number differ."""
        types = self.entry.main.ret_ty.fields
        if len(outputs) != len(types):
            detail = f"the reference has {len(outputs)} outputs, the module {len(types)}"
            raise JobError(ErrorCode.VERIFY_MISMATCH, detail)
        return tuple(
            _fitted(name, ty, array)
            for name, ty, array in zip(self.entry.outputs, types, outputs, strict=True)
        )

    def _lowered(self, inputs: Arrays) -> Arrays:
        try:
            if self.lowering is None:
                self.lowering = self._opened(self.entry.module, "lowering")
            return self.lowering.run((*inputs, *self.entry.weights.values()))
        except LibraryCrashedError as error:
            detail = f"the module, as TVM lowers it, does not run: {error}"
            raise failure_of(ErrorCode.CAPTURE_FAILED, error, detail) from error

    def _opened(self, module: tvm.IRModule, name: str) -> ModelProcess:
        folder = self.context.scratch / f"{name}_{self.upload.entry or MAIN}"
        folder.mkdir(exist_ok=True)
        library, target = folder / "lowering.so", self.upload.target
        build_plain(module, target.llvm, library, folder / "objects")
        return self.processes.enter_context(self.context.candidates.open_library(library, target.threads))


def _fitted(name: str, ty: Any, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    expected = [AffineSize(None)] * ty.ndim if ty.shape is None else list(map(affine, ty.shape))
    fits = len(expected) == array.ndim and all(
        size == wanted for size, wanted in zip(array.shape, expected, strict=True) if isinstance(wanted, int)
    )
    if not fits:
        detail = (
            f"output '{name}' of the reference is {array.dtype.name}{list(array.shape)}, the module's is {ty}"
        )
        raise JobError(ErrorCode.VERIFY_MISMATCH, detail)
    return np.ascontiguousarray(array.astype(np.dtype(element_type(name, ty).value), copy=False))
