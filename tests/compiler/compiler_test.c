/* compiler_test FOLDER: pegen/compiler.h with the program of this build, in a folder of its own. */
#include "failing.h"
#include "pegen/compiler.h"
#include "test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h> /* what cmocka.h wants before it */

enum { PATH = 512 };
static char root[PATH], folder[PATH + 16];

/* ---- the folder of a test ------------------------------------------------------------ */

static const char *path_of(const char *name) {
  static char paths[8][2 * PATH];
  static int next;
  char *path = paths[next++ % 8];
  snprintf(path, sizeof paths[0], "%s/%s", folder, name);
  return path;
}

static void write_file(const char *name, const char *text, mode_t mode) {
  FILE *f = fopen(path_of(name), "w");
  assert_non_null(f);
  fputs(text, f);
  assert_int_equal(fclose(f), 0);
  assert_int_equal(chmod(path_of(name), mode), 0);
}

static int set_up(void **state) {
  static int count;
  (void)state;
  snprintf(folder, sizeof folder, "%s/%d", root, count++);
  if (mkdir(folder, 0755)) return -1;
  unsetenv("PEGEN");
  return setenv("XDG_CACHE_HOME", folder, 1);
}

/* Names of the cache's files that end so; the last one's path in *path. */
static int count_entries(const char *ending, char *path) {
  DIR *dir = opendir(path_of("pegen"));
  int count = 0;
  if (!dir) return 0;
  for (struct dirent *entry; (entry = readdir(dir));) {
    size_t length = strlen(entry->d_name), end = strlen(ending);
    if (entry->d_name[0] == '.' || length < end || strcmp(entry->d_name + length - end, ending)) continue;
    count++;
    if (path) snprintf(path, 2 * PATH, "%s/pegen/%s", folder, entry->d_name);
  }
  closedir(dir);
  return count;
}

/* ---- requests ------------------------------------------------------------------------ */

static const char rope[] =
    "local pe = require 'pegen'\n"
    "return pe.encoding { name = 'turn', axes = { 't' }, head_dim = pe.option('head_dim', 8, 'channels'),\n"
    "  block = pe.plane(), generators = { t = pe.bivector { e12 = 1 } },\n"
    "  phase = function(axis, i) return 1 / (i + 1) end }\n";

static pegen_compile_request request_of(const char *file, const char *text) {
  return (pegen_compile_request){.struct_size = sizeof(pegen_compile_request),
                                 .file = file,
                                 .text = text,
                                 .targets = "native",
                                 .dtypes = "f32",
                                 .program = PEGEN_PROGRAM};
}

/* Row 1 of two, at position 1: the first plane turns by one radian. */
static void expect_turns(const pegen_kernel *kernel) {
  float x[16] = {[8] = 1};
  int64_t shape[] = {1, 1, 2, 8}, place_shape[] = {2, 1}, place[] = {0, 1};
  DLTensor q = {.data = x, .device = {kDLCPU, 0}, .ndim = 4, .dtype = {kDLFloat, 32, 1}, .shape = shape};
  DLTensor positions = {
      .data = place, .device = {kDLCPU, 0}, .ndim = 2, .dtype = {kDLInt, 64, 1}, .shape = place_shape};
  pegen_args args = {.struct_size = sizeof args, .q = &q, .q_out = &q, .positions = &positions};
  assert_int_equal(kernel->encode(&args, 0, 1), 0);
  assert_float_equal(x[8], 0.5403023, 1e-6);
  assert_float_equal(x[9] < 0 ? -x[9] : x[9], 0.8414710, 1e-6);
}

static void expect_kernel(const pegen_compile_request *request, int from_cache) {
  pegen_compiled *c = pegen_compile(request);
  assert_non_null(c);
  if (c->error) fail_msg("%s", c->error);
  assert_int_equal(c->from_cache, from_cache);
  assert_string_equal(c->kernel->name, "turn");
  assert_non_null(strstr(c->header, "turn_encode("));
  assert_memory_equal(c->object, "\177ELF", 4);
  expect_turns(c->kernel);
  pegen_compiled_free(c);
}

