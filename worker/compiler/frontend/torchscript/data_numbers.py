"""Numbers of a script that only a run knows: ``int(x.sum())``, a loop's counter, the flag of a ``break``.

``torch.export`` sees no value in their place. Arithmetic on them is either arithmetic on tensors of rank 0,
which branches and loops can carry, or on torch's symbols, which can be sizes. Both are written only if used.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.symbolic_shapes import (
    free_unbacked_symbols,
    is_concrete_bool,
    statically_known_true,
)

from worker.compiler.frontend.torchscript.plain_values import ON_NUMBERS, as_number

KIND_DTYPES: dict[type, torch.dtype] = {int: torch.int64, float: torch.float64, bool: torch.bool}


@dataclass(frozen=True, eq=False)
class DataNumber:
    """A number that depends on data.

    Attributes:
        kind: int, float or bool.
        make_tensor: makes it a tensor of rank 0: int64, float64 or bool.
        make_symbol: makes it a symbol of torch.
        distance: another number, and what to add to that. Two numbers from one differ by a constant.
    """

    kind: type
    make_tensor: Callable[[], torch.Tensor]
    make_symbol: Callable[[], Any]
    distance: tuple[DataNumber, int] | None = None

    @cached_property
    def tensor(self) -> torch.Tensor:
        """The number as a tensor of rank 0."""
        return self.make_tensor()

    @cached_property
    def symbol(self) -> Any:
        """The number as a symbol."""
        return self.make_symbol()

    @property
    def depends_on_data(self) -> bool:
        """Whether the number is more than an expression of the inputs' sizes."""
        return bool(free_unbacked_symbols(self.symbol))

    @property
    def origin(self) -> tuple[DataNumber, int]:
        """The number that this one is at a constant distance from, and the distance."""
        return self.distance or (self, 0)


def of_tensor(kind: type, tensor: torch.Tensor) -> DataNumber:
    """The value that a tensor of one element has now."""
    value = tensor.reshape(()).to(KIND_DTYPES[kind], copy=True)
    return DataNumber(kind, lambda: value, lambda: value.item())


def depends_on_data(value: object) -> bool:
    """Whether a tensor's value is unknown while ``torch.export`` traces."""
    return isinstance(value, FakeTensor) and value.constant is None


def kind_of(value: object) -> type | None:
    """int, float or bool if a value is a number, else None."""
    if isinstance(value, DataNumber):
        return value.kind
    value = as_number(value)
    for kind, symbol in ((bool, torch.SymBool), (int, torch.SymInt), (float, torch.SymFloat)):
        if isinstance(value, kind | symbol):
            return kind
    return None


def tensor_of(value: object, dtype: torch.dtype | None = None) -> torch.Tensor:
    """A number as a tensor of rank 0, of its kind's dtype or of the given one."""
    if isinstance(value, DataNumber):
        return value.tensor if dtype in (None, value.tensor.dtype) else value.tensor.to(dtype)
    kind = kind_of(value)
    assert kind is not None
    number: Any = as_number(value)
    if isinstance(number, torch.SymBool):
        number = torch.sym_ite(number, 1, 0)
    return torch.scalar_tensor(number, dtype=dtype or KIND_DTYPES[kind])


def symbol_of(value: object) -> object:
    """A number as torch takes it for a size: a plain number or a symbol; other values are unchanged."""
    return value.symbol if isinstance(value, DataNumber) else as_number(value)


def decided(value: object) -> bool | None:
    """A condition's value, or None if only a run knows it."""
    value = as_number(value)
    if isinstance(value, DataNumber):
        return None
    if isinstance(value, torch.SymBool) and not is_concrete_bool(value):
        return True if _always_holds(value) else False if _always_holds(torch.sym_not(value)) else None
    return bool(value)


def _always_holds(condition: torch.SymBool | bool) -> bool:
    """Whether a condition holds for all sizes. torch takes sizes from 1 for sizes from 2."""
    if not statically_known_true(condition):
        return False
    if not isinstance(condition, torch.SymBool):
        return True
    expression, ranges = condition.node.expr, condition.node.shape_env.var_to_range
    ones = {one: 1 for one in expression.free_symbols if one in ranges and ranges[one].lower == 2}
    return all(bool(expression.subs({one: 1}) != False) for one in ones)  # noqa: E712 - sympy's false


