/* plant: native(what, path), a function of the sandbox that does in machine code what a spec that has taken over the
 * interpreter would try. Where the attempt is neither stopped nor ends the process, the spec goes on as if nothing had
 * been. */
#include "plant.h"

#include "isolate.h"

#include <errno.h>
#include <fcntl.h>
#include <lauxlib.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char *witness; /* a file that is not there, and should not be afterwards */
static volatile long result; /* so that no attempt is optimised away */

/* ---- files ---- */

static void create(void) { result = open(witness, O_CREAT | O_WRONLY, 0600); }
static void read_file(void) { result = open("/etc/passwd", O_RDONLY); }
static void read_directory(void) { result = syscall(SYS_getdents64, 0, witness, 0); }
static void delete_file(void) { result = unlink(witness); }
static void rename_file(void) { result = rename("/etc/hostname", witness); }
static void read_memory_of_parent(void) { result = open("/proc/self/../self/mem", O_RDWR); }
static void duplicate(void) { result = dup(0); }
static void write_elsewhere(void) { result = write(2, "taken over\n", 11); }
static void read_elsewhere(void) {
  char byte;
  result = read(1, &byte, 1);
}
static void control(void) { result = fcntl(0, F_SETFL, O_NONBLOCK); }
static void memory_file(void) { result = memfd_create("x", 0); }
static void map_file(void) { result = (long)mmap(NULL, 4096, PROT_READ, MAP_SHARED, 0, 0); }

/* ---- processes ---- */

static void fork_process(void) { result = fork(); }
static void fork_by_clone(void) { result = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); }
static void execute(void) {
  char *arguments[] = {"sh", "-c", "echo taken over", NULL}, *environment[] = {NULL};
  result = execve("/bin/sh", arguments, environment);
}
static void kill_group(void) { result = kill(0, SIGTERM); }
static void trace(void) { result = ptrace(PTRACE_TRACEME, 0, NULL, NULL); }
static void write_memory(void) { result = syscall(SYS_process_vm_writev, 1, NULL, 0, NULL, 0, 0); }
static void own_id(void) { result = syscall(SYS_getppid); }
static void raise_limit(void) {
  struct rlimit most = {RLIM_INFINITY, RLIM_INFINITY};
  result = setrlimit(RLIMIT_NOFILE, &most);
}
static void name_itself(void) { result = prctl(PR_SET_NAME, "taken over", 0, 0, 0); }
static void handle_signal(void) { result = signal(SIGSYS, SIG_IGN) == SIG_ERR; }

/* ---- network, kernel ---- */

static void open_socket(void) { result = socket(AF_INET, SOCK_STREAM, 0); }
static void open_unix_socket(void) { result = socket(AF_UNIX, SOCK_STREAM, 0); }
static void send_descriptor(void) {
  struct msghdr message = {0};
  result = sendmsg(0, &message, 0);
}
static void open_ring(void) { result = syscall(SYS_io_uring_setup, 1, NULL); }
static void load_program(void) { result = syscall(SYS_bpf, 0, NULL, 0); }
static void unshare_user(void) { result = syscall(SYS_unshare, 0x10000000); }
static void second_filter(void) { result = syscall(SYS_seccomp, 1, 0, NULL); }

/* ---- code ---- */

static void make_executable(void) {
  result = mprotect((void *)((uintptr_t)&make_executable & ~4095ul), 4096, PROT_READ | PROT_WRITE | PROT_EXEC);
}
static void map_executable(void) {
  result = (long)mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}
static void map_over(void) {
  result = (long)mmap((void *)((uintptr_t)&map_over & ~4095ul), 4096, PROT_READ,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}
static void move_mapping(void) { result = (long)mremap(NULL, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)4096); }
#ifdef __x86_64__
static void call_of_32_bits(void) {
  long number = 20; /* getpid */
  __asm__ volatile("int $0x80" : "+a"(number) : : "memory", "r8", "r9", "r10", "r11");
  result = number;
}
static void call_of_x32(void) { result = syscall(0x40000000 | SYS_getpid); }
#endif

/* ---- the end of the process, and the channel ---- */

