/* The functions of NVIDIA's driver that a model needs, found when it is opened (cuda.h, CUDA Driver API). */
#ifndef BESSEMER_CUDA_DRIVER_H
#define BESSEMER_CUDA_DRIVER_H

#include <stddef.h>
#include <stdint.h>

typedef uint64_t cuda_address;
typedef int cuda_result;

#define CUDA_OUT_OF_MEMORY 2
#define CUDA_NO_DEVICE 100
#define CUDA_NO_BINARY 209
#define CUDA_UNSUPPORTED_PTX 222

#define CUDA_MAJOR 75 /* CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR */
#define CUDA_MINOR 76
#define CUDA_MAX_DYNAMIC_SHARED 8 /* CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES */
#define CUDA_NON_BLOCKING 1       /* CU_STREAM_NON_BLOCKING */
#define CUDA_THREAD_LOCAL 1       /* CU_STREAM_CAPTURE_MODE_THREAD_LOCAL */

/* X(name in this struct, symbol in the driver, parameters) */
#define CUDA_FUNCTIONS(X)                                                                                            \
  X(init, "cuInit", (unsigned))                                                                                      \
  X(driver_version, "cuDriverGetVersion", (int *))                                                                   \
  X(device_get, "cuDeviceGet", (int *, int))                                                                         \
  X(device_name, "cuDeviceGetName", (char *, int, int))                                                              \
  X(device_attribute, "cuDeviceGetAttribute", (int *, int, int))                                                     \
  X(context_retain, "cuDevicePrimaryCtxRetain", (void **, int))                                                      \
  X(context_push, "cuCtxPushCurrent_v2", (void *))                                                                   \
  X(context_pop, "cuCtxPopCurrent_v2", (void **))                                                                    \
  X(module_load, "cuModuleLoadData", (void **, const void *))                                                        \
  X(module_function, "cuModuleGetFunction", (void **, void *, const char *))                                         \
  X(function_set, "cuFuncSetAttribute", (void *, int, int))                                                          \
  X(memory_info, "cuMemGetInfo_v2", (size_t *, size_t *))                                                            \
  X(allocate, "cuMemAlloc_v2", (cuda_address *, size_t))                                                             \
  X(release, "cuMemFree_v2", (cuda_address))                                                                         \
  X(clear, "cuMemsetD8Async", (cuda_address, unsigned char, size_t, void *))                                         \
  X(to_device, "cuMemcpyHtoDAsync_v2", (cuda_address, const void *, size_t, void *))                                 \
  X(to_host, "cuMemcpyDtoHAsync_v2", (void *, cuda_address, size_t, void *))                                         \
  X(on_device, "cuMemcpyDtoDAsync_v2", (cuda_address, cuda_address, size_t, void *))                                 \
  X(stream_create, "cuStreamCreate", (void **, unsigned))                                                            \
  X(stream_wait, "cuStreamSynchronize", (void *))                                                                    \
  X(stream_destroy, "cuStreamDestroy_v2", (void *))                                                                  \
  X(launch, "cuLaunchKernel",                                                                                        \
    (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **))        \
  X(capture_begin, "cuStreamBeginCapture_v2", (void *, int))                                                         \
  X(capture_end, "cuStreamEndCapture", (void *, void **))                                                            \
  X(graph_make, "cuGraphInstantiateWithFlags", (void **, void *, unsigned long long))                                \
  X(graph_launch, "cuGraphLaunch", (void *, void *))                                                                 \
  X(graph_destroy, "cuGraphDestroy", (void *))                                                                       \
  X(graph_exec_destroy, "cuGraphExecDestroy", (void *))

#define CUDA_POINTER(name, symbol, parameters) cuda_result(*name) parameters;
typedef struct {
  CUDA_FUNCTIONS(CUDA_POINTER)
} cuda_driver;

#endif