def compute(name: str, values: Sequence[object], returns: type | None = None) -> object:
    """Compute an operator on numbers, some of which depend on data.

    Args:
        name: the operator, such as ``aten::add``.
        values: numbers and None.
        returns: the result's kind if the operator's schema has it, else the kind of Python's result.
    """
    if returns is None:
        samples = [_sample(value) for value in values]
        returns = kind_of(ON_NUMBERS[name](*samples)) or int
    return DataNumber(
        returns,
        lambda: _on_tensors(name, values, returns),
        lambda: ON_NUMBERS[name](*map(symbol_of, values)),
        _distance(name, values),
    )


def _sample(value: object) -> object:
    kind = kind_of(value)
    return value if kind is None else kind(1)


def _distance(name: str, values: Sequence[object]) -> tuple[DataNumber, int] | None:
    """The distance of a sum with a constant."""
    if name == "aten::__derive_index":
        index, start, step = values
        return _distance("aten::add", [index, start]) if as_number(step) == 1 else None
    if name not in ("aten::add", "aten::sub") or len(values) != 2:
        return None
    first, second = map(as_number, values)
    if name == "aten::add" and isinstance(second, DataNumber):
        first, second = second, first
    if not isinstance(first, DataNumber) or type(second) is not int:
        return None
    base, offset = first.origin
    return base, offset + (second if name == "aten::add" else -second)


def wrapped(name: str, values: Sequence[object], result: object) -> object:
    """The result of an operator on numbers; a condition on a dynamic size becomes a number of data."""
    if not isinstance(result, torch.SymBool):
        return result
    known = decided(result)
    if known is not None:
        return known
    return DataNumber(bool, lambda: _on_tensors(name, values, bool), lambda: result)


def _on_tensors(name: str, values: Sequence[object], returns: type) -> torch.Tensor:
    kinds = {kind_of(value) for value in values}
    dtype = torch.float64 if float in (*kinds, returns) else torch.int64 if int in (*kinds, returns) else None
    operands = [None if value is None else tensor_of(value, dtype) for value in values]
    result = ON_TENSORS[name](*operands)
    wanted = KIND_DTYPES[returns]
    return result if result.dtype == wanted else result.to(wanted)


def _range_length(low: torch.Tensor, high: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
    """``len(range(low, high, step))``: the distance divided by the step, rounded up."""
    return -torch.div(low - high, step, rounding_mode="floor").clamp(max=0)


def _clamped(
    value: torch.Tensor, low: torch.Tensor | None = None, high: torch.Tensor | None = None
) -> torch.Tensor:
    return torch.clamp(value, low, high)


def _floor_divided(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return torch.div(left, right, rounding_mode="floor")


def _least(*values: torch.Tensor) -> torch.Tensor:
    return reduce(torch.minimum, values)


def _most(*values: torch.Tensor) -> torch.Tensor:
    return reduce(torch.maximum, values)


def _same(value: torch.Tensor, *_: object) -> torch.Tensor:
    return value


ON_TENSORS: dict[str, Callable[..., torch.Tensor]] = {
    "aten::add": operator.add,
    "aten::sub": operator.sub,
    "aten::mul": operator.mul,
    "aten::div": operator.truediv,
    "aten::true_divide": operator.truediv,
    "aten::floordiv": _floor_divided,
    "aten::floor_divide": _floor_divided,
    "aten::remainder": torch.remainder,
    "aten::pow": torch.pow,
    "aten::neg": torch.neg,
    "aten::abs": torch.abs,
    "prim::abs": torch.abs,
    "aten::ceil": torch.ceil,
    "aten::floor": torch.floor,
    "aten::round": torch.round,
    "aten::trunc": torch.trunc,
    "aten::sqrt": torch.sqrt,
    "aten::exp": torch.exp,
    "aten::log": torch.log,
    "aten::eq": torch.eq,
    "aten::ne": torch.ne,
    "aten::lt": torch.lt,
    "aten::le": torch.le,
    "aten::gt": torch.gt,
    "aten::ge": torch.ge,
    "aten::__and__": operator.and_,
    "aten::__or__": operator.or_,
    "aten::__xor__": operator.xor,
    "aten::__not__": torch.logical_not,
    "aten::logical_and": torch.logical_and,
    "aten::logical_or": torch.logical_or,
    "aten::logical_not": torch.logical_not,
    "aten::clamp": _clamped,
    "aten::maximum": torch.maximum,
    "aten::minimum": torch.minimum,
    "prim::max": _most,
    "prim::min": _least,
    "aten::Int": _same,
    "aten::Float": _same,
    "aten::Bool": _same,
    "aten::IntImplicit": _same,
    "aten::FloatImplicit": _same,
    "aten::ScalarImplicit": _same,
    "aten::item": _same,
    "aten::__range_length": _range_length,
    "aten::__derive_index": lambda index, start, step: start + index * step,
}
"""What the operators on numbers are on tensors of rank 0."""
