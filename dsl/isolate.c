/* isolate: loads a spec by way of a process that can do nothing else; see loader.h.
 *
 * The child may have been taken over by the spec. So nothing of it is believed: messages have a bound, a time by which
 * they must be there, and are read as a file from a stranger would be; it gets the sources that sources.h lets a spec
 * name; and whatever it does, it is ended before this returns.
 */
#include "isolate.h"

#include "base/diag.h"
#include "base/text.h"
#include "state.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static const loader_bounds USUAL = {DSL_SECONDS + 0.4, 60};

/* What went wrong with the child where it did not say so itself. */
typedef enum trouble { NO_TROUBLE, CLOSED, OUT_OF_TIME, SILENT, NONSENSE } trouble;

typedef struct parent {
  arena *a;
  const char *file;
  source_files files;
  loader_bounds bounds;
  double begun;
  pid_t pid;
  int channel;
  int n_paths, n_asked;
  const char *path[DSL_SOURCES];
  trouble trouble;
  const char *nonsense;
} parent;

static bool give_up(parent *p, trouble what, const char *nonsense) {
  if (!p->trouble) {
    p->trouble = what;
    p->nonsense = nonsense;
  }
  return false;
}

/* ---- the channel ---- */

static double seconds_of(clockid_t id) {
  struct timespec now = {0};
  clock_gettime(id, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Until the channel is ready, or the child's time is over: of its processor, which it cannot hide, or of the clock. */
static bool wait_for(parent *p, short events) {
  for (;;) {
    clockid_t processor;
    double used = clock_getcpuclockid(p->pid, &processor) ? 0 : seconds_of(processor);
    double left = p->bounds.processor - used, clock_left = p->begun + p->bounds.clock - seconds_of(CLOCK_MONOTONIC);
    if (left <= 0) return give_up(p, OUT_OF_TIME, NULL);
    if (clock_left <= 0) return give_up(p, SILENT, NULL);
    struct pollfd ready = {p->channel, events, 0};
    int count = poll(&ready, 1, (int)(1000 * (left < clock_left ? left : clock_left)) + 1);
    if (count > 0) return true;
    if (count < 0 && errno != EINTR) return give_up(p, CLOSED, NULL);
  }
}

static bool is_pending(ssize_t moved) {
  return moved < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
}

static bool receive(parent *p, void *data, size_t size) {
  for (char *at = data; size > 0;) {
    ssize_t received = recv(p->channel, at, size, MSG_DONTWAIT);
    if (is_pending(received)) {
      if (!wait_for(p, POLLIN)) return false;
      continue;
    }
    if (received <= 0) return give_up(p, CLOSED, NULL);
    at += received, size -= (size_t)received;
  }
  return true;
}

static bool answer(parent *p, message_kind kind, const char *front, const char *data, size_t size) {
  size_t front_size = front ? strlen(front) + 1 : 0;
  message_head head = {kind, (uint32_t)(front_size + size)};
  char *whole = arena_alloc(p->a, sizeof head + front_size + size),
       *at = whole; /* one call, and the child wakes once */
  memcpy(whole, &head, sizeof head);
  if (front) memcpy(whole + sizeof head, front, front_size);
  memcpy(whole + sizeof head + front_size, data, size);
  for (size_t left = sizeof head + front_size + size; left > 0;) {
    ssize_t sent = send(p->channel, at, left, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (is_pending(sent)) {
      if (!wait_for(p, POLLOUT)) return false;
      continue;
    }
    if (sent <= 0) return give_up(p, CLOSED, NULL);
    at += sent, left -= (size_t)sent;
  }
  return true;
}

/* ---- what the child says ---- */

static const size_t LONGEST[MESSAGE_KINDS] = {
    [MESSAGE_ASK] = 1 + SOURCE_NAME,     [MESSAGE_ERROR] = sizeof(isolate_place) + ISOLATE_TEXT,
    [MESSAGE_BUG] = 2 * ISOLATE_TEXT,    [MESSAGE_MEMORY] = 0,
    [MESSAGE_UNCONFINED] = ISOLATE_TEXT, [MESSAGE_SPEC] = WIRE_BYTES,
};

/* The bytes of a message, in the arena, with a NUL after them. Room grows as they come, whatever the head announces. */
static unsigned char *payload(parent *p, size_t size) {
  size_t room = size < 65536 ? size : 65536, have = 0;
  unsigned char *data = arena_alloc(p->a, room + 1);
  while (have < size) {
    if (have == room) {
      room = 2 * room < size ? 2 * room : size;
      data = memcpy(arena_alloc(p->a, room + 1), data, have);
    }
    if (!receive(p, data + have, room - have)) return NULL;
    have = room;
  }
  data[size] = 0;
  return data;
}

static bool give_source(parent *p, const unsigned char *asked, size_t size) {
  if (size < 1 || asked[0] >= SOURCE_KINDS || ++p->n_asked > DSL_REQUESTS || p->n_paths == DSL_SOURCES)
    return give_up(p, NONSENSE, "a question for a file that no description asks");
  const char *why = NULL;
  source_text found = p->files.store.read(&p->files.store, p->a, (source_kind)asked[0], (const char *)asked + 1, &why);
  if (!found.text) return answer(p, MESSAGE_WITHOUT, NULL, why, strlen(why));
  p->path[p->n_paths++] = found.path;
  return answer(p, MESSAGE_FOUND, found.path, found.text, found.size);
}

static void report_error(const parent *p, const unsigned char *data, size_t size) {
  isolate_place place;
  memcpy(&place, data, sizeof place);
  bool known = place.source >= 0 && place.source < p->n_paths && place.line > 0;
  const char *text = text_shown(p->a, (const char *)data + sizeof place, size - sizeof place);
  diag_error(known ? p->path[place.source] : p->file, known ? place.line : 0, "%s", text);
}

static spec *take_spec(parent *p, const unsigned char *data, size_t size) {
  const char *why;
  spec *s = wire_read(p->a, data, size, &why);
  if (!s) {
    give_up(p, NONSENSE, arena_printf(p->a, "a description with %s", why));
    return NULL;
  }
  s->file = p->file;
  spec_share_with_parts(s);
  s->n_sources = p->n_paths;
  s->source = arena_array(p->a, const char *, p->n_paths + 1);
  memcpy(s->source, p->path, sizeof *p->path * (size_t)p->n_paths);
  return spec_validate(s) ? s : NULL;
}

/* The end of the child's life, whatever it is doing. Its status, as waitpid has it. */
static int end_child(parent *p) {
  int status = 0;
  kill(p->pid, SIGKILL);
  while (waitpid(p->pid, &status, 0) < 0 && errno == EINTR) {}
  close(p->channel);
  return status;
}

/* Serves the child until it has said the last word, *size bytes of `kind`; NULL: it was in trouble before. */
static unsigned char *last_word(parent *p, message_kind *kind, size_t *size) {
  for (;;) {
    message_head head;
    if (!receive(p, &head, sizeof head)) return NULL;
    if (head.kind >= MESSAGE_KINDS || head.size > LONGEST[head.kind] ||
        (head.kind == MESSAGE_ERROR && head.size < sizeof(isolate_place))) {
      give_up(p, NONSENSE, "a message of no known kind or size");
      return NULL;
    }
    unsigned char *data = payload(p, head.size);
    *kind = (message_kind)head.kind;
    *size = head.size;
    if (!data || *kind != MESSAGE_ASK) return data;
    if (!give_source(p, data, head.size)) return NULL;
  }
}

static void report_trouble(const parent *p, int status) {
  const char *text = "its process ended before it had a result";
  if (p->trouble == OUT_OF_TIME || (WIFSIGNALED(status) && WTERMSIG(status) == SIGXCPU))
    text = arena_printf(p->a, "it ran for more than %g seconds", (double)(int)p->bounds.processor);
  else if (p->trouble == SILENT) text = arena_printf(p->a, "it had no result after %g seconds", p->bounds.clock);
  else if (p->trouble == NONSENSE) text = arena_printf(p->a, "its process said %s", p->nonsense);
  else if (WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS)
    text = "its process asked the system for what no description needs, and was ended";
  else if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
    text = arena_printf(p->a, "its process was ended by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
  diag_error(p->file, 0, "refused: %s", text);
}

static spec *conclude(parent *p, message_kind kind, const unsigned char *data, size_t size) {
  switch (kind) {
  case MESSAGE_SPEC: return take_spec(p, data, size);
  case MESSAGE_ERROR: report_error(p, data, size); return NULL;
  case MESSAGE_MEMORY: diag_error(p->file, 0, "out of memory"); return NULL;
  case MESSAGE_UNCONFINED:
    if (p->n_asked > 0) { /* it has seen the description, which may be speaking */
      give_up(p, NONSENSE, "after its first question that it cannot be confined");
      return NULL;
    }
    diag_error(
        p->file, 0,
        "refused: this system cannot confine the process that runs a description (%s); --trust-spec runs one that "
        "you trust",
        text_shown(p->a, (const char *)data, size));
    return NULL;
  default: { /* stage, NUL, text; there is a NUL at the end, too. Not believed: exit 3 is this process's word alone. */
    const char *stage = (const char *)data;
    size_t length = strlen(stage);
    const char *text = length < size ? stage + length + 1 : "";
    diag_error(p->file, 0, "refused: its process reports a bug in pegen (%s: %s)", text_shown(p->a, stage, length),
               text_shown(p->a, text, strlen(text)));
    return NULL;
  }
  }
}

/* False: it has said why. */
static bool start_child(parent *p, int n_defines, const loader_define *defines) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends)) {
    diag_error(p->file, 0, "cannot make a socket: %s", strerror(errno));
    return false;
  }
  fflush(stdout); /* what is in its buffer is written once, by this process */
  pid_t self = getpid();
  p->begun = seconds_of(CLOCK_MONOTONIC);
  p->pid = fork();
  if (!p->pid) {
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != self) _exit(1);
    close(ends[0]);
    isolate_child(ends[1], p->file, n_defines, defines, (int)p->bounds.processor + 1);
  }
  close(ends[1]);
  p->channel = ends[0];
  if (p->pid > 0) return true;
  close(ends[0]);
  diag_error(p->file, 0, "cannot start a process for the description: %s", strerror(errno));
  return false;
}

spec *loader_load_isolated(arena *a, const char *file, const char *dsl_dir, int n_defines, const loader_define *defines,
                           const loader_bounds *bounds) {
  file = arena_strdup(a, file);
  parent p = {.a = a, .file = file, .files = sources_of(a, file, dsl_dir), .bounds = bounds ? *bounds : USUAL};
  if (!start_child(&p, n_defines, defines)) return NULL;
  message_kind kind = MESSAGE_KINDS;
  size_t size = 0;
  const unsigned char *data = last_word(&p, &kind, &size);
  int status = end_child(&p);
  spec *s = data ? conclude(&p, kind, data, size) : NULL;
  if (p.trouble) report_trouble(&p, status);
  return s;
}
