/* Runs many short parallel loops on more threads than there are processors, also in a fork, and counts each task. */
#include "plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 9
#define LOOPS 20000

typedef struct {
  void *sync;
  int32_t tasks;
} environment;

typedef int launcher(int (*)(int, environment *, void *), void *, int);

void *__TVMBackendParallelLaunch;
void *__TVMBackendAllocWorkspace;
void *__TVMBackendFreeWorkspace;

static int inner(int task, environment *given, void *data) {
  (void)task;
  __atomic_add_fetch((int *)data, given->tasks, __ATOMIC_RELAXED);
  return 0;
}

static int outer(int task, environment *given, void *data) {
  int *counts = data;
  __atomic_add_fetch(&counts[task], 1, __ATOMIC_RELAXED);
  if (given->tasks != THREADS) return -1;
  return ((launcher *)__TVMBackendParallelLaunch)(inner, &counts[THREADS], 0);
}

static int fail(int task, environment *given, void *data) {
  const char *parts[] = {"this task fails"};
  (void)given;
  if (task != *(int *)data) return 0;
  bessemer_set_error("ValueError", parts, 1);
  return -1;
}

/* Whether the caller reads the error of a task, whichever thread ran it. */
static int reports_errors(bessemer_pool *pool) {
  for (int task = 0; task < THREADS; task++) {
    bessemer_set_error("RuntimeError", NULL, 0);
    bessemer_pool_enter(pool);
    int failed = ((launcher *)__TVMBackendParallelLaunch)(fail, &task, 0);
    bessemer_pool_leave();
    if (!failed || strcmp(bessemer_model_error(), "ValueError: this task fails")) return 0;
  }
  return 1;
}

static int run_loops(bessemer_pool *pool) {
  for (int loop = 1; loop <= LOOPS; loop++) {
    int counts[THREADS + 1] = {0};
    bessemer_pool_enter(pool);
    int failed = ((launcher *)__TVMBackendParallelLaunch)(outer, counts, 0);
    bessemer_pool_leave();
    if (failed || counts[THREADS] != THREADS) return 1;
    for (int task = 0; task < THREADS; task++)
      if (counts[task] != 1) return 1;
  }
  return 0;
}

int main(void) {
  bessemer_connect_kernels();
  bessemer_pool *pool = bessemer_pool_open(THREADS);
  if (!pool || run_loops(pool) || !reports_errors(pool)) return 1;
  pid_t child = fork();
  if (!child) {
    int failed = run_loops(pool);
    bessemer_pool_close(pool);
    _exit(failed);
  }
  int status = 1;
  waitpid(child, &status, 0);
  int failed = status || run_loops(pool);
  bessemer_pool_close(pool);
  return failed;
}
