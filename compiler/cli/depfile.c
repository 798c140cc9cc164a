/* cli/depfile: rules of make; see cli/depfile.h. What is escaped how, and what cannot be, is what GNU make does:
 * tests/cli/make_names.py asks it. */
#include "cli/depfile.h"

#include "base/diag.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SHOWN = 200 };

static bool is_in(char c, const char *set) { return c && strchr(set, c); }

/* Why make could not read the name back in a rule, or NULL. */
static const char *obstacle(const char *name) {
  size_t length = strlen(name);
  for (const char *c = name; *c; c++) {
    if (*c == '\n') return "a line ends in it";
    if (iscntrl((unsigned char)*c)) return "it has a control character";
    if (*c == '=') return "make takes '=' for a definition";
    if (*c == ';') return "make takes ';' for the end of the rule";
  }
  if (*name == '~') return "make takes '~' for a home; expected './~...'";
  if (strchr(name, '(') && name[length - 1] == ')') return "make takes '(...)' for a member of an archive";
  return NULL;
}

static bool is_refused(const char *name) {
  const char *why = obstacle(name);
  char shown[MOST_SHOWN + 1];
  size_t i = 0;
  if (!why) return false;
  for (; name[i] && i < MOST_SHOWN; i++) shown[i] = iscntrl((unsigned char)name[i]) ? '?' : name[i];
  shown[i] = 0;
  diag_error(NULL, 0, "-MD: '%s' cannot stand in a rule of make: %s", shown, why);
  return true;
}

/* Backslashes count where one that escapes follows, or the end of the name: they are doubled there alone. */
static void print_name(FILE *f, const char *name, bool is_target) {
  const char *escaped = is_target ? " #:%*?[" : " #:|*?[";
  int backslashes = 0;
  for (; *name; name++) {
    bool escapes = is_in(*name, escaped);
    for (; escapes && backslashes > 0; backslashes--) fputc('\\', f);
    backslashes = *name == '\\' ? backslashes + 1 : 0;
    if (escapes) fputc('\\', f);
    if (*name == '$') fputc('$', f);
    fputc(*name, f);
  }
  for (; backslashes > 0; backslashes--) fputc('\\', f);
}

char *depfile_text(arena *a, const options *o, const spec *s) {
  char *text = NULL;
  size_t size = 0;
  bool has_header = o->header && strcmp(o->header, "-");
  bool refused = is_refused(o->output) || (has_header && is_refused(o->header));
  for (int i = 0; i < s->n_sources && !refused; i++) refused = is_refused(s->source[i]);
  if (refused) return NULL;
  FILE *f = arena_must(open_memstream(&text, &size));
  print_name(f, o->output, true);
  if (has_header) fputc(' ', f), print_name(f, o->header, true);
  fputc(':', f);
  for (int i = 0; i < s->n_sources; i++) fputs(" \\\n  ", f), print_name(f, s->source[i], false);
  fputc('\n', f);
  if (fclose(f)) arena_must(NULL);
  char *copy = arena_strdup(a, text);
  free(text);
  return copy;
}
