/* Runs a model's kernels on an NVIDIA GPU.
 *
 *   first session of a process:   load the driver, the machine code and the parameters, once for all sessions
 *   open:   an arena and the states in the GPU's memory, and a stream
 *   run:    copy the inputs to the GPU
 *           start all kernels as one graph, which the first run records
 *           copy the outputs and wait
 *
 * A kernel's arguments are addresses in a table, one for each tensor, so another input is another address.
 */
#include "cuda_driver.h"
#include "plan.h"
#include "system.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MESSAGE_BYTES 512
#define NAME_BYTES 128
#define STATIC_SHARED_BYTES (48 << 10)
#define CUDA_DEVICE 2 /* kDLCUDA of dlpack.h */

typedef struct {
  cuda_driver driver;
  int device;
  void *context;
  void *module;
  void **kernels;
  cuda_address parameters;
  int sessions;
} gpu_state;

typedef struct {
  cuda_address *addresses; /* of each tensor */
  void **arguments;        /* pointers to addresses, for all launches */
  cuda_address *staged;    /* the session's own memory for inputs that come from the host */
  cuda_address *recorded;  /* the addresses of the inputs and outputs that the graph has */
  cuda_address *last;      /* those of the last run */
  void *graph;
} prepared_entry;

struct bessemer_model {
  cuda_address arena;
  cuda_address *states;
  prepared_entry *entries;
  void *stream;
};

static gpu_state gpu;
static pthread_mutex_t gpu_lock = PTHREAD_MUTEX_INITIALIZER;

static int fail(const char *message) {
  bessemer_set_error("RuntimeError", &message, 1);
  return -1;
}

static void *allocate_array(size_t count, size_t size) { return calloc(count ? count : 1, size); }

/* The driver's number is kept: its meaning is in cuda.h. */
static int fail_at(const char *step, cuda_result result) {
  char message[MESSAGE_BYTES];
  snprintf(message, sizeof(message), "the GPU failed to %s (CUDA error %d)", step, result);
  return fail(message);
}

static int check(const char *step, cuda_result result) { return result ? fail_at(step, result) : 0; }

static int load_driver(void) {
  static const char *const symbols[] = {
#define CUDA_SYMBOL(name, symbol, parameters) symbol,
      CUDA_FUNCTIONS(CUDA_SYMBOL)};
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return fail("this library computes on an NVIDIA GPU, and its driver (libcuda.so.1) is not installed here");
  void **functions = (void **)&gpu.driver;
  for (size_t i = 0; i < sizeof(symbols) / sizeof(*symbols); i++) {
    functions[i] = dlsym(library, symbols[i]);
    if (functions[i]) continue;
    char message[MESSAGE_BYTES];
    snprintf(message, sizeof(message), "NVIDIA's driver is too old: it lacks %s", symbols[i]);
    return fail(message);
  }
  return 0;
}

static int fail_to_load(cuda_result result) {
  char message[MESSAGE_BYTES], name[NAME_BYTES] = "";
  int major = 0, minor = 0, version = 0;
  gpu.driver.device_name(name, NAME_BYTES, gpu.device);
  gpu.driver.device_attribute(&major, CUDA_MAJOR, gpu.device);
  gpu.driver.device_attribute(&minor, CUDA_MINOR, gpu.device);
  gpu.driver.driver_version(&version);
  if (result == CUDA_OUT_OF_MEMORY) return fail("out of memory on the GPU: its machine code did not fit");
  snprintf(message, sizeof(message),
           "the GPU (%s, sm_%d%d, driver for CUDA %d.%d) cannot run this library, which has code for %s and was "
           "made by CUDA %s: compile it for sm_%d%d, or update the driver (CUDA error %d)",
           name, major, minor, version / 1000, version % 1000 / 10, bessemer_gpu_architectures,
           bessemer_cuda_version, major, minor, result);
  return fail(message);
}

