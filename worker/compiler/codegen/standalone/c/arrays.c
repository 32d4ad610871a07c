#include "arrays.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DIMENSIONS 64 /* as in NumPy */
#define NPY_START 10
#define LATER_NPY_START 12 /* of versions 2 and 3, whose headers can be longer */
#define LOCAL_HEADER 30
#define CENTRAL_HEADER 46
#define END_HEADER 22

typedef struct {
  const char *name;
  const char *descr;
} dtype_name;

static const dtype_name DTYPES[] = {
    {"float16", "<f2"}, {"uint16", "<u2"},   {"bfloat16", "<u2"}, {"bfloat16", "<V2"},  {"float32", "<f4"},
    {"float64", "<f8"}, {"uint32", "<u4"},   {"uint64", "<u8"},
    {"int8", "|i1"},    {"int16", "<i2"},    {"int32", "<i4"},    {"int64", "<i8"},     {"uint8", "|u1"},
    {"bool", "|b1"},    {"complex64", "<c8"}, {"complex128", "<c16"},
};
#define DTYPE_COUNT (sizeof(DTYPES) / sizeof(DTYPES[0]))

file_content read_file(const char *path) {
  file_content read = {NULL, 0};
  FILE *file = fopen(path, "rb");
  char first;
  if (!file) return read;
  /* Only reading tells a folder from a file. */
  if ((fread(&first, 1, 1, file) || !ferror(file)) && !fseek(file, 0, SEEK_END)) {
    long bytes = ftell(file);
    rewind(file);
    if (bytes >= 0) read.content = malloc((size_t)bytes + 1);
    if (read.content) read.bytes = fread(read.content, 1, (size_t)bytes, file);
    if (read.content) read.content[read.bytes] = 0;
  }
  int why = errno;
  fclose(file);
  errno = why;
  return read;
}

static uint32_t number(const unsigned char *bytes, int count) {
  uint32_t value = 0;
  for (int i = count - 1; i >= 0; i--) value = value << 8 | bytes[i];
  return value;
}

/* What follows a key in the header of an .npy file, which is a dictionary of Python; NULL if it has none. */
static const char *value_of(const char *header, const char *key) {
  const char *found = strstr(header, key);
  return found ? found + strlen(key) : NULL;
}

/* Checks the dtype, which NumPy writes as `'<f4'`. */
static int has_dtype(const char *header, const char *dtype, char *error) {
  const char *start = value_of(header, "'descr': '"), *end = start ? strchr(start, '\'') : NULL, *name = NULL;
  size_t length = end ? (size_t)(end - start) : 0;
  for (size_t i = 0; i < DTYPE_COUNT; i++) {
    if (strlen(DTYPES[i].descr) != length || strncmp(DTYPES[i].descr, start, length)) continue;
    if (!strcmp(DTYPES[i].name, dtype)) return 1;
    if (!name) name = DTYPES[i].name;
  }
  if (name) length = strlen(name);
  else if (end) name = start;
  else name = "with fields", length = strlen(name);
  snprintf(error, ERROR_BYTES, "has the dtype %.*s, expected %s", (int)(length < 64 ? length : 64), name, dtype);
  return 0;
}

/* Reads a shape, which NumPy writes as `(1, 8)`. Returns the number of its sizes. */
static int32_t read_shape(const char *header, int64_t *shape) {
  const char *at = value_of(header, "'shape': (");
  int32_t count = 0;
  while (at && *at >= '0' && *at <= '9' && count < MAX_DIMENSIONS) {
    uint64_t size = 0;
    while (*at >= '0' && *at <= '9') size = size * 10 + (uint64_t)(*at++ - '0');
    shape[count++] = (int64_t)size;
    while (*at == ',' || *at == ' ') at++;
  }
  return count;
}

/* Adds a shape to a text: `1x8`, and `()` for a scalar. */
static size_t add_shape(char *text, size_t used, const int64_t *shape, int32_t count) {
  const char *first = count ? "" : "()";
  used += (size_t)snprintf(text + used, ERROR_BYTES - used, "%s", first);
  for (int32_t i = 0; i < count && used + 32 < ERROR_BYTES; i++)
    used += (size_t)snprintf(text + used, ERROR_BYTES - used, "%s%lld", i ? "x" : "", (long long)shape[i]);
  return used;
}

