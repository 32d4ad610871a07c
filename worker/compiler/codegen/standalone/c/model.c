/* Runs a model's calls one after another on the memory of a session.
 *
 *   open:   place every tensor and write the arguments of every call, once
 *   run:    put the caller's pointers into the tensors that are inputs and outputs
 *           for each call: kernel(arguments)
 *           copy outputs that could not be written in place
 */
#include "plan.h"

#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 64
#define DLTENSOR_POINTER 7

typedef struct {
  bessemer_dltensor *tensors;
  bessemer_argument *arguments;
  void **staged; /* aligned memory for inputs whose own is not; allocated at need */
} prepared_entry;

struct bessemer_model {
  unsigned char *arena;
  prepared_entry *entries;
  bessemer_pool *pool;
};

static void *allocate_array(size_t count, size_t size) { return calloc(count ? count : 1, size); }

static int fail(const char *message) {
  bessemer_set_error("RuntimeError", &message, 1);
  return -1;
}

static void *place(const bessemer_model *model, const bessemer_planned_tensor *planned) {
  switch (planned->memory) {
  case BESSEMER_ARENA:
    return model->arena + planned->number;
  case BESSEMER_PARAMETER:
    return (void *)(bessemer_parameters + planned->number);
  default:
    return NULL;
  }
}

static int prepare(const bessemer_model *model, int32_t index) {
  const bessemer_plan *plan = &bessemer_plans[index];
  prepared_entry *entry = &model->entries[index];
  entry->tensors = allocate_array((size_t)plan->tensor_count, sizeof(bessemer_dltensor));
  entry->arguments = allocate_array((size_t)plan->argument_count, sizeof(bessemer_argument));
  entry->staged = allocate_array((size_t)bessemer_entries[index].input_count, sizeof(void *));
  if (!entry->tensors || !entry->arguments || !entry->staged) return -1;
  for (int32_t i = 0; i < plan->tensor_count; i++) {
    const bessemer_planned_tensor *planned = &plan->tensors[i];
    bessemer_dltensor *made = &entry->tensors[i];
    made->data = place(model, planned);
    made->device_type = BESSEMER_CPU;
    made->dimensions = planned->dimensions;
    made->type_code = planned->type_code;
    made->bits = planned->bits;
    made->lanes = 1;
    made->shape = planned->shape;
    made->strides = planned->strides;
  }
  for (int32_t i = 0; i < plan->argument_count; i++) {
    entry->arguments[i].type = DLTENSOR_POINTER;
    entry->arguments[i].value.pointer = &entry->tensors[plan->arguments[i]];
  }
  return 0;
}

const bessemer_entry *bessemer_model_entries(int32_t *count) {
  if (count) *count = bessemer_entry_count;
  return bessemer_entries;
}

bessemer_model *bessemer_model_open(int32_t threads) {
  bessemer_connect_kernels();
  bessemer_model *model = allocate_array(1, sizeof(bessemer_model));
  if (!model) {
    fail("out of memory");
    return NULL;
  }
  model->arena = bessemer_allocate(bessemer_arena_bytes);
  model->entries = allocate_array((size_t)bessemer_entry_count, sizeof(prepared_entry));
  int failed = !model->arena || !model->entries;
  for (int32_t i = 0; !failed && i < bessemer_entry_count; i++) failed = prepare(model, i);
  if (failed) {
    fail("out of memory");
    bessemer_model_close(model);
    return NULL;
  }
  model->pool = bessemer_pool_open(threads);
  if (!model->pool) {
    fail("cannot start threads");
    bessemer_model_close(model);
    return NULL;
  }
  return model;
}

void bessemer_model_close(bessemer_model *model) {
  if (!model) return;
  bessemer_pool_close(model->pool);
  for (int32_t i = 0; model->entries && i < bessemer_entry_count; i++) {
    prepared_entry *entry = &model->entries[i];
    for (int32_t input = 0; entry->staged && input < bessemer_entries[i].input_count; input++)
      bessemer_free(entry->staged[input]);
    free(entry->staged);
    free(entry->arguments);
    free(entry->tensors);
  }
  free(model->entries);
  bessemer_free(model->arena);
  free(model);
}

static int is_aligned(const void *memory) { return (uintptr_t)memory % ALIGNMENT == 0; }

/* Kernels read whole cache lines from the start of a tensor. */
static const void *aligned_input(prepared_entry *entry, int32_t input, const void *given, size_t bytes) {
  if (is_aligned(given)) return given;
  if (!entry->staged[input]) entry->staged[input] = bessemer_allocate(bytes);
  if (entry->staged[input]) memcpy(entry->staged[input], given, bytes);
  return entry->staged[input];
}

static int take_inputs(prepared_entry *entry, int32_t index, const void *const *inputs) {
  const bessemer_plan *plan = &bessemer_plans[index];
  const bessemer_tensor *wanted = bessemer_entries[index].inputs;
  for (int32_t i = 0; i < plan->tensor_count; i++) {
    if (plan->tensors[i].memory != BESSEMER_INPUT) continue;
    int32_t input = (int32_t)plan->tensors[i].number;
    const void *memory = aligned_input(entry, input, inputs[input], wanted[input].bytes);
    if (!memory) return fail("out of memory");
    entry->tensors[i].data = (void *)memory;
  }
  return 0;
}

int32_t bessemer_model_run(bessemer_model *model, int32_t index, const void *const *inputs,
                           void *const *outputs) {
  if (!model || index < 0 || index >= bessemer_entry_count) return fail("there is no such entry point");
  const bessemer_plan *plan = &bessemer_plans[index];
  prepared_entry *entry = &model->entries[index];
  if (take_inputs(entry, index, inputs)) return -1;
  bessemer_pool_enter(model->pool);
  for (int32_t i = 0; i < plan->call_count; i++) {
    const bessemer_call *call = &plan->calls[i];
    bessemer_argument result = {0};
    if (call->kernel(NULL, entry->arguments + call->first_argument, call->argument_count, &result)) return -1;
  }
  for (int32_t i = 0; i < bessemer_entries[index].output_count; i++)
    memmove(outputs[i], entry->tensors[plan->outputs[i]].data, bessemer_entries[index].outputs[i].bytes);
  return 0;
}