static int fail_to_allocate(const char *what, uint64_t bytes, cuda_result result) {
  char message[MESSAGE_BYTES];
  size_t available = 0, total = 0;
  if (result != CUDA_OUT_OF_MEMORY) return fail_at("allocate memory", result);
  gpu.driver.memory_info(&available, &total);
  snprintf(message, sizeof(message), "out of memory on the GPU: %llu MiB are needed for %s, and %llu of %llu MiB are free",
           (unsigned long long)(bytes >> 20), what, (unsigned long long)(available >> 20),
           (unsigned long long)(total >> 20));
  return fail(message);
}

static int allocate(cuda_address *made, const char *what, uint64_t bytes) {
  cuda_result result = gpu.driver.allocate(made, bytes ? bytes : 1);
  return result ? fail_to_allocate(what, bytes, result) : 0;
}

static void release(cuda_address memory) {
  if (memory) gpu.driver.release(memory);
}

static int find_kernels(void) {
  for (int32_t i = 0; i < bessemer_gpu_kernel_count; i++) {
    const bessemer_gpu_kernel *kernel = &bessemer_gpu_kernels[i];
    if (check("find a kernel", gpu.driver.module_function(&gpu.kernels[i], gpu.module, kernel->name))) return -1;
    if (kernel->shared_bytes <= STATIC_SHARED_BYTES) continue;
    cuda_result result =
        gpu.driver.function_set(gpu.kernels[i], CUDA_MAX_DYNAMIC_SHARED, (int)kernel->shared_bytes);
    if (check("reserve shared memory", result)) return -1;
  }
  return 0;
}

static int load_kernels(void) {
  cuda_result result = gpu.driver.module_load(&gpu.module, bessemer_gpu_code);
  if (result) return fail_to_load(result);
  gpu.kernels = allocate_array((size_t)bessemer_gpu_kernel_count, sizeof(void *));
  if (!gpu.kernels) return fail("out of memory");
  if (!find_kernels()) return 0;
  free(gpu.kernels);
  gpu.kernels = NULL;
  return -1;
}

static int load_gpu(void) {
  if (gpu.context) return check("use its context", gpu.driver.context_push(gpu.context));
  if (load_driver()) return -1;
  cuda_result result = gpu.driver.init(0);
  if (result == CUDA_NO_DEVICE) return fail("this library computes on an NVIDIA GPU, and none is visible here");
  if (check("start", result) || check("open", gpu.driver.device_get(&gpu.device, 0))) return -1;
  if (check("make a context", gpu.driver.context_retain(&gpu.context, gpu.device))) return -1;
  return check("use its context", gpu.driver.context_push(gpu.context));
}

static int load_parameters(void *stream) {
  if (gpu.parameters) return 0;
  if (allocate(&gpu.parameters, "the parameters", bessemer_parameter_bytes)) return -1;
  cuda_result result = gpu.driver.to_device(gpu.parameters, bessemer_parameters, bessemer_parameter_bytes, stream);
  return check("copy the parameters", result);
}

static void leave_gpu(void) {
  void *left;
  gpu.driver.context_pop(&left);
}

static cuda_address place(const bessemer_model *model, const bessemer_planned_tensor *planned) {
  switch (planned->memory) {
  case BESSEMER_ARENA:
    return model->arena + planned->number;
  case BESSEMER_PARAMETER:
    return gpu.parameters + planned->number;
  default:
    return 0;
  }
}