static void expect_error(const pegen_compile_request *request, const char *text) {
  pegen_compiled *c = pegen_compile(request);
  assert_non_null(c);
  assert_null(c->kernel);
  assert_non_null(c->error);
  if (!strstr(c->error, text)) fail_msg("'%s' is not in: %s", text, c->error);
  pegen_compiled_free(c);
}

/* ---- what is compiled ---------------------------------------------------------------- */

TEST_BETWEEN(test_file_and_text, set_up, NULL) {
  write_file("turn.lua", rope, 0644);
  pegen_compile_request file = request_of(path_of("turn.lua"), NULL), text = request_of(NULL, rope);
  expect_kernel(&file, 0);
  expect_kernel(&file, 1);
  expect_kernel(&text, 0);
  expect_kernel(&text, 1);
  /* Kernels of one description by two names stay apart, and the first stays mapped after the second has gone. */
  const char *define = "head_dim=16";
  pegen_compile_request wide = text;
  wide.defines = &define, wide.n_defines = 1, wide.name = "wide";
  pegen_compiled *one = pegen_compile(&text), *two = pegen_compile(&wide);
  assert_string_equal(two->kernel->name, "wide");
  assert_int_equal(two->kernel->head_dim, 16);
  assert_non_null(strstr(two->header, "wide_encode("));
  pegen_compiled_free(two);
  expect_turns(one->kernel);
  pegen_compiled_free(one);
  pegen_compiled_free(NULL);
}

/* A path that is one from here only, and a folder whose name make would not take. */
TEST_BETWEEN(test_paths, set_up, NULL) {
  char before[PATH];
  assert_non_null(getcwd(before, sizeof before));
  assert_int_equal(mkdir(path_of("rate=0.1 x"), 0755), 0);
  write_file("rate=0.1 x/turn.lua", rope, 0644);
  assert_int_equal(chdir(path_of("rate=0.1 x")), 0);
  pegen_compile_request here = request_of("turn.lua", NULL);
  expect_kernel(&here, 0);
  assert_int_equal(chdir(folder), 0);
  expect_error(&here, "turn.lua");
  pegen_compile_request there = request_of(path_of("rate=0.1 x/turn.lua"), NULL);
  expect_kernel(&there, 1);
  assert_int_equal(chdir(before), 0);
}

TEST_BETWEEN(test_explain, set_up, NULL) {
  pegen_compile_request request = request_of(NULL, rope);
  pegen_compiled *c = pegen_explain(&request);
  assert_null(c->error);
  assert_null(c->kernel);
  assert_int_equal(c->explanation[0], '{');
  assert_non_null(strstr(c->explanation, "\"name\": \"turn\""));
  assert_non_null(strstr(c->explanation, "\"translation_invariant\""));
  pegen_compiled_free(c);
}

TEST_BETWEEN(test_errors, set_up, NULL) {
  pegen_compile_request r = request_of(NULL, "local pe = require 'pegen'\nreturn pe.encoding { name = 3 }\n");
  expect_error(&r, "description:2: error: ");
  r.label = "model.lua";
  expect_error(&r, "model.lua:2: error: ");
  r.text = "return";
  expect_error(&r, "model.lua");
  write_file("bad.lua", "local pe = require 'pegen'\n\nreturn pe.encodng {}\n", 0644);
  r = request_of(path_of("bad.lua"), NULL);
  expect_error(&r, "bad.lua:3: error: ");
  r.file = path_of("none.lua");
  expect_error(&r, "none.lua");
  r = request_of(NULL, rope);
  r.targets = "z80";
  expect_error(&r, "unknown target 'z80'");
  r.targets = strstr(PEGEN_PROCESSOR, "x86") ? "aarch64" : "x86-64-v2";
  expect_error(&r, "cannot map the kernel");
  r = request_of("x.lua", rope);
  expect_error(&r, "either a file or a text");
  r = request_of(NULL, NULL);
  expect_error(&r, "either a file or a text");
  r = request_of(NULL, rope);
  r.struct_size = 12;
  expect_error(&r, "struct_size");
  r.struct_size = sizeof r + 8;
  expect_error(&r, "struct_size");
  expect_error(NULL, "struct_size");
  assert_int_equal(count_entries("", NULL), 2); /* of the other processor's kernel, which is sound */
}

