"""What to do in place of compiling a quantized model."""

__all__ = ["FLOAT_MODEL", "FLOAT_WEIGHTS"]

FLOAT_MODEL = (
    "compile the float model that they were made from (`quantize_dynamic` returns a copy: what you gave it "
    "is still float)"
)
FLOAT_WEIGHTS = (
    "export it before you call `quantize_`, or first put `nn.Parameter(weight.dequantize())` in the place of "
    "each quantized weight"
)
