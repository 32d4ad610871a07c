"""The ``README.md`` of a bundle."""

from collections.abc import Iterable, Iterator
from textwrap import fill

from bessemer.bundle.manifest import EXAMPLES_FOLDER, HEADER, RUNNER, STATIC_LIBRARY, TYPED_HEADER, Manifest
from bessemer.contract.dynamic import DynamicAxis, shown_shape
from bessemer.contract.target import CUDA_VERSION
from bessemer.contract.tensor import TensorSpec
from worker.package.c_package.header import example_call
from worker.package.program import program

_TEMPLATE = """\
# A compiled model

Bessemer {bessemer} compiled this from the model {model} for {target} ({hardware}){verified}
`report.html` describes the compilation.

{tensors}

## Check it

    sha256sum --check SHA256SUMS
    bessemer verify-bundle .

The second command is Bessemer's. It also checks `provenance.intoto.json`, which says how this was made, and
with `--key` who signed it. `sbom.cdx.json` is the bill of materials.

{program_chapter}{python_chapter}"""

_WIDTH = 110

_VERIFIED = """
and verified it against the original."""

_NOT_VERIFIED = """.

**Nothing has run this library**, since the request asked for no verification. Before you rely on it, run it
on its own hardware{check}
"""

_PYTHON = """\
## Run it from the command line

You need only Python with NumPy and apache-tvm-ffi:

    pip install numpy apache-tvm-ffi=={tvm_ffi}
    python run.py{functions}
    python run.py{functions} {arguments} --output result.npz
    python run.py{functions} --repeat 200
    python run.py --list

Without `--input`, `run.py` runs the reference inputs and compares its outputs with the original model's.

## Run it from Python

```python
from run import load

model = load("."{functions_argument})
outputs = model.run(model.reference_inputs())
```

{call}{entries}Before it maps `{library}` and the runtime, `load` checks their sizes and SHA-256 digests,
except for the bytes of large parameters. `sha256sum -c SHA256SUMS` checks everything. Processes that run
the model share its parameters; `load(".", huge_pages=True)` copies large ones to huge pages instead.

{state}## Call it from several threads

{callers} Sessions share the library and its parameters: each takes the memory of a call's intermediate
results.

Each concurrent call has its own `TVM_NUM_THREADS` threads: {cores}, unless you set the variable before
you load the model. To serve many calls at once, set it to 1 and use one calling thread per core.{pools}

## Run it from C++

Install apache-tvm-ffi, which includes the headers, and save this as `main.cc` in a copy of this folder:
`bessemer verify-bundle` rejects files that the bundle does not list.

```cpp
{program}```

Compile it and run it on the reference inputs:

    g++ -O2 main.cc -o main $(tvm-ffi-config --cxxflags) -Llib -Wl,-rpath,'$ORIGIN/lib' \\
        -Wl,--no-as-needed {libraries} -ltvm_ffi
{commands}

The program finds the library beside itself, so you can start it from any folder. Set `TVM_NUM_THREADS`:
without it, the runtime uses half of the processor's threads. To call from several threads, load the library
once and make a `Session` in each thread.
"""

_PROGRAM = """\
## Run it without Python

`run` needs only the system's C library:

    ./run
    ./run {arguments} --output result.npz
    ./run --repeat 200

Without inputs, it runs the reference inputs and compares the outputs with the original model's; `--help`
lists its options.

## Call it from C, C++, Python, Rust

`{library}` has a plain C interface and depends on the system's C library alone. `{header}` declares it:
sessions with state, threads and memory of their own, and the names, types and sizes of all tensors.
`{typed}` adds a function for each entry point with the model's own names:

```c
{example}
```

`{examples}` has a program in each language, with the command that builds it in its first lines, and a project
for CMake, which finds the bundle by `find_package(bessemer_model CONFIG REQUIRED PATHS BUNDLE)` and links
`bessemer::model`, or `bessemer::model_static` if the bundle has `{archive}`. Build outside this folder:
`bessemer verify-bundle` rejects files that the bundle does not list.

"""

_NO_PROGRAM = """\
## There is no `run` and no C interface

They need a model of fixed sizes whose kernels do not call TVM's runtime. This bundle has neither{reason}.

"""

_NO_PYTHON = """\
## There is no `run.py`

It loads TVM's runtime for {triple}, which the worker that compiled this does not have. {instead}
"""

_GPU = """\
## Run it on the GPU

The kernels are machine code for {gpus}. They need NVIDIA's driver for CUDA {cuda} or newer, and no toolkit.
`./run` and `bessemer_model_run` copy inputs to the GPU and outputs back. To keep tensors there, call
`bessemer_model_run_on_device` with their addresses and a stream, or use any Python package with DLPack:

    pip install numpy apache-tvm-ffi=={tvm_ffi}

```python
import torch
from run import load

session = load(".").gpu_session()
inputs = {{{inputs}}}
outputs = session.run(inputs, stream=torch.cuda.current_stream().cuda_stream)
result = torch.from_dlpack(outputs["{output}"])
```

`session.bind(inputs, outputs)` returns a function that starts the same run again, as one recorded graph.
`python run.py` runs the reference inputs and compares, as `./run` does.

"""

