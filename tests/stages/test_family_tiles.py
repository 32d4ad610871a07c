"""Products and convolutions by tile registers agree with vectors: emulated, and with the instructions."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, prod
from pathlib import Path
from typing import Any

import family_samples
import ml_dtypes
import numpy as np
import pytest
import torch
import tvm
from family_samples import Array, main_of, optimized, source_of, target_of
from torch.nn import functional
from tvm import relax, te, tirx

from bessemer.contract.triple import LINUX_X86_64
from worker.candidates.client import CandidateClient
from worker.compiler.codegen.link import link_shared, run_zig
from worker.compiler.layout.pack_linear import PanelWidths, pack_linear_weights
from worker.compiler.schedules import default, tiles
from worker.compiler.schedules.default import plans_of, schedule_rest, unclaimed_functions
from worker.compiler.schedules.families.matmul.tile_plan import PANEL, AmxPlan
from worker.compiler.schedules.plans import with_plan
from worker.compiler.schedules.processors import TILE_FEATURES, machine_of
from worker.compiler.target import host_instruction_sets

SOURCE = Path(__file__).with_name("emulated_tiles.c")
ADDITIONS = 24
"""Four tiles of sums, and six products of the parts of the factors."""
COUNT = "products"
"""The function of a library that returns how many products of tiles were emulated."""

op = relax.op
_numbers = itertools.count()


@dataclass(frozen=True)
class Ran:
    """What a library computed; ``products`` are those of emulated tiles, -1 if the instructions ran."""

    output: Array
    products: int


@dataclass(frozen=True)
class Bench:
    """Compiles functions for a machine with tiles, and runs them.

    Attributes:
        emulator: the objects that compute what the instructions do; none if the processor has them.
    """

    server: CandidateClient
    patch: pytest.MonkeyPatch
    folder: Path
    mcpu: str
    emulator: tuple[str, ...] = ()
    cores: int = 2
    machine: dict[str, Any] = field(default_factory=dict)

    @property
    def target(self) -> tvm.target.Target:
        return target_of(self.mcpu, self.cores)

    def with_machine(self, cores: int = 2, **changed: Any) -> Bench:
        """One whose machine has these attributes."""
        return replace(self, cores=cores, machine=self.machine | changed)

    def enter(self) -> None:
        """Compile for the bench's machine, whose vectors are so slow that tiles are faster."""
        slow = {"has_tiles": True, "fma_ports": 0.1} | self.machine
        for module in (default, family_samples):
            self.patch.setattr(module, "machine_of", lambda target: replace(machine_of(target), **slow))

    def optimized(self, module: tvm.IRModule) -> tvm.IRModule:
        """The module before the loops are written."""
        self.enter()
        return optimized(module, self.target)

    def scheduled(self, module: tvm.IRModule, plan: AmxPlan | None = None) -> tvm.IRModule:
        """An optimized module with its loops."""
        self.enter()
        if plan is not None:
            module = tvm.IRModule(module.functions, attrs=module.attrs)
            for variable, function in functions_of(module).items():
                module.update_func(variable, with_plan(function, plan))
        return schedule_rest(module, self.target)

    def plans(self, module: tvm.IRModule) -> tuple[Any, ...]:
        """The plans of an optimized module's only function."""
        self.enter()
        (function,) = functions_of(module).values()
        return plans_of(function, self.target) or ()

    def run(self, module: tvm.IRModule, *inputs: Array) -> Ran:
        """Compile a scheduled module and run it in a process of the server."""
        path = self.folder / f"{next(_numbers)}.so"
        executable = tvm.compile(counting(module) if self.emulator else module, self.target)
        executable.export_library(
            str(path), fcompile=link_shared, addons=list(self.emulator), workspace_dir=str(self.folder)
        )
        if not self.emulator and calls_tiles(module):
            assert "tdpbf16ps" in source_of(executable.mod, "s")
        with self.server.open_library(path, threads=self.cores) as library:
            (output,) = library.run(inputs)
            products = int(library.run((), COUNT)[0][0]) if self.emulator else -1
        return Ran(output, products)

    def both(self, layer: Callable[..., relax.Expr], *inputs: Array) -> tuple[Ran, Ran]:
        """What tiles compute, and what vectors do from the same packed weights."""
        module = self.optimized(main_of(layer, *inputs))
        by_tiles, by_vectors = self.scheduled(module), self.with_machine(has_tiles=False).scheduled(module)
        assert calls_tiles(by_tiles)
        assert not calls_tiles(by_vectors)
        assert unclaimed_functions(by_tiles) == ()
        return self.run(by_tiles, *inputs), self.run(by_vectors, *inputs)


