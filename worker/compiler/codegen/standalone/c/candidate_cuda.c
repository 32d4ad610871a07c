/* Times the kernels of a candidate on an NVIDIA GPU. Devices run it for the candidates of a search.
 *
 *   ./candidate 7/launches [--reference 0/launches] --repeat R --seconds S --report FILE.json float32:64x128 ...
 *
 * A file of launches has words, and its kernels' machine code is in kernels.fatbin beside it:
 *
 *   w BYTES                                     memory besides the arguments
 *   o INDEX                                     an argument that a run writes
 *   l KERNEL X Y Z BX BY BZ SHARED N A1 … AN    a launch: grid, block, shared memory, arguments
 *
 * The results must be those of the reference. The time is the median of single runs, the cache flushed before each.
 */
#include "cuda_driver.h"
#include "made_tensor.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LAUNCHES 256
#define MAX_LAUNCH_ARGUMENTS 64
#define MAX_WORKSPACES 64
#define MAX_PATH_BYTES 512
#define STATIC_SHARED_BYTES (48 << 10)
#define L2_BYTES 38 /* CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE */
#define WARM_UP_RUNS 2
#define LEAST_RUNS 5
#define MOST_RUNS 50
#define SLOW_MS 200.0f
#define IMAGE "kernels.fatbin"

#define EVENT_FUNCTIONS(X)                                                                                           \
  X(create, "cuEventCreate", (void **, unsigned))                                                                    \
  X(record, "cuEventRecord", (void *, void *))                                                                       \
  X(wait, "cuEventSynchronize", (void *))                                                                            \
  X(elapsed, "cuEventElapsedTime", (float *, void *, void *))

typedef struct {
  EVENT_FUNCTIONS(CUDA_POINTER)
} event_driver;

typedef struct {
  void *kernel;
  unsigned grid[3], block[3], shared_bytes;
  void *arguments[MAX_LAUNCH_ARGUMENTS];
} launch_call;

typedef struct {
  launch_call launches[MAX_LAUNCHES];
  cuda_address workspaces[MAX_WORKSPACES];
  long outputs[MAX_ARGUMENTS];
  int launch_count, workspace_count, output_count;
} program;

static cuda_driver driver;
static event_driver events;
static made_tensor tensors[MAX_ARGUMENTS];
static cuda_address memory[MAX_ARGUMENTS];
static int argument_count;
static program candidate, reference;

static int stop(const char *what, const char *why) {
  fprintf(stderr, "candidate: %s%s%s\n", what, *why ? ": " : "", why);
  return 1;
}

static int check(const char *step, cuda_result result) {
  if (!result) return 0;
  fprintf(stderr, "candidate: the GPU failed to %s (CUDA error %d)%s\n", step, result,
          result == CUDA_OUT_OF_MEMORY ? ": out of memory" : "");
  return 1;
}

static int find(void *library, void **functions, const char *const *symbols, size_t count) {
  for (size_t i = 0; i < count; i++) {
    functions[i] = dlsym(library, symbols[i]);
    if (!functions[i]) return stop("NVIDIA's driver is too old: it lacks", symbols[i]);
  }
  return 0;
}

static int load_driver(void) {
#define CUDA_SYMBOL(name, symbol, parameters) symbol,
  static const char *const symbols[] = {CUDA_FUNCTIONS(CUDA_SYMBOL)};
  static const char *const event_symbols[] = {EVENT_FUNCTIONS(CUDA_SYMBOL)};
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL), *context;
  int device;
  if (!library) return stop("NVIDIA's driver (libcuda.so.1) is not installed here", "");
  if (find(library, (void **)&driver, symbols, sizeof(symbols) / sizeof(*symbols))) return 1;
  if (find(library, (void **)&events, event_symbols, sizeof(event_symbols) / sizeof(*event_symbols))) return 1;
  return check("start", driver.init(0)) || check("open", driver.device_get(&device, 0)) ||
         check("make a context", driver.context_retain(&context, device)) ||
         check("use its context", driver.context_push(context));
}