/* ---- the program --------------------------------------------------------------------- */

TEST_BETWEEN(test_program, set_up, NULL) {
  pegen_compile_request r = request_of(NULL, rope);
  r.program = path_of("none");
  expect_error(&r, "cannot run the compiler");
  write_file("plain", "text", 0644);
  r.program = path_of("plain");
  expect_error(&r, "cannot run the compiler");
  write_file("killed", "#!/bin/sh\necho out of memory >&2\nkill -9 $$\n", 0755);
  r.program = path_of("killed");
  expect_error(&r, "out of memory\n");
  expect_error(&r, "ended by signal 9");
  write_file("silent", "#!/bin/sh\nexit 3\n", 0755);
  r.program = path_of("silent");
  expect_error(&r, "ended with status 3");
  write_file("nothing", "#!/bin/sh\nexit 0\n", 0755);
  r.program = path_of("nothing");
  expect_error(&r, "cannot map the kernel");
  write_file("nonsense", "#!/bin/sh\nprintf 'no object'\nprintf 'specs/x\\0' >&5\n", 0755);
  r.program = path_of("nonsense");
  expect_error(&r, "cannot map the kernel");
  assert_int_equal(count_entries(".so", NULL), 0);
  r.program = NULL;
  setenv("PEGEN", path_of("silent"), 1);
  expect_error(&r, "ended with status 3");
  setenv("PEGEN", PEGEN_PROGRAM, 1);
  expect_kernel(&r, 0);
}

/* A program in the middle of its output, killed: what it wrote is no kernel. */
TEST_BETWEEN(test_killed_while_writing, set_up, NULL) {
  char script[3 * PATH];
  snprintf(script, sizeof script, "#!/bin/sh\n%s \"$@\" | head -c 5000\nkill -9 $$\n", PEGEN_PROGRAM);
  write_file("half", script, 0755);
  pegen_compile_request r = request_of(NULL, rope);
  r.program = path_of("half");
  expect_error(&r, "ended by signal 9");
  assert_int_equal(count_entries("", NULL), 0);
}

static int counted_runs(void) {
  FILE *f = fopen(path_of("runs"), "r");
  int count = 0;
  for (int c; f && (c = fgetc(f)) != EOF;) count += c == '\n';
  if (f) fclose(f);
  return count;
}

/* A program that counts its runs. */
static void write_counting(void) {
  char script[4 * PATH];
  snprintf(script, sizeof script, "#!/bin/sh\necho >> '%s'\nexec %s \"$@\"\n", path_of("runs"), PEGEN_PROGRAM);
  write_file("counting", script, 0755);
}

enum { THREADS = 8 };
static void *compile_in_thread(void *data) {
  pegen_compiled *c = pegen_compile(data);
  return c;
}

TEST_BETWEEN(test_threads, set_up, NULL) {
  pthread_t thread[THREADS];
  write_counting();
  pegen_compile_request r = request_of(NULL, rope);
  r.program = path_of("counting");
  for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&thread[i], NULL, compile_in_thread, &r), 0);
  pegen_compiled *c[THREADS];
  int found = 0;
  for (int i = 0; i < THREADS; i++) {
    pthread_join(thread[i], (void **)&c[i]);
    if (c[i]->error) fail_msg("%s", c[i]->error);
    expect_turns(c[i]->kernel);
    found += c[i]->from_cache;
  }
  assert_int_equal(found, THREADS - 1);
  assert_int_equal(counted_runs(), 1);
  for (int i = 0; i < THREADS; i++) pegen_compiled_free(c[i]);
}

