/* NVIDIA's driver as a test sees it: memory is the host's, and a launch is a line of a log.
 *
 *   FAKE_CUDA_LOG      the file that gets a line for each call
 *   FAKE_CUDA_FAILURE  NAME=CODE: the function that fails, and with which error
 *
 *   FAKE_CUDA_ARCH     the GPU's compute capability, 75 by default
 *   FAKE_CUDA_STILL    if set, kernels leave memory as it is
 *
 * A launched kernel adds 1 to the first byte of its first argument, so copies and their order can be seen.
 * A kernel named wrong… fills 16 bytes there, crashes… aborts, hangs… never returns, and fails… is error 700.
 * The time between two events follows from the number of threads that were launched between them.
 */
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef uint64_t address;

static int is_capturing;
static unsigned char *recorded[4096];
static int recorded_count;

static int step(const char *name, const char *format, ...) {
  const char *path = getenv("FAKE_CUDA_LOG"), *failure = getenv("FAKE_CUDA_FAILURE");
  FILE *log = path ? fopen(path, "a") : NULL;
  if (log) {
    va_list rest;
    va_start(rest, format);
    fprintf(log, "%s ", name);
    vfprintf(log, format, rest);
    fputs("\n", log);
    va_end(rest);
    fclose(log);
  }
  size_t length = strlen(name);
  return failure && !strncmp(failure, name, length) && failure[length] == '=' ? atoi(failure + length + 1) : 0;
}

int cuInit(unsigned flags) { return step("cuInit", "%u", flags); }
int cuDriverGetVersion(int *version) { return *version = 12040, 0; }
int cuDeviceGet(int *device, int ordinal) { return *device = ordinal, 0; }
int cuDeviceGetCount(int *count) { return *count = 1, 0; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { return (void)device, *bytes = 8 << 20, 0; }
int cuDeviceGetName(char *name, int size, int device) { return (void)device, snprintf(name, (size_t)size, "Fake GPU"), 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) { 
  const char *arch = getenv("FAKE_CUDA_ARCH");
  int number = arch ? atoi(arch) : 75;
  return (void)device, *value = attribute == 75 ? number / 10 : attribute == 76 ? number % 10 : 5, 0;
}
int cuDevicePrimaryCtxRetain(void **context, int device) { return (void)device, *context = (void *)1, 0; }
int cuCtxPushCurrent_v2(void *context) { return (void)context, 0; }
int cuCtxPopCurrent_v2(void **context) { return *context = NULL, 0; }
int cuModuleLoadData(void **module, const void *image) {
  *module = (void *)1;
  return step("cuModuleLoadData", "%08x", *(const uint32_t *)image);
}
int cuModuleGetFunction(void **function, void *module, const char *name) {
  (void)module;
  *function = strdup(name);
  return step("cuModuleGetFunction", "%s", name);
}
int cuFuncSetAttribute(void *function, int attribute, int value) {
  return step("cuFuncSetAttribute", "%s %d %d", (char *)function, attribute, value);
}
int cuMemGetInfo_v2(size_t *available, size_t *total) { return *available = 5 << 20, *total = 8 << 20, 0; }
int cuMemAlloc_v2(address *made, size_t bytes) {
  *made = (address)(uintptr_t)calloc(1, bytes);
  return step("cuMemAlloc", "%zu", bytes);
}
int cuMemFree_v2(address memory) { return free((void *)(uintptr_t)memory), step("cuMemFree", ""); }
int cuMemsetD8Async(address memory, unsigned char value, size_t bytes, void *stream) {
  return (void)stream, memset((void *)(uintptr_t)memory, value, bytes), 0;
}
int cuMemcpyHtoDAsync_v2(address to, const void *from, size_t bytes, void *stream) {
  return (void)stream, memcpy((void *)(uintptr_t)to, from, bytes), step("to_device", "%zu", bytes);
}
int cuMemcpyDtoHAsync_v2(void *to, address from, size_t bytes, void *stream) {
  return (void)stream, memcpy(to, (void *)(uintptr_t)from, bytes), step("to_host", "%zu", bytes);
}
int cuMemcpyDtoDAsync_v2(address to, address from, size_t bytes, void *stream) {
  return (void)stream, memcpy((void *)(uintptr_t)to, (void *)(uintptr_t)from, bytes), step("on_device", "%zu", bytes);
}
int cuStreamCreate(void **stream, unsigned flags) { return *stream = (void *)1, step("cuStreamCreate", "%u", flags); }
int cuStreamSynchronize(void *stream) { return (void)stream, step("cuStreamSynchronize", ""); }
int cuStreamDestroy_v2(void *stream) { return (void)stream, 0; }

static void run_kernel(unsigned char *first) { *first += !getenv("FAKE_CUDA_STILL"); }

static unsigned long launched;

int cuEventCreate(void **event, unsigned flags) { return (void)flags, *event = calloc(1, sizeof(launched)), 0; }
int cuEventRecord(void *event, void *stream) { return (void)stream, *(unsigned long *)event = launched, 0; }
int cuEventSynchronize(void *event) { return (void)event, step("cuEventSynchronize", ""); }
int cuEventElapsedTime(float *milliseconds, void *start, void *end) {
  unsigned long threads = *(unsigned long *)end - *(unsigned long *)start;
  return *milliseconds = 1e-3f * (float)(1 + threads % 997), 0;
}

int cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **arguments, void **extra) {
  (void)stream, (void)extra;
  unsigned char *first = *(unsigned char **)arguments[0];
  const char *name = function;
  launched += (unsigned long)x * y * z * bx * by * bz;
  if (!strncmp(name, "crashes", 7)) abort();
  if (!strncmp(name, "hangs", 5)) pause();
  if (!strncmp(name, "fails", 5)) return 700;
  if (!strncmp(name, "wrong", 5)) return memset(first, 7, 16), 0;
  if (is_capturing) recorded[recorded_count++] = first;
  else run_kernel(first);
  return step("cuLaunchKernel", "%s %ux%ux%u %ux%ux%u %u", (char *)function, x, y, z, bx, by, bz, shared);
}
int cuStreamBeginCapture_v2(void *stream, int mode) {
  (void)stream, is_capturing = 1, recorded_count = 0;
  return step("cuStreamBeginCapture", "%d", mode);
}
int cuStreamEndCapture(void *stream, void **graph) { return (void)stream, is_capturing = 0, *graph = (void *)1, 0; }
int cuGraphInstantiateWithFlags(void **made, void *graph, unsigned long long flags) {
  return (void)graph, (void)flags, *made = (void *)1, step("cuGraphInstantiate", "");
}
int cuGraphLaunch(void *graph, void *stream) {
  (void)graph, (void)stream;
  for (int i = 0; i < recorded_count; i++) run_kernel(recorded[i]);
  return step("cuGraphLaunch", "%d", recorded_count);
}
int cuGraphDestroy(void *graph) { return (void)graph, 0; }
int cuGraphExecDestroy(void *graph) { return (void)graph, 0; }