static char *read_file(const char *path) {
  FILE *file = fopen(path, "rb");
  if (!file) return NULL;
  fseek(file, 0, SEEK_END);
  long size = ftell(file);
  rewind(file);
  char *text = size < 0 ? NULL : malloc((size_t)size + 1);
  if (text) text[fread(text, 1, (size_t)size, file)] = 0;
  fclose(file);
  return text;
}

static char *next_word(char **rest) {
  while (**rest == ' ' || **rest == '\n') ++*rest;
  char *word = *rest;
  while (**rest && **rest != ' ' && **rest != '\n') ++*rest;
  if (**rest) *(*rest)++ = 0;
  return word;
}

static long next_count(char **rest) { return strtol(next_word(rest), NULL, 10); }

static int read_launch(program *read, void *module, char **rest) {
  if (read->launch_count == MAX_LAUNCHES) return stop("too many launches", "");
  launch_call *launch = &read->launches[read->launch_count++];
  if (check("find a kernel", driver.module_function(&launch->kernel, module, next_word(rest)))) return 1;
  for (int i = 0; i < 3; i++) launch->grid[i] = (unsigned)next_count(rest);
  for (int i = 0; i < 3; i++) launch->block[i] = (unsigned)next_count(rest);
  launch->shared_bytes = (unsigned)next_count(rest);
  long count = next_count(rest);
  if (count < 0 || count > MAX_LAUNCH_ARGUMENTS) return stop("a launch has too many arguments", "");
  for (long i = 0; i < count; i++) {
    long index = next_count(rest), workspace = index - argument_count;
    if (index < 0 || workspace >= read->workspace_count) return stop("a launch has an unknown argument", "");
    launch->arguments[i] = workspace < 0 ? &memory[index] : &read->workspaces[workspace];
  }
  if (launch->shared_bytes <= STATIC_SHARED_BYTES) return 0;
  int bytes = (int)launch->shared_bytes;
  return check("reserve shared memory", driver.function_set(launch->kernel, CUDA_MAX_DYNAMIC_SHARED, bytes));
}

static int read_line(program *read, void *module, const char *word, char **rest) {
  if (!strcmp(word, "l")) return read_launch(read, module, rest);
  long number = next_count(rest);
  if (!strcmp(word, "w") && read->workspace_count < MAX_WORKSPACES)
    return check("allocate memory", driver.allocate(&read->workspaces[read->workspace_count++], (size_t)number));
  if (strcmp(word, "o") || number < 0 || number >= argument_count || read->output_count == MAX_ARGUMENTS)
    return stop("launches cannot be read", word);
  read->outputs[read->output_count++] = number;
  return 0;
}

static int read_program(program *read, const char *path) {
  char image[MAX_PATH_BYTES];
  const char *slash = strrchr(path, '/');
  int folder = slash ? (int)(slash - path) + 1 : 0;
  snprintf(image, sizeof(image), "%.*s%s", folder, path, IMAGE);
  char *text = read_file(path), *code = read_file(image), *rest = text;
  void *module = NULL;
  if (!text || !code) return stop("cannot read", text ? image : path);
  if (check("load the machine code", driver.module_load(&module, code))) return 1;
  for (char *word = next_word(&rest); *word; word = next_word(&rest))
    if (read_line(read, module, word, &rest)) return 1;
  return 0;
}

static int run(const program *run) {
  for (int i = 0; i < run->launch_count; i++) {
    const launch_call *one = &run->launches[i];
    cuda_result result = driver.launch(one->kernel, one->grid[0], one->grid[1], one->grid[2], one->block[0],
                                       one->block[1], one->block[2], one->shared_bytes, NULL,
                                       (void **)one->arguments, NULL);
    if (check("start a kernel", result)) return 1;
  }
  return 0;
}

static size_t bytes_of(long index) { return count_elements(&tensors[index].tensor) * element_bytes(&tensors[index].tensor); }