/* Threads that fork hold the pipes' ends open: the compilation ends with its program all the same. */
static void *fork_around(void *data) {
  volatile bool *stop = data;
  pid_t child[200];
  int count = 0;
  for (; !*stop && count < 200; count++) {
    if (!(child[count] = fork())) pause(), _exit(0);
    usleep(2000);
  }
  while (!*stop) usleep(1000);
  for (int i = 0; i < count; i++) kill(child[i], SIGKILL), waitpid(child[i], NULL, 0);
  return NULL;
}

TEST_BETWEEN(test_forks, set_up, NULL) {
  bool stop = false;
  pthread_t thread;
  pegen_compile_request r = request_of(NULL, rope);
  r.cache = "";
  alarm(120); /* instead of for ever */
  assert_int_equal(pthread_create(&thread, NULL, fork_around, &stop), 0);
  expect_kernel(&r, 0);
  stop = true;
  pthread_join(thread, NULL);
  alarm(0);
}

/* A fork while another thread compiles: its turn is not the child's. */
TEST_BETWEEN(test_fork_with_turn, set_up, NULL) {
  pthread_t thread;
  pegen_compile_request r = request_of(NULL, rope);
  r.cache = "";
  assert_int_equal(pthread_create(&thread, NULL, compile_in_thread, &r), 0);
  usleep(20000);
  pid_t child = fork();
  if (!child) {
    alarm(60);
    pegen_compiled *c = pegen_compile(&r);
    _exit(c && c->kernel ? 0 : 1);
  }
  int status;
  pegen_compiled *c;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  pthread_join(thread, (void **)&c);
  assert_non_null(c->kernel);
  pegen_compiled_free(c);
}

TEST_BETWEEN(test_children_ignored, set_up, NULL) {
  pegen_compile_request r = request_of(NULL, rope);
  signal(SIGCHLD, SIG_IGN);
  expect_kernel(&r, 0);
  r.text = "return 1";
  expect_error(&r, "description");
  signal(SIGCHLD, SIG_DFL);
}

/* ---- the cache ----------------------------------------------------------------------- */

TEST_BETWEEN(test_processes, set_up, NULL) {
  enum { PROCESSES = 5 };
  pid_t child[PROCESSES];
  pegen_compile_request r = request_of(NULL, rope);
  for (int i = 0; i < PROCESSES; i++)
    if (!(child[i] = fork())) {
      pegen_compiled *c = pegen_compile(&r);
      if (!c || !c->kernel) _exit(1);
      pegen_compiled_free(c);
      _exit(0);
    }
  for (int i = 0; i < PROCESSES; i++) {
    int status;
    assert_int_equal(waitpid(child[i], &status, 0), child[i]);
    assert_int_equal(status, 0);
  }
  assert_int_equal(count_entries("", NULL), 2); /* the list and the object, and nothing half-written */
  expect_kernel(&r, 1);
}

static void change_byte(const char *path, long at, int whence, int by) {
  FILE *f = fopen(path, "r+");
  assert_non_null(f);
  fseek(f, at, whence);
  int c = fgetc(f);
  fseek(f, -1, SEEK_CUR);
  fputc(c ^ by, f);
  fclose(f);
}

TEST_BETWEEN(test_damage, set_up, NULL) {
  char entry[2 * PATH], list[2 * PATH];
  struct stat file;
  pegen_compile_request r = request_of(NULL, rope);
  expect_kernel(&r, 0);
  assert_int_equal(count_entries(".so", entry), 1);
  assert_int_equal(count_entries(".sources", list), 1);
  assert_int_equal(stat(entry, &file), 0);
  const long places[] = {0, 100, file.st_size / 2, file.st_size - 100, file.st_size - 60, file.st_size - 1};
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    change_byte(entry, places[i], SEEK_SET, 1);
    expect_kernel(&r, 0);
    expect_kernel(&r, 1); /* and repaired */
  }
  const long sizes[] = {0, 17, file.st_size / 2, file.st_size - 1};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    assert_int_equal(truncate(entry, sizes[i]), 0);
    expect_kernel(&r, 0);
  }
  assert_int_equal(truncate(list, 10), 0);
  expect_kernel(&r, 0);
  assert_int_equal(unlink(list), 0);
  expect_kernel(&r, 0);
  /* What others may write to is not run. */
  assert_int_equal(chmod(entry, 0666), 0);
  expect_kernel(&r, 0);
  assert_int_equal(unlink(entry), 0);
  assert_int_equal(symlink("/etc/passwd", entry), 0);
  expect_kernel(&r, 0);
  expect_kernel(&r, 1);
  /* Nor is an entry that a link leads to, sound as it is. */
  assert_int_equal(rename(entry, path_of("moved.so")), 0);
  assert_int_equal(symlink(path_of("moved.so"), entry), 0);
  expect_kernel(&r, 0);
  expect_kernel(&r, 1);
}

