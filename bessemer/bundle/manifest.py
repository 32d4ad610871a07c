"""The manifest of a bundle (``manifest.json``), and the paths of its files.

A bundle is a directory, or the same files in ``bundle.tar.zst`` without a leading directory.
"""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from bessemer.contract.base import Digest, Document
from bessemer.contract.dynamic import DynamicShapes
from bessemer.contract.request import MAIN_ENTRY
from bessemer.contract.structure import CallStructure
from bessemer.contract.target import ResolvedTarget
from bessemer.contract.tensor import DType, TensorName, TensorSpec

SCHEMA_VERSION = 1

ARCHIVE = "bundle.tar.zst"
MANIFEST = "manifest.json"
CHECKSUMS = "SHA256SUMS"
RUNNER = "run.py"
LIBRARY = "model.so"
LIBRARIES = (LIBRARY, "model.dylib", "model.dll")
"""The names of the library, by system."""
PROGRAM = "run"
HEADER = "bessemer_model.h"
TYPED_HEADER = "model.h"
STATIC_LIBRARY = "libmodel.a"
IMPORT_LIBRARY = "model.lib"
"""The import library of ``model.dll``, which Windows linkers read instead of it."""
CMAKE_FOLDER = "cmake"
EXAMPLES_FOLDER = "examples"
PARAMETERS = "params.safetensors"
LIBRARIES_FOLDER = "lib"
RUNTIME_LIBRARY = "lib/libtvm_runtime.so"
RUNTIME_EXTRA_LIBRARY = "lib/libtvm_runtime_extra.so"
FFI_LIBRARY = "lib/libtvm_ffi.so"
REFERENCE_FOLDER = "reference"
REFERENCE_INPUTS = "reference/inputs.npz"
REFERENCE_OUTPUTS = "reference/outputs.npz"
REPORT = "report.json"
REPORT_PAGE = "report.html"
README = "README.md"
STATE_FOLDER = "state"
RECORDS_FOLDER = "records"
DATABASE_FILES = ("database_workload.json", "database_tuning_record.json")
"""The files of MetaSchedule's database."""
RECORD_EXTENSIONS = "extensions.json"
"""The extensions that the tuning records beside it need: those of the request that made the records."""
LICENSES_FOLDER = "LICENSES"
SBOM = "sbom.cdx.json"
STATEMENT = "provenance.intoto.json"
ENVELOPE = "provenance.dsse.json"
PROVENANCE = frozenset({STATEMENT, ENVELOPE})
"""Files that state the digests of all others. The supervisor adds them, so no list has them."""

BundlePath = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*$")
]
"""A relative path in the bundle, with forward slashes and no part that starts with a dot."""


class BundleFile(Document):
    """One file of the bundle."""

    path: BundlePath
    digest: Digest
    size_bytes: int = Field(ge=0)


class Reference(Document):
    """The inputs of the verification, and the original model's outputs for them.

    Both are NumPy ``.npz`` files with one array for each name; bfloat16 is stored as its bits in uint16.
    """

    inputs: BundlePath = REFERENCE_INPUTS
    outputs: BundlePath = REFERENCE_OUTPUTS


class OutputTolerance(Document):
    """How far an output may differ from its reference: ``|x - r| <= absolute + relative * |r|``."""

    name: TensorName
    relative: float = Field(ge=0)
    absolute: float = Field(ge=0)


class ParameterSpec(Document):
    """A parameter or buffer: its name in the model, its shape and its element type."""

    name: str = Field(min_length=1, max_length=1024)
    shape: tuple[Annotated[int, Field(ge=0)], ...]
    dtype: DType


class SeparateParameters(Document):
    """Parameters stored beside the library.

    When the library is loaded, ``prepare`` takes all of them as one tuple. It returns the packed and folded
    parameters that the entry point takes after its inputs.
    """

    file: BundlePath = PARAMETERS
    prepare: str = Field(description="The function of the library that prepares them.")
    tensors: tuple[ParameterSpec, ...] = Field(
        description="The parameters, in the order of the function's tuple."
    )


