/* The C interface of a compiled model. The library depends on libc and threads only. */
#ifndef BESSEMER_MODEL_H
#define BESSEMER_MODEL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32)
#define BESSEMER_API __declspec(dllexport)
#else
#define BESSEMER_API __attribute__((visibility("default")))
#endif

/* A tensor that the model takes or returns: row-major and contiguous. */
typedef struct {
  const char *name;
  const char *dtype;    /* as in NumPy, such as "float32" */
  const int64_t *shape;
  int32_t dimensions;
  size_t bytes;
} bessemer_tensor;

/* An entry point. */
typedef struct {
  const char *name;
  const bessemer_tensor *inputs;
  int32_t input_count;
  const bessemer_tensor *outputs;
  int32_t output_count;
} bessemer_entry;

/* A session: state, memory and threads of its own. Threads may run different sessions at the same time. */
typedef struct bessemer_model bessemer_model;

/* The entry points, the default one first. */
BESSEMER_API const bessemer_entry *bessemer_model_entries(int32_t *count);

/* Opens a session. `threads` is the number of threads that a run uses, its caller's included; 0: one for each
 * processor. Returns NULL if memory or threads are missing. */
BESSEMER_API bessemer_model *bessemer_model_open(int32_t threads);

/* Runs an entry point. `inputs` and `outputs` have one pointer for each tensor, in the order of the entry; the
 * caller owns the memory. Memory aligned to 64 bytes is used in place. Returns 0, or -1 with an error. */
BESSEMER_API int32_t bessemer_model_run(bessemer_model *model, int32_t entry, const void *const *inputs,
                                        void *const *outputs);

/* Runs an entry point on states of the caller, who keeps them: one pointer for each state that the entry takes, in
 * the order of the manifest, to memory aligned to 64 bytes, which the run changes. So several sequences of runs can
 * share the memory and threads of one session. */
BESSEMER_API int32_t bessemer_model_run_on(bessemer_model *model, int32_t entry, const void *const *inputs,
                                           void *const *outputs, void *const *states);

/* Runs an entry point of a library for a GPU on tensors in the GPU's memory, in the order of a stream (a `CUstream`
 * of the GPU's primary context, such as the CUDA runtime's; NULL: the default stream). It returns before the kernels
 * end. Two runs of a session must not overlap. */
BESSEMER_API int32_t bessemer_model_run_on_device(bessemer_model *model, int32_t entry, const void *const *inputs,
                                                  void *const *outputs, void *stream);

/* Memory for an output on the GPU, as a `DLManagedTensor` of DLPack, whose deleter frees it; NULL with an error. */
BESSEMER_API void *bessemer_model_make_output(bessemer_model *model, int32_t entry, int32_t output);

/* Where the library computes, in DLPack's numbers: 1 for the processor, 2 for an NVIDIA GPU. */
BESSEMER_API int32_t bessemer_model_device(void);

/* The states that a session keeps from run to run. */
BESSEMER_API const bessemer_tensor *bessemer_model_states(int32_t *count);

/* The memory of a state, which is the GPU's if the library computes there; NULL if there is no such state. */
BESSEMER_API void *bessemer_model_state(bessemer_model *model, int32_t state);

/* Copies a state to the caller's memory, or from there, between runs. Returns 0, or -1 with an error. */
BESSEMER_API int32_t bessemer_model_read_state(bessemer_model *model, int32_t state, void *to);
BESSEMER_API int32_t bessemer_model_write_state(bessemer_model *model, int32_t state, const void *from);

/* Gives all states their initial values. */
BESSEMER_API void bessemer_model_reset(bessemer_model *model);

/* Closes a session and stops its threads. NULL is allowed. */
BESSEMER_API void bessemer_model_close(bessemer_model *model);

/* The last error on this thread, in words. */
BESSEMER_API const char *bessemer_model_error(void);

#ifdef __cplusplus
}
#endif
#endif