static void expect_width(const pegen_compile_request *r, int width, int from_cache) {
  pegen_compiled *c = pegen_compile(r);
  if (c->error) fail_msg("%s", c->error);
  assert_int_equal(c->kernel->head_dim, width);
  assert_int_equal(c->from_cache, from_cache);
  pegen_compiled_free(c);
}

/* What the description requires is part of it. */
TEST_BETWEEN(test_modules, set_up, NULL) {
  char spec[1024];
  snprintf(spec, sizeof spec, "local d = require 'width'\n%s", rope);
  *strstr(spec, "8, 'ch") = 'd';
  write_file("turn.lua", spec, 0644);
  write_file("width.lua", "return 8\n", 0644);
  pegen_compile_request r = request_of(path_of("turn.lua"), NULL);
  expect_width(&r, 8, 0);
  expect_width(&r, 8, 1);
  write_file("width.lua", "return 16\n", 0644);
  expect_width(&r, 16, 0);
  expect_width(&r, 16, 1);
  write_file("width.lua", "return 8\n", 0644);
  expect_width(&r, 8, 1);
  unlink(path_of("width.lua"));
  expect_error(&r, "width");
}

/* Another file moved into the description's place while it is compiled, older than that by its time of writing: the
 * kernel of the first is not stored as that of the second. */
