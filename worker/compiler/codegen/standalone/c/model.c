/* Runs a model's calls one after another on the memory of a session.
 *
 *   open:   place every tensor and write the arguments of every call, once
 *   run:    put the caller's and the states' pointers into the tensors that are inputs and outputs
 *           for each call: kernel(arguments)
 *           copy outputs and states that could not be written in place
 */
#include "plan.h"
#include "system.h"

#include <stdlib.h>
#include <string.h>

#define DLTENSOR_POINTER 7

typedef struct {
  bessemer_dltensor *tensors;
  bessemer_argument *arguments;
  void **states; /* the session's that it takes */
  void **staged; /* aligned memory for inputs whose own is not; allocated at need */
} prepared_entry;

struct bessemer_model {
  unsigned char *arena;
  void **states;
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
  entry->states = allocate_array((size_t)plan->state_count, sizeof(void *));
  if (!entry->tensors || !entry->arguments || !entry->staged || !entry->states) return -1;
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

static int allocate_states(bessemer_model *model) {
  for (int32_t i = 0; i < bessemer_state_count; i++)
    if (!(model->states[i] = bessemer_allocate(bessemer_states[i].bytes))) return -1;
  return 0;
}

void bessemer_model_reset(bessemer_model *model) {
  for (int32_t i = 0; i < bessemer_state_count; i++) {
    if (bessemer_initial_states[i])
      memcpy(model->states[i], bessemer_initial_states[i], bessemer_states[i].bytes);
    else
      memset(model->states[i], 0, bessemer_states[i].bytes);
  }
}

const bessemer_tensor *bessemer_model_states(int32_t *count) {
  if (count) *count = bessemer_state_count;
  return bessemer_states;
}

void *bessemer_model_state(bessemer_model *model, int32_t state) {
  return model && state >= 0 && state < bessemer_state_count ? model->states[state] : NULL;
}

int32_t bessemer_model_read_state(bessemer_model *model, int32_t state, void *to) {
  const void *from = bessemer_model_state(model, state);
  if (!from) return fail("there is no such state");
  memcpy(to, from, bessemer_states[state].bytes);
  return 0;
}

int32_t bessemer_model_write_state(bessemer_model *model, int32_t state, const void *from) {
  void *to = bessemer_model_state(model, state);
  if (!to) return fail("there is no such state");
  memcpy(to, from, bessemer_states[state].bytes);
  return 0;
}

int32_t bessemer_model_device(void) { return BESSEMER_CPU; }

int32_t bessemer_model_run_on_device(bessemer_model *model, int32_t index, const void *const *inputs,
                                     void *const *outputs, void *stream) {
  (void)model, (void)index, (void)inputs, (void)outputs, (void)stream;
  return fail("the library computes on the processor: call bessemer_model_run");
}

void *bessemer_model_make_output(bessemer_model *model, int32_t index, int32_t output) {
  (void)model, (void)index, (void)output;
  fail("the library computes on the processor");
  return NULL;
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
  model->states = allocate_array((size_t)bessemer_state_count, sizeof(void *));
  int failed = !model->arena || !model->entries || !model->states || allocate_states(model);
  for (int32_t i = 0; !failed && i < bessemer_entry_count; i++) failed = prepare(model, i);
  if (failed) {
    fail("out of memory");
    bessemer_model_close(model);
    return NULL;
  }
  system_populate(bessemer_parameters, bessemer_parameter_bytes);
  bessemer_model_reset(model);
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
    free(entry->states);
    free(entry->arguments);
    free(entry->tensors);
  }
  for (int32_t i = 0; model->states && i < bessemer_state_count; i++) bessemer_free(model->states[i]);
  free(model->states);
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

static int take_inputs(bessemer_model *model, int32_t index, const void *const *inputs, void *const *states) {
  const bessemer_plan *plan = &bessemer_plans[index];
  const bessemer_entry *described = &bessemer_entries[index];
  prepared_entry *entry = &model->entries[index];
  for (int32_t i = 0; i < plan->tensor_count; i++) {
    if (plan->tensors[i].memory != BESSEMER_INPUT) continue;
    int32_t input = (int32_t)plan->tensors[i].number, state = input - described->input_count;
    const void *memory = state < 0 ? aligned_input(entry, input, inputs[input], described->inputs[input].bytes)
                                   : states[state];
    if (!memory) return fail("out of memory");
    entry->tensors[i].data = (void *)memory;
  }
  return 0;
}

static void copy_unless_there(void *to, const void *from, size_t bytes) {
  if (to != from) memmove(to, from, bytes);
}

static int run_calls(bessemer_model *model, const bessemer_plan *plan, const prepared_entry *entry) {
  int failed = 0;
  bessemer_pool_enter(model->pool);
  for (int32_t i = 0; i < plan->call_count && !failed; i++) {
    const bessemer_call *call = &plan->calls[i];
    bessemer_argument result = {0};
    failed = call->kernel(NULL, entry->arguments + call->first_argument, call->argument_count, &result);
  }
  bessemer_pool_leave();
  return failed;
}

int32_t bessemer_model_run_on(bessemer_model *model, int32_t index, const void *const *inputs, void *const *outputs,
                              void *const *states) {
  if (!model || index < 0 || index >= bessemer_entry_count) return fail("there is no such entry point");
  const bessemer_plan *plan = &bessemer_plans[index];
  const bessemer_entry *described = &bessemer_entries[index];
  prepared_entry *entry = &model->entries[index];
  if (take_inputs(model, index, inputs, states)) return -1;
  for (int32_t i = 0; i < described->output_count; i++) {
    int32_t tensor = plan->outputs[i];
    if (plan->direct[i])
      entry->tensors[tensor].data = is_aligned(outputs[i]) ? outputs[i] : place(model, &plan->tensors[tensor]);
  }
  if (run_calls(model, plan, entry)) return -1;
  for (int32_t i = 0; i < described->output_count; i++)
    copy_unless_there(outputs[i], entry->tensors[plan->outputs[i]].data, described->outputs[i].bytes);
  for (int32_t i = 0; i < plan->state_count; i++) {
    int32_t tensor = plan->outputs[described->output_count + i];
    copy_unless_there(states[i], entry->tensors[tensor].data, bessemer_states[plan->states[i]].bytes);
  }
  return 0;
}

int32_t bessemer_model_run(bessemer_model *model, int32_t index, const void *const *inputs,
                           void *const *outputs) {
  if (!model || index < 0 || index >= bessemer_entry_count) return fail("there is no such entry point");
  const bessemer_plan *plan = &bessemer_plans[index];
  void **states = model->entries[index].states;
  for (int32_t i = 0; i < plan->state_count; i++) states[i] = model->states[plan->states[i]];
  return bessemer_model_run_on(model, index, inputs, outputs, states);
}
