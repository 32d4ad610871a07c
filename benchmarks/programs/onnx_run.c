/* Runs an ONNX model once by ONNX Runtime's C API:
 *
 *   onnx_run LIBRARY MODEL THREADS OUTPUT [NAME TYPE SHAPE FILE]...
 *
 * LIBRARY is the shared library, TYPE a number of ONNX, SHAPE such as 1x64, and FILE has an input's bytes. The first
 * output, of 32-bit floats, is written to OUTPUT. It frees nothing at its end: the system does so faster. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define INPUTS 16
#define RANK 8

typedef struct Status Status;
typedef struct Environment Environment;
typedef struct Options Options;
typedef struct Session Session;
typedef struct Value Value;
typedef struct Shape Shape;
typedef struct Memory Memory;
typedef struct Allocator Allocator;

/* OrtApi only grows at its end. These are the functions used here, at their places. */
typedef struct {
  void *from_0[2];
  const char *(*message)(const Status *);
  Status *(*create_environment)(int severity, const char *name, Environment **);
  void *from_4[3];
  Status *(*create_session)(const Environment *, const char *path, const Options *, Session **);
  void *from_8[1];
  Status *(*run)(Session *, const void *options, const char *const *names, const Value *const *, size_t count,
                 const char *const *output_names, size_t output_count, Value **);
  Status *(*create_options)(Options **);
  void *from_11[13];
  Status *(*set_threads)(Options *, int);
  void *from_25[12];
  Status *(*output_name)(const Session *, size_t, Allocator *, char **);
  void *from_38[11];
  Status *(*create_tensor)(const Memory *, void *data, size_t bytes, const int64_t *shape, size_t rank, int type,
                           Value **);
  void *from_50[1];
  Status *(*data)(Value *, void **);
  void *from_52[12];
  Status *(*element_count)(const Shape *, size_t *);
  Status *(*shape)(const Value *, Shape **);
  void *from_66[3];
  Status *(*create_memory)(int allocator, int kind, Memory **);
  void *from_70[8];
  Status *(*allocator)(Allocator **);
} Api;

typedef struct {
  const Api *(*api)(uint32_t version);
} Base;

#define VERSION 16 /* ONNX Runtime 1.16 and later have this interface */

static const Api *api;

static void stop(const char *what, const char *why) {
  fprintf(stderr, "onnx_run: %s: %s\n", what, why);
  exit(1);
}

static void check(const char *what, Status *status) {
  if (status) stop(what, api->message(status));
}

static void *contents(const char *path, size_t *bytes) {
  FILE *file = fopen(path, "rb");
  if (!file || fseek(file, 0, SEEK_END)) stop(path, "cannot be read");
  *bytes = (size_t)ftell(file);
  rewind(file);
  void *read = malloc(*bytes);
  if (!read || fread(read, 1, *bytes, file) != *bytes) stop(path, "cannot be read");
  fclose(file);
  return read;
}

static Value *tensor(const Memory *memory, int type, const char *shape, const char *path) {
  int64_t sizes[RANK];
  size_t rank = 0, bytes;
  for (char *rest = (char *)shape; *rest && rank < RANK; rest += *rest == 'x') sizes[rank++] = strtoll(rest, &rest, 10);
  void *data = contents(path, &bytes);
  Value *made;
  check(path, api->create_tensor(memory, data, bytes, sizes, rank, type, &made));
  return made;
}

int main(int count, char **arguments) {
  if (count < 5 || (count - 5) % 4 || (count - 5) / 4 > INPUTS) return 2;
  void *library = dlopen(arguments[1], RTLD_NOW);
  if (!library) stop(arguments[1], dlerror());
  const Base *(*base)(void) = (const Base *(*)(void))dlsym(library, "OrtGetApiBase");
  if (!base || !(api = base()->api(VERSION))) stop(arguments[1], "has another interface");

  Environment *environment;
  Options *options;
  Session *session;
  Memory *memory;
  Allocator *allocator;
  check("environment", api->create_environment(3, "onnx_run", &environment));
  check("options", api->create_options(&options));
  check("threads", api->set_threads(options, atoi(arguments[3])));
  check(arguments[2], api->create_session(environment, arguments[2], options, &session));
  check("memory", api->create_memory(1, 0, &memory));
  check("allocator", api->allocator(&allocator));

  const char *names[INPUTS];
  const Value *inputs[INPUTS];
  size_t given = 0;
  for (char **each = arguments + 5; each < arguments + count; each += 4, given++) {
    names[given] = each[0];
    inputs[given] = tensor(memory, atoi(each[1]), each[2], each[3]);
  }
  char *name;
  Value *output = NULL;
  check("output", api->output_name(session, 0, allocator, &name));
  check("run", api->run(session, NULL, names, inputs, given, (const char *const *)&name, 1, &output));

  Shape *shape;
  size_t elements;
  void *data;
  check("output", api->shape(output, &shape));
  check("output", api->element_count(shape, &elements));
  check("output", api->data(output, &data));
  FILE *file = fopen(arguments[4], "wb");
  if (!file || fwrite(data, sizeof(float), elements, file) != elements || fclose(file)) stop(arguments[4], "cannot be written");
  _exit(0);
}
