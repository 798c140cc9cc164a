/* isolate: what the process that runs a spec and the one that asked for it say to each other; private to dsl/.
 *
 * A message is a head and `size` bytes. The child asks for sources and is answered each time; then it says one
 * of the others, and no more.
 */
#pragma once

#include "loader.h"
#include "sources.h"
#include "spec/wire.h"

#include <stdint.h>

typedef enum message_kind {
  /* child to parent */
  MESSAGE_ASK,        /* kind of source in a byte, then its name */
  MESSAGE_ERROR,      /* isolate_place, then the text */
  MESSAGE_BUG,        /* text */
  MESSAGE_MEMORY,     /* nothing: it has run out */
  MESSAGE_UNCONFINED, /* text: what the system lacks; nothing was run */
  MESSAGE_SPEC,       /* what spec/wire writes */
  MESSAGE_KINDS,      /* of the child's */
  /* parent to child */
  MESSAGE_FOUND, /* path, NUL, text */
  MESSAGE_WITHOUT /* why there is none */
} message_kind;

typedef struct message_head {
  uint32_t kind, size;
} message_head;

typedef struct isolate_place {
  int32_t source; /* in the order in which they were found; -1: the spec's file as a whole */
  int32_t line;
} isolate_place;

enum { ISOLATE_TEXT = 8192 }; /* bytes of a message's text */

/* Runs the spec, says what came of it on the channel and ends the process. */
_Noreturn void isolate_child(int channel, const char *file, int n_defines, const loader_define *defines, int seconds);