static int has_shape(const char *header, const bessemer_tensor *tensor, char *error) {
  int64_t shape[MAX_DIMENSIONS];
  int32_t count = read_shape(header, shape);
  size_t bytes = (size_t)tensor->dimensions * sizeof(int64_t);
  if (count == tensor->dimensions && (!count || !memcmp(shape, tensor->shape, bytes))) return 1;
  size_t used = add_shape(error, (size_t)snprintf(error, ERROR_BYTES, "has the shape "), shape, count);
  if (used + 32 < ERROR_BYTES) used += (size_t)snprintf(error + used, ERROR_BYTES - used, ", expected ");
  add_shape(error, used, tensor->shape, tensor->dimensions);
  return 0;
}

const unsigned char *npy_data(file_content file, const bessemer_tensor *tensor, char *error) {
  snprintf(error, ERROR_BYTES, "is not an .npy file");
  if (!file.content || file.bytes < LATER_NPY_START || memcmp(file.content, "\x93NUMPY", 6)) return NULL;
  int version = file.content[6];
  size_t start = version == 1 ? NPY_START : LATER_NPY_START, header = number(file.content + 8, (int)start - 8);
  if (version >= 1 && version <= 3 && file.bytes - start < header) return NULL;
  snprintf(error, ERROR_BYTES, "has version %d of the .npy format, expected 1, 2 or 3", version);
  if (version < 1 || version > 3) return NULL;
  char *text = calloc(header + 1, 1);
  if (!text) return NULL;
  memcpy(text, file.content + start, header);
  int fits = has_dtype(text, tensor->dtype, error) && has_shape(text, tensor, error);
  int fortran = strstr(text, "'fortran_order': True") != NULL;
  free(text);
  if (!fits) return NULL;
  snprintf(error, ERROR_BYTES, "is in Fortran order; save numpy.ascontiguousarray(array)");
  if (fortran) return NULL;
  size_t bytes = file.bytes - start - header;
  snprintf(error, ERROR_BYTES, "has %zu bytes of data, expected %zu", bytes, tensor->bytes);
  return bytes == tensor->bytes ? file.content + start + header : NULL;
}

static size_t entry_at(file_content archive, size_t at) {
  return at + CENTRAL_HEADER <= archive.bytes && !memcmp(archive.content + at, "PK\1\2", 4) ? at : 0;
}

size_t npz_first(file_content archive) {
  if (!archive.content || archive.bytes < END_HEADER) return 0;
  const unsigned char *end = archive.content + archive.bytes - END_HEADER;
  return memcmp(end, "PK\5\6", 4) || !number(end + 10, 2) ? 0 : entry_at(archive, number(end + 16, 4));
}

size_t npz_next(file_content archive, size_t entry) {
  const unsigned char *header = archive.content + entry;
  return entry_at(archive, entry + CENTRAL_HEADER + number(header + 28, 2) + number(header + 30, 2) + number(header + 32, 2));
}

const char *npz_name(file_content archive, size_t entry, int *length) {
  const unsigned char *header = archive.content + entry;
  size_t bytes = number(header + 28, 2);
  const char *name = (const char *)header + CENTRAL_HEADER;
  if (entry + CENTRAL_HEADER + bytes > archive.bytes) bytes = 0;
  *length = (int)(bytes > 4 && !memcmp(name + bytes - 4, ".npy", 4) ? bytes - 4 : bytes);
  return name;
}

static file_content content_of(file_content archive, size_t entry) {
  file_content found = {NULL, 0};
  const unsigned char *header = archive.content + entry;
  size_t bytes = number(header + 24, 4), local = number(header + 42, 4);
  if (number(header + 10, 2) || local + LOCAL_HEADER > archive.bytes) return found;
  const unsigned char *own = archive.content + local;
  size_t start = local + LOCAL_HEADER + number(own + 26, 2) + number(own + 28, 2);
  if (start + bytes > archive.bytes) return found;
  found.content = archive.content + start;
  found.bytes = bytes;
  return found;
}

file_content npz_member(file_content archive, const char *name) {
  file_content none = {NULL, 0};
  int length;
  for (size_t entry = npz_first(archive); entry; entry = npz_next(archive, entry)) {
    const char *own = npz_name(archive, entry, &length);
    if ((size_t)length == strlen(name) && !memcmp(own, name, (size_t)length)) return content_of(archive, entry);
  }
  return none;
}