def functions_of(module: tvm.IRModule) -> dict[Any, tirx.PrimFunc]:
    return {
        variable: function
        for variable, function in module.functions_items()
        if isinstance(function, tirx.PrimFunc)
    }


def calls_tiles(module: tvm.IRModule) -> bool:
    return any("bessemer_request_tiles" in function.script() for function in functions_of(module).values())


def counting(module: tvm.IRModule) -> tvm.IRModule:
    """The module with a function that returns the emulator's counter."""
    builder = relax.BlockBuilder(module)

    def count() -> Any:
        return te.compute((1,), lambda _: tirx.call_extern("int32", "emulated_products"), "count")

    with builder.function(COUNT, []):
        builder.emit_func_output(builder.emit(builder.call_te(count)))
    return builder.finalize()


@pytest.fixture(scope="module")
def emulators(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Objects of an emulator that refuses to give a process its tiles, and of one that grants it."""
    made = [str(tmp_path_factory.mktemp("emulator") / "tiles.o") for _ in range(2)]
    for granted, path in enumerate(made):
        options = ("-c", "-O2", "-fPIC", "-fno-stack-protector", f"-DGRANTED={granted}")
        run_zig("cc", *options, str(SOURCE), "-o", path)
    return made[0], made[1]


@pytest.fixture
def emulating(monkeypatch: pytest.MonkeyPatch) -> None:
    """Call a function of the emulator for each instruction."""

    def call(name: str, *arguments: Any) -> tirx.Stmt:
        given = (
            tirx.IntImm("int64", int(each)) if isinstance(each, tirx.IntImm) else each for each in arguments
        )
        return tirx.Evaluate(tirx.call_extern("int32", f"emulated_{name}", *given))

    monkeypatch.setattr(tiles, "_call", call)
    monkeypatch.setattr(tiles, "CODE", "")


@pytest.fixture
def emulated(
    server: CandidateClient,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    emulators: tuple[str, str],
    emulating: None,
) -> Bench:
    return Bench(server, monkeypatch, tmp_path, "x86-64-v3", (emulators[1],))


@pytest.fixture(params=["emulated", "instructions"])
def bench(
    request: pytest.FixtureRequest, server: CandidateClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Bench:
    if request.param == "emulated":
        return request.getfixturevalue("emulated")
    if not host_instruction_sets(LINUX_X86_64) >= TILE_FEATURES:
        pytest.skip("the processor has no tile registers")
    return Bench(server, monkeypatch, tmp_path, "sapphirerapids")


@dataclass(frozen=True)
class Layer:
    """A linear layer with its epilogue."""

    rows: tuple[int, ...]
    depth: int
    columns: int
    has_bias: bool = False
    has_residual: bool = False

    @property
    def constants(self) -> tuple[Array, Array]:
        random = np.random.default_rng(0)
        return normal(random, self.depth, self.columns), normal(random, self.columns)

    @property
    def inputs(self) -> tuple[Array, ...]:
        random = np.random.default_rng(1)
        data, shortcut = normal(random, *self.rows, self.depth), normal(random, *self.rows, self.columns)
        return (data, shortcut) if self.has_residual else (data,)

    @property
    def products(self) -> int:
        """The products of tiles."""
        return ceil(prod(self.rows) / PANEL) * ceil(self.columns / PANEL) * ceil(self.depth / 32) * ADDITIONS

    def build(self, x: relax.Expr, *shortcut: relax.Expr) -> relax.Expr:
        weights, bias = map(relax.const, self.constants)
        value = op.matmul(x, weights)
        value = op.nn.relu(op.add(value, bias)) if self.has_bias else value
        return op.add(value, shortcut[0]) if shortcut else value

    def exactly(self, x: Array, *shortcut: Array) -> Array:
        weights, bias = (each.astype("float64") for each in self.constants)
        value = x.astype("float64") @ weights
        value = np.maximum(value + bias, 0) if self.has_bias else value
        return value + shortcut[0] if shortcut else value


def normal(random: np.random.Generator, *shape: int) -> Array:
    return random.standard_normal(shape).astype("float32")


LAYERS = {
    "whole tiles": Layer((64,), 64, 64),
    "the last rows and columns move back": Layer((70,), 96, 90),
    "one row and one column more": Layer((33,), 64, 65),
    "as few as possible": Layer((32,), 32, 32),
    "rows of several axes": Layer((3, 2, 13), 64, 40),
    "a bias and ReLU": Layer((50,), 96, 70, has_bias=True),
    "a residual": Layer((2, 35), 64, 45, has_residual=True),
    "a bias, ReLU and a residual": Layer((40,), 64, 50, has_bias=True, has_residual=True),
    "a long depth": Layer((40,), 2048, 40),
    "half a step at the end": Layer((40,), 80, 40),
}


def largest_error(computed: Array, expected: Array) -> float:
    return float(np.abs(computed.astype("float64") - expected).max())


@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
def test_a_layer_by_tiles_is_as_exact_as_by_vectors(bench: Bench, layer: Layer) -> None:
    by_tiles, by_vectors = bench.both(layer.build, *layer.inputs)

    expected = layer.exactly(*layer.inputs)
    assert by_tiles.output.shape == expected.shape
    assert largest_error(by_tiles.output, expected) <= 2 * largest_error(by_vectors.output, expected)
    assert by_tiles.products in (layer.products, -1)
    assert by_vectors.products in (0, -1)


@dataclass(frozen=True)
class Convolution:
    """A convolution of an image of ``[N, C, H, W]``, with its epilogue."""

    image: tuple[int, int, int, int]
    outputs: int
    kernel: int = 1
    stride: int = 1
    padding: int = 0
    dilation: int = 1
    is_activated: bool = False
    has_bias: bool = False
    dtype: str = "float32"

    @property
    def constants(self) -> tuple[Array, Array]:
        random = np.random.default_rng(0)
        weights = normal(random, self.outputs, self.image[1], self.kernel, self.kernel)
        return weights.astype(self.dtype), normal(random, 1, self.outputs, 1, 1)

    @property
    def inputs(self) -> Array:
        """The image; in float32 if it is activated."""
        image = normal(np.random.default_rng(1), *self.image)
        return image if self.is_activated else image.astype(self.dtype)

    def build(self, x: relax.Expr) -> relax.Expr:
        weights, bias = (relax.const(each, str(each.dtype)) for each in self.constants)
        if self.is_activated:
            x = op.nn.relu(op.multiply(x, relax.const(np.float32(3))))
            x = op.astype(x, self.dtype) if self.dtype != "float32" else x
        window = self.stride, self.padding, self.dilation
        value = op.nn.conv2d(x, weights, *window, out_dtype="float32")
        return op.nn.relu(op.add(value, bias)) if self.has_bias else value

    def exactly(self) -> Array:
        image = np.maximum(self.inputs * np.float32(3), 0) if self.is_activated else self.inputs
        arrays = image.astype(self.dtype), *self.constants
        x, weights, bias = (torch.from_numpy(each.astype("float64")) for each in arrays)
        value = functional.conv2d(x, weights, None, self.stride, self.padding, self.dilation)
        return (torch.relu(value + bias) if self.has_bias else value).numpy()


CONVOLUTIONS = {
    "pixels by weights": Convolution((1, 64, 8, 8), 64),
    "the last rows and channels move back": Convolution((2, 32, 7, 5), 48, has_bias=True),
    "an odd number of blocks of inputs": Convolution((1, 48, 6, 7), 32),
    "a border": Convolution((1, 32, 9, 9), 32, kernel=3, padding=1, has_bias=True),
    "a stride": Convolution((1, 32, 13, 13), 64, kernel=3, stride=2, padding=1),
    "a dilation and an odd number of blocks": Convolution((2, 48, 9, 9), 32, kernel=3, dilation=2),
    "an image that is activated": Convolution((1, 32, 16, 16), 32, is_activated=True),
}


@pytest.mark.parametrize("convolution", CONVOLUTIONS.values(), ids=CONVOLUTIONS)
def test_a_convolution_by_tiles_is_as_exact_as_by_vectors(bench: Bench, convolution: Convolution) -> None:
    by_tiles, by_vectors = bench.with_machine(vector_bits=512).both(convolution.build, convolution.inputs)

    expected = convolution.exactly()
    assert by_tiles.output.shape == expected.shape
    assert largest_error(by_tiles.output, expected) <= 2 * largest_error(by_vectors.output, expected)
    assert by_tiles.products != 0
    assert by_vectors.products in (0, -1)


def test_a_convolution_of_an_infinite_pixel_is_that_of_vectors(bench: Bench) -> None:
    convolution = Convolution((1, 32, 9, 9), 32, kernel=3, padding=1)
    image = convolution.inputs
    image[0, 3, 4, 4] = np.inf

    by_tiles, by_vectors = bench.with_machine(vector_bits=512).both(convolution.build, image)

    finite = np.isfinite(by_vectors.output)
    np.testing.assert_array_equal(by_tiles.output[~finite], by_vectors.output[~finite])
    np.testing.assert_allclose(by_tiles.output[finite], by_vectors.output[finite], rtol=1e-4, atol=1e-4)


SHARES = {"bfloat16": 1 / 6, "float16": 4 / 6}
"""By dtype, the products of tiles as a share of those of float32."""


@pytest.mark.parametrize("dtype", SHARES)
def test_products_of_half_precision_take_fewer_products_of_tiles(bench: Bench, dtype: str) -> None:
    layer = Layer((40,), 96, 70)
    data, weights = (each.astype(dtype) for each in (*layer.inputs, layer.constants[0]))

    by_tiles, by_vectors = bench.both(
        lambda x: op.matmul(x, relax.const(weights, dtype), out_dtype="float32"), data
    )

    expected = data.astype("float64") @ weights.astype("float64")
    assert largest_error(by_tiles.output, expected) <= 2 * largest_error(by_vectors.output, expected)
    assert by_tiles.products in (round(layer.products * SHARES[dtype]), -1)


@pytest.mark.parametrize("dtype", SHARES)
def test_convolutions_of_half_precision_take_fewer_products_of_tiles(bench: Bench, dtype: str) -> None:
    whole = Convolution((1, 48, 9, 9), 32, kernel=3, padding=1, has_bias=True)
    narrow, bench = replace(whole, dtype=dtype), bench.with_machine(vector_bits=512)

    (of_float32, _), (by_tiles, by_vectors) = (
        bench.both(each.build, each.inputs) for each in (whole, narrow)
    )

    expected = narrow.exactly()
    assert largest_error(by_tiles.output, expected) <= 2 * largest_error(by_vectors.output, expected)
    assert by_tiles.products in (round(of_float32.products * SHARES[dtype]), -1)


def test_tiles_round_an_image_of_bfloat16_that_its_producer_did_not(bench: Bench) -> None:
    convolution = Convolution((1, 32, 9, 9), 32, kernel=3, is_activated=True, dtype="bfloat16")

    by_tiles, _ = bench.with_machine(vector_bits=512).both(convolution.build, convolution.inputs)

    expected = convolution.exactly()
    np.testing.assert_allclose(by_tiles.output, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


def test_two_layers_of_a_library_use_tiles(bench: Bench) -> None:
    first, second = Layer((70,), 64, 96), Layer((70,), 96, 40, has_bias=True)
    (data,) = first.inputs

    by_tiles, by_vectors = bench.both(lambda x: second.build(op.tanh(first.build(x))), data)

    expected = second.exactly(np.tanh(first.exactly(data)))
    assert largest_error(by_tiles.output, expected) <= 2 * largest_error(by_vectors.output, expected)
    assert by_tiles.products in (first.products + second.products, -1)


@pytest.mark.parametrize(
    ("l2_kib", "cores", "steps"),
    [(512, 2, {5}), (48, 2, {2, 3}), (6, 1, {1})],
    ids=["the depth at once", "two or three parts of it", "step by step in one thread"],
)
def test_every_plan_is_right(bench: Bench, l2_kib: int, cores: int, steps: set[int]) -> None:
    layer = Layer((60,), 160, 150, has_bias=True)
    bench = bench.with_machine(cores, l2_bytes=l2_kib * 1024)
    module = bench.optimized(main_of(layer.build, *layer.inputs))
    by_vectors = bench.run(bench.with_machine(has_tiles=False).scheduled(module), *layer.inputs)
    most = 2 * largest_error(by_vectors.output, layer.exactly(*layer.inputs))

    plans = bench.plans(module)
    for plan in plans:
        ran = bench.run(bench.scheduled(module, plan), *layer.inputs)
        assert largest_error(ran.output, layer.exactly(*layer.inputs)) <= most, plan
        assert ran.products in (layer.products, -1)

    assert all(isinstance(plan, AmxPlan) and plan.parallel is (cores > 1) for plan in plans)
    assert {plan.groups for plan in plans} == ({1, 2, 4} if cores > 1 else {1, 2})
    assert {plan.chunk_tiles for plan in plans} == {1, 2}
    assert {plan.part_steps for plan in plans} == steps


INFINITE, NAN = np.float32(np.inf), np.float32(np.nan)
LOW_NAN = np.uint32(0x7F800001).view("float32")
"""Not a number, but its upper half is an infinite one's."""
SUBNORMAL = np.float32(1e-40)
UNUSUAL: dict[str, tuple[Sequence[tuple[int, int, Any]], Sequence[tuple[int, int, Any]]]] = {
    "an infinite input": ([(3, 5, INFINITE)], []),
    "a negative infinite input in rows that are computed twice": ([(45, 63, -INFINITE)], []),
    "infinite inputs of both signs": ([(3, 5, INFINITE), (3, 6, -INFINITE), (40, 1, INFINITE)], []),
    "an infinite input times zero": ([(3, 5, INFINITE)], [(5, 7, 0)]),
    "an input that is not a number": ([(0, 0, NAN)], []),
    "an input that is not a number in its lower half": ([(0, 0, LOW_NAN)], []),
    "an infinite weight": ([], [(5, 49, INFINITE)]),
    "a weight that is not a number": ([], [(5, 20, NAN), (6, 40, -INFINITE)]),
    "a weight that is not a number in its lower half": ([], [(5, 20, LOW_NAN)]),
    "a subnormal input times an infinite weight": ([(9, 5, SUBNORMAL)], [(5, 30, INFINITE)]),
    "sums that are too large": ([(8, k, 3e38) for k in range(4)], [(k, 4, 2) for k in range(4)]),
}


@pytest.mark.parametrize(("numbers", "weights"), UNUSUAL.values(), ids=UNUSUAL)
def test_results_that_are_not_finite_are_those_of_vectors(
    bench: Bench, numbers: Sequence[tuple[int, int, Any]], weights: Sequence[tuple[int, int, Any]]
) -> None:
    random = np.random.default_rng(0)
    data, matrix = normal(random, 50, 64), normal(random, 64, 50)
    for array, changes in ((data, numbers), (matrix, weights)):
        for row, column, value in changes:
            array[row, column] = value

    by_tiles, by_vectors = bench.both(lambda x: op.matmul(x, relax.const(matrix)), data)

    finite = np.isfinite(by_vectors.output)
    np.testing.assert_array_equal(by_tiles.output[~finite], by_vectors.output[~finite])
    np.testing.assert_allclose(by_tiles.output[finite], by_vectors.output[finite], rtol=1e-4, atol=1e-5)
    assert not finite.all()
    assert by_tiles.products != 0


@pytest.mark.parametrize(
    ("data_scale", "weight_scale"),
    [(8e37, 1e-3), (1e-3, 8e37), (1e18, 1e18), (1e-18, 1e-10), (1e-3, 1e-25), (1e25, 1e-25)],
)
def test_large_and_small_numbers_are_as_exact_as_others(
    bench: Bench, data_scale: float, weight_scale: float
) -> None:
    random = np.random.default_rng(0)
    data = (np.clip(normal(random, 40, 96), -4, 4) * data_scale).astype("float32")
    matrix = (np.clip(normal(random, 96, 40), -4, 4) * weight_scale).astype("float32")

    by_tiles, by_vectors = bench.both(lambda x: op.matmul(x, relax.const(matrix)), data)

    expected = data.astype("float64") @ matrix.astype("float64")
    assert np.isfinite(by_vectors.output).all()
    assert largest_error(by_tiles.output, expected) <= 2 * largest_error(by_vectors.output, expected)


@pytest.mark.parametrize(
    ("data_scale", "weight_scale"), [(1e-40, 1), (1, 1e-40), (1e-38, 1), (1e-25, 1e-25), (1e-36, 1e30)]
)
def test_subnormal_parts_and_products_count_as_zeros_at_most(
    bench: Bench, data_scale: float, weight_scale: float
) -> None:
    random = np.random.default_rng(0)
    data = (normal(random, 40, 64) * data_scale).astype("float32")
    matrix = (normal(random, 64, 40) * weight_scale).astype("float32")

    by_tiles, _ = bench.both(lambda x: op.matmul(x, relax.const(matrix)), data)

    left, right = data.astype("float64"), matrix.astype("float64")
    lost = np.abs(left).sum(1, keepdims=True) + np.abs(right).sum(0) + ADDITIONS / 4 * 64
    most = np.finfo("float32").tiny * lost + 1e-6 * np.abs(left) @ np.abs(right)
    assert (np.abs(by_tiles.output - left @ right) <= most).all()


@pytest.mark.parametrize("layer", [Layer((70,), 96, 90), Layer((2, 35), 64, 45, True, True)])
def test_vectors_compute_a_product_if_the_process_is_refused_its_tiles(
    emulated: Bench, emulators: tuple[str, str], layer: Layer
) -> None:
    refused = replace(emulated, emulator=(emulators[0],))

    by_tiles, by_vectors = refused.both(layer.build, *layer.inputs)

    assert by_tiles.products == 0
    np.testing.assert_array_equal(by_tiles.output, by_vectors.output)


def packed_shapes(module: tvm.IRModule) -> list[tuple[int, ...]]:
    found: list[tuple[int, ...]] = []

    def visit(node: Any) -> None:
        if isinstance(node, tvm.ir.GenericConst):
            found.append(tuple(map(int, node.value.shape)))

    relax.analysis.post_order_visit(module["main"], visit)
    return found


def product_of(
    rows: int | str, depth: int, columns: int, dtype: str, has_weights: bool = True
) -> tvm.IRModule:
    """A product; rows with a name are dynamic, and as many times 64."""
    sizes = (tirx.Var(rows, "int64"), 64) if isinstance(rows, str) else (rows,)
    variables = [
        relax.Var("x", relax.TensorType((*sizes, depth), dtype)),
        relax.Var("y", relax.TensorType((depth, columns), dtype)),
    ]
    right = relax.const(np.ones((depth, columns), dtype), dtype) if has_weights else variables[1]
    builder = relax.BlockBuilder()
    with builder.function("main", variables):
        with builder.dataflow():
            result = builder.emit_output(builder.normalize(op.matmul(variables[0], right)))
        builder.emit_func_output(result)
    return builder.get()


@pytest.mark.parametrize(
    ("rows", "dtype", "has_tiles", "expected"),
    [
        pytest.param(64, "float32", True, True, id="a product by tiles"),
        pytest.param(64, "float32", False, False, id="a machine without tiles"),
        pytest.param("n", "float32", True, False, id="dynamic rows"),
        pytest.param(64, "int32", True, False, id="integers"),
    ],
)
def test_weights_are_packed_for_tiles_where_these_are_used(
    emulated: Bench, rows: int | str, dtype: str, has_tiles: bool, expected: bool
) -> None:
    bench = emulated.with_machine(has_tiles=has_tiles)

    module = bench.optimized(product_of(rows, 96, 90, dtype))

    assert (packed_shapes(module) == [(3, 96, PANEL)]) is expected


def test_entry_points_share_packed_weights_of_bfloat16() -> None:
    machine = replace(machine_of(target_of("emeraldrapids")), fma_ports=0.1)
    weights = relax.const(np.ones((96, 90), ml_dtypes.bfloat16), "bfloat16")
    x = relax.Var("x", relax.TensorType((64, 96), "bfloat16"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            product = builder.emit_output(op.matmul(x, weights, out_dtype="float32"))
        builder.emit_func_output(product)

    module = pack_linear_weights(machine, PanelWidths())(builder.get())

    assert packed_shapes(module) == [(3, 96, PANEL)]


@pytest.mark.parametrize(
    ("rows", "depth", "columns", "dtype", "has_weights", "expected"),
    [
        pytest.param(64, 64, 64, "float32", True, True, id="a product by tiles"),
        pytest.param(31, 64, 64, "float32", True, False, id="few rows"),
        pytest.param(64, 64, 31, "float32", True, False, id="few columns"),
        pytest.param(64, 65, 64, "float32", True, False, id="a depth that fills no tiles"),
        pytest.param(64, 64, 64, "float16", True, False, id="half precision"),
        pytest.param(64, 64, 64, "float64", True, False, id="double precision"),
        pytest.param(64, 64, 64, "int32", True, False, id="integers"),
        pytest.param("n", 64, 64, "float32", True, False, id="dynamic rows"),
        pytest.param(64, 64, 64, "float32", False, False, id="no weights"),
    ],
)
def test_tiles_compute_products_of_float32_by_weights_that_fill_them(
    emulated: Bench, rows: int | str, depth: int, columns: int, dtype: str, has_weights: bool, expected: bool
) -> None:
    module = product_of(rows, depth, columns, dtype, has_weights)
    bench = replace(emulated, mcpu="x86-64-v4")  # its vectors read panels of the same width

    scheduled = bench.scheduled(bench.optimized(module))

    assert calls_tiles(scheduled) is expected
    assert unclaimed_functions(scheduled) == ()


@pytest.mark.parametrize(("has_tiles", "functions"), [(True, 2), (False, 1)])
def test_products_behind_each_other_are_apart_where_tiles_compute_both(
    emulated: Bench, has_tiles: bool, functions: int
) -> None:
    random = np.random.default_rng(0)
    data, first, second = normal(random, 1100, 32), normal(random, 32, 256), normal(random, 256, 40)

    def layers(x: relax.Expr) -> relax.Expr:
        return op.matmul(op.nn.relu(op.matmul(x, relax.const(first))), relax.const(second))

    usual = emulated.with_machine(has_tiles=has_tiles, fma_ports=2 if not has_tiles else 0.1)
    scheduled = usual.scheduled(usual.optimized(main_of(layers, data)))

    assert len(functions_of(scheduled)) == functions
    assert calls_tiles(scheduled) is has_tiles
