/* bench/limits: what memory allows. Loops that move bytes and do no work, to measure kernels against;
 * and the threads that share them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* bytes: a multiple of 4; out == in where the loop is in place. */
typedef void limit_function(void *out, const void *in, size_t bytes);

typedef struct limit_loop {
  const char *name;
  bool in_place;
  bool whole_lines; /* writes whole lines of 64 bytes only, at their addresses */
  limit_function *run;
} limit_loop;

/* The loops for this processor, in place or not. */
int limit_loops(bool in_place, const limit_loop **loops);

/* Reads the bytes at `in` (a multiple of LIMIT_SINK) and leaves LIMIT_SINK bytes of their sum at `out`; and all ways to
 * do so, of which that is the first. */
enum { LIMIT_SINK = 256 };
limit_function *limit_read(void);
int limit_reads(const limit_loop **loops);

/* Threads that wait spinning between calls: starting one takes longer than a small kernel. */
typedef struct crew crew;
typedef void crew_work(void *context, int part, int parts);

/* threads - 1 threads besides the caller's. NULL where they cannot be created. */
crew *crew_create(int threads);
void crew_run(crew *c, crew_work *work, void *context);
void crew_destroy(crew *c);
