/* Runs the model beside it.
 *
 *   ./run                                  the reference inputs, and compares the outputs
 *   ./run --input NAME=FILE.npy ...        your inputs (or --inputs FILE.npz), and prints the outputs
 *
 * It ends with 1 if the outputs differ or a run fails, and with 2 if its options or inputs do not fit the model.
 */
#include "arrays.h"
#include "bessemer_model.h"
#include "system.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#define PATH_BYTES 4096
#define SHOWN 8
#define WRONG_USE 2
#define MOST_NUMBER 1000000000L

#if defined(_WIN32)
#define SEPARATOR '\\'
#else
#define SEPARATOR '/'
#endif

static const char USAGE[] =
    "usage: ./run [--entry NAME] [--input NAME=FILE.npy ...] [--inputs FILE.npz] [--output FILE.npz]\n"
    "             [--repeat N] [--seconds S] [--threads N] [--report FILE.json] [--list]\n"
    "       ./run [--threads N] --call ENTRY INPUTS.npz OUTPUTS.npz ...\n"
    "\n"
    "Without inputs, it runs the reference inputs of the bundle and compares the outputs with the model's.\n"
    "Otherwise give all inputs; state that you give replaces the initial one.\n"
    "  --entry NAME           the entry point; the first if it is left out\n"
    "  --input NAME=FILE.npy  one input, as numpy.save writes it\n"
    "  --inputs FILE.npz      all inputs, as numpy.savez writes them; also --input FILE.npz\n"
    "  --output FILE.npz      write the outputs, and the state after the run, to a file; also --outputs\n"
    "  --repeat N             run N times more and print the latency\n"
    "  --seconds S            start no further of these runs after S seconds\n"
    "  --threads N            threads to use; one for each processor if it is left out\n"
    "  --report FILE.json     write comparisons and times, in milliseconds, to a file\n"
    "  --list                 print the entry points with their inputs and outputs\n"
    "  --call E IN.npz OUT.npz  one of several calls in a row, which share the model's state\n";

typedef struct {
  const char *entry;
  const char *inputs;
  const char *outputs;
  const char **input;
  int input_count;
  const char **call; /* entry point, inputs and outputs of each */
  int call_count;
  long repeat;
  long threads;
  double seconds;
  const char *report_path;
  FILE *report;
  int list;
} options;

static int stop(const char *what, const char *why) {
  fprintf(stderr, "run: %s%s%s\n", what, *why ? ": " : "", why);
  return 1;
}

/* Says what is wrong with the words that the user gave. */
static int refuse(const char *what, const char *word, const char *why) {
  fprintf(stderr, "run: %s'%s'%s\n", what, word, why);
  return WRONG_USE;
}

static int refuse_option(const char *what, const char *option, const char *why) {
  refuse(what, option, why);
  fputs("try ./run --help\n", stderr);
  return WRONG_USE;
}

/* Says which file the system did not read or write, and why. */
static int stop_at(const char *what, const char *path) {
  fprintf(stderr, "run: %s '%s'%s%s\n", what, path, errno ? ": " : "", errno ? strerror(errno) : "");
  return 1;
}

static int refuse_file(const char *path) {
  stop_at("cannot read", path);
  return WRONG_USE;
}

static int keep_input(options *read, const char *value) {
  const char *sign = strchr(value, '=');
  size_t bytes = strlen(value);
  if (!sign && bytes > 4 && !strcmp(value + bytes - 4, ".npz")) {
    read->inputs = value;
    return 0;
  }
  if (!sign || sign == value) return refuse("--input takes NAME=FILE.npy or FILE.npz, not ", value, "");
  size_t length = (size_t)(sign - value) + 1;
  for (int i = 0; i < read->input_count; i++)
    if (!strncmp(read->input[i], value, length)) return refuse("an input is given twice: ", value, "");
  read->input[read->input_count++] = value;
  return 0;
}

static int read_number(const char *option, const char *value, long *number) {
  char *rest;
  *number = strtol(value, &rest, 10);
  if (!*value || *rest || *number < 0 || *number > MOST_NUMBER)
    return refuse_option(option, value, " must be a number from 0 to 1000000000");
  return 0;
}

