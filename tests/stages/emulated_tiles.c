/* Eight tiles of 16 rows of 64 bytes that compute what Intel's tile registers do, on any processor.

   GRANTED says whether a process that asks gets them. An instruction outside begin and end is a fault,
   and so is a begin before the last one's end. */
#include <stdint.h>
#include <string.h>

#define TILES 8
#define ROWS 16
#define LINE 64

typedef struct {
  uint32_t words[ROWS][LINE / 4];
} tile;

static _Thread_local tile tiles[TILES];
static _Thread_local int has_begun;
static int products;

int32_t bessemer_request_tiles(void) { return GRANTED; }

int32_t bessemer_begin_tiles(void) {
  if (has_begun || !GRANTED) __builtin_trap();
  has_begun = 1;
  memset(tiles, 0, sizeof tiles);
  return 0;
}

int32_t emulated_products(void) { return __atomic_load_n(&products, __ATOMIC_RELAXED); }

static tile *of(int64_t number) {
  if (!has_begun || number < 0 || number >= TILES) __builtin_trap();
  return &tiles[number];
}

int32_t emulated_tilerelease(void) {
  of(0);
  has_begun = 0;
  return 0;
}

int32_t emulated_tilezero(int64_t number) {
  memset(of(number), 0, sizeof(tile));
  return 0;
}

int32_t emulated_tileloadd64(int64_t number, const char *first, int64_t stride) {
  tile *to = of(number);
  for (int row = 0; row < ROWS; row++) memcpy(to->words[row], first + row * stride, LINE);
  return 0;
}

int32_t emulated_tilestored64(int64_t number, char *first, int64_t stride) {
  const tile *from = of(number);
  for (int row = 0; row < ROWS; row++) memcpy(first + row * stride, from->words[row], LINE);
  return 0;
}

/* A number; zero if it is subnormal. */
static float flushed(uint32_t bits) {
  float number;
  if (!(bits & 0x7F800000)) bits &= 0x80000000;
  memcpy(&number, &bits, sizeof number);
  return number;
}

static float flush(float number) {
  uint32_t bits;
  memcpy(&bits, &number, sizeof bits);
  return flushed(bits);
}

/* A line of the right factor holds two steps of the depth, which have sums of their own. */
int32_t emulated_tdpbf16ps(int64_t to, int64_t left, int64_t right) {
  tile *sums = of(to);
  const tile *lefts = of(left), *rights = of(right);
  for (int row = 0; row < ROWS; row++) {
    float even[LINE / 4] = {0}, odd[LINE / 4] = {0};
    for (int line = 0; line < ROWS; line++) {
      uint32_t pair = lefts->words[row][line];
      float first = flushed(pair << 16), second = flushed(pair & 0xFFFF0000);
      for (int column = 0; column < LINE / 4; column++) {
        uint32_t factors = rights->words[line][column];
        even[column] = flush(even[column] + first * flushed(factors << 16));
        odd[column] = flush(odd[column] + second * flushed(factors & 0xFFFF0000));
      }
    }
    for (int column = 0; column < LINE / 4; column++) {
      float sum = flush(flushed(sums->words[row][column]) + flush(even[column] + odd[column]));
      memcpy(&sums->words[row][column], &sum, sizeof sum);
    }
  }
  __atomic_add_fetch(&products, 1, __ATOMIC_RELAXED);
  return 0;
}
