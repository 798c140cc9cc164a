/* base/json: a writer of JSON text; see base/json.h. */
#include "base/json.h"

#include <math.h>

/* Bytes of the UTF-8 sequence at s, 0 where there is none: overlong forms, surrogates and what is above
 * U+10FFFF are none. */
static int sequence(const unsigned char *s) {
  if (s[0] < 0x80) return 1;
  int length = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
  if (s[0] < 0xc2 || s[0] > 0xf4) return 0;
  for (int i = 1; i < length; i++)
    if ((s[i] & 0xc0) != 0x80) return 0;
  if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f)) return 0;
  if ((s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f)) return 0;
  return length;
}

static void quoted(FILE *out, const char *text) {
  fputc('"', out);
  for (const unsigned char *s = (const unsigned char *)text; *s;) {
    int length = sequence(s);
    if (length == 0) fputs("\\ufffd", out);
    else if (*s == '"' || *s == '\\') fprintf(out, "\\%c", *s);
    else if (*s < 0x20 || *s == 0x7f) fprintf(out, "\\u%04x", *s);
    else fwrite(s, 1, (size_t)length, out);
    s += length ? length : 1;
  }
  fputc('"', out);
}

static void indent(json_writer *w) {
  fputc('\n', w->out);
  for (int i = 0; i < w->depth; i++) fputs("  ", w->out);
}

/* What comes before every value. */
static void open_value(json_writer *w, const char *key) {
  if (w->filled) fputc(',', w->out);
  if (w->depth) indent(w);
  w->filled = true;
  if (!key) return;
  quoted(w->out, key);
  fputs(": ", w->out);
}

void json_begin(json_writer *w, const char *key, char bracket) {
  open_value(w, key);
  fputc(bracket, w->out);
  w->depth++;
  w->filled = false;
}

void json_end(json_writer *w, char bracket) {
  w->depth--;
  if (w->filled) indent(w);
  fputc(bracket, w->out);
  w->filled = true;
  if (w->depth == 0) fputc('\n', w->out);
}

void json_text(json_writer *w, const char *key, const char *value) {
  open_value(w, key);
  quoted(w->out, value);
}

void json_integer(json_writer *w, const char *key, long long value) {
  open_value(w, key);
  fprintf(w->out, "%lld", value);
}

static void number(FILE *out, double value) {
  if (isfinite(value)) fprintf(out, "%.17g", value);
  else fputs("null", out);
}

void json_number(json_writer *w, const char *key, double value) {
  open_value(w, key);
  number(w->out, value);
}

void json_numbers(json_writer *w, const char *key, const double *values, int64_t count) {
  open_value(w, key);
  for (int64_t i = 0; i < count; i++) {
    fputs(i ? ", " : "[", w->out);
    number(w->out, values[i]);
  }
  fputs(count ? "]" : "[]", w->out);
}

void json_bool(json_writer *w, const char *key, bool value) {
  open_value(w, key);
  fputs(value ? "true" : "false", w->out);
}
