"""The C++ program in the ``README.md`` of a bundle."""

from string import Template
from textwrap import indent

from bessemer.bundle.manifest import EntryPoint, Manifest, SeparateParameters
from bessemer.contract.dynamic import shown_shape
from bessemer.contract.tensor import DType, TensorSpec
from worker.package.c_package.header import C_TYPES

_NPY_TYPES = {
    DType.FLOAT16: "<f2",
    DType.BFLOAT16: "<u2",
    DType.FLOAT32: "<f4",
    DType.FLOAT64: "<f8",
    DType.INT8: "|i1",
    DType.INT16: "<i2",
    DType.INT32: "<i4",
    DType.INT64: "<i8",
    DType.UINT8: "|u1",
    DType.BOOL: "|b1",
    DType.COMPLEX64: "<c8",
    DType.COMPLEX128: "<c16",
}
"""The types in the header of an ``.npy`` file; bfloat16 is stored as its bits."""

_CPP_TYPES = {**C_TYPES, DType.BOOL: "bool"}
"""The types to print elements with; C++17 has no 16-bit floats, so the program prints their bits.
Of complex numbers, it prints the real and the imaginary part."""

_PROGRAM = Template("""\
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/container/tensor.h>
${json_header}#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace ffi = tvm::ffi;
namespace fs = std::filesystem;

using Tensors = std::vector<ffi::Tensor>;
${functions}
ffi::Tensor Allocate(const std::vector<int64_t>& shape, const std::string& dtype) {
  static ffi::Function allocate = ffi::Function::GetGlobalRequired("runtime.TVMTensorAllocWithScope");
  return allocate(ffi::Shape(shape), ffi::StringToDLDataType(dtype), DLDevice{kDLCPU, 0}, nullptr)
      .cast<ffi::Tensor>();
}

// Reads a file written by numpy.save. The header looks like: 'descr': '<f4', ..., 'shape': (1, 784).
ffi::Tensor ReadNpy(const std::string& path, const std::string& descr, const std::string& dtype) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot open " + path);
  unsigned char start[10] = {};
  file.read(reinterpret_cast<char*>(start), sizeof(start));
  std::string header(start[8] + 256 * start[9], ' ');
  file.read(header.data(), header.size());
  size_t open = header.find('('), close = header.find(')');
  if (!file || std::memcmp(start, "\\x93NUMPY\\x01", 7) != 0 || close == std::string::npos)
    throw std::runtime_error(path + " is not a .npy file");
  if (header.find("'" + descr + "', 'fortran_order': False") == std::string::npos)
    throw std::runtime_error(path + " does not hold " + dtype + " in C order");
  std::vector<int64_t> shape;
  std::istringstream sizes(header.substr(open + 1, close - open - 1));
  for (int64_t size; sizes >> size; sizes.ignore()) shape.push_back(size);
  if (descr[1] == 'c') shape.push_back(2);  // complex numbers: the real and the imaginary part
  ffi::Tensor tensor = Allocate(shape, dtype);
  if (!file.read(static_cast<char*>(tensor.data_ptr()), ffi::GetDataSize(tensor)))
    throw std::runtime_error(path + " is truncated");
  return tensor;
}

std::string Shown(ffi::ShapeView shape) {
  std::string text;
  for (int64_t size : shape) text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "(" + text + (shape.size() == 1 ? ",)" : ")");
}

// Reads an input whose sizes the library knows, except those that are dynamic: -1.
ffi::Tensor ReadInput(const std::string& path, const std::string& descr, const std::string& dtype,
                      const std::vector<int64_t>& sizes, const std::string& expected) {
  ffi::Tensor tensor = ReadNpy(path, descr, dtype);
  ffi::ShapeView shape = tensor.shape();
  if (descr[1] == 'c') shape = ffi::ShapeView(shape.data(), shape.size() - 1);
  auto same = [](int64_t size, int64_t known) { return known < 0 || size == known; };
  if (!std::equal(shape.begin(), shape.end(), sizes.begin(), sizes.end(), same))
    throw std::runtime_error(path + " has the shape " + Shown(shape) + ", expected " + expected);
  return tensor;
}

void Flatten(const ffi::Any& value, Tensors* tensors) {
  if (auto tensor = value.as<ffi::Tensor>()) {
    tensors->push_back(*tensor);
  } else {
    for (const ffi::Any& part : value.cast<ffi::Array<ffi::Any>>()) Flatten(part, tensors);
  }
}

// Runs one call at a time: give each thread its own session. Sessions share the library and its parameters.
class Session {
 public:
  explicit Session(const ffi::Module& library${state_parameter}${parameter})
      : machine_(library->GetFunction("vm_load_executable").value()().cast<ffi::Module>())${member} {
    machine_->GetFunction("vm_initialization").value()(static_cast<int>(kDLCPU), 0, 2);
${find_main}${read_state}  }

  Tensors Run(${run_parameters}) {
    std::vector<ffi::AnyView> arguments(inputs.begin(), inputs.end());
${pass_state}${bind}    ffi::Any result;
    ${called}.CallPacked(arguments.data(), arguments.size(), &result);
    Tensors outputs;
    Flatten(result, &outputs);
${keep_state}    return outputs;
  }

 private:
  ffi::Module machine_;
${state_field}${field}${main_field}};

${prepare}template <typename T>
void Print(const std::string& name, const ffi::Tensor& tensor) {
  auto data = reinterpret_cast<const T*>(static_cast<char*>(tensor.data_ptr()) + tensor.byte_offset());
  std::cout << name << ":";
  for (int64_t i = 0; i < std::min<int64_t>(tensor.numel(), 16); ++i) std::cout << " " << +data[i];
  std::cout << (tensor.numel() > 16 ? " ...\\n" : "\\n");
}

int main(int argc, char** argv) try {
${register}${check}  fs::path folder = fs::canonical("/proc/self/exe").parent_path();
  ffi::Module library = ffi::Module::LoadFromFile((folder / "${library}").string());
${load}  Session session(library${state_argument}${argument});
${body}
} catch (const std::exception& error) {
  std::cerr << error.what() << "\\n";
  return 1;
}
""")

