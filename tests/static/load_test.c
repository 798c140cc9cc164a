/* load_test LIBPEGEN OTHER...: each library loads with every symbol that it refers to, and the first one works. For
 * libraries of another processor than Python's (scripts/wheel). */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(int count, char **files) {
  void *first = NULL;
  for (int i = 1; i < count; i++) {
    void *library = dlopen(files[i], RTLD_NOW | RTLD_LOCAL);
    if (!library) return printf("%s\n", dlerror()), 1;
    if (!first) first = library;
  }
  const char *(*explain)(int) = NULL;
  if (first) *(void **)&explain = dlsym(first, "pegen_strerror");
  if (!explain || !strcmp(explain(1), explain(2))) return puts("pegen_strerror is missing, or says one thing"), 1;
  return 0;
}
