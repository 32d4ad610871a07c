/* Starts a program and waits for it: launch PROGRAM [ARGUMENT]...
 *
 * Its last line has the milliseconds from start to exit, and the peak memory in KiB. A child's peak is at least that of
 * the process that starts it, so this one is small. */
#define _GNU_SOURCE
#include <spawn.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

extern char **environ;

int main(int count, char **arguments) {
  struct timespec start, end;
  struct rusage used;
  pid_t child;
  int status;
  if (count < 2) return 2;
  clock_gettime(CLOCK_MONOTONIC, &start);
  if (posix_spawnp(&child, arguments[1], NULL, NULL, arguments + 1, environ)) return 127;
  if (wait4(child, &status, 0, &used) < 0) return 127;
  clock_gettime(CLOCK_MONOTONIC, &end);
  printf("\n%.4f %ld\n", (end.tv_sec - start.tv_sec) * 1e3 + (end.tv_nsec - start.tv_nsec) / 1e6, used.ru_maxrss);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 126;
}
