/* spawn.h: one run of the program pegen, and everything that it hands back. */
#pragma once

#include "bytes.h"

/* Names under which the child finds what the parent gives it and takes. */
#define SPAWN_TEXT "/proc/self/fd/3"    /* the description's text, where there is one */
#define SPAWN_HEADER "/dev/fd/4"
#define SPAWN_SOURCES "/dev/fd/5"

/* What the child writes.                                                                      ORDER SPAWN_STREAM */
enum { SPAWN_OUTPUT, SPAWN_MESSAGES, SPAWN_HEADER_STREAM, SPAWN_SOURCES_STREAM, SPAWN_STREAMS };

typedef struct spawned {
  bytes stream[SPAWN_STREAMS];
  int status; /* as waitpid gives it; -1: not known, since the host collects or ignores its children's ends */
} spawned;

/* Runs program with its arguments, the text (or NULL) as SPAWN_TEXT. False where it could not be run: errno. Memory
 * that ran out shows in the streams. */
bool pegen_spawn_run(const char *program, char *const *arguments, const char *text, spawned *out);
void pegen_spawn_free(spawned *s);