static uint32_t crc32_of(uint32_t crc, const unsigned char *bytes, size_t count) {
  crc = ~crc;
  for (size_t i = 0; i < count; i++) {
    crc ^= bytes[i];
    for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (0xEDB88320u & (0u - (crc & 1)));
  }
  return ~crc;
}

static void put(FILE *file, uint32_t value, int bytes) {
  for (int i = 0; i < bytes; i++) fputc((int)(value >> (8 * i) & 255), file);
}

static void put_common(FILE *file, const npz_entry *entry) {
  put(file, 20, 2), put(file, 0, 2), put(file, 0, 2), put(file, 0, 2), put(file, 0x21, 2), put(file, entry->crc, 4);
  put(file, entry->bytes, 4), put(file, entry->bytes, 4);
  put(file, (uint32_t)strlen(entry->name) + 4, 2), put(file, 0, 2);
}

int npz_begin(npz_writer *writer, const char *path) {
  writer->count = 0;
  writer->entries = NULL;
  writer->file = fopen(path, "wb");
  return writer->file ? 0 : -1;
}

static npz_entry *add_entry(npz_writer *writer, const char *name) {
  npz_entry *grown = realloc(writer->entries, (writer->count + 1u) * sizeof(npz_entry));
  if (!grown) return NULL;
  writer->entries = grown;
  grown[writer->count].name = malloc(strlen(name) + 1);
  if (!grown[writer->count].name) return NULL;
  strcpy(grown[writer->count].name, name);
  return &grown[writer->count++];
}

static const char *descr_of(const char *dtype) {
  for (size_t i = 0; i < DTYPE_COUNT; i++)
    if (!strcmp(DTYPES[i].name, dtype)) return DTYPES[i].descr;
  return "|u1";
}

int npz_add(npz_writer *writer, const char *name, const char *dtype, const int64_t *shape, int32_t dimensions,
            const void *data, size_t bytes) {
  unsigned char header[1024];
  char *text = (char *)header + NPY_START;
  size_t room = sizeof(header) - NPY_START - 64;
  int used = snprintf(text, room, "{'descr': '%s', 'fortran_order': False, 'shape': (", descr_of(dtype));
  for (int32_t i = 0; i < dimensions; i++)
    used += snprintf(text + used, room - (size_t)used, "%lld,", (long long)shape[i]);
  used += snprintf(text + used, room - (size_t)used, "), }");
  while ((NPY_START + used + 1) % 64) text[used++] = ' ';
  text[used++] = '\n';
  memcpy(header, "\x93NUMPY\1\0", 8);
  header[8] = (unsigned char)(used & 255), header[9] = (unsigned char)(used >> 8);
  size_t header_bytes = (size_t)used + NPY_START;
  long start = ftell(writer->file);
  if (start < 0) return -1;
  if ((uint64_t)start + header_bytes + bytes > UINT32_MAX) return errno = EFBIG, -1;
  npz_entry *entry = add_entry(writer, name);
  if (!entry) return -1;
  entry->crc = crc32_of(crc32_of(0, header, header_bytes), data, bytes);
  entry->bytes = (uint32_t)(header_bytes + bytes);
  entry->start = (uint32_t)start;
  put(writer->file, 0x04034B50, 4), put_common(writer->file, entry);
  fprintf(writer->file, "%s.npy", name);
  fwrite(header, 1, header_bytes, writer->file), fwrite(data, 1, bytes, writer->file);
  return ferror(writer->file) ? -1 : 0;
}

int npz_end(npz_writer *writer) {
  FILE *file = writer->file;
  uint32_t start = (uint32_t)ftell(file);
  for (uint32_t i = 0; i < writer->count; i++) {
    const npz_entry *entry = &writer->entries[i];
    put(file, 0x02014B50, 4), put(file, 20, 2), put_common(file, entry);
    put(file, 0, 2), put(file, 0, 2), put(file, 0, 2), put(file, 0, 4), put(file, entry->start, 4);
    fprintf(file, "%s.npy", entry->name);
    free(entry->name);
  }
  free(writer->entries);
  long end = ftell(file);
  put(file, 0x06054B50, 4), put(file, 0, 4), put(file, writer->count, 2), put(file, writer->count, 2);
  put(file, (uint32_t)end - start, 4), put(file, start, 4), put(file, 0, 2);
  int failed = ferror(file) || end < 0;
  if (!failed && (uint64_t)end > UINT32_MAX) failed = 1, errno = EFBIG;
  return fclose(file) || failed ? -1 : 0;
}