_CALL = """\
`model` is also a function of the original's own arguments. It returns the original's own result:

    {signatures}

"""

_ENTRIES = """\
The library has several entry points: {names}. They share its parameters and state. The first runs by default;
`model.run(inputs, entry="{other}")`, `python run.py --entry {other}` and `./main {other}` run another.

{signatures}

"""

_CALLERS = """\
Any number of Python threads may call `model.run` at once. Each call takes a session from a small pool."""

_POOLS = """ If you set
it higher, also set `TVM_BIND_THREADS=0`: otherwise every pool binds its threads to the same first cores. Keep
calling threads alive, for instance in a `ThreadPoolExecutor`: each new one starts a pool."""

_CALLERS_WITH_STATE = """\
Give each sequence of runs its own `model.session()`, which one thread uses at a time."""

_STATE = """\
## Its state

The model keeps {names} between runs. Each `model.run` continues from the previous one;
`model.reset()` returns to the beginning, and `model.state` gets or sets the state. For several sequences at
once, give each its own session:

```python
first, second = model.session(), model.session()
first.run(inputs)
```

On the command line, the result file includes the state after the run; `--input` also accepts state.

"""

_SEED = """\
The model draws random numbers, which follow from its input `{seed}`: equal seeds give equal results. If you
leave it out, `run.py` draws a new one for each run. `model.seed` is the last; the command line prints it and
adds it to the result. Repeat a run with `--input {seed}=7` or `model.run({{**inputs, "{seed}": 7}})`."""

_PARAMETERS = """\
Parameters: {count}, in `{file}`, under the model's own names. To use other weights of the same shapes, keep
the library and replace the file, or pass another with `python run.py --parameters FILE.safetensors`. Loading
calls the library's function `{prepare}` once, which packs and folds the parameters for the code."""


_FUNCTIONS = """\
The library calls {names}, which this bundle does not contain. `FILE.py` is a Python file whose `FUNCTIONS`
has them by name; each takes its arguments, then the tensor for the result, all by DLPack:

    FUNCTIONS = {{"{first}": lambda x, out: np.copyto(np.from_dlpack(out), np.from_dlpack(x))}}

The extension that defined them when the model was compiled is such a file, if it can be imported here."""


def readme(manifest: Manifest, no_program: str = "") -> str:
    """Explain how to check and run a bundle, with its own names and shapes.

    Args:
        manifest: the bundle's.
        no_program: why the bundle has no program, if it has none; the sentence's subject is "it", the model.
    """
    text = _TEMPLATE.format(
        bessemer=manifest.versions["bessemer"],
        model=manifest.model[:12],
        target=manifest.target.name,
        hardware=_hardware(manifest),
        verified=_VERIFIED if manifest.verified else _NOT_VERIFIED.format(check=_check(manifest)),
        tensors="\n\n".join(_paragraphs(manifest)),
        program_chapter=_program(manifest, no_program),
        python_chapter=_python(manifest) if manifest.runtime_libraries else _without_runtime(manifest),
    )
    return _wrapped(text)


def _wrapped(text: str) -> str:
    """Wrap the paragraphs, whose parts have lengths of their own, and leave the code as it is."""
    prose_and_code = text.split("```")
    prose_and_code[::2] = (
        "\n\n".join(map(_wrapped_paragraph, prose.split("\n\n"))) for prose in prose_and_code[::2]
    )
    return "```".join(prose_and_code)


def _wrapped_paragraph(paragraph: str) -> str:
    words = paragraph.strip("\n")
    if not words or words.startswith(("#", "    ")):
        return paragraph
    filled = fill(words, _WIDTH, break_long_words=False, break_on_hyphens=False)
    return paragraph.replace(words, filled)


def _check(manifest: Manifest) -> str:
    """How to compare the library with the original model on other hardware."""
    program = f"./{manifest.program}" if manifest.program else RUNNER if manifest.runtime_libraries else None
    if program is None:
        return f" on `{manifest.reference.inputs}` and compare with `{manifest.reference.outputs}`."
    return f": `{program}` compares its outputs with the original model's."


def _hardware(manifest: Manifest) -> str:
    target = manifest.target
    return target.hardware if target.gpus else f"{target.mcpu}, {target.cores} threads"


def _python(manifest: Manifest) -> str:
    """How to run the library on TVM's runtime, which the bundle contains."""
    return _PYTHON.format(
        cores=manifest.target.cores,
        tvm_ffi=manifest.versions["apache-tvm-ffi"],
        functions=" --functions FILE.py" if manifest.functions else "",
        functions_argument=', functions="FILE.py"' if manifest.functions else "",
        arguments=_arguments(manifest),
        program=program(manifest),
        call=_call(manifest),
        entries=_entries(manifest),
        library=manifest.library,
        pools="" if manifest.program else _POOLS,
        callers=_CALLERS_WITH_STATE if manifest.states else _CALLERS,
        state=_STATE.format(names=", ".join(f"`{spec}`" for spec in manifest.states))
        if manifest.states
        else "",
        commands="\n".join(_program_commands(manifest)),
        libraries=" ".join(_link_flag(path) for path in manifest.runtime_libraries),
    )


