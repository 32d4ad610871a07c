/* What the systems name differently: memory, threads and the clock. */
#ifndef BESSEMER_SYSTEM_H
#define BESSEMER_SYSTEM_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define ALIGNMENT 64

#if defined(_WIN32)
#include <malloc.h>
#include <windows.h>

typedef HANDLE system_thread;
typedef DWORD system_result;
typedef SRWLOCK system_mutex;
typedef CONDITION_VARIABLE system_condition;
#define SYSTEM_THREAD(name) static DWORD WINAPI name(void *argument)

static inline int system_start(system_thread *thread, DWORD(WINAPI *run)(void *), void *argument) {
  *thread = CreateThread(NULL, 0, run, argument, 0, NULL);
  return *thread ? 0 : -1;
}

static inline void system_join(system_thread thread) {
  WaitForSingleObject(thread, INFINITE);
  CloseHandle(thread);
}

static inline void system_prepare(system_mutex *mutex, system_condition *condition) {
  InitializeSRWLock(mutex);
  InitializeConditionVariable(condition);
}

static inline void system_discard(system_mutex *mutex, system_condition *condition) { (void)mutex, (void)condition; }
static inline void system_lock(system_mutex *mutex) { AcquireSRWLockExclusive(mutex); }
static inline void system_unlock(system_mutex *mutex) { ReleaseSRWLockExclusive(mutex); }
static inline void system_wake_all(system_condition *condition) { WakeAllConditionVariable(condition); }

static inline void system_wait(system_condition *condition, system_mutex *mutex) {
  SleepConditionVariableSRW(condition, mutex, INFINITE, 0);
}

static inline void system_yield(void) { SwitchToThread(); }
static inline int system_process(void) { return 0; }

static inline int32_t system_processors(void) {
  SYSTEM_INFO system;
  GetSystemInfo(&system);
  return (int32_t)system.dwNumberOfProcessors;
}

static inline void system_populate(const void *memory, size_t bytes) { (void)memory, (void)bytes; }
static inline void *system_allocate(size_t bytes) { return _aligned_malloc(bytes ? bytes : 1, ALIGNMENT); }
static inline void system_free(void *memory) { _aligned_free(memory); }

static inline double system_now_ms(void) {
  LARGE_INTEGER now, second;
  QueryPerformanceCounter(&now);
  QueryPerformanceFrequency(&second);
  return 1e3 * (double)now.QuadPart / (double)second.QuadPart;
}

#else
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

typedef pthread_t system_thread;
typedef void *system_result;
typedef pthread_mutex_t system_mutex;
typedef pthread_cond_t system_condition;
#define SYSTEM_THREAD(name) static void *name(void *argument)

static inline int system_start(system_thread *thread, void *(*run)(void *), void *argument) {
  return pthread_create(thread, NULL, run, argument);
}

static inline void system_join(system_thread thread) { pthread_join(thread, NULL); }

static inline void system_prepare(system_mutex *mutex, system_condition *condition) {
  pthread_mutex_init(mutex, NULL);
  pthread_cond_init(condition, NULL);
}

static inline void system_discard(system_mutex *mutex, system_condition *condition) {
  pthread_cond_destroy(condition);
  pthread_mutex_destroy(mutex);
}

static inline void system_lock(system_mutex *mutex) { pthread_mutex_lock(mutex); }
static inline void system_unlock(system_mutex *mutex) { pthread_mutex_unlock(mutex); }
static inline void system_wake_all(system_condition *condition) { pthread_cond_broadcast(condition); }

static inline void system_wait(system_condition *condition, system_mutex *mutex) {
  pthread_cond_wait(condition, mutex);
}

static inline void system_yield(void) { sched_yield(); }
static inline int system_process(void) { return (int)getpid(); }

static inline int32_t system_processors(void) { return (int32_t)sysconf(_SC_NPROCESSORS_ONLN); }

/* Maps a file's pages at once, read in large parts if need be. Before Linux 5.14, each first touch maps some. */
static inline void system_populate(const void *memory, size_t bytes) {
#if defined(__linux__)
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), start = (uintptr_t)memory / page * page;
  size_t whole = (uintptr_t)memory + bytes - start;
  if (bytes >= (size_t)32 << 20) madvise((void *)start, whole, 14 /* MADV_HUGEPAGE */);
  madvise((void *)start, whole, 22 /* MADV_POPULATE_READ */);
#else
  (void)memory, (void)bytes;
#endif
}

static inline void *system_allocate(size_t bytes) {
  void *memory = NULL;
  return posix_memalign(&memory, ALIGNMENT, bytes ? bytes : 1) ? NULL : memory;
}

static inline void system_free(void *memory) { free(memory); }

static inline double system_now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}
#endif

#endif