static int prepare(const bessemer_model *model, int32_t index) {
  const bessemer_plan *plan = &bessemer_plans[index];
  const bessemer_entry *described = &bessemer_entries[index];
  prepared_entry *entry = &model->entries[index];
  size_t ends = (size_t)(described->input_count + described->output_count + plan->state_count);
  entry->addresses = allocate_array((size_t)plan->tensor_count, sizeof(cuda_address));
  entry->arguments = allocate_array((size_t)plan->argument_count, sizeof(void *));
  entry->staged = allocate_array((size_t)described->input_count, sizeof(cuda_address));
  entry->recorded = allocate_array(ends, sizeof(cuda_address));
  entry->last = allocate_array(ends, sizeof(cuda_address));
  if (!entry->addresses || !entry->arguments || !entry->staged || !entry->recorded || !entry->last)
    return fail("out of memory");
  for (int32_t i = 0; i < plan->tensor_count; i++) entry->addresses[i] = place(model, &plan->tensors[i]);
  for (int32_t i = 0; i < plan->argument_count; i++) entry->arguments[i] = &entry->addresses[plan->arguments[i]];
  return 0;
}

static int reset(bessemer_model *model) {
  for (int32_t i = 0; i < bessemer_state_count; i++) {
    size_t bytes = bessemer_states[i].bytes;
    cuda_result result = bessemer_initial_states[i]
                             ? gpu.driver.to_device(model->states[i], bessemer_initial_states[i], bytes, model->stream)
                             : gpu.driver.clear(model->states[i], 0, bytes, model->stream);
    if (check("reset a state", result)) return -1;
  }
  return check("reset the states", gpu.driver.stream_wait(model->stream));
}

static int open_session(bessemer_model *model) {
  if (check("make a stream", gpu.driver.stream_create(&model->stream, CUDA_NON_BLOCKING))) return -1;
  if (load_parameters(model->stream)) return -1;
  if (allocate(&model->arena, "a run", bessemer_arena_bytes)) return -1;
  model->states = allocate_array((size_t)bessemer_state_count, sizeof(cuda_address));
  model->entries = allocate_array((size_t)bessemer_entry_count, sizeof(prepared_entry));
  if (!model->states || !model->entries) return fail("out of memory");
  for (int32_t i = 0; i < bessemer_state_count; i++)
    if (allocate(&model->states[i], bessemer_states[i].name, bessemer_states[i].bytes)) return -1;
  for (int32_t i = 0; i < bessemer_entry_count; i++)
    if (prepare(model, i)) return -1;
  return reset(model);
}

bessemer_model *bessemer_model_open(int32_t threads) {
  (void)threads;
  bessemer_model *model = allocate_array(1, sizeof(bessemer_model));
  if (!model) {
    fail("out of memory");
    return NULL;
  }
  pthread_mutex_lock(&gpu_lock);
  int failed = load_gpu(), opened = !failed;
  if (opened) {
    gpu.sessions++;
    failed = (!gpu.kernels && load_kernels()) || open_session(model);
    leave_gpu();
  }
  pthread_mutex_unlock(&gpu_lock);
  if (!failed) return model;
  if (opened) bessemer_model_close(model);
  else free(model);
  return NULL;
}

static void close_entry(prepared_entry *entry, int32_t inputs) {
  for (int32_t i = 0; entry->staged && i < inputs; i++) release(entry->staged[i]);
  if (entry->graph) gpu.driver.graph_exec_destroy(entry->graph);
  free(entry->addresses);
  free(entry->arguments);
  free(entry->staged);
  free(entry->recorded);
  free(entry->last);
}

void bessemer_model_close(bessemer_model *model) {
  if (!model) return;
  pthread_mutex_lock(&gpu_lock);
  gpu.driver.context_push(gpu.context);
  if (model->stream) gpu.driver.stream_wait(model->stream);
  for (int32_t i = 0; model->entries && i < bessemer_entry_count; i++)
    close_entry(&model->entries[i], bessemer_entries[i].input_count);
  for (int32_t i = 0; model->states && i < bessemer_state_count; i++) release(model->states[i]);
  release(model->arena);
  if (model->stream) gpu.driver.stream_destroy(model->stream);
  if (--gpu.sessions == 0) {
    release(gpu.parameters);
    gpu.parameters = 0;
  }
  leave_gpu();
  pthread_mutex_unlock(&gpu_lock);
  free(model->states);
  free(model->entries);
  free(model);
}

