/* verify/coroutine: functions that run in turns with their caller, on stacks of their own.
 *
 * On x86-64 a switch is a few instructions. ucontext, which serves elsewhere and under sanitizers, who know of its
 * stacks, asks the kernel for the signals' mask each time: threads that wait at barriers spent a fourth of their time
 * there.
 */
#pragma once

#include <stddef.h>

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__)
#define COROUTINE_BY_HAND 1
#else
#define COROUTINE_BY_HAND 0
#include <ucontext.h>
#endif

typedef struct coroutine {
#if COROUTINE_BY_HAND
  void *stack_pointer, *caller; /* of what waits: of it, or of who resumed it */
#else
  ucontext_t context, caller;
#endif
} coroutine;

/* Stands before `run`, which takes nothing and ends by coroutine_wait, and is not resumed from there. */
void coroutine_create(coroutine *c, void (*run)(void), char *stack, size_t bytes);
/* Goes on with it until it waits. */
void coroutine_resume(coroutine *c);
/* Called inside of it: back to who resumed it. */
void coroutine_wait(coroutine *c);
