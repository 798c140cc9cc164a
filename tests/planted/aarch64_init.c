/* The first process of the emulated machine of scripts/confine-aarch64: runs planted_test, whose processes may take
 * eight times as long as on a real one, says how it ended, and turns the machine off. */
#include <stdio.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
  mount("proc", "/proc", "proc", 0, NULL); /* a process asks it how much memory it has */
  pid_t child = fork();
  if (!child) {
    execl("/planted_test", "planted_test", "/dsl", "8", (char *)NULL);
    _exit(127);
  }
  int status = -1;
  while (waitpid(-1, &status, 0) != child) {}
  printf("planted_test: %s %d\n", WIFEXITED(status) ? "exit code" : "ended otherwise,",
         WIFEXITED(status) ? WEXITSTATUS(status) : status);
  fflush(stdout);
  reboot(RB_POWER_OFF);
  return 1;
}
