"""Run scheduled functions and modules on the executor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx

from tests.gpu.expressions import is_call
from tests.gpu.kernel import run_function
from tests.gpu.memory import numpy_dtype
from worker.compiler.codegen.cuda.kernels import lower_threads
from worker.compiler.schedules.gpu import schedule_for_gpu
from worker.compiler.schedules.gpu.chips import Gpu, gpu_of

GPU = gpu_of("sm_90")
TOLERANCES = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 2e-2, "float64": 1e-12}
_NAME = "main"
Schedule = Callable[[tirx.PrimFunc, Gpu], tirx.PrimFunc]


def assert_computes(
    function: tirx.PrimFunc,
    gpu: Gpu = GPU,
    schedule: Schedule = schedule_for_gpu,
    inputs: Sequence[np.ndarray] | None = None,
    outputs: int = 1,
    tolerance: float | None = None,
) -> None:
    """Schedule a function for a GPU, execute it with all checks, and compare with the CPU.

    Args:
        function: the function without a schedule; its last parameters are its outputs.
        gpu: the GPU.
        schedule: what schedules.
        inputs: the arrays to compute with; random ones without.
        outputs: how many outputs it has.
        tolerance: relative to the largest element; that of the narrowest type among the parameters without.
    """
    shapes = [tuple(map(int, parameter.shape)) for parameter in function.params]
    dtypes = [str(parameter.dtype) for parameter in function.params]
    count = len(shapes) - outputs
    arrays = list(inputs) if inputs is not None else random_arrays(shapes[:count], dtypes[:count])
    blanks = [
        np.zeros(shape, numpy_dtype(dtype))
        for shape, dtype in zip(shapes[count:], dtypes[count:], strict=True)
    ]
    expected = run_on_cpu(function, arrays, blanks)  # first: a schedule can change the function that it is of
    found = [blank.copy() for blank in blanks]
    execute_function(schedule(function, gpu), [*arrays, *found], count, gpu)
    bound = tolerance or max(TOLERANCES.get(dtype, 0.0) for dtype in dtypes)
    for one, other in zip(found, expected, strict=True):
        assert_close(one, other, bound)


def assert_close(found: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    """Compare by the largest element; both may have infinities and NaN in the same places."""
    if found.dtype.kind in "biu":
        np.testing.assert_array_equal(found, expected)
        return
    one, other = found.astype(np.float64), expected.astype(np.float64)
    finite = np.abs(other[np.isfinite(other)])
    largest = float(finite.max()) if finite.size else 0.0
    np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance * largest)


def random_arrays(shapes: Sequence[tuple[int, ...]], dtypes: Sequence[str]) -> list[np.ndarray]:
    """Floats of a normal distribution, small integers, truth values."""
    generator = np.random.default_rng(0)
    return [
        _random(generator, shape, numpy_dtype(dtype)) for shape, dtype in zip(shapes, dtypes, strict=True)
    ]


def _random(generator: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    if dtype.kind == "b":
        return generator.random(shape) < 0.5
    if dtype.kind in "iu":
        low = 0 if dtype.kind == "u" else -8
        return generator.integers(low, 8, shape).astype(dtype)
    return generator.standard_normal(shape).astype(dtype)


def lower(functions: Mapping[str, tirx.PrimFunc], gpu: Gpu = GPU) -> dict[str, tirx.PrimFunc]:
    """Scheduled functions as TVM lowers them for CUDA, kernels and their launches still in one function.

    ``LowerWarpMemory`` follows, which TVM runs on kernels only: it turns a warp's registers into each lane's.
    """
    named = {name: function.with_attr("global_symbol", name) for name, function in functions.items()}
    with tvm.transform.PassContext(opt_level=3):
        module = lower_threads(tirx.transform.BindTarget(gpu.target)(tvm.IRModule(named)))
        module = tirx.transform.LowerWarpMemory()(module)
    return {str(name.name_hint): function for name, function in module.functions_items()}


def execute_function(
    function: tirx.PrimFunc, arguments: Sequence[np.ndarray | int], inputs: int, gpu: Gpu = GPU
) -> None:
    """Execute a scheduled function in place: arguments after the first ``inputs`` are written.

    Raises:
        KernelFault: a kernel breaks a rule.
    """
    run_function(lower({_NAME: function}, gpu)[_NAME], arguments, inputs)


def run_on_cpu(
    function: tirx.PrimFunc, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """The outputs of a function without a schedule, compiled for this processor."""
    module = tvm.IRModule({_NAME: function.with_attr("global_symbol", _NAME)})
    library = tvm.compile(module, tvm.target.Target("llvm"))
    tensors = [tvm.runtime.tensor(array) for array in (*inputs, *outputs)]
    library[_NAME](*tensors)
    return [tensor.numpy() for tensor in tensors[len(inputs) :]]


def execute(module: tvm.IRModule, inputs: Sequence[np.ndarray], gpu: Gpu = GPU) -> list[np.ndarray]:
    """Run ``main`` of a module whose functions are scheduled for a GPU, function after function.

    Args:
        module: an optimized Relax module: calls of TensorIR functions, tuples and constants.
        inputs: the arguments of ``main``.
        gpu: the GPU.

    Returns:
        The outputs in order.

    Raises:
        KernelFault: a kernel breaks a rule; a note names the function.
    """
    scheduled = {
        str(name.name_hint): function
        for name, function in module.functions_items()
        if isinstance(function, tirx.PrimFunc)
    }
    return _Run(lower(scheduled, gpu)).main(module["main"], inputs)


class _Run:
    """The values of the variables of one call of ``main``."""

    def __init__(self, functions: dict[str, tirx.PrimFunc]) -> None:
        self.functions = functions
        self.values: dict[Any, Any] = {}

    def main(self, function: Any, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        for parameter, value in zip(function.params, inputs, strict=True):
            self.values[parameter] = value
        for block in function.body.blocks:
            for binding in block.bindings:
                self.values[binding.var] = self.value(binding.value)
        return list(_flat(self.value(function.body.body)))

    def value(self, node: Any) -> Any:
        """What a Relax expression is: an array, or a tuple of them."""
        if node in self.values:
            return self.values[node]
        if isinstance(node, relax.Tuple):
            return tuple(self.value(field) for field in node.fields)
        if isinstance(node, relax.TupleGetItem):
            return self.value(node.tuple_value)[node.index]
        if isinstance(node, tvm.ir.GenericConst):
            return node.value.numpy()
        assert isinstance(node, tvm.ir.Call), f"no rule for {type(node).__name__}: {node}"
        return self._call(node)

    def _call(self, node: Any) -> Any:
        name = str(getattr(node.op, "name", node.op))
        if name == "relax.reshape":
            return self.value(node.args[0]).reshape(tuple(map(int, node.ty.shape)))
        assert name in ("relax.call_tir", "relax.call_tir_inplace"), f"no rule for {name}"
        arguments = [self.value(field) for field in node.args[1].fields]
        reused = list(node.attrs.inplace_indices) if name == "relax.call_tir_inplace" else []
        types = node.ty_args[0] if len(node.ty_args) else node.ty
        fields = list(types.fields) if hasattr(types, "fields") else [types]
        outputs = []
        for place, field in enumerate(fields):
            at = int(reused[place]) if place < len(reused) else -1
            if at >= 0:
                arguments[at] = arguments[at].copy()
                outputs.append(arguments[at])
            else:
                outputs.append(np.zeros(tuple(map(int, field.shape)), numpy_dtype(str(field.dtype))))
        new = [output for output in outputs if not any(output is argument for argument in arguments)]
        function = str(node.args[0].name_hint)
        try:
            run_function(self.functions[function], [*arguments, *new], len(arguments))
        except Exception as error:
            error.add_note(f"in function {function}")
            raise
        return tuple(outputs) if hasattr(types, "fields") else outputs[0]


def _flat(value: Any) -> Any:
    if isinstance(value, tuple):
        for part in value:
            yield from _flat(part)
    else:
        yield value


__all__ = ["GPU", "assert_computes", "execute", "execute_function", "is_call"]
