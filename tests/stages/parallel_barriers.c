/* Runs parallel loops whose tasks meet at barriers, on more threads than there are processors. */
#include "plan.h"

#include <stdio.h>
#include <stdlib.h>

#define THREADS 5
#define LOOPS 200
#define STEPS 50

typedef struct {
  void *sync;
  int32_t tasks;
} environment;

typedef int launcher(int (*)(int, environment *, void *), void *, int);
typedef int barrier(int, environment *);

void *__TVMBackendParallelLaunch;
void *__TVMBackendParallelBarrier;

/* Each task writes its step, and after the barrier reads the same step from all. */
static int walk(int task, environment *given, void *data) {
  int *steps = data;
  for (int step = 1; step <= STEPS; step++) {
    __atomic_store_n(&steps[task], step, __ATOMIC_RELAXED);
    if (((barrier *)__TVMBackendParallelBarrier)(task, given)) return -1;
    for (int other = 0; other < given->tasks; other++)
      if (__atomic_load_n(&steps[other], __ATOMIC_RELAXED) != step) return -1;
    if (((barrier *)__TVMBackendParallelBarrier)(task, given)) return -1;
  }
  __atomic_add_fetch(&steps[THREADS], given->tasks, __ATOMIC_RELAXED);
  return 0;
}

/* The last task fails before the barrier that the others reach. */
static int fail(int task, environment *given, void *data) {
  (void)data;
  return task == given->tasks - 1 ? -1 : ((barrier *)__TVMBackendParallelBarrier)(task, given);
}

static int run_loops(int threads) {
  bessemer_pool *pool = bessemer_pool_open(threads);
  if (!pool) return 1;
  int wrong = 0;
  for (int loop = 0; loop < LOOPS && !wrong; loop++) {
    int steps[THREADS + 1] = {0}, members = 0;
    bessemer_pool_enter(pool);
    wrong = ((launcher *)__TVMBackendParallelLaunch)(walk, steps, 0);
    wrong |= ((launcher *)__TVMBackendParallelLaunch)(fail, steps, 0) == 0;
    bessemer_pool_leave();
    while (members < THREADS && steps[members]) members++;
    wrong |= steps[THREADS] != members * members;
  }
  bessemer_pool_close(pool);
  return wrong;
}

int main(void) {
  bessemer_connect_kernels();
  return run_loops(1) || run_loops(2) || run_loops(THREADS);
}
