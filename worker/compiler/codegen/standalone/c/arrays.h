/* NumPy's files: .npy, and .npz as numpy.savez writes it, not compressed. */
#ifndef BESSEMER_ARRAYS_H
#define BESSEMER_ARRAYS_H

#include "bessemer_model.h"

#include <stdio.h>

#define ERROR_BYTES 512

/* A file in memory; `content` is NULL if it cannot be read, and `errno` says why. */
typedef struct {
  unsigned char *content;
  size_t bytes;
} file_content;

file_content read_file(const char *path);

/* The data of an .npy file for a tensor. NULL if the file has another dtype, shape or order: `error`, of ERROR_BYTES,
 * then says what the file has, such as "has the shape 1x8, expected 1x4". */
const unsigned char *npy_data(file_content file, const bessemer_tensor *tensor, char *error);

/* The member `name`.npy of an .npz file; `content` is NULL if it has none. */
file_content npz_member(file_content archive, const char *name);

/* The entries of an .npz file, as offsets, in order; 0 behind the last. */
size_t npz_first(file_content archive);
size_t npz_next(file_content archive, size_t entry);

/* The name of an entry, without `.npy` and without an end. */
const char *npz_name(file_content archive, size_t entry, int *length);

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
