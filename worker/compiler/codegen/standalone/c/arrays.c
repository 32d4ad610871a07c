#include "arrays.h"

#include <stdlib.h>
#include <string.h>

#define NPY_START 10
#define LOCAL_HEADER 30
#define CENTRAL_HEADER 46
#define END_HEADER 22

typedef struct {
  const char *name;
  const char *descr;
} dtype_name;

static const dtype_name DTYPES[] = {
    {"float16", "<f2"}, {"bfloat16", "<u2"}, {"bfloat16", "<V2"}, {"float32", "<f4"},   {"float64", "<f8"},
    {"int8", "|i1"},    {"int16", "<i2"},    {"int32", "<i4"},    {"int64", "<i8"},     {"uint8", "|u1"},
    {"bool", "|b1"},    {"complex64", "<c8"}, {"complex128", "<c16"},
};
#define DTYPE_COUNT (sizeof(DTYPES) / sizeof(DTYPES[0]))

file_content read_file(const char *path) {
  file_content read = {NULL, 0};
  FILE *file = fopen(path, "rb");
  if (!file) return read;
  if (!fseek(file, 0, SEEK_END)) {
    long bytes = ftell(file);
    rewind(file);
    if (bytes >= 0) read.content = malloc((size_t)bytes + 1);
    if (read.content) read.bytes = fread(read.content, 1, (size_t)bytes, file);
    if (read.content) read.content[read.bytes] = 0;
  }
  fclose(file);
  return read;
}

static uint32_t number(const unsigned char *bytes, int count) {
  uint32_t value = 0;
  for (int i = count - 1; i >= 0; i--) value = value << 8 | bytes[i];
  return value;
}

static int has_dtype(const char *header, const char *dtype) {
  char wanted[32];
  for (size_t i = 0; i < DTYPE_COUNT; i++) {
    if (strcmp(DTYPES[i].name, dtype)) continue;
    snprintf(wanted, sizeof(wanted), "'%s'", DTYPES[i].descr);
    if (strstr(header, wanted)) return 1;
  }
  return 0;
}

const unsigned char *npy_data(file_content file, const char *dtype, size_t bytes, const char **error) {
  *error = "it is not an .npy file";
  if (!file.content || file.bytes < NPY_START || memcmp(file.content, "\x93NUMPY", 6)) return NULL;
  size_t header = number(file.content + 8, 2);
  if (file.bytes < NPY_START + header) return NULL;
  char *text = calloc(header + 1, 1);
  if (!text) return NULL;
  memcpy(text, file.content + NPY_START, header);
  int fits = has_dtype(text, dtype), fortran = strstr(text, "'fortran_order': True") != NULL;
  free(text);
  *error = "its type is another";
  if (!fits) return NULL;
  *error = "it is in Fortran's order; save numpy.ascontiguousarray(array)";
  if (fortran) return NULL;
  *error = "its shape is another";
  if (file.bytes - NPY_START - header != bytes) return NULL;
  return file.content + NPY_START + header;
}

file_content npz_member(file_content archive, const char *name) {
  file_content found = {NULL, 0};
  size_t length = strlen(name);
  if (!archive.content || archive.bytes < END_HEADER) return found;
  size_t end = archive.bytes - END_HEADER;
  if (memcmp(archive.content + end, "PK\5\6", 4)) return found;
  uint32_t count = number(archive.content + end + 10, 2);
  size_t at = number(archive.content + end + 16, 4);
  for (uint32_t i = 0; i < count && at + CENTRAL_HEADER <= archive.bytes; i++) {
    const unsigned char *entry = archive.content + at;
    size_t name_bytes = number(entry + 28, 2);
    size_t local = number(entry + 42, 4);
    const char *own = (const char *)entry + CENTRAL_HEADER;
    if (name_bytes == length + 4 && !memcmp(own, name, length) && !memcmp(own + length, ".npy", 4)) {
      if (number(entry + 10, 2) || local + LOCAL_HEADER > archive.bytes) return found;
      const unsigned char *header = archive.content + local;
      size_t start = local + LOCAL_HEADER + number(header + 26, 2) + number(header + 28, 2);
      size_t bytes = number(entry + 24, 4);
      if (start + bytes > archive.bytes) return found;
      found.content = archive.content + start;
      found.bytes = bytes;
      return found;
    }
    at += CENTRAL_HEADER + name_bytes + number(entry + 30, 2) + number(entry + 32, 2);
  }
  return found;
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
  npz_entry *entry = add_entry(writer, name);
  if (!entry) return -1;
  entry->crc = crc32_of(crc32_of(0, header, header_bytes), data, bytes);
  entry->bytes = (uint32_t)(header_bytes + bytes);
  entry->start = (uint32_t)ftell(writer->file);
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
  uint32_t end = (uint32_t)ftell(file);
  put(file, 0x06054B50, 4), put(file, 0, 4), put(file, writer->count, 2), put(file, writer->count, 2);
  put(file, end - start, 4), put(file, start, 4), put(file, 0, 2);
  int failed = ferror(file);
  return fclose(file) || failed ? -1 : 0;
}
