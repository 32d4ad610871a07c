"""Parameters that a library does not contain, and the file that holds them."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from bessemer.bundle.manifest import ParameterSpec, SeparateParameters
from bessemer.bundle.run import SAFETENSORS_DTYPES
from bessemer.contract.tensor import DType

PREPARE = "main_transform_params"
"""The function into which ``LiftTransformParams`` lifts what ``main`` computes from its parameters alone."""

_TAGS = {name: tag for tag, name in SAFETENSORS_DTYPES.items()}
_ALIGNMENT_BYTES = 64
_RESERVED_NAME = "__metadata__"
_MAX_NAME_CHARACTERS = 1024


@dataclass(frozen=True)
class ParameterFile:
    """A ``.safetensors`` file and its tensors, in the order of the library's arguments."""

    path: Path
    tensors: tuple[ParameterSpec, ...]

    @property
    def document(self) -> SeparateParameters:
        """The entry for the manifest."""
        return SeparateParameters(file=self.path.name, prepare=PREPARE, tensors=self.tensors)


def separable(program: ExportedProgram) -> dict[str, torch.Tensor]:
    """The tensors of the model's state that a program takes, by their names in the model, in order."""
    names = [
        str(spec.target)
        for spec in program.graph_signature.input_specs
        if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER)
    ]
    return {name: program.state_dict[name] for name in names if name in program.state_dict}


def in_one_file(entries: Sequence[tuple[str, Mapping[str, torch.Tensor]]]) -> list[dict[str, torch.Tensor]]:
    """Name the parameters of several entry points for one file.

    Args:
        entries: the name of each entry point and its tensors by their names in the model.

    Returns:
        For each entry point its tensors, in the same order, by their names in the file: the names in the
        model, or ``entry.name`` where an earlier entry point has another tensor of that name; ``entry`` is
        repeated until no tensor has the name.
    """
    known: dict[str, torch.Tensor] = {}
    taken = {name for _, tensors in entries for name in tensors}

    def place(entry: str, name: str, tensor: torch.Tensor) -> str:
        if _equal(known.setdefault(name, tensor), tensor):
            return name
        while name in taken:
            name = f"{entry}.{name}"
        taken.add(name)
        return name

    return [{place(entry, name, each): each for name, each in tensors.items()} for entry, tensors in entries]


def count_together(entries: Iterable[Mapping[str, torch.Tensor]]) -> int:
    """The number of elements in the tensors of entry points. Equal ones of two entry points count once."""
    counts: Counter[tuple[int, object]] = Counter()
    for tensors in entries:
        distinct = {(tensor.data_ptr(), tensor.shape): tensor for tensor in tensors.values()}
        counts |= Counter(map(_content, distinct.values()))
    return sum(elements * count for (elements, _), count in counts.items())


def _content(tensor: torch.Tensor) -> tuple[int, object]:
    """The number of elements, and what differs for tensors of other contents."""
    plain = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
    checksum = zlib.crc32(plain.view(torch.uint8).numpy().data)
    return tensor.numel(), (tensor.dtype, tensor.shape, checksum)


def _equal(left: torch.Tensor, right: torch.Tensor) -> bool:
    return left is right or (left.dtype == right.dtype and torch.equal(left, right))


def write_parameters(path: Path, tensors: dict[str, torch.Tensor]) -> ParameterFile:
    """Write a ``.safetensors`` file: the header's length, the header as JSON, then the bytes of each tensor.

    The format is https://github.com/huggingface/safetensors.

    Raises:
        OSError: the file cannot be written.
        ValueError: the format does not support a tensor's name or element type.
    """
    specs = tuple(_spec(name, tensor) for name, tensor in tensors.items())
    sizes = [tensor.numel() * tensor.element_size() for tensor in tensors.values()]
    header = json.dumps(dict(_entries(specs, sizes))).encode()
    header += b" " * (-(8 + len(header)) % _ALIGNMENT_BYTES)
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little"))
        file.write(header)
        for tensor in tensors.values():
            plain = tensor.detach().cpu().contiguous().reshape(-1)
            file.write(plain.view(torch.uint8).numpy().data)
    return ParameterFile(path, specs)


def _spec(name: str, tensor: torch.Tensor) -> ParameterSpec:
    dtype = str(tensor.dtype).removeprefix("torch.")
    if name == _RESERVED_NAME or len(name) > _MAX_NAME_CHARACTERS:
        raise ValueError(f"a .safetensors file cannot hold a tensor named '{name[:40]}'")
    if dtype not in _TAGS:
        raise ValueError(f"'{name}' has the element type {dtype}, which Bessemer cannot write to a file")
    return ParameterSpec(name=name, shape=tuple(tensor.shape), dtype=DType(dtype))


def _entries(specs: Iterable[ParameterSpec], sizes: Iterable[int]) -> Iterable[tuple[str, dict[str, object]]]:
    start = 0
    for spec, size in zip(specs, sizes, strict=True):
        place = {"data_offsets": [start, start + size]}
        yield spec.name, {"dtype": _TAGS[spec.dtype.value], "shape": list(spec.shape), **place}
        start += size
