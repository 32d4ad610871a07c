/* What kernels need from their runtime: threads, temporary memory, and a place for errors.
 *
 * A parallel loop is one task for each thread of the session that runs:
 *
 *   caller:   number += 1, wake the others; run task 0
 *             for each other task: if nothing has claimed it, claim it and run it
 *             wait until the tasks that others claimed are done
 *   others:   wait for a new number; if their own task is not claimed, claim it, run it, say that it is done
 *
 * So nothing waits for a thread that the system does not schedule: on a busy machine, a run takes at most as long as
 * on one thread, and the rest of a task that was interrupted. Threads spin for a while before they sleep, since the
 * kernels of a run follow each other within microseconds.
 *
 * Kernels of recurrent layers have barriers inside their tasks, so all tasks of a loop must run at once. A library
 * with such kernels has a team for each loop instead:
 *
 *   caller:   number += 1, wake the others; wait briefly for them; claim what they have not claimed
 *             the team is the caller and those who claimed; run task 0 of as many tasks as the team has members
 *   others:   wait for a new number; claim their own task, join; when the team is known, run a task
 */
#include "plan.h"
#include "system.h"

#include <string.h>

#define SPINS 20000
#define SPINS_BEFORE_YIELDING 2000
#define SPINS_FOR_A_TEAM 5000
#define ERROR_BYTES 1024
#define MAX_THREADS 256
#define WORKSPACES 16

typedef struct {
  void *sync; /* the pool, or what TVM has here */
  int32_t tasks;
} parallel_environment;

typedef int (*parallel_task)(int, parallel_environment *, void *);

typedef struct {
  bessemer_pool *pool;
  int32_t task;
  unsigned claimed; /* the number of the last parallel loop whose task was claimed */
  system_thread thread;
} worker;

struct bessemer_pool {
  int32_t threads;
  int32_t started;
  int process; /* of the threads: a fork has none of them */
  worker *workers;
  system_mutex mutex;
  system_condition wake;
  int sleeping;
  int stop;
  int failed;
  char error[ERROR_BYTES]; /* of the first task that failed */
  int pending;
  unsigned number;
  parallel_task task;
  void *data;
  int joined;     /* workers in the team of the loop */
  int team;       /* its members, with the caller; 0 until the caller knows */
  int arrived;    /* at the barrier */
  unsigned phase; /* the number of barriers that all have passed */
};

static _Thread_local bessemer_pool *current_pool;
static _Thread_local int runs_task;
static _Thread_local char last_error[ERROR_BYTES];