def _without_runtime(manifest: Manifest) -> str:
    """How to run the library where the bundle does not contain TVM's runtime."""
    if manifest.target.gpus:
        return _gpu(manifest)
    instead = (
        f"TVM's own runtime for that platform can load `{manifest.library}`."
        if manifest.program is None
        else "Use `run` or the C interface."
    )
    return _NO_PYTHON.format(triple=manifest.target.triple, instead=instead)


def _gpu(manifest: Manifest) -> str:
    """How to run a library for GPUs on tensors in the GPU's memory."""
    return _GPU.format(
        gpus=", ".join(manifest.target.gpus),
        cuda=CUDA_VERSION,
        tvm_ffi=manifest.versions["apache-tvm-ffi"],
        inputs=", ".join(f'"{spec.name}": {spec.name}.cuda().contiguous()' for spec in manifest.inputs),
        output=manifest.outputs[0].name if manifest.outputs else "output",
    )


def _program(manifest: Manifest, no_program: str) -> str:
    if manifest.program is None:
        return _NO_PROGRAM.format(reason=f": {no_program}" if no_program else "")
    return _PROGRAM.format(
        arguments=_arguments(manifest),
        header=HEADER,
        library=manifest.library,
        typed=TYPED_HEADER,
        examples=EXAMPLES_FOLDER,
        example=example_call(manifest),
        archive=STATIC_LIBRARY,
    )


def _arguments(manifest: Manifest) -> str:
    return " ".join(f"--input {spec.name}={spec.name}.npy" for spec in manifest.inputs)


def _call(manifest: Manifest) -> str:
    """How to call the entry points that take or return containers."""
    lines = [
        f"{'model' if entry is manifest else entry.name}{entry.call}"
        for entry in manifest.entry_points
        if entry.call is not None and entry.call.returns is not None and not entry.call.is_flat
    ]
    return _CALL.format(signatures="\n    ".join(lines)) if lines else ""


def _program_commands(manifest: Manifest) -> Iterator[str]:
    """Run the C++ program on the reference inputs of each entry point."""
    for entry in manifest.entry_points:
        folder = f"inputs/{entry.name}" if manifest.entries else "inputs"
        arguments = [entry.name] if manifest.entries else []
        arguments += [f"{folder}/{spec.name}.npy" for spec in entry.inputs]
        yield f"    python -m zipfile -e {entry.reference.inputs} {folder}"
        yield f"    TVM_NUM_THREADS={manifest.target.cores} ./main {' '.join(arguments)}"


def _entries(manifest: Manifest) -> str:
    if not manifest.entries:
        return ""
    signatures = (
        line
        for entry in manifest.entries
        for line in (
            _tensors(f"Inputs of `{entry.name}`", entry.inputs, entry.dynamic.inputs),
            _tensors(f"Outputs of `{entry.name}`", entry.outputs, entry.dynamic.outputs),
        )
    )
    return _ENTRIES.format(
        names=", ".join(f"`{entry.name}`" for entry in manifest.entry_points),
        other=manifest.entries[0].name,
        signatures="\n\n".join(signatures),
    )


def _paragraphs(manifest: Manifest) -> Iterator[str]:
    yield _tensors("Inputs", manifest.inputs, manifest.dynamic.inputs)
    yield _tensors("Outputs", manifest.outputs, manifest.dynamic.outputs)
    if manifest.seed is not None:
        yield _SEED.format(seed=manifest.seed)
    separate = manifest.parameters
    if separate is not None:
        yield _PARAMETERS.format(count=len(separate.tensors), file=separate.file, prepare=separate.prepare)
    if manifest.functions:
        names = ", ".join(f"`{name}`" for name in manifest.functions)
        yield _FUNCTIONS.format(names=names, first=manifest.functions[0])
    if manifest.dynamic.dimensions:
        ranges = ", ".join(map(str, manifest.dynamic.dimensions))
        yield f"Each run may use any {ranges}. `run.py` refuses other sizes; C++ programs must check them."
    if manifest.dynamic.of_data:
        yield f"Each run finds its own {', '.join(map(str, manifest.dynamic.of_data))}, which may be 0."


def _tensors(title: str, specs: Iterable[TensorSpec], axes: tuple[DynamicAxis, ...]) -> str:
    return f"{title}: " + (", ".join(f"`{shown_shape(spec, axes)}`" for spec in specs) or "none")


def _link_flag(path: str) -> str:
    return "-l" + path.removeprefix("lib/lib").removesuffix(".so")
