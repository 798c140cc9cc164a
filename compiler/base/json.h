/* base/json: a writer of JSON text. Commas, nesting, escapes and numbers; UTF-8 in, UTF-8 out.
 *
 * Keys are NULL for the elements of arrays and for the outermost value.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct json_writer {
  FILE *out;
  int depth;
  bool filled; /* the innermost object or array has something in it */
} json_writer;

void json_begin(json_writer *w, const char *key, char bracket); /* '{' or '[' */
void json_end(json_writer *w, char bracket);                    /* '}' or ']' */
/* Bytes that are not UTF-8 become the replacement character. */
void json_text(json_writer *w, const char *key, const char *value);
void json_integer(json_writer *w, const char *key, long long value);
/* What JSON has no number for, infinities and NaN, is null. */
void json_number(json_writer *w, const char *key, double value);
/* An array on one line. */
void json_numbers(json_writer *w, const char *key, const double *values, int64_t count);
void json_bool(json_writer *w, const char *key, bool value);
