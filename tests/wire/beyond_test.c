/* beyond_test DSL_DIR COUNT SEED SPEC...: what follows the border, with descriptions that nobody wrote.
 *
 * Numbers of honest messages are changed, as a process that was taken over may do; what the reader and spec_validate
 * take is explained, and every eighth compiled, in a process of its own. That ends with a result or with the user's
 * error, within seconds: no crash, no bug that the compiler finds in itself. COUNT messages that are taken, of each
 * SPEC.
 */
#include "base/diag.h"
#include "base/limit.h"
#include "compile.h"
#include "explain/explain.h"
#include "loader.h"
#include "spec/wire.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_TRIES = 200000, SECONDS = 30, EVERY = 8, NUMBERS = 25 };

static uint64_t state;

static uint64_t draw(uint64_t below) {
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return state % below;
}

static void hear_nothing(diag_kind kind, const char *file, int line, const char *text) {
  (void)kind, (void)file, (void)line, (void)text;
}

/* One of its whole numbers, which begin anywhere where texts stand before them, or is not far from what it was. */
static void change_number(unsigned char *bytes, size_t size) {
  static const int64_t odd[NUMBERS] = {0,  1,  -1, 2,   3,   4,    5,    7,     8,     16,      31,        32,       33,
                                       63, 64, 65, 255, 256, 4095, 4096, 65535, 65536, 1 << 20, INT32_MAX, INT64_MIN};
  for (int tries = 0; tries < 200; tries++) {
    size_t at = draw(size - 8);
    int64_t number;
    memcpy(&number, bytes + at, 8);
    if (number < -1 || number > 100000) continue;
    uint64_t how = draw(8);
    number = how < 4 ? number + (int64_t)draw(5) - 2 : how < 6 ? (int64_t)draw(70) : odd[draw(NUMBERS)];
    memcpy(bytes + at, &number, 8);
    return;
  }
}

static double larger(double x, double y) { return fabs(x) > y ? fabs(x) : y; }

/* The largest size of a number in a description: of phases it decides how exact what is measured can be. */
static double largest_real(arena *a, const spec *s) {
  int count = expr_pool_count(s->pool);
  const expr **nodes = arena_array(a, const expr *, count + 1);
  double largest = larger(s->amplitude, 0);
  expr_pool_nodes(s->pool, nodes);
  for (int i = 0; i < count; i++) {
    if (nodes[i]->op == EXPR_CONST) largest = larger(nodes[i]->value, largest);
    for (int k = 0; nodes[i]->op == EXPR_TABLE && k < nodes[i]->n_heads * s->n_blocks; k++)
      largest = larger(nodes[i]->table[k], largest);
  }
  for (int i = 0; i < s->n_operands; i++) largest = larger(s->operand[i].test_scale, largest);
  for (int i = 0; i < s->n_parts; i++) largest = larger(largest_real(a, s->part[i].of), largest);
  return largest;
}

/* What the border takes. Bytes of a real number may look like a whole one: none becomes larger than there were. */
static spec *take(arena *a, const unsigned char *bytes, size_t size, double largest) {
  const char *why;
  spec *s = wire_read(a, bytes, size, &why);
  if (!s) return NULL;
  s->file = "beyond";
  return spec_validate(s) && largest_real(a, s) <= largest ? s : NULL;
}

static _Noreturn void go_on(arena *a, spec *s, bool compiles) {
  static const char *const targets[] = {"sm_80,x86-64-v3", "x86-64-v3", "x86-64-v2"};
  const struct rlimit seconds = {SECONDS, SECONDS + 1};
  int nowhere = open("/dev/null", O_WRONLY);
  if (nowhere < 0 || dup2(nowhere, STDOUT_FILENO) < 0 || setrlimit(RLIMIT_CPU, &seconds)) _exit(9);
  diag_send_to(NULL);
  if (!compiles) _exit(!explain_spec(a, s, &(explain_request){.format = EXPLAIN_JSON}));
  compile_options options = {.emit = EMIT_OBJ, .targets = targets[draw(3)], .dtypes = 1, .no_gradients = draw(2)};
  compile_output out;
  limit_of_process(SECONDS / 2.0, 2048);
  _exit(!compile(a, s, &options, &out));
}

/* NULL, or how it ended. */
static const char *outcome(arena *a, spec *s, bool compiles) {
  int status;
  pid_t child = fork();
  if (!child) go_on(a, s, compiles);
  if (child < 0 || waitpid(child, &status, 0) != child) return "no process";
  if (WIFSIGNALED(status)) return arena_printf(a, "signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
  return WEXITSTATUS(status) < 2 ? NULL : arena_printf(a, "exit code %d", WEXITSTATUS(status));
}

static int try_spec(const char *dsl, const char *path, int count) {
  arena *a = arena_create();
  const spec *s = loader_load(a, path, dsl, 0, NULL);
  int taken = 0, failures = 0;
  size_t size = 0;
  double largest = s ? largest_real(a, s) : 0;
  const unsigned char *bytes = s ? wire_write(a, s, &size) : NULL;
  for (int i = 0; s && i < MOST_TRIES && taken < count; i++) {
    arena *b = arena_create();
    unsigned char *changed = memcpy(arena_alloc(b, size), bytes, size);
    for (uint64_t edits = 1 + draw(2); edits > 0; edits--) change_number(changed, size);
    spec *read = memcmp(changed, bytes, size) ? take(b, changed, size, largest) : NULL;
    const char *wrong = read ? outcome(b, read, taken % EVERY == EVERY - 1) : NULL;
    taken += read != NULL;
    if (wrong) {
      char name[] = "/tmp/beyond_XXXXXX";
      int kept = mkstemp(name);
      if (kept >= 0 && write(kept, changed, size) == (ssize_t)size) close(kept);
      printf("%s: %s, %s: %s\n", path, taken % EVERY ? "explained" : "compiled", wrong, name);
      failures++;
    }
    arena_destroy(b);
  }
  printf("%s: %d taken\n", path, taken);
  arena_destroy(a);
  return failures + (taken < count);
}

int main(int argc, char **argv) {
  int failures = 0;
  if (argc < 5) return 2;
  state = strtoull(argv[3], NULL, 0) * 0x9E3779B97F4A7C15ull + 1;
  diag_send_to(hear_nothing);
  for (int i = 4; i < argc; i++) failures += try_spec(argv[1], argv[i], atoi(argv[2]));
  return failures > 0;
}
