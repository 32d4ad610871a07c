/* NumPy's files: .npy, and .npz as numpy.savez writes it, not compressed. */
#ifndef BESSEMER_ARRAYS_H
#define BESSEMER_ARRAYS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* A file in memory; `content` is NULL if it cannot be read. */
typedef struct {
  unsigned char *content;
  size_t bytes;
} file_content;

file_content read_file(const char *path);

/* The data of an .npy file, which must have `bytes` bytes of `dtype`; NULL with `*error` in words otherwise. */
const unsigned char *npy_data(file_content file, const char *dtype, size_t bytes, const char **error);

/* The member `name`.npy of an .npz file; `content` is NULL if it has none. */
file_content npz_member(file_content archive, const char *name);

/* Writes an .npz file: begin, then each array, then end. Returns 0, or -1. */
typedef struct {
  char *name;
  uint32_t crc;
  uint32_t bytes;
  uint32_t start;
} npz_entry;

typedef struct {
  FILE *file;
  npz_entry *entries;
  uint16_t count;
} npz_writer;

int npz_begin(npz_writer *writer, const char *path);
int npz_add(npz_writer *writer, const char *name, const char *dtype, const int64_t *shape, int32_t dimensions,
            const void *data, size_t bytes);
int npz_end(npz_writer *writer);

#endif
