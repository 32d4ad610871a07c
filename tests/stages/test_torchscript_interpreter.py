"""Scripts are interpreted exactly, their control flow included."""

import io
import math

import pytest
import torch
from torch import nn

from worker.compiler.frontend.outputs import export_flat
from worker.compiler.frontend.torchscript.convert import ScriptConversionError, convert_script
from worker.compiler.frontend.torchscript.interpreter import ScriptInterpreter
from worker.compiler.frontend.torchscript.module_state import ModuleState
from worker.compiler.frontend.torchscript.plain_values import ON_NUMBERS
from worker.compiler.frontend.torchscript.primitives import ScriptRaisedError
from worker.compiler.frontend.torchscript.script_arguments import script_arguments
from worker.compiler.frontend.torchscript.script_operators import _overload
from worker.compiler.source_locations import place_of


class Branching(nn.Module):
    def forward(self, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        if bias is not None:
            x = x + bias
        if x.dim() == 2 and x.shape[0] > 1:
            return x.sum(0)
        return x * 2


class Looping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.steps = 3
        self.weights = nn.ParameterList([nn.Parameter(torch.full((3,), float(i))) for i in range(2)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = torch.zeros_like(x)
        for step in range(self.steps):
            if step == 1:
                continue
            total = total + x * step
        count = 0
        while count < x.size(0):
            total = total + count
            count += 1
        for weight in self.weights:
            total = total * weight
        return total


class Containers(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        parts: list[torch.Tensor] = []
        for row in x.unbind(0):
            parts.append(row * len(parts))
        first, rest = x.split([1, 3])
        named = {"stacked": torch.stack(parts[::-1]), "first": first + rest.sum()}
        named["both"] = torch.cat([named["first"], named["stacked"]])
        return torch.stack(parts), named


class Attributes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.tensor([1.0, 2.0, 3.0]))
        self.offset = torch.ones(3)
        self.sizes = [1, 2]
        self.flag: float | None = None
        self.norm = nn.BatchNorm1d(3)
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        if self.flag is not None:
            x = x * self.flag
        return self.norm(x * self.scale + self.offset) + self.sizes[1] + self.calls


class Dtypes(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = torch.arange(x.size(1), device=x.device) < 2
        filled = x.masked_fill(mask, float("-inf"))
        if filled.dtype == torch.float32:
            filled = filled.to(torch.float64)
        return torch.full_like(filled, 3).to(x.dtype) + torch.zeros(x.shape, dtype=x.dtype)


class Sizes(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, columns = x.shape
        half = columns // 2
        grid = torch.arange(rows * 2).view(rows, 2)
        return x[:, : half + 1].reshape(rows * (half + 1)) * (rows / columns) + grid.sum() + x.numel() % 4


class KnownNumbers(nn.Module):
    """Takes sizes, indices and conditions from constants and buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("lengths", torch.tensor([2, 3, 1]))
        self.register_buffer("count", torch.tensor(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = x[:, self.lengths[2]] * self.count.item()
        sizes: list[int] = self.lengths.tolist()
        for size in sizes:
            total = total + x[:, :size].sum(1)
        if bool(self.count > 1):
            total = total * 2
        for step in range(int(torch.div(self.count + 3, 2, rounding_mode="floor"))):
            total = total + step
        return total + torch.arange(int(self.lengths.max()) + 1)[: x.size(0)]


class KnownIndex(nn.Module):
    """A trace turns the index to a number with ``aten::Int``."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("places", torch.tensor([0, 2]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, self.places[1]] + x[self.places[0]].sum()


class TensorsOfSizes(nn.Module):
    """Makes tensors from sizes, and takes sizes from them."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        sizes = torch.tensor(x.shape)
        half = torch.floor(torch.as_tensor(x.size(1) / 2).to("cpu", torch.float32)).long()
        return x[:, :half] * sizes[0] + torch.tensor([[1.5], [2.5]]).sum()


class WrittenSizes(nn.Module):
    """Makes a size by writing to the tensors that a trace makes of sizes."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result = x.size(0) // 2 * 1
        result *= x.size(1)
        return x.reshape(result, -1)


class ByteMask(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = (x > 0.5).to(torch.uint8)
        return torch.where(mask, x, 2.0) + torch.where(mask)[0].sum()


class KnownAxes(nn.Module):
    """Takes axes from a range, as a norm over all but the first axis does."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        axes: list[int] = torch.arange(1, len(x.shape)).tolist()
        return x - x.mean(axes, keepdim=True)


class WrittenRange(nn.Module):
    """Takes a size from a range before a write, and from a tensor that no write changes."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        sizes, others = torch.arange(3), torch.arange(2)
        column = x[:, int(sizes[1])]
        sizes[0] = sizes[0] + 1
        return column * int(others[1]) + sizes.sum()


@torch.jit.script
class Sparse:
    def __init__(self, rows: torch.Tensor) -> None:
        self.rows = rows


class Kinds(nn.Module):
    """Asks of what types values are."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.tensor(2.0))

    def forward(self, x: torch.Tensor | Sparse, more: torch.Tensor | Sparse | None = None) -> torch.Tensor:
        if isinstance(x, torch.Tensor):
            total = x * self.count(3) * self.count([1, 2]) * self.count(2.5)
        else:
            total = x.rows
        if isinstance(more, torch.Tensor):
            total = total + more
        elif isinstance(more, Sparse):
            total = more.rows
        return total

    def count(self, value: int | float | list[int]) -> int:
        if isinstance(value, float):
            return 5
        return 7 if isinstance(value, (list, tuple)) else 11


class NumberOperators(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n = x.size(0)
        bits = (n | 3) ^ (n << 1) & (n >> 1)
        quotient, rest = divmod(n, 3)
        many = {"a": n}
        many.update({"b": many.setdefault("c", 5)})
        is_even = (n % 2 == 0) & (n > 1) | (n == 7)
        numbers = sorted([3, bits, quotient])
        numbers.remove(3)
        if is_even and not (is_even ^ True) and numbers.count(quotient) == 1:
            x = x * (n**2) + n**0.5 + math.pow(n, 3) + math.gcd(n, 6)
        return x * bits + rest + many["b"] + math.sqrt(n) * math.log1p(0.5) + n // 3 + abs(-n)


def saved(script: torch.jit.ScriptModule) -> torch.jit.ScriptModule:
    buffer = io.BytesIO()
    torch.jit.save(script, buffer)
    buffer.seek(0)
    return torch.jit.load(buffer)


X = torch.arange(12.0).reshape(4, 3) / 7


def assert_same(script: torch.jit.ScriptModule, *inputs: torch.Tensor) -> None:
    expected = saved(script)(*inputs)
    with torch.no_grad():
        torch.testing.assert_close(ScriptInterpreter(saved(script)).run(*inputs), expected, rtol=0, atol=0)
        program = convert_script(saved(script), inputs)
        torch.testing.assert_close(program.module()(*inputs), expected, rtol=0, atol=0)


@pytest.mark.parametrize(
    "module",
    [
        Branching(),
        Looping(),
        Containers(),
        Attributes(),
        Dtypes(),
        Sizes(),
        KnownNumbers(),
        NumberOperators(),
        TensorsOfSizes(),
        KnownAxes(),
        WrittenRange(),
        Kinds(),
    ],
    ids=lambda m: type(m).__name__,
)
def test_a_script_and_its_exported_program_agree_to_the_bit(module: nn.Module) -> None:
    assert_same(torch.jit.script(module.eval()), X)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize(
    "module",
    [Sizes(), Dtypes(), KnownIndex(), TensorsOfSizes(), WrittenSizes()],
    ids=lambda m: type(m).__name__,
)
def test_a_trace_and_its_exported_program_agree_to_the_bit(module: nn.Module) -> None:
    assert_same(torch.jit.trace(module.eval(), X), X)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_a_size_that_a_trace_writes_to_stays_a_number() -> None:
    program = convert_script(saved(torch.jit.trace(WrittenSizes(), X)), (X,))
    called = [node.target for node in program.graph.nodes if node.op == "call_function"]
    assert called == [torch.ops.aten.reshape.default]


def test_a_buffer_that_a_run_changes_is_not_taken_for_its_first_value() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.tensor(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count += 1
            return x[: int(self.count)]

    with torch.no_grad():
        module = export_flat(ScriptInterpreter(saved(torch.jit.script(Counting()))).module, (X,)).module()
    assert [len(module(X)) for _ in range(3)] == [2, 3, 4]


def test_torch_has_an_implementation_of_every_operator_on_numbers() -> None:
    plain = {"int", "float", "bool", "number", "str"}
    schemas = [
        schema
        for schema in torch._C._jit_get_all_schemas()
        if schema.name.startswith("aten::") and {str(one.type) for one in schema.arguments} <= plain
    ]
    assert len(schemas) > 100
    for schema in schemas:
        assert schema.name in ON_NUMBERS or _overload(schema.name, str(schema))


def test_an_optional_input_is_used_when_given() -> None:
    assert_same(torch.jit.script(Branching()), X, torch.ones(3))


@pytest.mark.filterwarnings("ignore:where received a uint8 condition")
def test_a_byte_tensor_is_a_condition() -> None:
    assert_same(torch.jit.script(ByteMask()), X)


def test_a_union_with_tensors_takes_tensors() -> None:
    script = torch.jit.script(Kinds().eval())
    assert_same(script, X, X)
    found = script_arguments(saved(script).forward.schema, ("x", "more"), {})
    assert found.tensors == {"x": True, "more": True}
    assert script_arguments(saved(script).forward.schema, (), {}).tensors == {"x": True, "more": False}


def test_parameters_keep_their_names() -> None:
    module = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).eval()
    program = convert_script(saved(torch.jit.script(module)), (X,))
    assert set(program.state_dict) == set(module.state_dict())


def test_shared_weights_stay_shared() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(3, 3)
            self.second = nn.Linear(3, 3)
            self.second.weight = self.first.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(self.first(x))

    module = ScriptInterpreter(saved(torch.jit.script(Tied()))).module
    assert module.first.weight is module.second.weight


def test_a_script_may_use_the_names_of_the_interpreter() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name in sorted({*dir(ScriptInterpreter), *dir(ModuleState)} - set(dir(nn.Module))):
                self.register_buffer(name, torch.ones(3))
            self.register_buffer("_state", torch.ones(3))
            self.module = nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self._state = self._state + 1
            return self.module(x) + self._state + self.read

    with torch.no_grad():
        script, x = torch.jit.script(Named()), torch.ones(2, 3)
        module = convert_script(saved(script), (x,)).module()
        for _ in range(3):
            torch.testing.assert_close(module(x), script(x))


def test_state_that_a_forward_writes_is_forgotten() -> None:
    interpreter = ScriptInterpreter(saved(torch.jit.script(Attributes().eval())))
    torch.testing.assert_close(interpreter.run(X), interpreter.run(X), rtol=0, atol=0)


def test_a_branch_on_data_goes_through_torchs_converter() -> None:
    class OnData(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if bool(x.sum() > 0):
                return x + 1
            return x - 1

    script = saved(torch.jit.script(OnData()))
    program = convert_script(script, (X,))
    for inputs in (X, -X):
        torch.testing.assert_close(program.module()(inputs), script(inputs))


def test_an_error_raised_by_a_script_keeps_its_message() -> None:
    class Strict(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            assert x.dim() == 3, "three axes, please"
            return x

    with pytest.raises(ScriptRaisedError, match="three axes, please"):
        ScriptInterpreter(saved(torch.jit.script(Strict()))).run(X)


def test_a_failed_conversion_names_the_place() -> None:
    class Unending(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            while bool(x.sum() < 100):
                x = x * x.nonzero().size(0)
            return x

    with pytest.raises(ScriptConversionError) as caught:
        convert_script(saved(torch.jit.script(Unending())), (X + 1,))
    assert caught.value.step is not None
    assert caught.value.step.place().file == __file__


@pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")  # torch warns of its own deep copies
@pytest.mark.parametrize("form", ["traced", "scripted"])
def test_every_operator_of_a_program_has_its_source_line(form: str) -> None:
    module = Sizes().eval()
    script = torch.jit.trace(module, X) if form == "traced" else torch.jit.script(module)
    program = convert_script(saved(script), (X,)).run_decompositions()
    computed = [node for node in program.graph.nodes if node.op == "call_function"]
    assert computed
    for node in computed:
        assert place_of(node).file == __file__, node