static int upload(long index) {
  size_t bytes = bytes_of(index);
  unsigned char *made = malloc(bytes + 1);
  if (!made) return stop("out of memory", "");
  fill_memory(made, &tensors[index].tensor, (uint64_t)index + 1);
  int failed = bytes && (check("copy", driver.to_device(memory[index], made, bytes, NULL)) ||
                         check("copy", driver.stream_wait(NULL)));
  free(made);
  return failed;
}

static int make_arguments(void) {
  for (long i = 0; i < argument_count; i++) {
    size_t bytes = bytes_of(i);
    if (check("allocate memory", driver.allocate(&memory[i], bytes ? bytes : 1)) || upload(i)) return 1;
  }
  return 0;
}

/* Fills the arguments that a run writes with fresh contents, runs, and returns one of these arguments. */
static void *result_of(const program *ran, long index) {
  size_t bytes = bytes_of(index);
  void *found = malloc(bytes + 1);
  for (int i = 0; i < reference.output_count; i++)
    if (upload(reference.outputs[i])) return NULL;
  if (!found || run(ran) || check("run", driver.stream_wait(NULL))) return NULL;
  if (bytes && (check("copy", driver.to_host(found, memory[index], bytes, NULL)) ||
                check("copy", driver.stream_wait(NULL))))
    return NULL;
  return found;
}

static double number_at(const void *data, const bessemer_dltensor *tensor, size_t i) {
  if (tensor->bits == 64) return ((const double *)data)[i];
  if (tensor->bits == 32) return (double)((const float *)data)[i];
  uint32_t half = ((const uint16_t *)data)[i], bits = half << 16;
  if (tensor->type_code == DLPACK_FLOAT) {
    uint32_t exponent = half >> 10 & 31, fraction = half & 1023;
    if (!exponent) return (half >> 15 ? -1.0 : 1.0) * (double)fraction / 16777216.0;
    bits = (half & 0x8000) << 16 | (exponent == 31 ? 255 : exponent + 112) << 23 | fraction << 13;
  }
  float value;
  memcpy(&value, &bits, sizeof(value));
  return (double)value;
}

static int is_finite(double value) { return value - value == 0.0; }

static double root_of(double value) {
  double root = value > 1.0 ? value : 1.0;
  for (int i = 0; i < 200; i++) root = 0.5 * (root + value / root);
  return root;
}

static double tolerance_of(const bessemer_dltensor *tensor) {
  if (tensor->type_code == DLPACK_BFLOAT) return 5e-2;
  return tensor->bits == 64 ? 1e-6 : tensor->bits == 32 ? 1e-3 : 1e-2;
}

/* The tolerance is relative to an element's magnitude plus its tensor's root mean square. */
static size_t count_wrong(const void *ours, const void *wanted, const bessemer_dltensor *tensor) {
  size_t count = count_elements(tensor), width = element_bytes(tensor), wrong = 0, finite = 0;
  if (tensor->type_code != DLPACK_FLOAT && tensor->type_code != DLPACK_BFLOAT) {
    for (size_t i = 0; i < count; i++)
      wrong += memcmp((const char *)ours + i * width, (const char *)wanted + i * width, width) != 0;
    return wrong;
  }
  double squares = 0.0, tolerance = tolerance_of(tensor);
  for (size_t i = 0; i < count; i++) {
    double value = number_at(wanted, tensor, i);
    if (!is_finite(value)) continue;
    squares += value * value;
    finite++;
  }
  double scale = finite && squares > 0.0 ? root_of(squares / (double)finite) : 0.0;
  for (size_t i = 0; i < count; i++) {
    double own = number_at(ours, tensor, i), other = number_at(wanted, tensor, i);
    double off = own > other ? own - other : other - own, size = other < 0.0 ? -other : other;
    if (is_finite(other)) wrong += !(off <= tolerance * (size + scale));
    else wrong += !(own == other || other != other);
  }
  return wrong;
}

