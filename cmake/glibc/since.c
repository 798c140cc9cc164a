/* glibc/since: functions that headers of today refer to and that glibc has since a version after 2.28, by what it had
 * before. Who links them (cmake/PegenGlibc.cmake) has them for itself alone. */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* 2.30 */
pid_t gettid(void) { return (pid_t)syscall(SYS_gettid); }

/* 2.32: libstdc++ counts references faster where it is set. */
extern char __libc_single_threaded;
char __libc_single_threaded = 0;

/* 2.33: before, headers had these as calls of functions that are told the version of struct stat. On processors of
 * 64 bits that is the kernel's, with files of any size. */
int fstatat(int folder, const char *restrict path, struct stat *restrict is, int flags) {
  return (int)syscall(SYS_newfstatat, folder, path, is, flags);
}
int stat(const char *restrict path, struct stat *restrict is) { return fstatat(AT_FDCWD, path, is, 0); }
int lstat(const char *restrict path, struct stat *restrict is) {
  return fstatat(AT_FDCWD, path, is, AT_SYMLINK_NOFOLLOW);
}
int fstat(int file, struct stat *is) { return (int)syscall(SYS_fstat, file, is); }
_Static_assert(sizeof(struct stat) == sizeof(struct stat64), "one struct stat for files of any size");
int stat64(const char *restrict path, struct stat64 *restrict is) { return stat(path, (struct stat *)is); }
int lstat64(const char *restrict path, struct stat64 *restrict is) { return lstat(path, (struct stat *)is); }
int fstat64(int file, struct stat64 *is) { return fstat(file, (struct stat *)is); }
int mknod(const char *path, mode_t mode, dev_t device) {
  return (int)syscall(SYS_mknodat, AT_FDCWD, path, mode, (unsigned)device);
}

/* 2.33: LLVM's statistics ask for what is in use, of which the older function knows 32 bits. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
struct mallinfo2 mallinfo2(void) {
  struct mallinfo old = mallinfo();
  return (struct mallinfo2){.uordblks = (unsigned)old.uordblks};
}

/* 2.35: where the unwinder finds tables. The program has none (cmake/PegenLLVM.cmake): nothing in it catches an
 * exception. */
struct dl_find_object;
int _dl_find_object(void *address, struct dl_find_object *result);
int _dl_find_object(void *address, struct dl_find_object *result) {
  (void)address, (void)result;
  return -1;
}

/* 2.36: LLVM's random numbers, for names of temporary files. */
uint32_t arc4random(void) {
  uint32_t number;
  while (getrandom(&number, sizeof number, 0) != sizeof number)
    if (errno != EINTR) abort();
  return number;
}

/* 2.38: conversions that also know 0b101. Headers of then give them the usual names. */
#define CONVERSION(name, type) \
  type old_##name(const char *restrict text, char **restrict end, int base) __asm__(#name); \
  type __isoc23_##name(const char *restrict text, char **restrict end, int base); \
  type __isoc23_##name(const char *restrict text, char **restrict end, int base) { return old_##name(text, end, base); }
CONVERSION(strtol, long)
CONVERSION(strtoul, unsigned long)
CONVERSION(strtoll, long long)
CONVERSION(strtoull, unsigned long long)

int old_vsscanf(const char *restrict text, const char *restrict form, va_list to) __asm__("__isoc99_vsscanf");
int __isoc23_sscanf(const char *restrict text, const char *restrict form, ...);
int __isoc23_sscanf(const char *restrict text, const char *restrict form, ...) {
  va_list to;
  va_start(to, form);
  int found = old_vsscanf(text, form, to);
  va_end(to);
  return found;
}
