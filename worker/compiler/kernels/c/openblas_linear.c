/* x W (+ b) (then relu) by OpenBLAS, into memory that the caller owns.
 *
 * x is [..., depth], W [depth, columns], b has `columns` elements. OpenBLAS computes each task's part on one
 * thread; the tasks are TVM's, so that no second pool of threads competes with the first. */
#include <cblas.h>

#include "common.h"

typedef struct {
  const float* x;
  const float* weights;
  const float* bias;
  float* out;
  int64_t rows, depth, columns;
  int relu;
} Linear;

typedef struct {
  int64_t row, rows, column, columns;
} Part;

static void finish(const Linear* job, Part part) {
  if (job->bias == NULL && !job->relu) return;
  for (int64_t row = part.row; row < part.row + part.rows; ++row) {
    float* restrict out = job->out + row * job->columns;
    for (int64_t c = part.column; c < part.column + part.columns; ++c) {
      float value = out[c] + (job->bias == NULL ? 0 : job->bias[c]);
      out[c] = job->relu && value < 0 ? 0 : value;
    }
  }
}

static void multiply(const Linear* job, Part part) {
  if (part.rows == 0 || part.columns == 0) return;
  const float* x = job->x + part.row * job->depth;
  const float* weights = job->weights + part.column;
  float* out = job->out + part.row * job->columns + part.column;
  if (part.rows == 1) {
    scipy_cblas_sgemv(CblasRowMajor, CblasTrans, job->depth, part.columns, 1, weights, job->columns, x, 1, 0,
                      out, 1);
  } else {
    scipy_cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, part.rows, part.columns, job->depth, 1, x,
                      job->depth, weights, job->columns, 0, out, job->columns);
  }
  finish(job, part);
}

/* Parts lie along the longer side of the result. */
static int linear_task(int task, ParallelGroup* group, void* data) {
  const Linear* job = (const Linear*)data;
  int tasks = group->num_task;
  Part part = {0, job->rows, 0, job->columns};
  if (job->columns >= job->rows) {
    part.column = share(job->columns, 16, task, tasks);
    part.columns = share(job->columns, 16, task + 1, tasks) - part.column;
  } else {
    part.row = share(job->rows, 8, task, tasks);
    part.rows = share(job->rows, 8, task + 1, tasks) - part.row;
  }
  multiply(job, part);
  return 0;
}

static int run(Linear* job) {
  scipy_openblas_set_num_threads(1);
  if (job->rows * job->depth * job->columns >= SERIAL_ELEMENTS) {
    return TVMBackendParallelLaunch(linear_task, job, 0);
  }
  ParallelGroup alone = {NULL, 1};
  return linear_task(0, &alone, job);
}

static int linear(const TVMFFIAny* args, int32_t num_args, int has_bias, int relu) {
  if (num_args != 3 + has_bias) return refuse("a linear kernel takes x, the weights, a bias where it has one, and out");
  const DLTensor* x = tensor_of(&args[0]);
  const DLTensor* weights = tensor_of(&args[1]);
  const DLTensor* bias = has_bias ? tensor_of(&args[2]) : NULL;
  const DLTensor* out = tensor_of(&args[2 + has_bias]);
  Linear job = {floats_of(x), floats_of(weights), has_bias ? floats_of(bias) : NULL, floats_of(out), 0, 0, 0, relu};
  if (!job.x || !job.weights || !job.out || (has_bias && !job.bias)) {
    return refuse("a linear kernel takes dense float32 tensors");
  }
  if (x->ndim < 1 || weights->ndim != 2) return refuse("a linear kernel takes a matrix of weights");
  job.depth = weights->shape[0];
  job.columns = weights->shape[1];
  if (x->shape[x->ndim - 1] != job.depth || (has_bias && elements_of(bias) != job.columns)) {
    return refuse("a linear kernel's operands differ in size");
  }
  job.rows = job.depth == 0 ? 0 : elements_of(x) / job.depth;
  if (elements_of(out) != job.rows * job.columns) return refuse("a linear kernel's result has another size");
  return run(&job);
}

TVM_FFI_DLL_EXPORT int __tvm_ffi_bessemer_openblas_linear(void* self, const TVMFFIAny* args, int32_t num_args,
                                                          TVMFFIAny* result) {
  (void)self, (void)result;
  return linear(args, num_args, 0, 0);
}

TVM_FFI_DLL_EXPORT int __tvm_ffi_bessemer_openblas_linear_bias(void* self, const TVMFFIAny* args,
                                                               int32_t num_args, TVMFFIAny* result) {
  (void)self, (void)result;
  return linear(args, num_args, 1, 0);
}

TVM_FFI_DLL_EXPORT int __tvm_ffi_bessemer_openblas_linear_bias_relu(void* self, const TVMFFIAny* args,
                                                                    int32_t num_args, TVMFFIAny* result) {
  (void)self, (void)result;
  return linear(args, num_args, 1, 1);
}
