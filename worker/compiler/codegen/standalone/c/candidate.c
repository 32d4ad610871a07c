/* Times a kernel on tensors that it makes up: what a device runs of a search.
 *
 *   ./candidate --threads N --repeat R --seconds S --report FILE.json float32:64x128 int64:scalar ...
 *
 * A time is the mean of as many calls as fit into S / R seconds, so that the clock is fine enough.
 */
#include "plan.h"
#include "system.h"

#include <stdio.h>
#include <string.h>

#define DLTENSOR_POINTER 7
#define MAX_ARGUMENTS 256
#define MAX_DIMENSIONS 32
#define MAX_CALLS 2000
#define MIN_REPEATS 4
#define SLOW_MS 200.0
#define DLPACK_INT 0
#define DLPACK_UINT 1
#define DLPACK_FLOAT 2
#define DLPACK_BFLOAT 4
#define DLPACK_BOOL 6

extern bessemer_kernel_function kernel BESSEMER_SYMBOL("__tvm_ffi_main");

typedef struct {
  bessemer_dltensor tensor;
  int64_t shape[MAX_DIMENSIONS];
  int64_t strides[MAX_DIMENSIONS];
} made_tensor;

static made_tensor tensors[MAX_ARGUMENTS];
static bessemer_argument arguments[MAX_ARGUMENTS];
static int32_t argument_count;

static int stop(const char *what, const char *why) {
  fprintf(stderr, "candidate: %s%s%s\n", what, *why ? ": " : "", why);
  return 1;
}

static int read_type(bessemer_dltensor *tensor, const char *text, const char **rest) {
  static const struct {
    const char *name;
    uint8_t code;
  } types[] = {{"float", DLPACK_FLOAT}, {"bfloat", DLPACK_BFLOAT}, {"int", DLPACK_INT}, {"uint", DLPACK_UINT}};
  tensor->lanes = 1;
  if (!strncmp(text, "bool:", 5)) {
    tensor->type_code = DLPACK_BOOL;
    tensor->bits = 8;
    *rest = text + 4;
    return 0;
  }
  for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++) {
    size_t length = strlen(types[i].name);
    if (strncmp(text, types[i].name, length)) continue;
    char *end;
    tensor->type_code = types[i].code;
    tensor->bits = (uint8_t)strtol(text + length, &end, 10);
    *rest = end;
    return tensor->bits == 0;
  }
  return -1;
}

/* float32:64x128, or float32:scalar */
static int read_tensor(made_tensor *made, const char *text) {
  const char *rest;
  bessemer_dltensor *tensor = &made->tensor;
  if (read_type(tensor, text, &rest) || *rest != ':') return -1;
  if (strcmp(rest, ":scalar")) {
    do {
      char *end;
      if (tensor->dimensions == MAX_DIMENSIONS) return -1;
      long size = strtol(rest + 1, &end, 10);
      if (end == rest + 1 || size < 0) return -1;
      made->shape[tensor->dimensions++] = size;
      rest = end;
    } while (*rest == 'x');
    if (*rest) return -1;
  }
  int64_t stride = 1;
  for (int32_t axis = tensor->dimensions - 1; axis >= 0; axis--) {
    made->strides[axis] = stride;
    stride *= made->shape[axis];
  }
  tensor->device_type = BESSEMER_CPU;
  tensor->shape = made->shape;
  tensor->strides = made->strides;
  return 0;
}

/* Between -1 and 1, from the upper bits of a linear congruential generator (Knuth, MMIX). */
static float next_number(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (float)(int32_t)(*state >> 32) / 2147483648.0f;
}

static uint16_t half_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  int32_t exponent = (int32_t)(bits >> 23 & 255) - 112;
  uint32_t sign = bits >> 16 & 0x8000;
  return (uint16_t)(exponent <= 0 ? sign : sign | (uint32_t)exponent << 10 | (bits >> 13 & 1023));
}

