/* described.h: descriptions as a line of text. A test that names one which cannot be loaded ends the program. */
#ifndef PEGEN_TESTS_DESCRIBED_H
#define PEGEN_TESTS_DESCRIBED_H

#include "loader.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "NAME OPTION=VALUE ...": NAME is a file of specs/, or with ./ before it of the suite's own folder. */
static inline spec *described_line(arena *a, char *line) {
  enum { MOST_OPTIONS = 16 };
  loader_define defines[MOST_OPTIONS];
  int count = 0;
  char *rest, *name = strtok_r(line, " ", &rest);
  for (char *word; (word = strtok_r(NULL, " ", &rest)); count++) {
    char *value = strchr(word, '=');
    if (!value || count == MOST_OPTIONS)
      fprintf(stderr, "%s: '%s' is one option too many or none\n", name, word), exit(2);
    *value = 0;
    defines[count] = (loader_define){word, value + 1};
  }
  const char *folder = strncmp(name, "./", 2) == 0 ? LOCAL_DIR : SPECS_DIR;
  spec *s = loader_load(a, arena_printf(a, "%s/%s.lua", folder, name), DSL_DIR, count, defines);
  if (!s) exit(2); /* the loader has said why */
  return s;
}

__attribute__((format(printf, 2, 3))) static inline spec *described(arena *a, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  char *line = arena_vprintf(a, format, arguments);
  va_end(arguments);
  return described_line(a, line);
}

#endif