TEST_BETWEEN(test_moved_during_compilation, set_up, NULL) {
  char spec[1024], script[5 * PATH];
  const struct timespec old[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
  write_file("turn.lua", rope, 0644);
  snprintf(spec, sizeof spec, "%s", rope);
  memcpy(strstr(spec, "8, 'ch"), "6", 1);
  write_file("next.lua", spec, 0644);
  assert_int_equal(utimensat(AT_FDCWD, path_of("next.lua"), old, 0), 0);
  snprintf(script, sizeof script, "#!/bin/sh\n'%s' \"$@\" || exit\n[ ! -e '%s' ] || mv '%s' '%s'\n", PEGEN_PROGRAM,
           path_of("next.lua"), path_of("next.lua"), path_of("turn.lua"));
  write_file("program", script, 0755);
  pegen_compile_request r = request_of(path_of("turn.lua"), NULL);
  r.program = path_of("program");
  expect_width(&r, 8, 0);
  expect_width(&r, 6, 0);
  expect_width(&r, 6, 1);
}

/* What comes over a pipe is there once: nothing is read from it but by the compiler, and nothing is stored. */
TEST_BETWEEN(test_pipe, set_up, NULL) {
  const char *pipe = path_of("pipe.lua");
  assert_int_equal(mkfifo(pipe, 0600), 0);
  pegen_compile_request r = request_of(pipe, NULL);
  for (int i = 0; i < 2; i++) {
    pid_t child = fork();
    if (!child) {
      alarm(60);
      int fd = open(pipe, O_WRONLY);
      _exit(write(fd, rope, strlen(rope)) != (ssize_t)strlen(rope));
    }
    expect_kernel(&r, 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
  }
  assert_int_equal(count_entries(".so", NULL), 0);
}

/* A file of the cache's folder that was used so many seconds ago. */
static void leave_file(const char *name, long kib, long seconds) {
  char path[2 * PATH];
  struct timespec used[2];
  clock_gettime(CLOCK_REALTIME, &used[0]);
  used[0].tv_sec -= seconds;
  used[1] = used[0];
  snprintf(path, sizeof path, "%s/pegen/%s", folder, name);
  FILE *f = fopen(path, "w");
  assert_non_null(f);
  assert_int_equal(ftruncate(fileno(f), kib << 10), 0);
  fclose(f);
  assert_int_equal(utimensat(AT_FDCWD, path, used, 0), 0);
}

static bool is_left(const char *name) {
  char path[2 * PATH];
  snprintf(path, sizeof path, "%s/pegen/%s", folder, name);
  return !access(path, F_OK);
}

#define KEY "0123456789abcdef0123456789abcdef"
#define OTHER "fedcba9876543210fedcba9876543210"

/* What was used least recently goes, once an entry is stored and the folder is too large; what is not ours stays. */
TEST_BETWEEN(test_trimmed, set_up, NULL) {
  const char *oldest = KEY "-" KEY ".so", *older = KEY ".sources", *newer = "0" KEY, *broken = KEY ".sources.aBc123";
  const char *being_written = KEY "-" KEY ".so.xYz789", *foreign = "notes.so";
  pegen_compile_request r = request_of(NULL, rope);
  const char *defines[] = {"head_dim=16"}, *more[] = {"head_dim=24"};
  r.max_cache = 1;
  expect_kernel(&r, 0);
  leave_file(oldest, 400, 400);
  leave_file(older, 400, 300);
  leave_file(newer, 700, 200); /* not a name of ours */
  leave_file(foreign, 4000, 9000);
  leave_file(broken, 10, 7200);
  leave_file(being_written, 10, 60);
  expect_kernel(&r, 1);
  assert_true(is_left(oldest) && is_left(broken)); /* what is found makes no room */
  r.defines = defines, r.n_defines = 1;
  pegen_compiled_free(pegen_compile(&r));
  assert_true(is_left(oldest) && is_left(older) && !is_left(broken) && is_left(being_written));
  leave_file(OTHER "-" KEY ".so", 260, 250);
  leave_file(OTHER ".sources", 260, 1);
  r.defines = more;
  pegen_compiled_free(pegen_compile(&r));
  assert_false(is_left(oldest) || is_left(older));
  assert_true(is_left(OTHER "-" KEY ".so") && is_left(OTHER ".sources"));
  assert_true(is_left(newer) && is_left(foreign) && is_left(being_written));
  expect_width(&r, 24, 1); /* the new one and what was used last are there */
  r.n_defines = 0;
  expect_kernel(&r, 1);
  leave_file(oldest, 4000, 400);
  r.max_cache = -1;
  r.defines = (const char *[]){"head_dim=32"}, r.n_defines = 1;
  expect_width(&r, 32, 0);
  assert_true(is_left(oldest));
  /* An entry that alone is too large stays: it has just been asked for. */
  r.max_cache = 1;
  expect_width(&r, 32, 1);
}

/* Five processes that store, find and trim in one folder all get their kernels. */
TEST_BETWEEN(test_trimmed_by_all, set_up, NULL) {
  enum { PROCESSES = 5, ROUNDS = 6 };
  pid_t child[PROCESSES];
  pegen_compile_request r = request_of(NULL, rope);
  r.max_cache = 1;
  expect_kernel(&r, 0);
  for (int i = 0; i < PROCESSES; i++)
    if (!(child[i] = fork()))
      for (int round = 0;; round++) {
        char define[32], name[PATH];
        if (round == ROUNDS) _exit(0);
        snprintf(define, sizeof define, "head_dim=%d", 8 * (1 + (i + round) % 4));
        snprintf(name, sizeof name, "%032x-" KEY ".so", i * ROUNDS + round);
        leave_file(name, 900, 100);
        r.defines = (const char *[]){define}, r.n_defines = 1;
        pegen_compiled *c = pegen_compile(&r);
        if (!c || !c->kernel || c->kernel->head_dim != 8 * (1 + (i + round) % 4)) _exit(1);
        pegen_compiled_free(c);
      }
  for (int i = 0; i < PROCESSES; i++) {
    int status;
    assert_int_equal(waitpid(child[i], &status, 0), child[i]);
    assert_int_equal(status, 0);
  }
}

TEST_BETWEEN(test_no_room, set_up, NULL) {
  pegen_compile_request r = request_of(NULL, rope);
  r.cache = "";
  expect_kernel(&r, 0);
  expect_kernel(&r, 0);
  r.cache = "/proc/pegen-cache";
  expect_kernel(&r, 0);
  write_file("file", "", 0644);
  r.cache = path_of("file");
  expect_kernel(&r, 0);
  assert_int_equal(mkdir(path_of("open"), 0755), 0);
  assert_int_equal(chmod(path_of("open"), 0777), 0);
  r.cache = path_of("open");
  expect_kernel(&r, 0);
  expect_kernel(&r, 0);
  r.cache = path_of("deep/er/cache");
  failing_writes_below(folder);
  expect_kernel(&r, 0);
  expect_kernel(&r, 0);
  failing_writes_below(NULL);
  assert_int_equal(rmdir(path_of("deep/er/cache")), 0); /* nothing half-written in it */
  expect_kernel(&r, 0);
  expect_kernel(&r, 1);
}

/* Whether a cache in that folder keeps anything. */
static void expect_kept(const char *cache, bool kept) {
  pegen_compile_request r = request_of(NULL, rope);
  r.cache = path_of(cache);
  expect_kernel(&r, 0);
  expect_kernel(&r, kept);
}

/* A folder in whose place somebody else could put another one is not used: one that its group or anybody may write to,
 * or below one whose entries others may rename. */
TEST_BETWEEN(test_folders_of_others, set_up, NULL) {
  static const struct {
    mode_t above, itself;
    bool kept;
  } rows[] = {{0755, 0700, true},  {0755, 0755, true},   {0755, 0770, false}, {0755, 0702, false},
              {0770, 0700, false}, {0777, 0700, false},  {01777, 0700, true}, {01770, 0700, true},
              {0702, 0700, false}, {01777, 0777, false}, {0755, 01777, false}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char name[64];
    snprintf(name, sizeof name, "above%zu", i);
    assert_int_equal(mkdir(path_of(name), 0755), 0);
    assert_int_equal(chmod(path_of(name), rows[i].above), 0);
    snprintf(name, sizeof name, "above%zu/cache", i);
    assert_int_equal(mkdir(path_of(name), 0755), 0);
    assert_int_equal(chmod(path_of(name), rows[i].itself), 0);
    expect_kept(name, rows[i].kept);
  }
  /* By a link it is what the link leads to. */
  assert_int_equal(symlink("above0/cache", path_of("good")), 0);
  assert_int_equal(symlink("above4/cache", path_of("bad")), 0);
  pegen_compile_request r = request_of(NULL, rope);
  r.cache = path_of("good");
  expect_kernel(&r, 1);
  expect_kept("bad", false);
}

/* The bytes that were checked are those that run, whatever becomes of the file. */
TEST_BETWEEN(test_changed_after_found, set_up, NULL) {
  char entry[2 * PATH];
  pegen_compile_request r = request_of(NULL, rope);
  expect_kernel(&r, 0);
  pegen_compiled *c = pegen_compile(&r);
  assert_int_equal(c->from_cache, 1);
  assert_int_equal(count_entries(".so", entry), 1);
  assert_int_equal(truncate(entry, 0), 0);
  expect_turns(c->kernel);
  pegen_compiled_free(c);
}

int main(int argc, char **argv) {
  if (argc != 2 || snprintf(root, sizeof root, "%s-%d", argv[1], (int)getpid()) < 0 || mkdir(root, 0755)) return 2;
  int failed = run_listed();
  char command[PATH + 16];
  snprintf(command, sizeof command, "rm -rf '%s'", root);
  return system(command) || failed;
}