static int check_results(void) {
  for (int i = 0; i < reference.output_count; i++) {
    long index = reference.outputs[i];
    void *wanted = result_of(&reference, index), *ours = wanted ? result_of(&candidate, index) : NULL;
    if (!ours) return 1;
    size_t wrong = count_wrong(ours, wanted, &tensors[index].tensor);
    free(ours);
    free(wanted);
    if (!wrong) continue;
    fprintf(stderr, "candidate: argument %ld differs from the default schedule's in %zu of %zu elements\n", index, wrong,
            count_elements(&tensors[index].tensor));
    return 1;
  }
  return 0;
}

static void *starts[MOST_RUNS], *ends[MOST_RUNS];
static float times[MOST_RUNS];

static int time_runs(int count, cuda_address flushed, size_t flushed_bytes) {
  for (int i = 0; i < count; i++) {
    if (check("flush its cache", driver.clear(flushed, 0, flushed_bytes, NULL)) ||
        check("record an event", events.record(starts[i], NULL)) || run(&candidate) ||
        check("record an event", events.record(ends[i], NULL)))
      return 1;
  }
  if (check("run", events.wait(ends[count - 1]))) return 1;
  for (int i = 0; i < count; i++)
    if (check("time a run", events.elapsed(&times[i], starts[i], ends[i]))) return 1;
  return 0;
}

static int by_size(const void *one, const void *other) {
  float difference = *(const float *)one - *(const float *)other;
  return difference > 0 ? 1 : difference < 0 ? -1 : 0;
}

static int time_candidate(double seconds, float *found) {
  int cache_bytes = 0;
  cuda_address flushed;
  driver.device_attribute(&cache_bytes, L2_BYTES, 0);
  size_t flushed_bytes = 2 * (size_t)(cache_bytes > 0 ? cache_bytes : 1);
  if (check("allocate memory", driver.allocate(&flushed, flushed_bytes))) return 1;
  for (int i = 0; i < MOST_RUNS; i++)
    if (check("make an event", events.create(&starts[i], 0)) || check("make an event", events.create(&ends[i], 0)))
      return 1;
  for (int i = 0; i < WARM_UP_RUNS; i++)
    if (run(&candidate)) return 1;
  if (time_runs(1, flushed, flushed_bytes)) return 1;
  *found = times[0];
  if (*found >= SLOW_MS) return 0;
  double wanted = 1e3 * seconds / (*found > 1e-4f ? (double)*found : 1e-4);
  int count = wanted > MOST_RUNS ? MOST_RUNS : wanted < LEAST_RUNS ? LEAST_RUNS : (int)wanted;
  if (time_runs(count, flushed, flushed_bytes)) return 1;
  qsort(times, (size_t)count, sizeof(*times), by_size);
  *found = times[count / 2];
  return 0;
}

int main(int argc, char **argv) {
  const char *launches = NULL, *wanted = NULL, *report_path = NULL;
  double seconds = 0;
  float found = 0;
  for (int i = 1; i < argc; i++) {
    const char *name = argv[i];
    if (strncmp(name, "--", 2)) {
      if (!launches) launches = name;
      else if (argument_count == MAX_ARGUMENTS || read_tensor(&tensors[argument_count++], name))
        return stop("not a tensor", name);
      continue;
    }
    const char *value = i + 1 < argc ? argv[++i] : "";
    if (!strcmp(name, "--seconds")) seconds = strtod(value, NULL);
    else if (!strcmp(name, "--report")) report_path = value;
    else if (!strcmp(name, "--reference")) wanted = value;
    else if (strcmp(name, "--repeat") && strcmp(name, "--threads")) return stop("unknown option", name);
  }
  if (!launches || !report_path) return stop("launches or --report is missing", "");
  if (load_driver() || make_arguments() || read_program(&candidate, launches)) return 1;
  if (wanted && (read_program(&reference, wanted) || check_results())) return 1;
  if (time_candidate(seconds, &found)) return 1;
  FILE *report = fopen(report_path, "w");
  if (!report) return stop("cannot write", report_path);
  fprintf(report, "{\"entries\": [{\"name\": \"main\", \"outputs\": [], \"open_ms\": 0, \"first_ms\": 0, \"times_ms\": [%.6f]}]}\n",
          (double)found);
  return fclose(report) ? stop("cannot write", report_path) : 0;
}