static int launch_all(const bessemer_plan *plan, prepared_entry *entry, void *stream) {
  for (int32_t i = 0; i < plan->launch_count; i++) {
    const bessemer_launch *launch = &plan->launches[i];
    const uint32_t *grid = launch->grid, *block = launch->block;
    cuda_result result = gpu.driver.launch(gpu.kernels[launch->kernel], grid[0], grid[1], grid[2], block[0], block[1],
                                           block[2], bessemer_gpu_kernels[launch->kernel].shared_bytes, stream,
                                           entry->arguments + launch->first_argument, NULL);
    if (result) return fail_at(bessemer_gpu_kernels[launch->kernel].name, result);
  }
  return 0;
}

static int record(bessemer_model *model, const bessemer_plan *plan, prepared_entry *entry) {
  void *graph = NULL;
  if (check("record a run", gpu.driver.capture_begin(model->stream, CUDA_THREAD_LOCAL))) return -1;
  int failed = launch_all(plan, entry, model->stream);
  cuda_result ended = gpu.driver.capture_end(model->stream, &graph);
  if (failed) return -1;
  if (check("record a run", ended)) return -1;
  if (entry->graph) gpu.driver.graph_exec_destroy(entry->graph);
  entry->graph = NULL;
  cuda_result made = gpu.driver.graph_make(&entry->graph, graph, 0);
  gpu.driver.graph_destroy(graph);
  return check("prepare a run", made);
}

/* A graph has the addresses of the inputs and outputs that it was recorded with. A caller who passes the same ones twice
 * will pass them again, so the second run records. */
static int launch(bessemer_model *model, int32_t index, const cuda_address *ends, size_t count, void *stream) {
  const bessemer_plan *plan = &bessemer_plans[index];
  prepared_entry *entry = &model->entries[index];
  size_t bytes = count * sizeof(*ends);
  int is_recorded = entry->graph && !memcmp(entry->recorded, ends, bytes);
  if (!is_recorded && !memcmp(entry->last, ends, bytes)) {
    if (record(model, plan, entry)) return -1;
    memcpy(entry->recorded, ends, bytes);
    is_recorded = 1;
  }
  memcpy(entry->last, ends, bytes);
  if (is_recorded) return check("start a run", gpu.driver.graph_launch(entry->graph, stream));
  return launch_all(plan, entry, stream);
}

static int run(bessemer_model *model, int32_t index, const cuda_address *inputs, const cuda_address *outputs,
               const cuda_address *states, void *stream) {
  const bessemer_plan *plan = &bessemer_plans[index];
  const bessemer_entry *described = &bessemer_entries[index];
  prepared_entry *entry = &model->entries[index];
  int32_t input_count = described->input_count, output_count = described->output_count;
  size_t count = (size_t)(input_count + output_count + plan->state_count);
  cuda_address ends[count + 1];
  memset(ends, 0, sizeof(ends));
  for (int32_t i = 0; i < plan->tensor_count; i++) {
    if (plan->tensors[i].memory != BESSEMER_INPUT) continue;
    int32_t input = (int32_t)plan->tensors[i].number;
    entry->addresses[i] = ends[input] = input < input_count ? inputs[input] : states[input - input_count];
  }
  for (int32_t i = 0; i < output_count; i++) {
    int32_t tensor = plan->outputs[i];
    if (!plan->direct[i]) continue;
    entry->addresses[tensor] = outputs[i] ? outputs[i] : place(model, &plan->tensors[tensor]);
    ends[input_count + plan->state_count + i] = entry->addresses[tensor];
  }
  if (launch(model, index, ends, count, stream)) return -1;
  for (int32_t i = 0; i < output_count; i++) {
    cuda_address made = entry->addresses[plan->outputs[i]];
    if (!outputs[i] || outputs[i] == made) continue;
    cuda_result result = gpu.driver.on_device(outputs[i], made, described->outputs[i].bytes, stream);
    if (check("copy an output", result)) return -1;
  }
  for (int32_t i = 0; i < plan->state_count; i++) {
    cuda_address made = entry->addresses[plan->outputs[output_count + i]];
    if (states[i] == made) continue;
    cuda_result result = gpu.driver.on_device(states[i], made, bessemer_states[plan->states[i]].bytes, stream);
    if (check("copy a state", result)) return -1;
  }
  return 0;
}

