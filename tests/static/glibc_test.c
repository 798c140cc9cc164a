/* glibc_test: a program for an old glibc has its constructors run once, libc's data, and what cmake/glibc defines. */
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#undef NDEBUG
#include <assert.h>

/* Headers of glibc 2.38 and later call the conversions so; the headers here may be older. */
long young_strtol(const char *text, char **end, int base) __asm__("__isoc23_strtol");
unsigned long long young_strtoull(const char *text, char **end, int base) __asm__("__isoc23_strtoull");
int young_sscanf(const char *text, const char *form, ...) __asm__("__isoc23_sscanf");
uint32_t arc4random(void);

static int constructed;
__attribute__((constructor)) static void construct(void) { constructed++; }

static void test_files(const char *program) {
  struct stat by_name, by_link, by_number;
  int file = open(program, O_RDONLY);
  assert(!stat(program, &by_name) && !lstat(program, &by_link) && !fstat(file, &by_number));
  assert(S_ISREG(by_name.st_mode) && by_name.st_size == lseek(file, 0, SEEK_END));
  assert(by_link.st_ino == by_name.st_ino && by_number.st_ino == by_name.st_ino);
  assert(stat("/nowhere/at/all", &by_name) == -1);
  close(file);
}

static void test_numbers(void) {
  char *end;
  int found = 0;
  assert(young_strtol("-12x", &end, 10) == -12 && *end == 'x');
  assert(young_strtoull("ffffffffffffffff", NULL, 16) == UINT64_MAX);
  assert(young_sscanf("7 8", "%*d %d", &found) == 1 && found == 8);
  assert(arc4random() != arc4random() || arc4random() != arc4random());
}

static void *in_thread(void *gave) { return gettid() != getpid() ? gave : NULL; }

int main(int count, char **words) {
  (void)count;
  assert(constructed == 1);
  assert(environ && getenv("GLIBC_TEST") && !strcmp(*environ + strlen(*environ) - 1, "1")); /* the only variable: =1 */
  test_files(words[0]);
  test_numbers();
  void *memory = malloc(1 << 16), *back = NULL;
  assert(memory && mallinfo2().uordblks >= 1 << 16);
  free(memory);
  pthread_t thread;
  assert(!pthread_create(&thread, NULL, in_thread, words) && !pthread_join(thread, &back) && back == words);
  return 0;
}
