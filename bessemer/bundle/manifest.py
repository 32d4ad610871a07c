"""The manifest of a bundle: what ``manifest.json`` says, and where the files of a bundle lie.

A bundle is a folder, or the same files as ``bundle.tar.zst`` without a leading folder.
"""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from bessemer.contract.base import Digest, Document
from bessemer.contract.dynamic import DynamicShapes
from bessemer.contract.target import ResolvedTarget
from bessemer.contract.tensor import DType, TensorName, TensorSpec

SCHEMA_VERSION = 1

ARCHIVE = "bundle.tar.zst"
MANIFEST = "manifest.json"
CHECKSUMS = "SHA256SUMS"
RUNNER = "run.py"
LIBRARY = "model.so"
PARAMETERS = "params.safetensors"
LIBRARIES_FOLDER = "lib"
RUNTIME_LIBRARY = "lib/libtvm_runtime.so"
RUNTIME_EXTRA_LIBRARY = "lib/libtvm_runtime_extra.so"
FFI_LIBRARY = "lib/libtvm_ffi.so"
REFERENCE_INPUTS = "reference/inputs.npz"
REFERENCE_OUTPUTS = "reference/outputs.npz"
REPORT = "report.json"
REPORT_PAGE = "report.html"
README = "README.md"
RECORDS_FOLDER = "records"
LICENSES_FOLDER = "LICENSES"

BundlePath = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*$")
]
"""A path inside the bundle: relative, with forward slashes, no part of which starts with a dot."""


class BundleFile(Document):
    """One file of the bundle."""

    path: BundlePath
    digest: Digest
    size_bytes: int = Field(ge=0)


class Reference(Document):
    """The inputs that the library was verified with, and what the original model made of them.

    Both are NumPy ``.npz`` files with one array for each name; bfloat16 is stored as its bits in uint16.
    """

    inputs: BundlePath = REFERENCE_INPUTS
    outputs: BundlePath = REFERENCE_OUTPUTS


class OutputTolerance(Document):
    """How far an output may lie from its reference: ``|x - r| <= absolute + relative * |r|``."""

    name: TensorName
    relative: float = Field(ge=0)
    absolute: float = Field(ge=0)


class ParameterSpec(Document):
    """A parameter or buffer: its name in the model, its shape and its element type."""

    name: str = Field(min_length=1, max_length=1024)
    shape: tuple[Annotated[int, Field(ge=0)], ...]
    dtype: DType


class SeparateParameters(Document):
    """Parameters that the library does not contain.

    ``prepare`` takes all of them as one tuple and returns those that the entry point takes after its inputs:
    packed and folded as the library's code wants them, once when the library is loaded.
    """

    file: BundlePath = PARAMETERS
    prepare: str = Field(description="The function of the library that prepares them.")
    tensors: tuple[ParameterSpec, ...] = Field(description="In the order of the function's tuple.")


class Manifest(Document):
    """What a bundle holds. ``run.py`` needs nothing else to run the library."""

    schema_version: Literal[1] = 1
    model: Digest = Field(description="The SHA-256 of the model that was compiled.")
    target: ResolvedTarget = Field(description="What the library runs on; `cores` is its number of threads.")
    entry_point: str = Field(default="main", description="The function of the library that runs the model.")
    inputs: tuple[TensorSpec, ...] = Field(description="In the order of the entry point's arguments.")
    outputs: tuple[TensorSpec, ...] = Field(description="In the order of the flattened result.")
    dynamic: DynamicShapes = Field(
        default=DynamicShapes(),
        description="Sizes that each run chooses; `inputs` and `outputs` have those of the reference.",
    )
    library: BundlePath = LIBRARY
    runtime_libraries: tuple[BundlePath, ...] = Field(
        default=(RUNTIME_LIBRARY,),
        description="Loaded in this order before the library; `libtvm_ffi.so` is not among them, since in "
        "Python the package apache-tvm-ffi brings its own.",
    )
    parameters: SeparateParameters | None = Field(
        default=None, description="Absent where the library contains them."
    )
    reference: Reference = Reference()
    tolerances: tuple[OutputTolerance, ...] = Field(
        default=(),
        description="What held when the library was verified; outputs that are left out are equal.",
    )
    versions: dict[str, str] = Field(description="Of the packages that made the library, by package name.")
    files: tuple[BundleFile, ...] = Field(
        description="Every file of the bundle but `manifest.json` and `SHA256SUMS`."
    )
    created_at: datetime