static const bessemer_entry *entry_of(const bessemer_model *model, int32_t index) {
  if (model && index >= 0 && index < bessemer_entry_count) return &bessemer_entries[index];
  fail("there is no such entry point");
  return NULL;
}

static void own_states(const bessemer_model *model, const bessemer_plan *plan, cuda_address *states) {
  for (int32_t i = 0; i < plan->state_count; i++) states[i] = model->states[plan->states[i]];
}

int32_t bessemer_model_run_on_device(bessemer_model *model, int32_t index, const void *const *inputs,
                                     void *const *outputs, void *stream) {
  const bessemer_entry *described = entry_of(model, index);
  if (!described) return -1;
  const bessemer_plan *plan = &bessemer_plans[index];
  cuda_address from[described->input_count + 1], to[described->output_count + 1], states[plan->state_count + 1];
  for (int32_t i = 0; i < described->input_count; i++) from[i] = (cuda_address)(uintptr_t)inputs[i];
  for (int32_t i = 0; i < described->output_count; i++) to[i] = (cuda_address)(uintptr_t)outputs[i];
  own_states(model, plan, states);
  if (check("use its context", gpu.driver.context_push(gpu.context))) return -1;
  int failed = run(model, index, from, to, states, stream);
  leave_gpu();
  return failed;
}

static void free_output(bessemer_managed *output) {
  gpu.driver.context_push(gpu.context);
  gpu.driver.release((cuda_address)(uintptr_t)output->content.data);
  leave_gpu();
  free(output);
}

void *bessemer_model_make_output(bessemer_model *model, int32_t index, int32_t output) {
  const bessemer_entry *described = entry_of(model, index);
  if (!described || output < 0 || output >= described->output_count) return NULL;
  const bessemer_planned_tensor *planned = &bessemer_plans[index].tensors[bessemer_plans[index].outputs[output]];
  bessemer_managed *made = allocate_array(1, sizeof(bessemer_managed));
  cuda_address memory = 0;
  if (!made || check("use its context", gpu.driver.context_push(gpu.context))) return NULL;
  int failed = allocate(&memory, described->outputs[output].name, described->outputs[output].bytes);
  leave_gpu();
  if (failed) {
    free(made);
    return NULL;
  }
  made->content = (bessemer_dltensor){.data = (void *)(uintptr_t)memory,
                                      .device_type = CUDA_DEVICE,
                                      .dimensions = planned->dimensions,
                                      .type_code = planned->type_code,
                                      .bits = planned->bits,
                                      .lanes = 1,
                                      .shape = planned->shape,
                                      .strides = planned->strides};
  made->deleter = free_output;
  return made;
}

static int copy_inputs(bessemer_model *model, int32_t index, const void *const *inputs) {
  const bessemer_entry *described = &bessemer_entries[index];
  cuda_address *staged = model->entries[index].staged;
  for (int32_t i = 0; i < described->input_count; i++) {
    size_t bytes = described->inputs[i].bytes;
    if (!staged[i] && allocate(&staged[i], described->inputs[i].name, bytes)) return -1;
    if (check("copy an input", gpu.driver.to_device(staged[i], inputs[i], bytes, model->stream))) return -1;
  }
  return 0;
}

