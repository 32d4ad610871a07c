"""Operators that only move elements: a kernel reads through them instead of reading a copy.

    y = permute_dims(reshape(x, (1, 4, 2, 8)), (0, 2, 1, 3))
    read_through(y)  →  x, (reshape, transpose)

A view turns a tensor expression into another, which a kernel inlines into its reads. Known operators are
those of ``_RULES`` and the parts of a ``split``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tvm import relax, te, tirx, topi
from tvm.ir import GenericConst
from tvm_ffi import structural_equal

from worker.compiler.layout.relax_graph import Shape, are_known, is_one, operator_of, shape_of, static_shape

Tensor = Any
View = Callable[[Tensor], Tensor]
Lookup = Callable[[relax.Expr], relax.Expr]
"""The value of a variable; other expressions are themselves."""


class Cut(NamedTuple):
    """A part of a tensor: along ``axis`` it begins at ``first``, along the others it is whole."""

    whole: relax.Expr
    axis: int
    first: int


def read_through(operand: relax.Expr, lookup: Lookup) -> tuple[relax.Expr, tuple[View, ...]]:
    """The tensor under an operand, and the views from it to the operand, in order."""
    views: list[View] = []
    while True:
        step = _step(lookup(operand), lookup)
        if step is None:
            return operand, tuple(reversed(views))
        operand, view = step
        views.append(view)


def scalar_of(operand: relax.Expr, lookup: Lookup) -> float | None:
    """The value of a constant of one element, or of a view of one; None for others."""
    base, _ = read_through(operand, lookup)
    constant = lookup(base)
    if not isinstance(constant, GenericConst) or constant.value.numpy().size != 1:
        return None
    return float(constant.value.numpy().reshape(()))


def _step(value: relax.Expr, lookup: Lookup) -> tuple[relax.Expr, View] | None:
    """The operand of a view and the view; None for other expressions."""
    if isinstance(value, relax.TupleGetItem):
        return _part_of_split(value, lookup)
    rule = _RULES.get(operator_of(value))
    if rule is None or shape_of(value) is None or shape_of(value.args[0]) is None:
        return None
    view = rule(value, lookup)
    return None if view is None else (value.args[0], view)


def _permuted(call: relax.Call, _lookup: Lookup) -> View:
    rank = len(call.args[0].ty.shape)
    axes = [int(axis) for axis in call.attrs.axes] if call.attrs.axes else list(reversed(range(rank)))
    return lambda tensor: topi.transpose(tensor, axes)


def _reshaped(call: relax.Call, _lookup: Lookup) -> View | None:
    shape, old = shape_of(call) or (), shape_of(call.args[0]) or ()
    if are_known(shape) and are_known(old):
        return lambda tensor: topi.reshape(tensor, shape)
    first, last = _common(old, shape), _common(old[::-1], shape[::-1])
    last = min(last, min(len(old), len(shape)) - first)
    inner, places = old[first : len(old) - last], slice(first, len(shape) - last)
    # Divisions by dynamic sizes would not be simplified away.
    if not are_known(inner[1:]) or (not are_known(shape[places][1:]) and len(inner) > 1):
        return None

    def view(tensor: Tensor) -> Tensor:
        def element(*place: Any) -> Any:
            within = _split(_joined(place[places], shape[places]), inner)
            return tensor(*place[:first], *within, *place[places.stop :])

        return te.compute(shape, element)

    return view


def _common(old: Shape, new: Shape) -> int:
    """The number of sizes that two shapes have in common at the start."""
    pairs = zip(old, new, strict=False)
    return next(
        (count for count, (one, other) in enumerate(pairs) if not structural_equal(one, other)),
        min(len(old), len(new)),
    )


def _joined(place: Sequence[Any], sizes: Sequence[Any]) -> Any:
    """A place as one number, in row order."""
    number: Any = tirx.IntImm("int64", 0)
    for index, size in zip(place, sizes, strict=True):
        number = number * size + index
    return number


def _split(number: Any, sizes: Sequence[Any]) -> list[Any]:
    """The inverse of ``_joined``; it does not need the first size."""
    place: list[Any] = []
    for size in reversed(sizes[1:]):
        place.append(number % size)
        number = number // size
    return [number, *reversed(place)] if sizes else []


def element_at(tensor: Tensor, place: Sequence[Any]) -> Any:
    """The element at a place of the broadcast tensor."""
    own = place[len(place) - len(tensor.shape) :]
    return tensor(*(0 if is_one(size) else at for at, size in zip(own, tensor.shape, strict=True)))


def _broadcast(call: relax.Call, _lookup: Lookup) -> View:
    shape = shape_of(call) or ()
    return lambda tensor: te.compute(shape, lambda *place: element_at(tensor, place))


def _sliced(call: relax.Call, lookup: Lookup) -> View | None:
    axes, begin, end, *strides = (integers_of(argument, lookup) for argument in call.args[1:])
    steps = strides[0] if strides else [1] * len(axes or ())
    if axes is None or begin is None or end is None or steps is None or min(steps, default=1) < 1:
        return None
    sizes = shape_of(call.args[0]) or ()
    if not all(first >= 0 or are_known([sizes[axis]]) for axis, first in zip(axes, begin, strict=True)):
        return None
    moves = zip(axes, zip(begin, steps, strict=True), strict=True)
    return _moved(call, dict(moves))


def _moved(call: relax.Expr, moves: dict[int, tuple[int, int]]) -> View:
    """A part of a tensor; ``moves`` has the first element and the stride along each axis."""
    shape = shape_of(call) or ()

    def view(tensor: Tensor) -> Tensor:
        starts = {
            axis % len(shape): (max(0, first + int(tensor.shape[axis])) if first < 0 else first, stride)
            for axis, (first, stride) in moves.items()
        }

        def element(*place: Any) -> Any:
            steps = (starts.get(axis, (0, 1)) for axis in range(len(place)))
            return tensor(*(at * stride + first for at, (first, stride) in zip(place, steps, strict=True)))

        return te.compute(shape, element)

    return view


def _taken(call: relax.Call, lookup: Lookup) -> View | None:
    index = lookup(call.args[1])
    if not isinstance(index, GenericConst) or index.value.numpy().shape != ():
        return None
    shape, old = shape_of(call) or (), shape_of(call.args[0]) or ()
    axis, place = int(call.attrs.axis) % len(old), int(index.value.numpy())
    if not are_known([old[axis]]) or not 0 <= place < int(old[axis]):
        return None
    return lambda tensor: te.compute(shape, lambda *at: tensor(*at[:axis], place, *at[axis:]))


def cut_of(value: relax.Expr, lookup: Lookup) -> Cut | None:
    """A slice with stride 1 along one axis, or a part of a split, as a cut; None for others."""
    if isinstance(value, relax.TupleGetItem):
        return _cut_of_split(value, lookup)
    whole = static_shape(value.args[0]) if operator_of(value) == "strided_slice" else None
    if whole is None or static_shape(value) is None:
        return None
    axes, begin, _, *steps = (integers_of(argument, lookup) for argument in value.args[1:])
    if axes is None or begin is None or len(axes) != 1 or (steps and steps[0] != [1]):
        return None
    axis = axes[0] % len(whole)
    first = begin[0] if begin[0] >= 0 else max(0, begin[0] + whole[axis])
    return Cut(value.args[0], axis, first)


def _cut_of_split(item: relax.TupleGetItem, lookup: Lookup) -> Cut | None:
    call = lookup(item.tuple_value)
    if operator_of(call) != "split" or shape_of(item) is None:
        return None
    whole, sections = shape_of(call.args[0]), call.attrs.indices_or_sections
    if whole is None:
        return None
    axis = int(call.attrs.axis) % len(whole)
    if isinstance(sections, int | tirx.IntImm):
        if not are_known([whole[axis]]):
            return None
        return Cut(call.args[0], axis, item.index * -(-int(whole[axis]) // int(sections)))
    return Cut(call.args[0], axis, 0 if item.index == 0 else int(sections[item.index - 1]))


def _part_of_split(item: relax.TupleGetItem, lookup: Lookup) -> tuple[relax.Expr, View] | None:
    cut = _cut_of_split(item, lookup)
    return None if cut is None else (cut.whole, _moved(item, {cut.axis: (cut.first, 1)}))


def integers_of(argument: relax.Expr, lookup: Lookup) -> list[int] | None:
    """The numbers of a tuple or a shape; None if one is unknown."""
    bound = lookup(argument)
    values = getattr(bound, "fields", None) or getattr(bound, "values", None)
    if values is None:
        return None
    numbers = [getattr(value, "value", value) for value in values]
    known = [number for number in numbers if isinstance(number, int | tirx.IntImm)]
    return [int(number) for number in known] if len(known) == len(numbers) else None


_RULES: dict[str, Callable[[relax.Call, Lookup], View | None]] = {
    "broadcast_to": _broadcast,
    "expand_dims": _reshaped,
    "flatten": _reshaped,
    "permute_dims": _permuted,
    "reshape": _reshaped,
    "squeeze": _reshaped,
    "strided_slice": _sliced,
    "take": _taken,
}