_PREPARE = Template("""\
// Reads the parameters in the order of manifest.json, and prepares them for the library's code.
ffi::Array<ffi::Tensor> Prepare(const ffi::Module& library, const fs::path& folder) {
  namespace json = ffi::json;
  std::ifstream text(folder / "manifest.json");
  std::stringstream manifest;
  manifest << text.rdbuf();
  std::ifstream file(folder / "${file}", std::ios::binary);
  uint64_t length = 0;
  file.read(reinterpret_cast<char*>(&length), sizeof(length));
  std::string header(length, ' ');
  file.read(header.data(), length);
  auto places = json::Parse(header).cast<json::Object>();
  auto separate = json::Parse(manifest.str()).cast<json::Object>()["parameters"].cast<json::Object>();
  ffi::Array<ffi::Tensor> parameters;
  for (const ffi::Any& each : separate["tensors"].cast<json::Array>()) {
    auto spec = each.cast<json::Object>();
    std::vector<int64_t> shape;
    for (const ffi::Any& size : spec["shape"].cast<json::Array>()) shape.push_back(size.cast<int64_t>());
    ffi::Tensor tensor = Allocate(shape, spec["dtype"].cast<std::string>());
    auto place = places[spec["name"]].cast<json::Object>()["data_offsets"].cast<json::Array>();
    file.seekg(sizeof(length) + length + place[0].cast<int64_t>());
    if (!file.read(static_cast<char*>(tensor.data_ptr()), ffi::GetDataSize(tensor)))
      throw std::runtime_error("${file} is truncated");
    parameters.push_back(tensor);
  }
  auto machine = library->GetFunction("vm_load_executable").value()().cast<ffi::Module>();
  machine->GetFunction("vm_initialization").value()(static_cast<int>(kDLCPU), 0, 2);
  return machine->GetFunction("${function}").value()(parameters).cast<ffi::Array<ffi::Tensor>>();
}

""")