static int copy_outputs(bessemer_model *model, int32_t index, void *const *outputs) {
  const bessemer_entry *described = &bessemer_entries[index];
  const bessemer_plan *plan = &bessemer_plans[index];
  for (int32_t i = 0; i < described->output_count; i++) {
    cuda_address made = model->entries[index].addresses[plan->outputs[i]];
    cuda_result result = gpu.driver.to_host(outputs[i], made, described->outputs[i].bytes, model->stream);
    if (check("copy an output", result)) return -1;
  }
  return check("compute", gpu.driver.stream_wait(model->stream));
}

static int copy_states(bessemer_model *model, int32_t index, void *const *states, int is_back) {
  const bessemer_plan *plan = &bessemer_plans[index];
  for (int32_t i = 0; i < plan->state_count; i++) {
    cuda_address own = model->states[plan->states[i]];
    size_t bytes = bessemer_states[plan->states[i]].bytes;
    cuda_result result = is_back ? gpu.driver.to_host(states[i], own, bytes, model->stream)
                                 : gpu.driver.to_device(own, states[i], bytes, model->stream);
    if (check("copy a state", result)) return -1;
  }
  return 0;
}

static int run_from_host(bessemer_model *model, int32_t index, const void *const *inputs, void *const *outputs,
                         void *const *states) {
  const bessemer_entry *described = &bessemer_entries[index];
  const bessemer_plan *plan = &bessemer_plans[index];
  cuda_address nowhere[described->output_count + 1], own[plan->state_count + 1];
  memset(nowhere, 0, sizeof(nowhere));
  own_states(model, plan, own);
  if (copy_inputs(model, index, inputs) || (states && copy_states(model, index, states, 0))) return -1;
  if (run(model, index, model->entries[index].staged, nowhere, own, model->stream)) return -1;
  if (states && copy_states(model, index, states, 1)) return -1;
  return copy_outputs(model, index, outputs);
}

int32_t bessemer_model_run_on(bessemer_model *model, int32_t index, const void *const *inputs, void *const *outputs,
                              void *const *states) {
  if (!entry_of(model, index)) return -1;
  if (check("use its context", gpu.driver.context_push(gpu.context))) return -1;
  int failed = run_from_host(model, index, inputs, outputs, states);
  leave_gpu();
  return failed;
}

int32_t bessemer_model_run(bessemer_model *model, int32_t index, const void *const *inputs, void *const *outputs) {
  return bessemer_model_run_on(model, index, inputs, outputs, NULL);
}

static int32_t copy_state(bessemer_model *model, int32_t state, void *to, const void *from) {
  if (!model || state < 0 || state >= bessemer_state_count) return fail("there is no such state");
  size_t bytes = bessemer_states[state].bytes;
  gpu.driver.context_push(gpu.context);
  cuda_result result = to ? gpu.driver.to_host(to, model->states[state], bytes, model->stream)
                          : gpu.driver.to_device(model->states[state], from, bytes, model->stream);
  if (!result) result = gpu.driver.stream_wait(model->stream);
  leave_gpu();
  return check("copy a state", result);
}

int32_t bessemer_model_read_state(bessemer_model *model, int32_t state, void *to) {
  return copy_state(model, state, to, NULL);
}

int32_t bessemer_model_write_state(bessemer_model *model, int32_t state, const void *from) {
  return copy_state(model, state, NULL, from);
}

void *bessemer_model_state(bessemer_model *model, int32_t state) {
  return model && state >= 0 && state < bessemer_state_count ? (void *)(uintptr_t)model->states[state] : NULL;
}

void bessemer_model_reset(bessemer_model *model) {
  gpu.driver.context_push(gpu.context);
  reset(model);
  leave_gpu();
}

int32_t bessemer_model_device(void) { return CUDA_DEVICE; }

const bessemer_tensor *bessemer_model_states(int32_t *count) {
  if (count) *count = bessemer_state_count;
  return bessemer_states;
}

const bessemer_entry *bessemer_model_entries(int32_t *count) {
  if (count) *count = bessemer_entry_count;
  return bessemer_entries;
}