/* Integers are zero, so that an index stays in its table. */
static int fill(made_tensor *made) {
  bessemer_dltensor *tensor = &made->tensor;
  size_t count = 1, width = (size_t)(tensor->bits + 7) / 8;
  for (int32_t axis = 0; axis < tensor->dimensions; axis++) count *= (size_t)made->shape[axis];
  unsigned char *data = system_allocate(count * width + ALIGNMENT);
  if (!data) return -1;
  memset(data, 0, count * width + ALIGNMENT);
  tensor->data = data;
  uint64_t state = 1;
  if (tensor->type_code != DLPACK_FLOAT && tensor->type_code != DLPACK_BFLOAT) return 0;
  for (size_t i = 0; i < count; i++) {
    float value = next_number(&state);
    if (tensor->bits == 64) ((double *)data)[i] = value;
    else if (tensor->bits == 32) ((float *)data)[i] = value;
    else if (tensor->type_code == DLPACK_FLOAT && tensor->bits == 16) ((uint16_t *)data)[i] = half_of(value);
    else if (tensor->bits == 16) memcpy(data + 2 * i, (unsigned char *)&value + 2, 2);
  }
  return 0;
}

static int call_kernel(long calls) {
  for (long i = 0; i < calls; i++) {
    bessemer_argument result = {0};
    if (kernel(NULL, arguments, argument_count, &result)) return stop("the kernel failed", bessemer_model_error());
  }
  return 0;
}

static int time_kernel(long repeat, double seconds, FILE *report) {
  double began = system_now_ms();
  if (call_kernel(1)) return 1;
  double first = system_now_ms();
  if (call_kernel(1)) return 1;
  double call_ms = system_now_ms() - first, limit_ms = 1e3 * seconds, each_ms = limit_ms / (double)repeat;
  fprintf(report, "{\"entries\": [{\"name\": \"main\", \"outputs\": [], \"open_ms\": 0, \"first_ms\": %.6f, \"times_ms\": [",
          first - began);
  if (call_ms < 1e-4) call_ms = 1e-4;
  long calls = (long)(each_ms / call_ms);
  if (calls < 1) calls = 1;
  if (calls > MAX_CALLS) calls = MAX_CALLS;
  if (call_ms >= SLOW_MS) repeat = 1;
  double start = system_now_ms();
  for (long i = 0; i < repeat && (i < MIN_REPEATS || system_now_ms() - start < limit_ms); i++) {
    double turn = system_now_ms();
    if (call_kernel(calls)) return 1;
    fprintf(report, "%s%.6f", i ? ", " : "", (system_now_ms() - turn) / (double)calls);
  }
  fputs("]}]}\n", report);
  return 0;
}

BESSEMER_API int bessemer_candidate(int argc, char **argv) {
  long repeat = 1, threads = 0;
  double seconds = 0;
  const char *report_path = NULL;
  for (int i = 1; i < argc; i++) {
    if (strncmp(argv[i], "--", 2)) {
      if (argument_count == MAX_ARGUMENTS || read_tensor(&tensors[argument_count++], argv[i]))
        return stop("not a tensor", argv[i]);
      continue;
    }
    const char *name = argv[i], *value = i + 1 < argc ? argv[++i] : "";
    if (!strcmp(name, "--repeat")) repeat = strtol(value, NULL, 10);
    else if (!strcmp(name, "--threads")) threads = strtol(value, NULL, 10);
    else if (!strcmp(name, "--seconds")) seconds = strtod(value, NULL);
    else if (!strcmp(name, "--report")) report_path = value;
    else return stop("unknown option", name);
  }
  if (!report_path || repeat < 1 || !(seconds >= 0))
    return stop("--report is missing, --repeat is below 1, or --seconds is negative", "");
  for (int32_t i = 0; i < argument_count; i++) {
    if (fill(&tensors[i])) return stop("out of memory", "");
    arguments[i].type = DLTENSOR_POINTER;
    arguments[i].value.pointer = &tensors[i].tensor;
  }
  bessemer_connect_kernels();
  bessemer_pool *pool = bessemer_pool_open((int32_t)threads);
  if (!pool) return stop("cannot start threads", "");
  bessemer_pool_enter(pool);
  FILE *report = fopen(report_path, "w");
  if (!report) return stop("cannot write", report_path);
  int failed = time_kernel(repeat, seconds, report);
  failed |= fclose(report) ? stop("cannot write", report_path) : 0;
  bessemer_pool_close(pool);
  return failed;
}