static void pause_briefly(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

const char *bessemer_model_error(void) { return last_error; }

static size_t append(size_t used, const char *text) {
  size_t room = ERROR_BYTES - 1 - used, bytes = strlen(text);
  if (bytes > room) bytes = room;
  memcpy(last_error + used, text, bytes);
  last_error[used + bytes] = 0;
  return used + bytes;
}

void bessemer_set_error(const char *kind, const char *const *parts, int32_t count) {
  size_t used = append(append(0, kind), ": ");
  for (int32_t i = 0; i < count; i++) used = append(used, parts[i]);
}

void *bessemer_allocate(size_t bytes) { return system_allocate(bytes); }

void bessemer_free(void *memory) { system_free(memory); }

typedef struct {
  void *memory;
  size_t bytes;
} workspace;

/* Kernels free their workspaces in the reverse order, so each level keeps its memory for the next call. */
static _Thread_local workspace workspaces[WORKSPACES];
static _Thread_local int32_t levels;

static const char *const OUT_OF_MEMORY[] = {"out of memory"};

static void *take_workspace(int device, int number, uint64_t bytes, int code, int bits) {
  (void)device, (void)number, (void)code, (void)bits;
  if (levels == WORKSPACES) return NULL;
  workspace *level = &workspaces[levels];
  if (level->bytes < bytes) {
    bessemer_free(level->memory);
    level->memory = bessemer_allocate(bytes);
    level->bytes = level->memory ? bytes : 0;
  }
  if (level->memory)
    levels++;
  else
    bessemer_set_error("MemoryError", OUT_OF_MEMORY, 1);
  return level->memory;
}

static int return_workspace(int device, int number, void *memory) {
  (void)device, (void)number, (void)memory;
  levels--;
  return 0;
}

static void release_workspaces(void) {
  for (int32_t i = 0; i < WORKSPACES; i++) bessemer_free(workspaces[i].memory);
  memset(workspaces, 0, sizeof(workspaces));
}

/* Kernels call these through pointers, which TVM's loader has set if it opened the library. A library may have no
 * kernels that do; where its format has no symbols that may be missing, it has the pointers here as well. */
#if defined(__ELF__)
#define POINTER extern __attribute__((weak))
#else
#define POINTER __attribute__((weak))
#endif
POINTER void *__TVMBackendParallelLaunch;
POINTER void *__TVMBackendParallelBarrier;
POINTER void *__TVMBackendAllocWorkspace;
POINTER void *__TVMBackendFreeWorkspace;

static int has_barriers(void) { return &__TVMBackendParallelBarrier != NULL; }

static unsigned await_number(bessemer_pool *pool, unsigned seen) {
  for (int i = 0; i < SPINS; i++) {
    unsigned number = __atomic_load_n(&pool->number, __ATOMIC_ACQUIRE);
    if (number != seen || __atomic_load_n(&pool->stop, __ATOMIC_ACQUIRE)) return number;
    pause_briefly();
  }
  system_lock(&pool->mutex);
  pool->sleeping++;
  while (pool->number == seen && !pool->stop) system_wait(&pool->wake, &pool->mutex);
  pool->sleeping--;
  unsigned number = pool->number;
  system_unlock(&pool->mutex);
  return number;
}

/* Whether the caller is the first to claim a worker's task of a parallel loop. Numbers may wrap. */
static int claim(worker *owner, unsigned number) {
  unsigned last = __atomic_load_n(&owner->claimed, __ATOMIC_RELAXED);
  return (int)(number - last) > 0 &&
         __atomic_compare_exchange_n(&owner->claimed, &last, number, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

/* A parallel loop inside a task runs alone. Errors belong to a thread, so the first is kept for the caller. */
static void run_task(bessemer_pool *pool, int32_t index, int32_t tasks) {
  parallel_environment environment = {pool, tasks};
  runs_task = 1;
  int failed = pool->task(index, &environment, pool->data);
  runs_task = 0;
  if (failed && !__atomic_exchange_n(&pool->failed, 1, __ATOMIC_RELAXED)) memcpy(pool->error, last_error, ERROR_BYTES);
}

static void wait_a_little(int spins) {
  if (spins < SPINS_BEFORE_YIELDING)
    pause_briefly();
  else
    system_yield();
}

static void run_in_team(bessemer_pool *pool) {
  int index = __atomic_add_fetch(&pool->joined, 1, __ATOMIC_ACQ_REL), team = 0;
  for (int i = 0; !(team = __atomic_load_n(&pool->team, __ATOMIC_ACQUIRE)); i++) wait_a_little(i);
  run_task(pool, index, team);
}

SYSTEM_THREAD(work) {
  worker *self = argument;
  bessemer_pool *pool = self->pool;
  unsigned seen = 0;
  for (;;) {
    seen = await_number(pool, seen);
    if (__atomic_load_n(&pool->stop, __ATOMIC_ACQUIRE)) break;
    if (!claim(self, seen)) continue;
    if (has_barriers())
      run_in_team(pool);
    else
      run_task(pool, self->task, pool->threads);
    __atomic_sub_fetch(&pool->pending, 1, __ATOMIC_RELEASE);
  }
  release_workspaces();
  return (system_result)0;
}

static void start_workers(bessemer_pool *pool) {
  pool->process = system_process();
  pool->started = pool->sleeping = 0;
  system_prepare(&pool->mutex, &pool->wake);
  for (int32_t i = 1; i < pool->threads; i++) {
    worker *one = &pool->workers[i];
    one->pool = pool;
    one->task = i;
    one->claimed = pool->number;
    if (system_start(&one->thread, work, one)) break;
    pool->started = i;
  }
}

bessemer_pool *bessemer_pool_open(int32_t threads) {
  if (threads <= 0) threads = system_processors();
  if (threads < 1) threads = 1;
  if (threads > MAX_THREADS) threads = MAX_THREADS;
  bessemer_pool *pool = calloc(1, sizeof(bessemer_pool));
  if (!pool) return NULL;
  pool->threads = threads;
  pool->workers = calloc((size_t)threads, sizeof(worker));
  if (pool->workers) start_workers(pool);
  if (!pool->workers || pool->started != threads - 1) {
    bessemer_pool_close(pool);
    return NULL;
  }
  return pool;
}

void bessemer_pool_close(bessemer_pool *pool) {
  if (!pool) return;
  if (pool->workers && pool->process == system_process()) {
    system_lock(&pool->mutex);
    __atomic_store_n(&pool->stop, 1, __ATOMIC_RELEASE);
    system_wake_all(&pool->wake);
    system_unlock(&pool->mutex);
    for (int32_t i = 1; i <= pool->started; i++) system_join(pool->workers[i].thread);
    system_discard(&pool->mutex, &pool->wake);
  }
  free(pool->workers);
  free(pool);
  release_workspaces();
}

/* A thread that does not start in a fork is not an error: the caller runs its tasks. */
void bessemer_pool_enter(bessemer_pool *pool) {
  if (pool->process != system_process()) start_workers(pool);
  current_pool = pool;
}

void bessemer_pool_leave(void) { current_pool = NULL; }

static int run_alone(parallel_task task, void *data) {
  parallel_environment environment = {NULL, 1};
  return task(0, &environment, data);
}

static void await_others(bessemer_pool *pool) {
  for (int i = 0; __atomic_load_n(&pool->pending, __ATOMIC_ACQUIRE); i++) wait_a_little(i);
}

/* The workers that have not joined by the end of the wait are not in the team. */
static void lead_team(bessemer_pool *pool, unsigned number) {
  int others = pool->threads - 1;
  for (int i = 0; i < SPINS_FOR_A_TEAM && __atomic_load_n(&pool->joined, __ATOMIC_ACQUIRE) < others; i++)
    pause_briefly();
  for (int32_t i = 1; i < pool->threads; i++) others -= claim(&pool->workers[i], number);
  __atomic_sub_fetch(&pool->pending, pool->threads - 1 - others, __ATOMIC_RELAXED);
  __atomic_store_n(&pool->team, 1 + others, __ATOMIC_RELEASE);
  run_task(pool, 0, 1 + others);
}

static void lead(bessemer_pool *pool, unsigned number) {
  run_task(pool, 0, pool->threads);
  for (int32_t i = pool->threads - 1; i > 0; i--) {
    if (!claim(&pool->workers[i], number)) continue;
    run_task(pool, i, pool->threads);
    __atomic_sub_fetch(&pool->pending, 1, __ATOMIC_RELAXED);
  }
}

typedef int (*launcher)(parallel_task, void *, int);
typedef int (*barrier)(int, parallel_environment *);

/* What kernels call outside of a session, where TVM runs them. */
static launcher launch_of_tvm;
static barrier barrier_of_tvm;

static int launch(parallel_task task, void *data, int tasks) {
  bessemer_pool *pool = current_pool;
  launcher of_tvm = __atomic_load_n(&launch_of_tvm, __ATOMIC_ACQUIRE);
  if (!pool && !runs_task && of_tvm) return of_tvm(task, data, tasks);
  if (!pool || runs_task || pool->threads == 1 || (tasks > 0 && tasks < pool->threads)) return run_alone(task, data);
  pool->task = task;
  pool->data = data;
  pool->failed = pool->joined = pool->team = pool->arrived = 0;
  __atomic_store_n(&pool->pending, pool->threads - 1, __ATOMIC_RELAXED);
  system_lock(&pool->mutex);
  unsigned number = __atomic_add_fetch(&pool->number, 1, __ATOMIC_RELEASE);
  if (pool->sleeping) system_wake_all(&pool->wake);
  system_unlock(&pool->mutex);
  if (has_barriers())
    lead_team(pool, number);
  else
    lead(pool, number);
  await_others(pool);
  if (!pool->failed) return 0;
  memcpy(last_error, pool->error, ERROR_BYTES);
  return -1;
}

/* Wait until every member of the team is here; -1 if one has failed, and does not come. */
static int await_team(int index, parallel_environment *environment) {
  if (environment->tasks == 1) return 0;
  barrier of_tvm = __atomic_load_n(&barrier_of_tvm, __ATOMIC_ACQUIRE);
  if (!runs_task && of_tvm) return of_tvm(index, environment);
  bessemer_pool *pool = environment->sync;
  unsigned phase = __atomic_load_n(&pool->phase, __ATOMIC_ACQUIRE);
  if (__atomic_add_fetch(&pool->arrived, 1, __ATOMIC_ACQ_REL) == environment->tasks) {
    __atomic_store_n(&pool->arrived, 0, __ATOMIC_RELAXED);
    __atomic_add_fetch(&pool->phase, 1, __ATOMIC_RELEASE);
    return 0;
  }
  for (int i = 0; __atomic_load_n(&pool->phase, __ATOMIC_ACQUIRE) == phase; i++) {
    if (__atomic_load_n(&pool->failed, __ATOMIC_RELAXED)) return -1;
    wait_a_little(i);
  }
  return 0;
}

static void point_to(void **pointer, void *function) {
  void *none = NULL;
  if (pointer) __atomic_compare_exchange_n(pointer, &none, function, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

/* Put a function of ours in a pointer, and keep the one of TVM. Several threads may open sessions at once: the pointer
 * is read once, so a function never calls itself. */
static void take_over(void **pointer, void *ours, void **of_tvm) {
  void *found = pointer ? __atomic_load_n(pointer, __ATOMIC_ACQUIRE) : NULL;
  if (!pointer || found == ours) return;
  __atomic_store_n(of_tvm, found, __ATOMIC_RELEASE);
  __atomic_store_n(pointer, ours, __ATOMIC_RELEASE);
}

void bessemer_connect_kernels(void) {
  take_over(&__TVMBackendParallelLaunch, (void *)launch, (void **)&launch_of_tvm);
  take_over(&__TVMBackendParallelBarrier, (void *)await_team, (void **)&barrier_of_tvm);
  point_to(&__TVMBackendAllocWorkspace, (void *)take_workspace);
  point_to(&__TVMBackendFreeWorkspace, (void *)return_workspace);
}

/* Where TVM runs the library, it wants the error itself. */
#if defined(__ELF__)
extern __attribute__((weak)) void TVMFFIErrorSetRaisedFromCStr(const char *kind, const char *message);
#else
static void (*const TVMFFIErrorSetRaisedFromCStr)(const char *, const char *) = 0;
#endif

__attribute__((visibility("hidden"))) void TVMFFIErrorSetRaisedFromCStrParts(const char *kind,
                                                                             const char **parts,
                                                                             int32_t count) {
  bessemer_set_error(kind, parts, count);
  if (TVMFFIErrorSetRaisedFromCStr) TVMFFIErrorSetRaisedFromCStr(kind, last_error + strlen(kind) + 2);
}
