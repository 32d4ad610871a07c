/* Times a kernel on made-up tensors. Devices run it for the candidates of a search.
 *
 *   ./candidate --threads N --repeat R --seconds S --report FILE.json float32:64x128 int64:scalar ...
 *
 * A time is the mean of as many calls as fit into S / R seconds, so that the clock is fine enough.
 */
#include "made_tensor.h"

#include <stdio.h>
#include <string.h>

#define DLTENSOR_POINTER 7
#define MAX_CALLS 2000
#define MIN_REPEATS 4
#define SLOW_MS 200.0

extern bessemer_kernel_function kernel BESSEMER_SYMBOL("__tvm_ffi_main");

static made_tensor tensors[MAX_ARGUMENTS];
static bessemer_argument arguments[MAX_ARGUMENTS];
static int32_t argument_count;

static int stop(const char *what, const char *why) {
  fprintf(stderr, "candidate: %s%s%s\n", what, *why ? ": " : "", why);
  return 1;
}

static int fill(made_tensor *made) {
  size_t bytes = count_elements(&made->tensor) * element_bytes(&made->tensor);
  unsigned char *data = system_allocate(bytes + ALIGNMENT);
  if (!data) return -1;
  memset(data + bytes, 0, ALIGNMENT);
  fill_memory(data, &made->tensor, 1);
  made->tensor.data = data;
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