class HeldParameters(Document):
    """Where the library holds large parameters. ``load`` verifies only the bytes around them."""

    offset: int = Field(ge=0, description="Their first byte in the file.")
    size_bytes: int = Field(ge=0)
    rest_digest: Digest = Field(description="The SHA-256 of the bytes before and after them.")


class StateTensor(TensorSpec):
    """A tensor that the model keeps between runs."""

    file: BundlePath = Field(description="The value before the first run, as `.npy`.")


class EntryPoint(Document):
    """One entry point of the library."""

    name: str = Field(default=MAIN_ENTRY, description="Its name in the request.")
    entry_point: str = Field(default="main", description="The function of the library that runs it.")
    inputs: tuple[TensorSpec, ...] = Field(
        description="The inputs, in the order of the entry point's arguments."
    )
    outputs: tuple[TensorSpec, ...] = Field(description="The outputs, in the order of the flattened result.")
    call: CallStructure | None = Field(
        default=None,
        description="How the model's own arguments and result are made of the inputs and outputs; null in a "
        "bundle of an earlier release.",
    )
    state: tuple[StateTensor, ...] = Field(
        default=(),
        description="What the model keeps between runs. The entry point takes it after the inputs, may write "
        "to it, and returns its new value after the outputs.",
    )
    seed: TensorName | None = Field(
        default=None,
        description="The input that is the seed of the random numbers, an int64 scalar; null if the model "
        "draws none. Equal seeds give equal results. `run.py` draws a seed if it gets none.",
    )
    own_memory: tuple[TensorName, ...] = Field(
        default=(),
        description="Outputs whose memory belongs to nothing else, so that `run.py` returns them without a "
        "copy. Others may be inputs, state or constants of the library.",
    )
    dynamic: DynamicShapes = Field(
        default=DynamicShapes(),
        description="Dynamic sizes, which each run chooses; `inputs` and `outputs` show those of the "
        "reference.",
    )
    reference: Reference = Reference()
    tolerances: tuple[OutputTolerance, ...] = Field(
        default=(), description="The tolerances of the verification; other outputs must be equal."
    )


class Manifest(EntryPoint):
    """The contents of a bundle, with its first entry point. ``run.py`` needs nothing else."""

    schema_version: Literal[1] = 1
    model: Digest = Field(description="The SHA-256 of the compiled model.")
    target: ResolvedTarget = Field(description="The target of the library; `cores` is its number of threads.")
    verified: bool = Field(
        default=True, description="Whether the library's outputs were compared with the model's."
    )
    entries: tuple[EntryPoint, ...] = Field(
        default=(), description="The other entry points. Tensors of the same name in `state` are one tensor."
    )
    library: BundlePath = LIBRARY
    program: BundlePath | None = Field(
        default=None,
        description="The program that runs the library without Python and TVM; null if there is none. "
        "`bessemer_model.h` describes the same functions for C.",
    )
    runtime_libraries: tuple[BundlePath, ...] = Field(
        default=(RUNTIME_LIBRARY,),
        description="Libraries to load before the library, in this order. Without `libtvm_ffi.so`, because "
        "the Python package apache-tvm-ffi contains it.",
    )
    parameters: SeparateParameters | None = Field(
        default=None, description="Parameters stored beside the library; null if the library contains them."
    )
    held_parameters: HeldParameters | None = Field(
        default=None, description="Large parameters in the library; null if it has none."
    )
    functions: tuple[str, ...] = Field(
        default=(),
        description="Packed functions that the library calls and that the bundle does not contain: register "
        "them with tvm-ffi before the first run, or give `run.py` a file that defines them.",
    )
    versions: dict[str, str] = Field(
        description="Versions of the packages that built the library, by package name."
    )
    files: tuple[BundleFile, ...] = Field(
        description="All files of the bundle except `manifest.json`, `SHA256SUMS`, `provenance.intoto.json` "
        "and `provenance.dsse.json`."
    )
    created_at: datetime

    @property
    def entry_points(self) -> tuple[EntryPoint, ...]:
        """All entry points, in order."""
        return (self, *self.entries)

    @property
    def states(self) -> tuple[StateTensor, ...]:
        """The state of all entry points, each tensor once."""
        return tuple({state.name: state for entry in self.entry_points for state in entry.state}.values())