static void crash(void) { *(volatile int *)(uintptr_t)result = 1; }
static void leave(void) { _exit(0); }
static void loop(void) {
  for (;;) result++;
}
static void wait_for_ever(void) {
  char byte;
  while (read(0, &byte, 1) >= 0) {}
}
static void say(const void *data, size_t size) {
  if (write(0, data, size) != (ssize_t)size) _exit(8);
}
static void say_garbage(void) {
  static const char garbage[100000] = "garbage";
  say(garbage, sizeof garbage);
  _exit(0);
}
static void say_kind(uint32_t kind, uint32_t size) {
  message_head head = {kind, size};
  say(&head, sizeof head);
}
/* As much as it is given, which is hardly more than CHILD_BYTES (isolate_child.c). */
static void eat(void) {
  for (char *block; (block = malloc(1 << 20)); result++) *(volatile char *)block = 1;
  if (result > 600) say_kind(MESSAGE_MEMORY, 0);
  _exit(9);
}
static void say_unknown(void) { say_kind(77, 0); }
static void say_answer(void) { say_kind(MESSAGE_FOUND, 0); }
static void say_too_much(void) { say_kind(MESSAGE_SPEC, ~0u); }
static void say_long_error(void) { say_kind(MESSAGE_ERROR, sizeof(isolate_place) + ISOLATE_TEXT + 1); }
static void ask_long(void) { say_kind(MESSAGE_ASK, SOURCE_NAME + 2); }
static void say_half(void) { say_kind(MESSAGE_SPEC, 1 << 20), _exit(0); }
static void say_empty_error(void) { say_kind(MESSAGE_ERROR, 3), say("abc", 3); }
static void say_nothing_of_a_spec(void) { say_kind(MESSAGE_SPEC, 0); }
static void say_no_spec(void) {
  char bytes[64] = "gespec1";
  say_kind(MESSAGE_SPEC, sizeof bytes), say(bytes, sizeof bytes);
}
static void say_bug(void) { say_kind(MESSAGE_BUG, 13), say("plan\0all lost", 13); }
static void say_bug_without_stage(void) { say_kind(MESSAGE_BUG, 0); }
static void say_for_ever(void) {
  static const char block[1 << 16];
  say_kind(MESSAGE_SPEC, WIRE_BYTES);
  for (;;) say(block, sizeof block);
}
/* One file again and again, which is there. */
static void ask_for_one_more(void) {
  static char answer[1 << 20];
  for (;;) {
    message_head head;
    say_kind(MESSAGE_ASK, 6), say("\1pegen", 6);
    if (read(0, &head, sizeof head) != sizeof head || head.kind != MESSAGE_FOUND) _exit(7);
    for (size_t left = head.size; left > 0;) {
      ssize_t got = read(0, answer, left < sizeof answer ? left : sizeof answer);
      if (got <= 0) _exit(6);
      left -= (size_t)got;
    }
  }
}
static void say_unconfined(void) { say_kind(MESSAGE_UNCONFINED, 5), say("lacks", 5); }
static void ask_for_ever(void) {
  for (;;) say_kind(MESSAGE_ASK, 2), say("\2x", 2);
}
static void ask_for_a_path(void) {
  char answer[512];
  say_kind(MESSAGE_ASK, 18), say("\2../../etc/passwd", 18);
  if (read(0, answer, sizeof answer) < 8 || ((message_head *)answer)->kind != MESSAGE_WITHOUT) _exit(7);
  _exit(0);
}
static void ask_for_a_wrong_kind(void) { say_kind(MESSAGE_ASK, 2), say("\7x", 2); }