static int read_seconds(const char *value, double *seconds) {
  char *rest;
  *seconds = strtod(value, &rest);
  if (!*value || *rest || !(*seconds >= 0)) return refuse_option("--seconds ", value, " must be 0 or more");
  return 0;
}

static int read_value(options *read, const char *name, const char *value) {
  if (!strcmp(name, "--input")) return keep_input(read, value);
  if (!strcmp(name, "--repeat")) return read_number("--repeat ", value, &read->repeat);
  if (!strcmp(name, "--threads")) return read_number("--threads ", value, &read->threads);
  if (!strcmp(name, "--seconds")) return read_seconds(value, &read->seconds);
  if (!strcmp(name, "--entry")) read->entry = value;
  else if (!strcmp(name, "--inputs")) read->inputs = value;
  else if (!strcmp(name, "--report")) read->report_path = value;
  else read->outputs = value;
  return 0;
}

static int is_option(const char *name) {
  static const char *const NAMES[] = {"--input",   "--repeat", "--threads", "--seconds", "--entry",
                                      "--inputs", "--report", "--output",  "--outputs"};
  for (size_t i = 0; i < sizeof(NAMES) / sizeof(NAMES[0]); i++)
    if (!strcmp(NAMES[i], name)) return 1;
  return 0;
}

static int read_options(options *read, int argc, char **argv) {
  for (int i = 1; i < argc; i++) {
    const char *name = argv[i];
    int failed = 0;
    if (!strcmp(name, "--list")) {
      read->list = 1;
    } else if (!strcmp(name, "--help") || !strcmp(name, "-h")) {
      fputs(USAGE, stdout);
      exit(0);
    } else if (!strcmp(name, "--call")) {
      if (i + 3 >= argc) return refuse_option("", name, " takes an entry point, inputs and outputs");
      for (int part = 0; part < 3; part++) read->call[3 * read->call_count + part] = argv[++i];
      read->call_count++;
    } else if (!is_option(name)) {
      return refuse_option("unknown option ", name, "");
    } else if (++i == argc) {
      return refuse_option("", name, " takes a value");
    } else {
      failed = read_value(read, name, argv[i]);
    }
    if (failed) return failed;
  }
  if (read->call_count && (read->entry || read->inputs || read->input_count || read->outputs || read->report_path ||
                           read->repeat || read->seconds > 0))
    return refuse_option("", "--call", " names its own entry point and files, so only --threads goes with it");
  return 0;
}

static void print_tensors(const char *title, const bessemer_tensor *tensors, int32_t count) {
  for (int32_t i = 0; i < count; i++) {
    printf("  %s %s %s[", title, tensors[i].name, tensors[i].dtype);
    for (int32_t axis = 0; axis < tensors[i].dimensions; axis++)
      printf("%s%lld", axis ? ", " : "", (long long)tensors[i].shape[axis]);
    printf("]\n");
  }
}

static void list_entries(const bessemer_entry *entries, int32_t count) {
  for (int32_t i = 0; i < count; i++) {
    printf("%s\n", entries[i].name);
    print_tensors("input ", entries[i].inputs, entries[i].input_count);
    print_tensors("output", entries[i].outputs, entries[i].output_count);
  }
}

static int refuse_entry(const char *name, const bessemer_entry *entries, int32_t count) {
  fprintf(stderr, "run: unknown entry point '%s': the model has ", name);
  for (int32_t i = 0; i < count; i++) fprintf(stderr, "%s%s", i ? ", " : "", entries[i].name);
  fputs("\n", stderr);
  return WRONG_USE;
}

/* The folder of this program, where the bundle is. */
static void bundle_folder(char *folder, const char *program) {
  const char *slash = strrchr(program, SEPARATOR);
  size_t bytes = slash ? (size_t)(slash - program) : 1;
  snprintf(folder, PATH_BYTES, "%.*s", (int)(bytes < PATH_BYTES ? bytes : PATH_BYTES - 1), slash ? program : ".");
}

