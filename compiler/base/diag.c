/* base/diag: error messages; see base/diag.h. */
#include "base/diag.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static diag_sink sink;

void diag_send_to(diag_sink to) { sink = to; }

static void send_to_sink(diag_kind kind, const char *file, int line, const char *format, va_list arguments) {
  char text[4096];
  vsnprintf(text, sizeof text, format, arguments);
  sink(kind, file, line, text);
}

static void message(diag_kind kind, const char *file, int line, const char *format, va_list arguments) {
  if (sink) {
    send_to_sink(kind, file, line, format, arguments);
    return;
  }
  fflush(stdout);
  if (file && line > 0) fprintf(stderr, "%s:%d: ", file, line);
  else if (file) fprintf(stderr, "%s: ", file);
  else fputs("pegen: ", stderr);
  fprintf(stderr, "%s: ", kind == DIAG_ERROR ? "error" : "warning");
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
}

void diag_error(const char *file, int line, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  message(DIAG_ERROR, file, line, format, arguments);
  va_end(arguments);
}

void diag_warning(const char *file, int line, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  message(DIAG_WARNING, file, line, format, arguments);
  va_end(arguments);
}

void diag_out_of_memory(void) {
  if (sink) sink(DIAG_MEMORY, NULL, 0, "out of memory");
  fputs("pegen: out of memory\n", stderr);
  exit(3);
}

void diag_bug(const char *stage, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  if (sink) send_to_sink(DIAG_BUG, stage, 0, format, arguments);
  fprintf(stderr, "pegen: internal error in %s: ", stage);
  vfprintf(stderr, format, arguments);
  fputs("\nThis is a bug in pegen, not in your description. No output was written.\n", stderr);
  va_end(arguments);
  exit(3);
}

static int minimum(int a, int b) { return a < b ? a : b; }

/* Levenshtein distance; words longer than the row are never near. */
static int distance(const char *a, const char *b) {
  enum { LONGEST = 64 };
  int row[LONGEST + 1];
  int n = (int)strlen(b);
  if (n > LONGEST || strlen(a) > LONGEST) return LONGEST;
  for (int j = 0; j <= n; j++) row[j] = j;
  for (int i = 1; a[i - 1]; i++) {
    int diagonal = row[0];
    row[0] = i;
    for (int j = 1; j <= n; j++) {
      int substitute = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = minimum(substitute, minimum(row[j], row[j - 1]) + 1);
    }
  }
  return row[n];
}

const char *diag_nearest(const char *word, const char *const *candidates, int count) {
  const char *best = NULL;
  int least = 2 + (int)strlen(word) / 4;
  for (int i = 0; i < count; i++) {
    int d = distance(word, candidates[i]);
    int longest = (int)(strlen(word) > strlen(candidates[i]) ? strlen(word) : strlen(candidates[i]));
    if (d < least && d < longest) { /* no letter of it in place: another word, as x for h */
      least = d;
      best = candidates[i];
    }
  }
  return best;
}
