/* The tables that the compiler writes for a model; see model.c for their use. */
#ifndef BESSEMER_PLAN_H
#define BESSEMER_PLAN_H

#include "bessemer_model.h"

/* TVM's calling convention for kernels (tvm/ffi/c_api.h, tvm/runtime/c_backend_api.h). */
typedef struct {
  int32_t type;
  uint32_t padding;
  union {
    int64_t integer;
    void *pointer;
  } value;
} bessemer_argument;

typedef int bessemer_kernel_function(void *, const bessemer_argument *, int32_t, bessemer_argument *);

/* Gives a declaration the name of a kernel, which C may not be able to spell. Some systems put `_` before it. */
#define BESSEMER_QUOTED(text) #text
#define BESSEMER_PREFIX(text) BESSEMER_QUOTED(text)
#define BESSEMER_SYMBOL(name) __asm__(BESSEMER_PREFIX(__USER_LABEL_PREFIX__) name)

/* DLTensor of dlpack.h. */
typedef struct {
  void *data;
  int32_t device_type;
  int32_t device_id;
  int32_t dimensions;
  uint8_t type_code;
  uint8_t bits;
  uint16_t lanes;
  const int64_t *shape;
  const int64_t *strides;
  uint64_t byte_offset;
} bessemer_dltensor;

/* DLManagedTensor of dlpack.h. */
typedef struct bessemer_managed {
  bessemer_dltensor content;
  void *context;
  void (*deleter)(struct bessemer_managed *);
} bessemer_managed;

#define BESSEMER_CPU 1

enum bessemer_memory { BESSEMER_ARENA, BESSEMER_PARAMETER, BESSEMER_INPUT };

/* `number` is the byte in the arena or in the parameters, or the index of the input. */
typedef struct {
  enum bessemer_memory memory;
  uint64_t number;
  const int64_t *shape;
  const int64_t *strides;
  int32_t dimensions;
  uint8_t type_code;
  uint8_t bits;
} bessemer_planned_tensor;

typedef struct {
  bessemer_kernel_function *kernel;
  int32_t first_argument;
  int32_t argument_count;
} bessemer_call;

/* A kernel that a GPU runs, with the dynamic shared memory of a block. */
typedef struct {
  const char *name;
  uint32_t shared_bytes;
} bessemer_gpu_kernel;

/* One start of a kernel; its arguments are tensors. */
typedef struct {
  int32_t kernel;
  uint32_t grid[3];
  uint32_t block[3];
  int32_t first_argument;
} bessemer_launch;

typedef struct {
  const bessemer_planned_tensor *tensors;
  int32_t tensor_count;
  const bessemer_call *calls; /* on the processor */
  int32_t call_count;
  const bessemer_launch *launches; /* on a GPU */
  int32_t launch_count;
  const int32_t *arguments;
  int32_t argument_count;
  const int32_t *outputs; /* the entry's outputs, then its states after the run */
  const int32_t *direct;  /* whether a kernel can write an output into the caller's memory */
  const int32_t *states;  /* the states that the entry takes after its inputs */
  int32_t state_count;
} bessemer_plan;

extern const bessemer_entry bessemer_entries[];
extern const bessemer_plan bessemer_plans[];
extern const int32_t bessemer_entry_count;
extern const uint64_t bessemer_arena_bytes;
extern const bessemer_tensor bessemer_states[];
extern const unsigned char *const bessemer_initial_states[]; /* NULL: zeros */
extern const int32_t bessemer_state_count;
extern const unsigned char bessemer_parameters[];
extern const uint64_t bessemer_parameter_bytes;
extern bessemer_managed bessemer_parameter_tensors[];
extern void *bessemer_handles[]; /* TVM's tensors of the parameters, made when they are first asked for */

/* For a GPU only. */
extern const bessemer_gpu_kernel bessemer_gpu_kernels[];
extern const int32_t bessemer_gpu_kernel_count;
extern const unsigned char bessemer_gpu_code[];
extern const char bessemer_gpu_architectures[];
extern const char bessemer_cuda_version[];

/* threads.c */
typedef struct bessemer_pool bessemer_pool;
bessemer_pool *bessemer_pool_open(int32_t threads);
void bessemer_pool_enter(bessemer_pool *pool);
void bessemer_pool_leave(void);
void bessemer_pool_close(bessemer_pool *pool);
void bessemer_connect_kernels(void);
void bessemer_set_error(const char *kind, const char *const *parts, int32_t count);
void *bessemer_allocate(size_t bytes);
void bessemer_free(void *memory);

#endif