static const char *given_file(const options *given, const char *name) {
  size_t length = strlen(name);
  for (int i = 0; i < given->input_count; i++)
    if (!strncmp(given->input[i], name, length) && given->input[i][length] == '=')
      return given->input[i] + length + 1;
  return NULL;
}

static int is_named(const char *name, int length, const bessemer_tensor *tensors, int32_t count) {
  for (int32_t i = 0; i < count; i++)
    if (strlen(tensors[i].name) == (size_t)length && !memcmp(name, tensors[i].name, (size_t)length)) return 1;
  return 0;
}

/* Refuses an array that is neither an input nor a state: nothing would read it. */
static int check_name(const char *name, int length, const bessemer_entry *entry) {
  int32_t state_count, count = entry->input_count;
  const bessemer_tensor *states = bessemer_model_states(&state_count);
  if (is_named(name, length, entry->inputs, count) || is_named(name, length, states, state_count)) return 0;
  fprintf(stderr, "run: unknown input '%.*s': the model takes ", length, name);
  for (int32_t i = 0; i < count + state_count; i++)
    fprintf(stderr, "%s%s", i ? ", " : "", i < count ? entry->inputs[i].name : states[i - count].name);
  fputs(count + state_count ? "\n" : "no inputs\n", stderr);
  return WRONG_USE;
}

static int check_given_names(const options *given, const bessemer_entry *entry) {
  int failed = 0;
  for (int i = 0; i < given->input_count && !failed; i++)
    failed = check_name(given->input[i], (int)(strchr(given->input[i], '=') - given->input[i]), entry);
  return failed;
}

static int check_archive_names(file_content archive, const bessemer_entry *entry) {
  int failed = 0, length;
  for (size_t at = npz_first(archive); at && !failed; at = npz_next(archive, at)) {
    const char *name = npz_name(archive, at, &length);
    failed = check_name(name, length, entry);
  }
  return failed;
}

/* A tensor's file: its own, else the archive's. `content` is NULL if there is none. */
static file_content tensor_file(const bessemer_tensor *tensor, const options *given, file_content archive,
                                int *is_own) {
  const char *path = given_file(given, tensor->name);
  *is_own = path != NULL;
  return path ? read_file(path) : npz_member(archive, tensor->name);
}

static int refuse_array(const char *kind, const char *name, const char *path, const char *error) {
  fprintf(stderr, "run: %s '%s'", kind, name);
  if (path) fprintf(stderr, " (%s)", path);
  fprintf(stderr, " %s\n", error);
  return WRONG_USE;
}

/* A file may end before a whole cache line does, so inputs are copied. */
static int load_input(void **made, const bessemer_tensor *tensor, const options *given, file_content archive) {
  char error[ERROR_BYTES];
  int is_own;
  file_content file = tensor_file(tensor, given, archive, &is_own);
  if (!file.content && is_own) return refuse_file(given_file(given, tensor->name));
  const char *why = archive.content ? ": the .npz file lacks it, or is compressed" : "";
  if (!file.content) return refuse("missing input ", tensor->name, why);
  const unsigned char *data = npy_data(file, tensor, error);
  if (!data) return refuse_array("input", tensor->name, given_file(given, tensor->name), error);
  if (!(*made = system_allocate(tensor->bytes))) return stop("out of memory", "");
  memcpy(*made, data, tensor->bytes);
  if (is_own) free(file.content);
  return 0;
}

/* isfinite() is a function of some C libraries only. */
static int is_finite(double value) { return value - value == 0; }

static double half(uint16_t bits) {
  int exponent = bits >> 10 & 31, fraction = bits & 1023;
  double value = exponent == 31 ? (fraction ? NAN : INFINITY)
                 : exponent     ? ldexp(1024 + fraction, exponent - 25)
                                : ldexp(fraction, -24);
  return bits >> 15 ? -value : value;
}

