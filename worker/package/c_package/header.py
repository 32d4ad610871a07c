"""Writes ``model.h``: the entry points as C functions with the model's own names and types."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from bessemer.bundle.manifest import HEADER, EntryPoint, Manifest
from bessemer.contract.tensor import DType, TensorSpec

C_TYPES = {
    DType.FLOAT16: "uint16_t",
    DType.BFLOAT16: "uint16_t",
    DType.FLOAT32: "float",
    DType.FLOAT64: "double",
    DType.INT8: "int8_t",
    DType.INT16: "int16_t",
    DType.INT32: "int32_t",
    DType.INT64: "int64_t",
    DType.UINT8: "uint8_t",
    DType.BOOL: "uint8_t",
    DType.COMPLEX64: "float",
    DType.COMPLEX128: "double",
}
"""C has no 16-bit floats, so those are bits; a complex number is two elements."""

_KEYWORDS = re.compile(
    r"asm|auto|bool|break|case|catch|char|class|const|continue|default|delete|do|double|else|enum|extern|false|"
    r"float|for|friend|goto|if|inline|int|long|namespace|new|operator|private|protected|public|register|restrict|"
    r"return|short|signed|sizeof|static|struct|switch|template|this|throw|true|try|typedef|typename|union|"
    r"unsigned|using|virtual|void|volatile|while"
)
"""The keywords of C and C++."""

_FILE = """\
/* The entry points of this model as functions with its own names and types. Arrays are row-major; 16-bit
 * floats are their bits, and complex numbers are pairs. See {header} for sessions, states and errors. */
#ifndef BESSEMER_MODEL_ENTRY_POINTS_H
#define BESSEMER_MODEL_ENTRY_POINTS_H

#include "{header}"

#ifdef __cplusplus
extern "C" {{
#endif

{entries}
#ifdef __cplusplus
}}
#endif
#endif
"""

_ENTRY = """\
typedef struct {{
{inputs}
}} model_{name}_inputs;

typedef struct {{
{outputs}
}} model_{name}_outputs;

/* Runs the entry point `{name}`. Returns 0, or -1 with an error. */
static inline int32_t model_{name}(bessemer_model *model, const model_{name}_inputs *inputs,
                                   const model_{name}_outputs *outputs) {{
  const void *given[] = {{{given}}};
  void *made[] = {{{made}}};
  return bessemer_model_run(model, {number}, given, made);
}}
"""


@dataclass(frozen=True)
class _Field:
    name: str
    spec: TensorSpec

    def declared(self, qualifier: str) -> str:
        sizes = ", ".join(map(str, self.spec.shape))
        text = f"{self.spec.name}: {self.spec.dtype.value}[{sizes}]".replace("*/", "* /")
        return f"  {qualifier}{C_TYPES[self.spec.dtype]} *{self.name}; /* {text} */"


def typed_header(manifest: Manifest) -> str:
    """The text of ``model.h``."""
    entries = (_entry(number, entry) for number, entry in enumerate(manifest.entry_points))
    return _FILE.format(header=HEADER, entries="\n".join(entries))


def example_call(manifest: Manifest) -> str:
    """C statements that call the first entry point on arrays with the names of its tensors."""
    name = manifest.name
    given, made = (
        ", ".join(f".{field.name} = {field.name}" for field in _fields(specs))
        for specs in (manifest.inputs, manifest.outputs)
    )
    return "\n".join(
        (
            f"bessemer_model *model = bessemer_model_open({manifest.target.cores});",
            f"model_{name}_inputs inputs = {{{given}}};",
            f"model_{name}_outputs outputs = {{{made}}};",
            f'if (model_{name}(model, &inputs, &outputs)) fprintf(stderr, "%s\\n", bessemer_model_error());',
        )
    )


def _entry(number: int, entry: EntryPoint) -> str:
    inputs, outputs = tuple(_fields(entry.inputs)), tuple(_fields(entry.outputs))
    return _ENTRY.format(
        name=entry.name,
        number=number,
        inputs="\n".join(field.declared("const ") for field in inputs) or "  char none;",
        outputs="\n".join(field.declared("") for field in outputs) or "  char none;",
        given=", ".join(f"inputs->{field.name}" for field in inputs) or "0",
        made=", ".join(f"outputs->{field.name}" for field in outputs) or "0",
    )


def _fields(specs: Iterable[TensorSpec]) -> Iterator[_Field]:
    """The tensors with names that C accepts, each once."""
    taken: set[str] = set()
    for spec in specs:
        plain = re.sub(r"[^A-Za-z0-9_]", "_", spec.name)
        base = f"_{plain}" if plain[:1].isdigit() else f"{plain}_" if _KEYWORDS.fullmatch(plain) else plain
        name = next(name for name in _candidates(base) if name not in taken)
        taken.add(name)
        yield _Field(name, spec)


def _candidates(base: str) -> Iterator[str]:
    yield base
    number = 2
    while True:
        yield f"{base}_{number}"
        number += 1
