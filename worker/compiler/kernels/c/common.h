/* Shared by the kernels: access to tvm_ffi's tensors, and parallel work on TVM's own threads. */
#ifndef BESSEMER_KERNELS_COMMON_H_
#define BESSEMER_KERNELS_COMMON_H_

#include <stddef.h>
#include <stdint.h>
#include <tvm/ffi/c_api.h>

/* Declared in tvm/runtime/c_backend_api.h, which the wheel does not ship in a form that compiles. */
typedef struct {
  void* sync_handle;
  int32_t num_task;
} ParallelGroup;
typedef int (*ParallelTask)(int task, ParallelGroup* group, void* data);
int TVMBackendParallelLaunch(ParallelTask task, void* data, int num_task);

/* Elements below which waking threads takes longer than the work. */
enum { SERIAL_ELEMENTS = 1 << 15 };

static inline int refuse(const char* message) {
  TVMFFIErrorSetRaisedFromCStr("ValueError", message);
  return -1;
}

/* The tensor of an argument; NULL where it is none. */
static inline const DLTensor* tensor_of(const TVMFFIAny* argument) {
  if (argument->type_index == kTVMFFIDLTensorPtr) return (const DLTensor*)argument->v_ptr;
  if (argument->type_index != kTVMFFITensor) return NULL;
  return (const DLTensor*)((const char*)argument->v_obj + sizeof(TVMFFIObject));
}

static inline int64_t elements_of(const DLTensor* tensor) {
  int64_t count = 1;
  for (int axis = 0; axis < tensor->ndim; ++axis) count *= tensor->shape[axis];
  return count;
}

/* The elements of a dense float32 tensor on the CPU; NULL where it is none. */
static inline float* floats_of(const DLTensor* tensor) {
  if (tensor == NULL || tensor->device.device_type != kDLCPU) return NULL;
  if (tensor->dtype.code != kDLFloat || tensor->dtype.bits != 32 || tensor->dtype.lanes != 1) return NULL;
  int64_t stride = 1;
  for (int axis = tensor->ndim - 1; axis >= 0; --axis) {
    if (tensor->strides != NULL && tensor->shape[axis] != 1 && tensor->strides[axis] != stride) return NULL;
    stride *= tensor->shape[axis];
  }
  return (float*)((char*)tensor->data + tensor->byte_offset);
}

/* The first of a task's elements, if `count` elements are divided in steps of `step`; `task` may be the number
 * of tasks. */
static inline int64_t share(int64_t count, int64_t step, int task, int tasks) {
  int64_t steps = (count + step - 1) / step;
  int64_t first = steps * task / tasks * step;
  return first < count ? first : count;
}

#endif
