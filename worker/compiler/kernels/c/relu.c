/* relu(x, out): the larger of each element and 0, into memory that the caller owns. */
#include "common.h"

typedef struct {
  const float* x;
  float* out;
  int64_t count;
} Relu;

static int relu_task(int task, ParallelGroup* group, void* data) {
  const Relu* job = (const Relu*)data;
  const float* restrict x = job->x;
  float* restrict out = job->out;
  int64_t end = share(job->count, 16, task + 1, group->num_task);
  /* NaN stays NaN, as in torch. */
  for (int64_t i = share(job->count, 16, task, group->num_task); i < end; ++i) out[i] = x[i] < 0 ? 0 : x[i];
  return 0;
}

TVM_FFI_DLL_EXPORT int __tvm_ffi_bessemer_relu(void* self, const TVMFFIAny* args, int32_t num_args,
                                               TVMFFIAny* result) {
  (void)self;
  (void)result;
  if (num_args != 2) return refuse("bessemer_relu takes x and out");
  const DLTensor* x = tensor_of(&args[0]);
  const DLTensor* out = tensor_of(&args[1]);
  Relu job = {floats_of(x), floats_of(out), 0};
  if (job.x == NULL || job.out == NULL) return refuse("bessemer_relu takes dense float32 tensors");
  job.count = elements_of(x);
  if (elements_of(out) != job.count) return refuse("bessemer_relu: x and out differ in size");
  if (job.count >= SERIAL_ELEMENTS) return TVMBackendParallelLaunch(relu_task, &job, 0);
  ParallelGroup alone = {NULL, 1};
  return relu_task(0, &alone, &job);
}
