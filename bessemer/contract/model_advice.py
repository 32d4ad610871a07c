"""Known obstacles in models, and what to do instead. The client and the worker give the same advice."""

FLOAT_MODEL = (
    "compile the float model that they were made from (`quantize_dynamic` returns a copy; your original is "
    "still float), or quantize it by export with torchao's `prepare_pt2e` and `convert_pt2e`"
)
FLOAT_WEIGHTS = (
    "export it before you call `quantize_`, or first put `nn.Parameter(weight.dequantize())` in place of "
    "each quantized weight"
)

UNPACKED = (
    "the model packs sequences (pack_padded_sequence), which torch.export does not support. Save it with "
    "torch.jit.script or torch.jit.trace instead: packed sequences compile from scripts and traces"
)

UNROLLED = (
    "torch.export unrolls recurrent layers (LSTM, GRU, RNN), which fixes the length. Save the model with "
    "torch.jit.script or torch.jit.trace instead, and name the length in the request: "
    "`--input x=1xlengthx8 --dimension length=1..128`"
)

KINDS = frozenset({"GuardOnDataDependentSymNode", "DataDependentOutputException"})
NUMBER = "Could not extract"


def dependence_on_values(error: BaseException) -> str | None:
    """How the model depends on tensor values, if that is why ``torch.export.export`` failed; else None."""
    if type(error).__name__ not in KINDS:
        return None
    if str(error).startswith(NUMBER):
        return "the model takes a size or an index from a tensor's value"
    return "the model branches on a tensor's value"