_FUNCTIONS = Template("""
// Write these functions, which the library calls. Arguments come first, the tensor for the result last.
${definitions}
void Register(const char* name, TVMFFISafeCallType call) {
  TVMFFIObjectHandle function;
  TVMFFIByteArray key{name, std::strlen(name)};
  if (TVMFFIFunctionCreate(nullptr, call, nullptr, &function) != 0 ||
      TVMFFIFunctionSetGlobal(&key, function, 1) != 0)
    throw std::runtime_error(std::string("cannot register ") + name);
  TVMFFIObjectDecRef(function);
}
""")

_FUNCTION = Template("""\
int Function${number}(void*, const TVMFFIAny* arguments, int32_t count, TVMFFIAny*) {  // ${name}
  auto in = ffi::AnyView::CopyFromTVMFFIAny(arguments[0]).cast<DLTensor*>();
  auto out = ffi::AnyView::CopyFromTVMFFIAny(arguments[count - 1]).cast<DLTensor*>();
  (void)in, (void)out;
  TVMFFIErrorSetRaisedFromCStr("RuntimeError", "${name} is not written yet");
  return -1;
}
""")


def program(manifest: Manifest) -> str:
    """A C++ program that runs the library on ``.npy`` files and prints its outputs."""
    parts = _several_entries(manifest) if manifest.entries else _one_entry(manifest)
    return _PROGRAM.substitute(
        _parameter_parts(manifest.parameters) | _state_fields(manifest) | _function_parts(manifest) | parts,
        library=manifest.library,
    )


def _function_parts(manifest: Manifest) -> dict[str, str]:
    """The functions that the library calls, to be filled in, and their registration."""
    if not manifest.functions:
        return {"functions": "", "register": ""}
    numbered = tuple(enumerate(manifest.functions, 1))
    definitions = "".join(_FUNCTION.substitute(number=number, name=name) for number, name in numbered)
    return {
        "functions": _FUNCTIONS.substitute(definitions=definitions),
        "register": "".join(f'  Register("{name}", Function{number});\n' for number, name in numbered),
    }


def _one_entry(manifest: Manifest) -> dict[str, str]:
    """The parts of a program that runs the only entry point."""
    usage = "".join(f" {spec.name}.npy" for spec in manifest.inputs)
    count = len(manifest.outputs)
    state = {
        "pass_state": "    arguments.insert(arguments.end(), state_.begin(), state_.end());\n",
        "keep_state": f"    state_.assign(outputs.begin() + {count}, outputs.end());\n"
        f"    outputs.resize({count}, outputs.front());\n",
    }
    return {
        "run_parameters": "const Tensors& inputs",
        "find_main": f'    main_ = machine_->GetFunction("{manifest.entry_point}").value();\n',
        "called": "main_",
        "main_field": "  ffi::Function main_;\n",
        "check": f"  if (argc != {len(manifest.inputs) + 1}) "
        f'throw std::runtime_error("usage: main{usage}");\n',
        "body": f"  Tensors inputs{{\n{_inputs(manifest, 1)}\n  }};\n"
        f"  Tensors outputs = session.Run(inputs);\n{_prints(manifest)}",
        **(state if manifest.state else dict.fromkeys(state, "")),
    }


