/* Maps the parameters into the process before the first run, which would otherwise fault page by page.
 *
 *   in place:   the pages are those of the file in the system's cache, which all processes share
 *   copied:     private huge pages take their place, piece by piece, at the same addresses
 */
#define _GNU_SOURCE
#include "plan.h"
#include "system.h"

#include <string.h>

#define HUGE_PAGE ((size_t)2 << 20)
#define PIECE (16 * HUGE_PAGE)
#define MADV_COLLAPSE_NOW 25

static unsigned char *rounded_up(unsigned char *address) {
  return (unsigned char *)(((uintptr_t)address + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
}

/* Puts a copy of a piece back if the kernel removed the piece before it failed to move `made` there. */
static void restore_piece(unsigned char *piece, const unsigned char *made, size_t bytes) {
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
  unsigned char *restored = mmap(piece, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (restored == MAP_FAILED) return;
  if (restored != piece) { /* a kernel before 4.17, where the piece is still there */
    munmap(restored, bytes);
    return;
  }
  memcpy(piece, made, bytes);
  mprotect(piece, bytes, PROT_READ);
}

/* Other threads can read these addresses at any time and see the same bytes: the kernel exchanges the pages at once. */
static int copy_piece(unsigned char *piece, size_t bytes) {
  unsigned char *reserved =
      mmap(NULL, bytes + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return -1;
  unsigned char *made = rounded_up(reserved), *end = reserved + bytes + HUGE_PAGE;
  madvise(made, bytes, MADV_HUGEPAGE);
  memcpy(made, piece, bytes);
  madvise(made, bytes, MADV_COLLAPSE_NOW);
  mprotect(made, bytes, PROT_READ);
  int failed = mremap(made, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, piece) == MAP_FAILED;
  munmap(reserved, (size_t)(made - reserved));
  if (failed) {
    restore_piece(piece, made, bytes);
    munmap(made, bytes);
  }
  munmap(made + bytes, (size_t)(end - made) - bytes);
  return failed ? -1 : 0;
}

/* bessemer_map_parameters(copies), which Python calls. Returns how many bytes lie on private huge pages. */
BESSEMER_API int64_t bessemer_map_parameters(int32_t copies) {
  unsigned char *start = (unsigned char *)(uintptr_t)bessemer_parameters, *first = rounded_up(start);
  int64_t copied = 0;
  for (unsigned char *piece = first; copies && piece + HUGE_PAGE <= start + bessemer_parameter_bytes;) {
    size_t left = (size_t)(start + bessemer_parameter_bytes - piece) / HUGE_PAGE * HUGE_PAGE;
    size_t bytes = left < PIECE ? left : PIECE;
    if (copy_piece(piece, bytes)) break;
    copied += (int64_t)bytes;
    piece += bytes;
  }
  system_populate(start, bessemer_parameter_bytes);
  return copied;
}
