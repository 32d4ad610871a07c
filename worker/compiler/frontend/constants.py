"""Arguments that are not tensors: a request fixes their values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bessemer.contract.model import ConstantSpec
from bessemer.contract.problem import ErrorCode
from bessemer.contract.request import Constant
from worker.errors import JobError

Constants = Mapping[str, Constant]

_PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "bool": (bool,),
    "int": (int,),
    "float": (float, int),
    "number": (float, int),
    "str": (str,),
}
_OPTIONAL = "Optional["


def refuse_unknown_constants(constants: Constants, known: Iterable[str]) -> None:
    """Refuse values for arguments that the model does not have.

    Raises:
        JobError: ``inputs-mismatch``.
    """
    names = tuple(known)
    unknown = [name for name in constants if name not in names]
    if unknown:
        detail = f"the model has no argument '{unknown[0]}'; it has {', '.join(names) or 'no arguments'}"
        raise JobError(ErrorCode.INPUTS_MISMATCH, detail)


def check_constant(argument: ConstantSpec, value: Constant) -> None:
    """Refuse a value of another type than the argument's.

    Raises:
        JobError: ``inputs-mismatch``.
    """
    kind = argument.type
    accepts_none = kind.startswith(_OPTIONAL) or kind == "NoneType"
    inner = kind.removeprefix(_OPTIONAL).removesuffix("]") if kind.startswith(_OPTIONAL) else kind
    is_bool = isinstance(value, bool)
    fits = isinstance(value, _PYTHON_TYPES.get(inner, ())) and (inner == "bool") == is_bool
    if not (accepts_none if value is None else fits):
        shown = "null" if value is None else f"{value!r} ({type(value).__name__})"
        detail = f"the argument '{argument.name}' has the type {kind}; it cannot be {shown}"
        raise JobError(ErrorCode.INPUTS_MISMATCH, detail)


def refuse_unfixed(arguments: Iterable[ConstantSpec], constants: Constants) -> None:
    """Refuse to run without a value for an argument that has no default.

    Raises:
        JobError: ``constants-missing``.
    """
    for argument in arguments:
        if argument.required and argument.name not in constants:
            detail = f"the argument '{argument.name}' has the type {argument.type} and no default"
            raise JobError(ErrorCode.CONSTANTS_MISSING, detail)