def _several_entries(manifest: Manifest) -> dict[str, str]:
    """The parts of a program whose first argument names the entry point to run."""
    entries = manifest.entry_points
    usage = " | ".join(
        " ".join((entry.name, *(f"{spec.name}.npy" for spec in entry.inputs))) for entry in entries
    )
    places = {state.name: index for index, state in enumerate(manifest.states)}
    state = {
        "pass_state": "    for (size_t index : states) arguments.push_back(state_[index]);\n",
        "keep_state": "    size_t count = outputs.size() - states.size();\n"
        "    for (size_t i = 0; i < states.size(); ++i) state_[states[i]] = outputs[count + i];\n"
        "    outputs.resize(count, outputs.front());\n",
    }

    def branch(entry: EntryPoint) -> str:
        used = ", ".join(str(places[state.name]) for state in entry.state)
        states = f", {{{used}}}" if places else ""
        return (
            f'if (entry == "{entry.name}" && argc == {len(entry.inputs) + 2}) {{\n'
            f"  Tensors inputs{{\n{_inputs(entry, 2)}\n  }};\n"
            f'  Tensors outputs = session.Run("{entry.entry_point}", inputs{states});\n{_prints(entry)}\n'
            "  return 0;\n}"
        )

    states = ", const std::vector<size_t>& states" if places else ""
    return {
        "run_parameters": f"const std::string& function, const Tensors& inputs{states}",
        "find_main": "",
        "called": "machine_->GetFunction(function).value()",
        "main_field": "",
        "check": '  std::string entry = argc > 1 ? argv[1] : "";\n',
        "body": indent("\n".join(map(branch, entries)), "  ")
        + f'\n  throw std::runtime_error("usage: main {usage}");',
        **(state if places else dict.fromkeys(state, "")),
    }


def _parameter_parts(separate: SeparateParameters | None) -> dict[str, str]:
    if separate is None:
        return dict.fromkeys(
            ("json_header", "parameter", "member", "bind", "field", "prepare", "load", "argument"), ""
        )
    return {
        "json_header": "#include <tvm/ffi/extra/json.h>\n",
        "parameter": ", const ffi::Array<ffi::Tensor>& parameters",
        "member": ",\n        parameters_(parameters)",
        "bind": "    for (const ffi::Tensor& parameter : parameters_) arguments.push_back(parameter);\n",
        "field": "  ffi::Array<ffi::Tensor> parameters_;\n",
        "prepare": _PREPARE.substitute(file=separate.file, function=separate.prepare),
        "load": "  ffi::Array<ffi::Tensor> parameters = Prepare(library, folder);\n",
        "argument": ", parameters",
    }


def _state_fields(manifest: Manifest) -> dict[str, str]:
    if not manifest.states:
        return dict.fromkeys(("state_parameter", "state_field", "state_argument", "read_state"), "")
    files = "\n".join(
        f'        ReadNpy((folder / "{state.file}").string(), {_types(state)}),  // {state}'
        for state in manifest.states
    )
    return {
        "state_parameter": ", const fs::path& folder",
        "state_field": "  Tensors state_;  // the library may write to it\n",
        "state_argument": ", folder",
        "read_state": f"    state_ = {{\n{files}\n    }};\n",
    }


def _inputs(entry: EntryPoint, first: int) -> str:
    """Read the inputs from the program's arguments, which begin with number ``first``."""
    dynamic = {(axis.tensor, axis.axis) for axis in entry.dynamic.inputs}

    def read(index: int, spec: TensorSpec) -> str:
        sizes = (-1 if (spec.name, axis) in dynamic else int(size) for axis, size in enumerate(spec.shape))
        shape = ", ".join(map(str, sizes))
        expected = shown_shape(spec, entry.dynamic.inputs)
        return f'      ReadInput(argv[{index}], {_types(spec)}, {{{shape}}}, "{expected}"),'

    return "\n".join(read(index, spec) for index, spec in enumerate(entry.inputs, first))


def _types(spec: TensorSpec) -> str:
    """The types of the file's and of the tensor's elements."""
    return f'"{_NPY_TYPES[spec.dtype]}", "{spec.dtype.part}"'


def _prints(entry: EntryPoint) -> str:
    return "\n".join(
        f'  Print<{_CPP_TYPES[spec.dtype]}>("{spec.name}", outputs.at({index}));'
        for index, spec in enumerate(entry.outputs)
    )