static double element(const char *dtype, const void *data, size_t index) {
  if (!strcmp(dtype, "float32") || !strcmp(dtype, "complex64")) return ((const float *)data)[index];
  if (!strcmp(dtype, "float64") || !strcmp(dtype, "complex128")) return ((const double *)data)[index];
  if (!strcmp(dtype, "int64")) return (double)((const int64_t *)data)[index];
  if (!strcmp(dtype, "int32")) return ((const int32_t *)data)[index];
  if (!strcmp(dtype, "int16")) return ((const int16_t *)data)[index];
  if (!strcmp(dtype, "int8")) return ((const int8_t *)data)[index];
  if (!strcmp(dtype, "float16")) return half(((const uint16_t *)data)[index]);
  if (!strcmp(dtype, "bfloat16")) {
    uint32_t bits = (uint32_t)((const uint16_t *)data)[index] << 16;
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
  }
  return ((const uint8_t *)data)[index];
}

static size_t element_count(const bessemer_tensor *tensor) {
  size_t count = strncmp(tensor->dtype, "complex", 7) ? 1 : 2;
  for (int32_t axis = 0; axis < tensor->dimensions; axis++) count *= (size_t)tensor->shape[axis];
  return count;
}

/* The end of the JSON array that begins at `at`. Brackets in strings do not count. */
static const char *array_end(const char *at) {
  int depth = 0, quoted = 0;
  for (; *at; at++) {
    if (quoted && *at == '\\' && at[1]) at++;
    else if (*at == '"') quoted = !quoted;
    else if (!quoted && *at == '[') depth++;
    else if (!quoted && *at == ']' && !--depth) return at;
  }
  return at;
}

/* The number after `"key": ` in the tolerance of an output, in the list of its entry point in manifest.json, whose lists
 * are in the order of the entry points. Outputs without a tolerance must be equal. */
static double tolerance(const char *manifest, int32_t entry, const char *name, const char *key) {
  static const char LIST[] = "\"tolerances\": [";
  const char *list = manifest;
  char wanted[512];
  for (int32_t i = 0; list && i <= entry; i++)
    if ((list = strstr(list, LIST))) list += sizeof(LIST) - 2;
  const char *end = list ? array_end(list) : NULL;
  snprintf(wanted, sizeof(wanted), "\"name\": \"%s\"", name);
  const char *found = list ? strstr(list, wanted) : NULL;
  snprintf(wanted, sizeof(wanted), "\"%s\": ", key);
  if (found && found < end) found = strstr(found, wanted);
  return found && found < end ? strtod(found + strlen(wanted), NULL) : 0;
}

static void report_output(FILE *report, const char *name, size_t count, size_t wrong, double largest, int is_first) {
  if (!report) return;
  fprintf(report, "%s{\"name\": \"%s\", \"elements\": %zu, \"mismatches\": %zu, \"max_absolute_error\": ",
          is_first ? "" : ", ", name, count, wrong);
  if (is_finite(largest)) fprintf(report, "%.9g}", largest);
  else fputs("null}", report);
}

/* How far two elements are apart; 0 if they are equal or both NaN. A double cannot tell large 64-bit integers apart. */
static double distance(const char *dtype, const void *found, const void *wanted, size_t index) {
  if (!strcmp(dtype, "int64")) {
    int64_t a = ((const int64_t *)found)[index], b = ((const int64_t *)wanted)[index];
    return (double)(a > b ? (uint64_t)a - (uint64_t)b : (uint64_t)b - (uint64_t)a);
  }
  double a = element(dtype, found, index), b = element(dtype, wanted, index);
  return a == b || (a != a && b != b) ? 0 : fabs(a - b);
}

