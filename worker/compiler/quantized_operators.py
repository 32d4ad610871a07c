"""torch's operators of quantized models, in terms of other operators.

A model that ``torchao``'s ``convert_pt2e`` quantized is a float model whose tensors pass through bytes::

    q = clamp(round(x / scale) + zero_point, low, high)         quantize
    x = (q - zero_point) * scale                                dequantize

The scale and the zero point are numbers, or tensors that broadcast. torch's own implementations read numbers
from tensors, which cannot be traced, and refuse float64; those here do neither. Importing this module defines
the operators.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import torch
import torch.ao.quantization.fx._decomposed
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch.fx import Node

    Number: TypeAlias = float | Tensor

NAMESPACE = "quantized_decomposed"

_SMALLEST_TOKEN = 1e-5
_BYTE_LOW, _BYTE_HIGH = -128, 127
_MIDDLE = 128
"""The zero point of symmetric unsigned bytes."""


def is_fake(node: Node) -> bool:
    """Whether a node quantizes numbers and dequantizes them at once."""
    name = getattr(getattr(node.target, "_schema", None), "name", "")
    return name.startswith((f"{NAMESPACE}::fake_quant", "aten::fake_quantize"))


def _quantize(
    data: Tensor, scale: Number, zero_point: Number, low: Number, high: Number, dtype: torch.dtype
) -> Tensor:
    rounded = torch.round(data.to(torch.float32) * (1.0 / scale)) + zero_point
    return torch.clamp(rounded, low, high).to(dtype)


def _quantize_by_tensor(
    data: Tensor, scale: Tensor, zero_point: Tensor, low: Number, high: Number, dtype: torch.dtype
) -> Tensor:
    return _quantize(data, scale.reshape(()), zero_point.reshape(()), low, high, dtype)


def _quantize_by_channel(
    data: Tensor, scales: Tensor, zero_points: Tensor, axis: int, low: int, high: int, dtype: torch.dtype
) -> Tensor:
    return _quantize(data, _along(scales, axis, data), _along(zero_points, axis, data), low, high, dtype)


def _quantize_by_token(
    data: Tensor, scales: Tensor, zero_points: Tensor, low: int, high: int, dtype: torch.dtype
) -> Tensor:
    return torch.clamp(torch.round(data * (1.0 / scales) + zero_points), low, high).to(dtype)


def _quantize_by_group(
    data: Tensor, scales: Tensor, zero_points: Tensor, low: int, high: int, dtype: torch.dtype, size: int
) -> Tensor:
    grouped = _grouped(data, scales, size)
    values = _quantize_by_token(grouped, scales.reshape(-1, 1), zero_points.reshape(-1, 1), low, high, dtype)
    return values.reshape(data.shape)


def _dequantize(
    data: Tensor, scale: Number, zero_point: Number | None, *_: Any, out_dtype: torch.dtype | None = None
) -> Tensor:
    wide = data.to(torch.float32)
    shifted = wide if zero_point is None else wide - zero_point
    return (shifted * scale).to(out_dtype or torch.float32)


def _dequantize_by_tensor(
    data: Tensor, scale: Tensor, zero_point: Tensor, *_: Any, out_dtype: torch.dtype | None = None
) -> Tensor:
    return _dequantize(data, scale.reshape(()), zero_point.reshape(()), out_dtype=out_dtype)


def _dequantize_by_channel(
    data: Tensor,
    scales: Tensor,
    zero_points: Tensor | None,
    axis: int,
    *_: Any,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    shift = None if zero_points is None else _along(zero_points, axis, data)
    return _dequantize(data, _along(scales, axis, data), shift, out_dtype=out_dtype)


def _dequantize_by_token(
    data: Tensor,
    scales: Tensor,
    zero_points: Tensor,
    low: int,
    high: int,
    dtype: torch.dtype,
    output_dtype: torch.dtype = torch.float32,
) -> Tensor:
    return _dequantize(data, scales, zero_points, out_dtype=output_dtype)


def _dequantize_by_group(
    data: Tensor,
    scales: Tensor,
    zero_points: Tensor | None,
    low: int,
    high: int,
    dtype: torch.dtype,
    size: int,
    output_dtype: torch.dtype = torch.float32,
) -> Tensor:
    shift = None if zero_points is None else zero_points.reshape(-1, 1)
    values = _dequantize(_grouped(data, scales, size), scales.reshape(-1, 1), shift, out_dtype=output_dtype)
    return values.reshape(data.shape)


def _fake_quantize_by_channel(
    data: Tensor, scales: Tensor, zero_points: Tensor, axis: int, low: int, high: int
) -> Tensor:
    scale, shift = _along(scales.float(), axis, data), _along(zero_points, axis, data)
    rounded = torch.round(data * (1.0 / scale)) + shift
    return (torch.clamp(rounded, low, high) - shift) * scale


def _choose(data: Tensor, low: int, high: int, eps: float, _dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    least, most = data.amin().clamp(max=0), data.amax().clamp(min=0)
    scale = ((most - least) / float(high - low)).float().clamp(min=eps)
    zero_point = torch.clamp(low - torch.round(least / scale), low, high)
    return scale.reshape(1).double(), zero_point.reshape(1).long()


def _choose_symmetric(
    data: Tensor, low: int, high: int, eps: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    scale = (data.abs().amax() / (float(high - low) / 2)).float().clamp(min=eps)
    middle = _MIDDLE if dtype == torch.uint8 else 0
    return scale.reshape(1).double(), torch.full((1,), middle)


def _choose_by_token(data: Tensor, _dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    largest = data.abs().amax(dim=-1, keepdim=True)
    wide = largest.float() if largest.dtype == torch.float16 else largest
    scales = wide.clamp(min=_SMALLEST_TOKEN).div(_BYTE_HIGH)
    return scales, torch.zeros_like(scales)


def _choose_asymmetric_by_token(data: Tensor, _dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    low, high = _BYTE_LOW, _BYTE_HIGH
    least = data.amin(dim=-1, keepdim=True).clamp(max=0)
    most = data.amax(dim=-1, keepdim=True).clamp(min=0)
    scale = ((most - least) / float(high - low)).clamp(min=torch.finfo(torch.float32).eps)
    first, last = least / scale, most / scale
    zero_point = torch.where((low + first) + (high + last) > 0, low - first, high - last)
    return scale.double(), zero_point.clamp(low, high).round().long()


def _convert(data: Tensor, dtype: torch.dtype) -> Tensor:
    return data.to(dtype)


def _along(values: Tensor, axis: int, data: Tensor) -> Tensor:
    """One number for each index of an axis of ``data``, in a shape that broadcasts to it."""
    shape = [1] * data.dim()
    shape[axis] = values.shape[0]
    return values.reshape(shape)


def _grouped(data: Tensor, scales: Tensor, size: int) -> Tensor:
    width = data.shape[-1]
    return data.reshape(-1, width if size > width and scales.shape[-1] == 1 else size)


IMPLEMENTATIONS: Mapping[str, Callable[..., Any]] = {
    "quantize_per_tensor.default": _quantize,
    "quantize_per_tensor.tensor": _quantize_by_tensor,
    "quantize_per_tensor.tensor2": _quantize_by_tensor,
    "quantize_per_channel.default": _quantize_by_channel,
    "quantize_per_token.default": _quantize_by_token,
    "quantize_per_channel_group.default": _quantize_by_group,
    "dequantize_per_tensor.default": _dequantize,
    "dequantize_per_tensor.tensor": _dequantize_by_tensor,
    "dequantize_per_tensor.tensor2": _dequantize_by_tensor,
    "dequantize_per_channel.default": _dequantize_by_channel,
    "dequantize_per_token.default": _dequantize_by_token,
    "dequantize_per_channel_group.default": _dequantize_by_group,
    "fake_quant_per_channel.default": _fake_quantize_by_channel,
    "choose_qparams.tensor": _choose,
    "choose_qparams_symmetric.tensor": _choose_symmetric,
    "choose_qparams_per_token.default": _choose_by_token,
    "choose_qparams_per_token_asymmetric.default": _choose_asymmetric_by_token,
    "convert_element_type.no_fuse": _convert,
}
"""What each operator of the namespace computes, by overload."""


def implementation_of(target: Any) -> Any:
    """The function that computes an operator of quantized models; other targets are themselves."""
    if getattr(target, "namespace", None) != NAMESPACE:
        return target
    return IMPLEMENTATIONS.get(str(target).removeprefix(f"{NAMESPACE}."), target)
