"""Known obstacles in models, and what to do instead. The client and the worker give the same advice."""

from typing import NamedTuple

FLOAT_MODEL = (
    "compile the float model that they were made from (`quantize_dynamic` returns a copy; your original is "
    "still float), or quantize it by export with torchao's `prepare_pt2e` and `convert_pt2e`"
)
PLAIN_WEIGHTS = (
    "save `torch.export.export(model, inputs).run_decompositions()`, which has plain tensors in their "
    "place, or pass the module to the Python client, which does so"
)

UNPACKED = (
    "the model packs sequences (pack_padded_sequence), which torch.export does not support. Save it with "
    "torch.jit.script or torch.jit.trace instead: packed sequences compile from scripts and traces"
)

UNROLLED = (
    "torch.export unrolls recurrent layers (LSTM, GRU, RNN), which fixes the length. Save the model with "
    "torch.jit.script or torch.jit.trace instead, and name the length in the request: "
    '`inputs={"x": (1, "length", 8)}, dimensions={"length": (1, 128)}`'
)

KINDS = frozenset({"GuardOnDataDependentSymNode", "DataDependentOutputException"})
NUMBER = "Could not extract"

_NOT_INTEGERS = (
    "scalar types: Long, Int; but got",
    "tensors used as indices must be",
    "Expected dtype int64 for index",
    "Expected dtype int32/int64 for index",
    "expected scalar type Long",
    "expected scalar type Int",
)
_INPUT_TYPE = "Input type ("
"""Begins torch's message about a dtype, and also that about a device."""

_OTHER_FLOATS = ("have the same dtype", "expected scalar type", _INPUT_TYPE)


class _Dtyped(NamedTuple):
    """An input of the dtype that the model takes, in a request and in Python."""

    request: str
    python: str


_REMEDIES = (
    (_NOT_INTEGERS, _Dtyped("ids=4x6:int64", "ids.long()")),
    (_OTHER_FLOATS, _Dtyped("x=4x6:bfloat16", "x.bfloat16()")),
)
"""What torch's messages contain, and what to pass instead."""


def dependence_on_values(error: BaseException) -> str | None:
    """How the model depends on tensor values, if that is why ``torch.export.export`` failed; else None."""
    if type(error).__name__ not in KINDS:
        return None
    if str(error).startswith(NUMBER):
        return "the model takes a size or an index from a tensor's value"
    return "the model branches on a tensor's value"


def advice_on_dtypes(message: str) -> str | None:
    """What to do if torch says in this message that an input has a dtype that the model does not take."""
    found = _remedy(message)
    rule = "an input's dtype is the request's, else the file's, else float32"
    return found and f"{rule}: name another, as in `{found.request}`"


def advice_on_example_dtypes(message: str) -> str | None:
    """The same for a caller who passes example inputs."""
    found = _remedy(message)
    problem = "an example input has a dtype that the model does not take"
    return found and f"{problem}: pass another, as in `{found.python}`"


def _remedy(message: str) -> _Dtyped | None:
    if _INPUT_TYPE in message and "cuda" in message.casefold():
        return None
    return next((found for signs, found in _REMEDIES if any(sign in message for sign in signs)), None)