static int compare(const bessemer_tensor *tensor, int32_t entry, const void *output, file_content archive,
                   const char *manifest, FILE *report, int is_first) {
  char error[ERROR_BYTES];
  const unsigned char *expected = npy_data(npz_member(archive, tensor->name), tensor, error);
  if (!expected) return stop("no reference for output", tensor->name);
  void *aligned = malloc(tensor->bytes ? tensor->bytes : 1);
  if (!aligned) return stop("out of memory", "");
  memcpy(aligned, expected, tensor->bytes);
  double relative = tolerance(manifest, entry, tensor->name, "relative");
  double absolute = tolerance(manifest, entry, tensor->name, "absolute"), largest = 0;
  size_t wrong = 0, count = element_count(tensor);
  for (size_t i = 0; i < count; i++) {
    double wanted = element(tensor->dtype, aligned, i), difference = distance(tensor->dtype, output, aligned, i);
    if (difference == 0) continue;
    if (!is_finite(wanted) || !(difference <= absolute + relative * fabs(wanted))) wrong++;
    if (!(difference <= largest)) largest = difference;
  }
  free(aligned);
  printf("%s: ", tensor->name);
  if (wrong) printf("DIFFERS in %zu elements", wrong);
  else fputs("matches the reference", stdout);
  printf(" (largest absolute error %.3g)\n", largest);
  report_output(report, tensor->name, count, wrong, largest, is_first);
  return wrong != 0;
}

static void print_output(const bessemer_tensor *tensor, const void *output) {
  size_t count = element_count(tensor), shown = count < SHOWN ? count : SHOWN;
  printf("%s:", tensor->name);
  for (size_t i = 0; i < shown; i++) printf(" %.6g", element(tensor->dtype, output, i));
  printf(shown < count ? " ... (%zu elements)\n" : "\n", count);
}

static int by_value(const void *left, const void *right) {
  double a = *(const double *)left, b = *(const double *)right;
  return (a > b) - (a < b);
}

static int time_runs(bessemer_model *model, int32_t entry, const void *const *inputs, void *const *outputs,
                     const options *given) {
  double *times = malloc((size_t)given->repeat * sizeof(double)), began = system_now_ms();
  long runs = 0;
  if (!times) return stop("out of memory", "");
  while (runs < given->repeat && (!runs || !given->seconds || system_now_ms() - began < given->seconds * 1e3)) {
    double start = system_now_ms();
    if (bessemer_model_run(model, entry, inputs, outputs)) return stop("the model failed", bessemer_model_error());
    times[runs++] = system_now_ms() - start;
  }
  for (long i = 0; given->report && i < runs; i++) fprintf(given->report, i ? ", %.6f" : "%.6f", times[i]);
  qsort(times, (size_t)runs, sizeof(double), by_value);
  printf("latency over %ld runs: least %.4f ms, median %.4f ms, largest %.4f ms\n", runs, times[0], times[runs / 2],
         times[runs - 1]);
  free(times);
  return 0;
}

/* Writes the outputs, then the states after the run. */
static int write_outputs(const char *path, const bessemer_entry *entry, void *const *outputs, bessemer_model *model) {
  int32_t count;
  const bessemer_tensor *states = bessemer_model_states(&count);
  npz_writer writer;
  errno = 0;
  int failed = npz_begin(&writer, path);
  for (int32_t i = 0; !failed && i < entry->output_count; i++) {
    const bessemer_tensor *tensor = &entry->outputs[i];
    failed = npz_add(&writer, tensor->name, tensor->dtype, tensor->shape, tensor->dimensions, outputs[i], tensor->bytes);
  }
  for (int32_t i = 0; !failed && i < count; i++) {
    void *state = malloc(states[i].bytes ? states[i].bytes : 1);
    if (!state) return stop("out of memory", "");
    failed = bessemer_model_read_state(model, i, state) ||
             npz_add(&writer, states[i].name, states[i].dtype, states[i].shape, states[i].dimensions, state,
                     states[i].bytes);
    free(state);
  }
  if (!failed) failed = npz_end(&writer);
  return failed ? stop_at("cannot write", path) : 0;
}

static int load_inputs(void **inputs, const bessemer_entry *entry, const options *given, file_content archive) {
  for (int32_t i = 0; i < entry->input_count; i++) {
    int failed = load_input(&inputs[i], &entry->inputs[i], given, archive);
    if (failed) return failed;
  }
  return 0;
}