static const plant_row rows[] = {
    {"create", create, "SIGSYS"},
    {"read_file", read_file, "SIGSYS"},
    {"read_directory", read_directory, "SIGSYS"},
    {"delete", delete_file, "SIGSYS"},
    {"rename", rename_file, "SIGSYS"},
    {"read_memory_of_parent", read_memory_of_parent, "SIGSYS"},
    {"duplicate", duplicate, "SIGSYS"},
    {"write_elsewhere", write_elsewhere, "SIGSYS"},
    {"read_elsewhere", read_elsewhere, "SIGSYS"},
    {"control", control, "SIGSYS"},
    {"memory_file", memory_file, "SIGSYS"},
    {"map_file", map_file, "SIGSYS"},
    {"fork", fork_process, "SIGSYS"},
    {"vfork", fork_by_clone, "SIGSYS"},
    {"execute", execute, "SIGSYS"},
    {"kill_group", kill_group, "SIGSYS"},
    {"trace", trace, "SIGSYS"},
    {"write_memory", write_memory, "SIGSYS"},
    {"own_id", own_id, "SIGSYS"},
    {"raise_limit", raise_limit, "SIGSYS"},
    {"name_itself", name_itself, "SIGSYS"},
    {"handle_signal", handle_signal, "SIGSYS"},
    {"open_socket", open_socket, "SIGSYS"},
    {"open_unix_socket", open_unix_socket, "SIGSYS"},
    {"send_descriptor", send_descriptor, "SIGSYS"},
    {"open_ring", open_ring, "SIGSYS"},
    {"load_program", load_program, "SIGSYS"},
    {"unshare", unshare_user, "SIGSYS"},
    {"second_filter", second_filter, "SIGSYS"},
    {"make_executable", make_executable, "SIGSYS"},
    {"map_executable", map_executable, "SIGSYS"},
    {"map_over", map_over, "SIGSYS"},
    {"move_mapping", move_mapping, "SIGSYS"},
#ifdef __x86_64__
    {"call_of_32_bits", call_of_32_bits, "SIGSYS"},
    {"call_of_x32", call_of_x32, "SIGSYS"},
#endif
    {"crash", crash, "ended by signal 11"},
    {"leave", leave, "ended before it had a result"},
    {"loop", loop, "it ran for more than"},
    {"wait_for_ever", wait_for_ever, "it had no result after"},
    {"eat", eat, "ended before it had a result"},
    {"say_garbage", say_garbage, "a message of no known kind or size"},
    {"say_unknown", say_unknown, "a message of no known kind or size"},
    {"say_answer", say_answer, "a message of no known kind or size"},
    {"say_too_much", say_too_much, "a message of no known kind or size"},
    {"say_long_error", say_long_error, "a message of no known kind or size"},
    {"ask_long", ask_long, "a message of no known kind or size"},
    {"say_half", say_half, "ended before it had a result"},
    {"say_empty_error", say_empty_error, "a message of no known kind or size"},
    {"say_nothing_of_a_spec", say_nothing_of_a_spec, "a description with an end too early"},
    {"say_no_spec", say_no_spec, "a description with"},
    {"say_bug", say_bug, "its process reports a bug in pegen (plan: all lost)"},
    {"say_bug_without_stage", say_bug_without_stage, "its process reports a bug in pegen (: )"},
    {"say_for_ever", say_for_ever, "a description with"},
    {"ask_for_one_more", ask_for_one_more, "a question for a file that no description asks"},
    {"say_unconfined", say_unconfined, "its process said after its first question that it cannot be confined"},
    {"ask_for_ever", ask_for_ever, "a question for a file that no description asks"},
    {"ask_for_a_path", ask_for_a_path, "ended before it had a result"},
    {"ask_for_a_wrong_kind", ask_for_a_wrong_kind, "a question for a file that no description asks"},
};

int plant_rows(const plant_row **all) {
  *all = rows;
  return sizeof rows / sizeof *rows;
}

static int native(lua_State *L) {
  const char *what = luaL_checkstring(L, 1);
  witness = luaL_checkstring(L, 2);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (!strcmp(rows[i].name, what)) {
      result = 0;
      rows[i].attempt();
      return 0;
    }
  return luaL_error(L, "no attempt '%s'", what);
}

/* The linker gives these names to the loader's call and to what it meant (--wrap). */
void __real_sandbox_open(lua_State *L);
void __wrap_sandbox_open(lua_State *L);
void __wrap_sandbox_open(lua_State *L) {
  __real_sandbox_open(L);
  lua_rawgeti(L, LUA_REGISTRYINDEX, LUA_RIDX_GLOBALS);
  lua_pushcfunction(L, native);
  lua_setfield(L, -2, "native");
  lua_pop(L, 1);
}
