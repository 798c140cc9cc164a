/* isolate_child: the process that runs a spec. Everything it has of the world is one socket. */
#include "confine.h"
#include "isolate.h"
#include "state.h"

#include "base/diag.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { CHILD_BYTES = 512 << 20 }; /* beyond Lua's own limit: what malloc, the arena and the message add to it */

static struct {
  int channel;
  const char *path[DSL_SOURCES];
  int n_paths;
} child;

/* ---- the channel ---- */

static void send_bytes(const void *data, size_t size) {
  for (const char *at = data; size > 0;) {
    ssize_t sent = write(child.channel, at, size);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) _exit(1); /* nobody listens */
    at += sent, size -= (size_t)sent;
  }
}

static void receive_bytes(void *data, size_t size) {
  for (char *at = data; size > 0;) {
    ssize_t received = read(child.channel, at, size);
    if (received < 0 && errno == EINTR) continue;
    if (received <= 0) _exit(1);
    at += received, size -= (size_t)received;
  }
}

static void send_message(message_kind kind, const void *front, size_t front_size, const void *data, size_t size) {
  message_head head = {kind, (uint32_t)(front_size + size)};
  char together[512]; /* questions are short: one call, and the parent wakes once */
  if (sizeof head + front_size + size <= sizeof together) {
    memcpy(together, &head, sizeof head);
    if (front_size) memcpy(together + sizeof head, front, front_size);
    if (size) memcpy(together + sizeof head + front_size, data, size);
    send_bytes(together, sizeof head + front_size + size);
    return;
  }
  send_bytes(&head, sizeof head);
  send_bytes(front, front_size);
  send_bytes(data, size);
}

static _Noreturn void end_with(message_kind kind, const void *front, size_t front_size, const void *data, size_t size) {
  send_message(kind, front, front_size, data, size);
  _exit(0);
}

/* ---- sources ---- */

static source_text ask(source_store *store, arena *a, source_kind kind, const char *name, const char **why) {
  (void)store;
  unsigned char front = (unsigned char)kind;
  send_message(MESSAGE_ASK, &front, 1, name, kind == SOURCE_SPEC ? 0 : strlen(name));
  message_head head;
  receive_bytes(&head, sizeof head);
  char *data = arena_alloc(a, head.size + 1);
  receive_bytes(data, head.size);
  if (head.kind != MESSAGE_FOUND) {
    *why = data;
    return (source_text){0};
  }
  size_t path = strlen(data);
  child.path[child.n_paths++] = data; /* modules_load asks for DSL_SOURCES at the most */
  return (source_text){.path = data, .text = data + path + 1, .size = head.size - path - 1};
}

/* ---- messages ---- */

static void pass_on(diag_kind kind, const char *file, int line, const char *text) {
  isolate_place place = {-1, line};
  size_t length = strnlen(text, ISOLATE_TEXT);
  switch (kind) {
  case DIAG_MEMORY: end_with(MESSAGE_MEMORY, NULL, 0, NULL, 0);
  case DIAG_BUG: end_with(MESSAGE_BUG, file, strlen(file) + 1, text, length);
  case DIAG_WARNING: return;
  case DIAG_ERROR: break;
  }
  for (int i = 0; i < child.n_paths && file && line > 0; i++)
    if (!strcmp(child.path[i], file)) place.source = i;
  end_with(MESSAGE_ERROR, &place, sizeof place, text, length);
}

_Noreturn void isolate_child(int channel, const char *file, int n_defines, const loader_define *defines, int seconds) {
  child.channel = channel;
  const char *lacks = confine(&child.channel, CHILD_BYTES, seconds);
  if (lacks) end_with(MESSAGE_UNCONFINED, NULL, 0, lacks, strlen(lacks));
  diag_send_to(pass_on);
  arena *a = arena_create();
  source_store store = {ask};
  const spec *s = loader_run(a, file, &store, n_defines, defines);
  if (!s) _exit(1); /* pass_on has said why, and ended */
  size_t size;
  const unsigned char *bytes = wire_write(a, s, &size);
  end_with(MESSAGE_SPEC, NULL, 0, bytes, size);
}
