/* A mremap that fails when it should replace a mapping, as a kernel does that is short of memory. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

void *mremap(void *old, size_t old_bytes, size_t new_bytes, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  void *target = flags & MREMAP_FIXED ? va_arg(rest, void *) : NULL;
  va_end(rest);
  if (!target) return (void *)syscall(SYS_mremap, old, old_bytes, new_bytes, flags, NULL);
  if (getenv("MREMAP_UNMAPS")) munmap(target, new_bytes);
  errno = ENOMEM;
  return MAP_FAILED;
}