/* One pointer for each tensor; outputs have memory. NULL if memory is short. */
static void **pointers(const bessemer_tensor *tensors, int32_t count, int allocate) {
  void **made = calloc((size_t)count + 1, sizeof(void *));
  for (int32_t i = 0; made && allocate && i < count; i++)
    if (!(made[i] = system_allocate(tensors[i].bytes + ALIGNMENT))) return NULL;
  return made;
}

static void release(void **made, int32_t count) {
  for (int32_t i = 0; i < count; i++) system_free(made[i]);
  free(made);
}

/* Gives the states that the user has files for their values; the others keep theirs. */
static int load_states(bessemer_model *model, const options *given, file_content archive) {
  int32_t count;
  int is_own;
  char error[ERROR_BYTES];
  const bessemer_tensor *states = bessemer_model_states(&count);
  for (int32_t i = 0; i < count; i++) {
    file_content file = tensor_file(&states[i], given, archive, &is_own);
    if (!file.content && is_own) return refuse_file(given_file(given, states[i].name));
    if (!file.content) continue;
    const unsigned char *data = npy_data(file, &states[i], error);
    if (!data) return refuse_array("state", states[i].name, given_file(given, states[i].name), error);
    if (bessemer_model_write_state(model, i, data)) return stop(states[i].name, bessemer_model_error());
    if (is_own) free(file.content);
  }
  return 0;
}

static int run_call(bessemer_model *model, const options *given, const char **call, const bessemer_entry *entries,
                    int32_t count) {
  int32_t index = 0;
  while (index < count && strcmp(entries[index].name, call[0])) index++;
  if (index == count) return refuse_entry(call[0], entries, count);
  const bessemer_entry *entry = &entries[index];
  file_content archive = read_file(call[1]);
  if (!archive.content) return refuse_file(call[1]);
  int failed = check_archive_names(archive, entry);
  if (failed) return failed;
  void **inputs = pointers(entry->inputs, entry->input_count, 0);
  void **outputs = pointers(entry->outputs, entry->output_count, 1);
  if (!inputs || !outputs) return stop("out of memory", "");
  failed = load_inputs(inputs, entry, given, archive);
  if (!failed) failed = load_states(model, given, archive);
  if (failed) return failed;
  if (bessemer_model_run(model, index, (const void *const *)inputs, outputs))
    return stop("the model failed", bessemer_model_error());
  failed = write_outputs(call[2], entry, outputs, model);
  release(inputs, entry->input_count);
  release(outputs, entry->output_count);
  free(archive.content);
  return failed;
}

static int run_calls(const options *given, const bessemer_entry *entries, int32_t count) {
  bessemer_model *model = bessemer_model_open((int32_t)given->threads);
  if (!model) return stop("cannot open the model", bessemer_model_error());
  for (int i = 0; i < given->call_count; i++) {
    int failed = run_call(model, given, given->call + 3 * i, entries, count);
    if (failed) return failed;
  }
  bessemer_model_close(model);
  return 0;
}

