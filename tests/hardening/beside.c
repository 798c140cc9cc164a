/* beside: a library that is preloaded into a program, as profilers do, with a thread of its own whose stack is nearly
 * full. What a signal would put there lands below it, where this finds it: the program's signals are its own threads'
 * to take. */
#include <alloca.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STACK = 64 << 10, BELOW = 64 << 10, LEFT = 600, MARK = 0x5a, STATUS = 77 };
static unsigned char *memory; /* BELOW bytes of MARK, then the stack */

static void look(void) {
  for (int i = 0; i < BELOW; i++)
    if (memory[i] != MARK) {
      static const char text[] = "beside: something was written below the stack of another thread\n";
      ssize_t written = write(STDERR_FILENO, text, sizeof text - 1);
      (void)written;
      _exit(STATUS);
    }
}

static void *stay(void *unused) {
  unsigned char here;
  volatile unsigned char *room = alloca((size_t)(&here - (memory + BELOW)) - LEFT);
  room[0] = 0;
  for (;;) look();
  return unused;
}

__attribute__((constructor)) static void begin(void) {
  pthread_attr_t attributes;
  pthread_t thread;
  if (posix_memalign((void **)&memory, 4096, BELOW + STACK)) _exit(STATUS);
  memset(memory, MARK, BELOW);
  if (pthread_attr_init(&attributes) || pthread_attr_setstack(&attributes, memory + BELOW, STACK) ||
      pthread_create(&thread, &attributes, stay, NULL))
    _exit(STATUS);
}
