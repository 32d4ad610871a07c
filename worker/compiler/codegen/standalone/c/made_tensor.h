/* The tensors that a candidate of a search runs on: read from the command line, and filled with numbers. */
#ifndef BESSEMER_MADE_TENSOR_H
#define BESSEMER_MADE_TENSOR_H

#include "plan.h"
#include "system.h"

#include <string.h>

#define MAX_ARGUMENTS 256
#define MAX_DIMENSIONS 32
#define DLPACK_INT 0
#define DLPACK_UINT 1
#define DLPACK_FLOAT 2
#define DLPACK_BFLOAT 4
#define DLPACK_BOOL 6

typedef struct {
  bessemer_dltensor tensor;
  int64_t shape[MAX_DIMENSIONS];
  int64_t strides[MAX_DIMENSIONS];
} made_tensor;

static inline int read_type(bessemer_dltensor *tensor, const char *text, const char **rest) {
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
static inline int read_tensor(made_tensor *made, const char *text) {
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
static inline float next_number(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (float)(int32_t)(*state >> 32) / 2147483648.0f;
}

static inline uint16_t half_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  int32_t exponent = (int32_t)(bits >> 23 & 255) - 112;
  uint32_t sign = bits >> 16 & 0x8000;
  return (uint16_t)(exponent <= 0 ? sign : sign | (uint32_t)exponent << 10 | (bits >> 13 & 1023));
}

static inline size_t count_elements(const bessemer_dltensor *tensor) {
  size_t count = 1;
  for (int32_t axis = 0; axis < tensor->dimensions; axis++) count *= (size_t)tensor->shape[axis];
  return count;
}

static inline size_t element_bytes(const bessemer_dltensor *tensor) { return (size_t)(tensor->bits + 7) / 8; }

/* Integers are zero, so that an index stays in its table. */
static inline void fill_memory(unsigned char *data, const bessemer_dltensor *tensor, uint64_t state) {
  size_t count = count_elements(tensor);
  memset(data, 0, count * element_bytes(tensor));
  if (tensor->type_code != DLPACK_FLOAT && tensor->type_code != DLPACK_BFLOAT) return;
  for (size_t i = 0; i < count; i++) {
    float value = next_number(&state);
    if (tensor->bits == 64) ((double *)data)[i] = value;
    else if (tensor->bits == 32) ((float *)data)[i] = value;
    else if (tensor->type_code == DLPACK_FLOAT && tensor->bits == 16) ((uint16_t *)data)[i] = half_of(value);
    else if (tensor->bits == 16) memcpy(data + 2 * i, (unsigned char *)&value + 2, 2);
  }
}

#endif