static int run_entry(const options *given, int32_t index, const bessemer_entry *entry, const char *folder) {
  char path[PATH_BYTES + 64];
  FILE *report = given->report;
  int reference = !given->inputs && !given->input_count;
  const char *below = index ? entry->name : "";
  snprintf(path, sizeof(path), "%s/reference/%s%sinputs.npz", folder, below, index ? "/" : "");
  int failed = check_given_names(given, entry);
  if (failed) return failed;
  file_content archive = {NULL, 0};
  if (reference || given->inputs) archive = read_file(reference ? path : given->inputs);
  if (given->inputs && !archive.content) return refuse_file(given->inputs);
  if (given->inputs && (failed = check_archive_names(archive, entry))) return failed;
  if (reference && entry->input_count && !archive.content) return stop_at("cannot read", path);
  void **inputs = pointers(entry->inputs, entry->input_count, 0);
  void **outputs = pointers(entry->outputs, entry->output_count, 1);
  if (!inputs || !outputs) return stop("out of memory", "");
  if ((failed = load_inputs(inputs, entry, given, archive))) return failed;
  double began = system_now_ms();
  bessemer_model *model = bessemer_model_open((int32_t)given->threads);
  if (!model) return stop("cannot open the model", bessemer_model_error());
  double opened = system_now_ms();
  if (!reference && (failed = load_states(model, given, archive))) return failed;
  double loaded = system_now_ms();
  if (bessemer_model_run(model, index, (const void *const *)inputs, outputs))
    return stop("the model failed", bessemer_model_error());
  double ran = system_now_ms();
  if (report) {
    fprintf(report, "%s{\"name\": \"%s\", \"open_ms\": %.6f, \"first_ms\": %.6f, \"outputs\": [",
            index && !given->entry ? ", " : "", entry->name, opened - began, ran - loaded);
  }
  if (reference) {
    snprintf(path, sizeof(path), "%s/reference/%s%soutputs.npz", folder, below, index ? "/" : "");
    file_content references = read_file(path);
    snprintf(path, sizeof(path), "%s/manifest.json", folder);
    file_content manifest = read_file(path);
    for (int32_t i = 0; i < entry->output_count; i++)
      failed |= compare(&entry->outputs[i], index, outputs[i], references, (const char *)manifest.content, report, !i);
  } else {
    for (int32_t i = 0; i < entry->output_count; i++) print_output(&entry->outputs[i], outputs[i]);
  }
  if (given->outputs) failed |= write_outputs(given->outputs, entry, outputs, model);
  if (report) fputs("], \"times_ms\": [", report);
  if (given->repeat) failed |= time_runs(model, index, (const void *const *)inputs, outputs, given);
  if (report) fputs("]}", report);
  bessemer_model_close(model);
  return failed;
}

/* Runs the chosen entry points. A mismatch does not keep the others from running. */
static int run_entries(const options *given, const bessemer_entry *entries, int32_t count, const char *folder) {
  int failed = 0, ran = 0, all = !given->entry && !given->inputs && !given->input_count;
  if (given->outputs && all && count > 1)
    return refuse_option("", "--output", " needs --entry: the model has several entry points");
  for (int32_t i = 0; i < count; i++) {
    if (given->entry ? strcmp(given->entry, entries[i].name) : i && !all) continue;
    if (!given->entry && count > 1) printf("%s\n", entries[i].name);
    int status = run_entry(given, i, &entries[i], folder);
    if (status > failed) failed = status;
    ran = 1;
  }
  return ran ? failed : refuse_entry(given->entry, entries, count);
}

/* The most memory that this process had; 0 if Linux does not say. */
static long peak_memory_bytes(void) {
  char text[4096];
  FILE *file = fopen("/proc/self/status", "r");
  size_t size = file ? fread(text, 1, sizeof(text) - 1, file) : 0;
  text[size] = 0;
  if (file) fclose(file);
  const char *found = strstr(text, "VmHWM:");
  return found ? strtol(found + 6, NULL, 10) * 1024 : 0;
}

static int report_entries(options *given, const bessemer_entry *entries, int32_t count, const char *folder) {
  given->report = fopen(given->report_path, "w");
  if (!given->report) return stop_at("cannot write", given->report_path);
  fputs("{\"entries\": [", given->report);
  int failed = run_entries(given, entries, count, folder);
  fprintf(given->report, "], \"peak_memory_bytes\": %ld}\n", peak_memory_bytes());
  return fclose(given->report) ? stop_at("cannot write", given->report_path) : failed;
}

int main(int argc, char **argv) {
  int32_t count;
  const bessemer_entry *entries = bessemer_model_entries(&count);
  options given = {0};
  char folder[PATH_BYTES];
  given.input = calloc((size_t)argc + 1, sizeof(char *));
  given.call = calloc((size_t)argc + 1, sizeof(char *));
  if (!given.input || !given.call) return stop("out of memory", "");
  int failed = read_options(&given, argc, argv);
  if (failed) return failed;
  if (given.list) {
    list_entries(entries, count);
    return 0;
  }
  if (given.call_count) return run_calls(&given, entries, count);
  bundle_folder(folder, argv[0]);
  return given.report_path ? report_entries(&given, entries, count, folder)
                           : run_entries(&given, entries, count, folder);
}
