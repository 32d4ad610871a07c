"""The ``README.md`` of a bundle."""

from collections.abc import Iterable, Iterator

from bessemer.bundle.manifest import Manifest
from bessemer.contract.dynamic import DynamicAxis, shown_shape
from bessemer.contract.tensor import TensorSpec

_TEMPLATE = """\
# A compiled model

Made by Bessemer {bessemer} from the model {model} for {target} ({mcpu}, {cores} threads),
and checked against it. `report.html` tells what was measured.

{tensors}

## Check it

    sha256sum --check SHA256SUMS

## Run it from the command line

Python with NumPy and apache-tvm-ffi is all it takes:

    pip install numpy apache-tvm-ffi=={tvm_ffi}
    python run.py
    python run.py {arguments} --output result.npz
    python run.py --repeat 200

Without `--input` the reference inputs are run and compared with what the original model made of them.

## Run it from Python

```python
from run import load

model = load(".")
outputs = model.run(model.reference_inputs())
```

## Run it from C++

With the headers of apache-tvm-ffi (`tvm-ffi-config --includedir`) as `main.cc` in this folder:

```cpp
{program}```

    g++ -std=c++17 main.cc -o main $(tvm-ffi-config --cxxflags) -Llib -Wl,-rpath,'$ORIGIN/lib' \\
        -Wl,--no-as-needed {libraries} -ltvm_ffi
    TVM_NUM_THREADS={cores} ./main

Set `TVM_NUM_THREADS`: without it, the runtime uses half of the processor's threads.
"""

_PROGRAM = """\
#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>

#include <vector>

namespace ffi = tvm::ffi;

int main() {{
  ffi::Module machine = ffi::Module::LoadFromFile("./model.so")
                            ->GetFunction("vm_load_executable").value()().cast<ffi::Module>();
  machine->GetFunction("vm_initialization").value()(static_cast<int>(kDLCPU), 0, 2);
  ffi::Function allocate = ffi::Function::GetGlobalRequired("runtime.TVMTensorAllocWithScope");
  DLDevice cpu{{kDLCPU, 0}};
{inputs}
{call}  // {outputs}
}}
"""

_CALL = """\
  ffi::Any result = machine->GetFunction("{entry}").value()({names});"""

_CALL_WITH_PARAMETERS = """\
  ffi::Array<ffi::Tensor> parameters;  // fill with the tensors of {file}, in the order of manifest.json
  auto prepared = machine->GetFunction("{prepare}").value()(parameters).cast<ffi::Array<ffi::Tensor>>();
  std::vector<ffi::AnyView> arguments{{{names}}};
  for (const ffi::Tensor& tensor : prepared) arguments.push_back(tensor);
  ffi::Any result;
  machine->GetFunction("{entry}").value().CallPacked(arguments.data(), arguments.size(), &result);"""

_PARAMETERS = """\
Parameters: {count}, in `{file}`, under the model's own names. Other weights of the same shapes need no
other library: replace the file, or name another with `python run.py --parameters FILE.safetensors`. Loading
prepares them once, by the library's function `{prepare}`: it packs and folds them as the code wants them."""


def readme(manifest: Manifest) -> str:
    """How to check and to run a bundle, with the names and shapes of this one."""
    return _TEMPLATE.format(
        bessemer=manifest.versions["bessemer"],
        model=manifest.model[:12],
        target=manifest.target.name,
        mcpu=manifest.target.mcpu,
        cores=manifest.target.cores,
        tensors="\n\n".join(_paragraphs(manifest)),
        tvm_ffi=manifest.versions["apache-tvm-ffi"],
        arguments=" ".join(f"--input {spec.name}={spec.name}.npy" for spec in manifest.inputs),
        program=_program(manifest),
        libraries=" ".join(_link_flag(path) for path in manifest.runtime_libraries),
    )


def _paragraphs(manifest: Manifest) -> Iterator[str]:
    yield _tensors("Inputs", manifest.inputs, manifest.dynamic.inputs)
    yield _tensors("Outputs", manifest.outputs, manifest.dynamic.outputs)
    separate = manifest.parameters
    if separate is not None:
        yield _PARAMETERS.format(count=len(separate.tensors), file=separate.file, prepare=separate.prepare)
    if manifest.dynamic.dimensions:
        yield f"Each run may choose {', '.join(map(str, manifest.dynamic.dimensions))}."


def _tensors(title: str, specs: Iterable[TensorSpec], axes: tuple[DynamicAxis, ...]) -> str:
    return f"{title}: " + (", ".join(f"`{shown_shape(spec, axes)}`" for spec in specs) or "none")


def _link_flag(path: str) -> str:
    return "-l" + path.removeprefix("lib/lib").removesuffix(".so")


def _program(manifest: Manifest) -> str:
    return _PROGRAM.format(
        inputs="\n".join(_allocation(index, spec) for index, spec in enumerate(manifest.inputs)),
        call=_call(manifest),
        outputs=", ".join(map(str, manifest.outputs)),
    )


def _call(manifest: Manifest) -> str:
    names = ", ".join(f"input{index}" for index in range(len(manifest.inputs)))
    separate = manifest.parameters
    if separate is None:
        return _CALL.format(entry=manifest.entry_point, names=names)
    return _CALL_WITH_PARAMETERS.format(
        entry=manifest.entry_point, names=names, file=separate.file, prepare=separate.prepare
    )


def _allocation(index: int, spec: TensorSpec) -> str:
    sizes = ", ".join(str(size) for size in spec.shape)
    return (
        f"  auto input{index} = allocate(ffi::Shape{{{sizes}}}, "
        f'ffi::StringToDLDataType("{spec.dtype.value}"), cpu, nullptr).cast<ffi::Tensor>();'
        f"  // {spec.name}: fill data_ptr()"
    )
