// Runs the model's first entry point on zeros, in C++:
//
//   BUNDLE=/path/to/the/bundle
//   c++ -std=c++17 $BUNDLE/examples/main.cc -I$BUNDLE $BUNDLE/model.so -Wl,-rpath,$BUNDLE -o main && ./main
//
// Build outside the bundle: `bessemer verify-bundle` rejects files that the bundle does not list.
#include <cstddef>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <vector>

#include "bessemer_model.h"

// A session: state, memory and threads of its own.
class Model {
 public:
  explicit Model(int32_t threads = 0) : model_(bessemer_model_open(threads), bessemer_model_close) {
    if (!model_) throw std::runtime_error(bessemer_model_error());
  }

  // Runs an entry point: one buffer for each input, in order; returns one for each output.
  std::vector<std::vector<std::byte>> run(const std::vector<std::vector<std::byte>> &inputs, int32_t entry = 0) {
    const bessemer_entry &called = bessemer_model_entries(nullptr)[entry];
    std::vector<std::vector<std::byte>> outputs;
    std::vector<const void *> given;
    std::vector<void *> made;
    for (const auto &input : inputs) given.push_back(input.data());
    for (int32_t i = 0; i < called.output_count; i++) outputs.emplace_back(called.outputs[i].bytes);
    for (auto &output : outputs) made.push_back(output.data());
    if (bessemer_model_run(model_.get(), entry, given.data(), made.data()))
      throw std::runtime_error(bessemer_model_error());
    return outputs;
  }

 private:
  std::unique_ptr<bessemer_model, decltype(&bessemer_model_close)> model_;
};

int main() {
  const bessemer_entry &entry = bessemer_model_entries(nullptr)[0];
  std::vector<std::vector<std::byte>> inputs;
  for (int32_t i = 0; i < entry.input_count; i++) inputs.emplace_back(entry.inputs[i].bytes);
  const auto outputs = Model().run(inputs);
  for (int32_t i = 0; i < entry.output_count; i++)
    std::cout << entry.outputs[i].name << ": " << entry.outputs[i].dtype << ", " << outputs[i].size() << " bytes\n";
}
