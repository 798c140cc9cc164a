/* without WHAT PROGRAM ARGUMENT...: runs a program as on a system that lacks something: seccomp(2) (ENOSYS), or the
 * right to bound a process's memory (EPERM), as some containers have it.
 *
 * A filter set by prctl(2) does it, so that the test needs neither another kernel nor rights.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FIELD(name) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, name))
#define FAIL(error) BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (error))
#define SKIP_UNLESS(value, statements) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (value), 0, (statements))

int main(int argc, char **argv) {
  struct sock_filter seccomp[] = {FIELD(nr), SKIP_UNLESS(SYS_seccomp, 1), FAIL(ENOSYS),
                                  BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  struct sock_filter limits[] = {FIELD(nr),
                                 SKIP_UNLESS(SYS_prlimit64, 6),
                                 FIELD(args[1]),
                                 SKIP_UNLESS(RLIMIT_AS, 4),
                                 FIELD(args[2]),
                                 SKIP_UNLESS(0, 1),
                                 BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
                                 FAIL(EPERM),
                                 BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  struct sock_fprog lacks_seccomp = {sizeof seccomp / sizeof *seccomp, seccomp};
  struct sock_fprog lacks_limits = {sizeof limits / sizeof *limits, limits};
  struct sock_fprog *filter = argc > 2 && !strcmp(argv[1], "seccomp")  ? &lacks_seccomp
                              : argc > 2 && !strcmp(argv[1], "limits") ? &lacks_limits
                                                                       : NULL;
  if (!filter || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, filter)) {
    perror("without");
    return 125;
  }
  execv(argv[2], argv + 2);
  perror(argv[2]);
  return 125;
}
