/* confine: see confine.h.
 *
 * Three walls, each of which would do: no descriptors and no right to open one (rlimits, Landlock), and a filter of
 * system calls that allows what Lua and malloc need. What it does not name ends the process with SIGSYS.
 */
#include "confine.h"

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool confine_is_built(void) {
#ifdef PEGEN_UNCONFINED
  return false;
#else
  return true;
#endif
}

#if defined(__linux__) && (defined(__x86_64__) || defined(__aarch64__)) && !defined(PEGEN_UNCONFINED)
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#ifdef __x86_64__
#define ARCHITECTURE AUDIT_ARCH_X86_64
#else
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#endif

/* ---- descriptors, memory, time ---- */

static void close_all_but_first(void) {
#ifdef SYS_close_range
  if (!syscall(SYS_close_range, 1, ~0U, 0)) return;
#endif
  struct rlimit files;
  rlim_t most = getrlimit(RLIMIT_NOFILE, &files) || files.rlim_cur > 1 << 16 ? 1 << 16 : files.rlim_cur;
  for (int fd = 1; fd < (int)most; fd++) close(fd);
}

/* Bytes of address space in use: the program's and LLVM's, before the spec's. 0: not known. */
static size_t address_space(void) {
  char text[64] = "";
  int file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (file >= 0 && read(file, text, sizeof text - 1) < 0) text[0] = 0;
  if (file >= 0) close(file);
  unsigned long pages = 0;
  if (sscanf(text, "%lu", &pages) != 1) return 0;
  return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* To `most`, or less where the caller's own bound is. */
static bool limit(int what, rlim_t most) {
  struct rlimit bound;
  if (getrlimit((__rlimit_resource_t)what, &bound)) return false;
  if (bound.rlim_max < most) most = bound.rlim_max;
  bound.rlim_cur = bound.rlim_max = most;
  return !setrlimit((__rlimit_resource_t)what, &bound);
}

static bool limit_resources(size_t bytes, int seconds) {
  static const int none[] = {RLIMIT_CORE, RLIMIT_FSIZE, RLIMIT_NOFILE, RLIMIT_NPROC, RLIMIT_MEMLOCK, RLIMIT_MSGQUEUE};
  bool limited = limit(RLIMIT_AS, bytes) && limit(RLIMIT_CPU, (rlim_t)seconds);
  for (size_t i = 0; i < sizeof none / sizeof *none; i++) limited = limited && limit(none[i], 0);
  return limited;
}

/* ---- Landlock ---- */

/* Every right that the kernel knows by its version, and no rule that gives one back. Older kernels have none. */
static void close_file_system(void) {
#ifdef SYS_landlock_create_ruleset
  static const uint64_t file_rights[] = {0, 13, 14, 15, 15, 16}; /* bits by version */
  struct {
    uint64_t files, network, scopes;
  } ruleset = {0};
  const unsigned ask_version = 1;
  long version = syscall(SYS_landlock_create_ruleset, NULL, 0, ask_version);
  if (version < 1) return;
  ruleset.files = (1ull << file_rights[version < 5 ? version : 5]) - 1;
  if (version >= 4) ruleset.network = 3;
  if (version >= 6) ruleset.scopes = 3;
  size_t size = version >= 6 ? 24 : version >= 4 ? 16 : 8;
  long rules = syscall(SYS_landlock_create_ruleset, &ruleset, size, 0);
  if (rules < 0) return;
  syscall(SYS_landlock_restrict_self, (int)rules, 0);
  close((int)rules);
#endif
}

/* ---- system calls ---- */

#define FIELD(name) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, name))
#define RETURN(action) BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_##action)
#define SKIP_UNLESS(number, statements) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (number), 0, (statements))
#define ALLOW(number) SKIP_UNLESS(number, 1), RETURN(ALLOW)
/* The lower half of an argument, which is all of an int and of these flags. */
#define ALLOW_WITH(number, i, mask, value) \
  SKIP_UNLESS(number, 5), FIELD(args[i]), BPF_STMT(BPF_ALU | BPF_AND | BPF_K, (mask)), SKIP_UNLESS(value, 1), \
      RETURN(ALLOW), RETURN(KILL_PROCESS)

static bool filter_calls(void) {
  const uint32_t all = ~0u, harmless = MAP_NORESERVE | MAP_STACK;
  struct sock_filter program[] = {
      FIELD(arch),
      SKIP_UNLESS(ARCHITECTURE, 1),
      BPF_JUMP(BPF_JMP | BPF_JA, 1, 0, 0),
      RETURN(KILL_PROCESS),
      FIELD(nr),
      ALLOW(SYS_brk),
      ALLOW(SYS_munmap),
      ALLOW(SYS_madvise), /* malloc, where it is told to use large pages */
      ALLOW(SYS_exit_group),
      ALLOW(SYS_clock_gettime),
      ALLOW(SYS_gettimeofday),
#ifdef SYS_time
      ALLOW(SYS_time),
#endif
      ALLOW_WITH(SYS_read, 0, all, 0),
      ALLOW_WITH(SYS_write, 0, all, 0),
      ALLOW_WITH(SYS_mremap, 3, all, MREMAP_MAYMOVE),
      /* Fresh memory of its own, nowhere in particular; nothing that can be executed. */
      SKIP_UNLESS(SYS_mmap, 8),
      FIELD(args[2]),
      BPF_STMT(BPF_ALU | BPF_AND | BPF_K, PROT_EXEC),
      SKIP_UNLESS(0, 4),
      FIELD(args[3]),
      BPF_STMT(BPF_ALU | BPF_AND | BPF_K, ~harmless),
      SKIP_UNLESS(MAP_PRIVATE | MAP_ANONYMOUS, 1),
      RETURN(ALLOW),
      RETURN(KILL_PROCESS),
      RETURN(KILL_PROCESS),
  };
  struct sock_fprog filter = {sizeof program / sizeof *program, program};
  return !syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter);
}

const char *confine(int *channel, size_t bytes, int seconds) {
  uint32_t kill_process = SECCOMP_RET_KILL_PROCESS;
  if (syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &kill_process)) return "its kernel has no seccomp";
  if (*channel != 0 && dup2(*channel, 0) != 0) return "a descriptor cannot be moved";
  *channel = 0;
  close_all_but_first();
  for (char **e = environ; e && *e; e++) memset(*e, 0, strlen(*e)); /* tokens and passwords are often there */
  prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return "its kernel has no PR_SET_NO_NEW_PRIVS";
  size_t used = address_space();
  if (!used) return "there is no /proc to see by how much memory it has";
  close_file_system(); /* takes a descriptor for a moment */
  if (!limit_resources(used + bytes, seconds)) return "its resources cannot be limited";
  return filter_calls() ? NULL : "seccomp refuses the filter";
}

#else

const char *confine(int *channel, size_t bytes, int seconds) {
  (void)channel, (void)bytes, (void)seconds;
#ifdef PEGEN_UNCONFINED
  return NULL;
#else
  return "pegen has no filter for this kind of system";
#endif
}

#endif
