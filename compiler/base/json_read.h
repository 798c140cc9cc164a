/* base/json_read: reads JSON text of strangers (RFC 8259), strictly: nothing that the standard leaves out, no name
 * twice where it is asked for, no deeper than JSON_DEPTH.
 *
 * Strings come as UTF-8 that ends in a NUL; one that holds U+0000, or half of a surrogate pair, is refused.
 */
#pragma once

#include "base/arena.h"

#include <stdbool.h>
#include <stdint.h>

enum { JSON_DEPTH = 32 };

typedef enum json_kind { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_TEXT, JSON_ARRAY, JSON_OBJECT } json_kind;

typedef struct json_value {
  json_kind kind;
  bool is_whole;   /* a number without fraction and exponent that fits 64 bits: `whole` */
  int64_t whole;   /* of JSON_BOOL 0 or 1 */
  double number;   /* of JSON_NUMBER */
  const char *text; /* of JSON_TEXT */
  const char *name; /* of a member of an object */
  int64_t count;   /* elements or members */
  struct json_value *first, *next;
} json_value;

/* NULL: `*wrong` says what, and at which byte. */
const json_value *json_read(arena *a, const char *text, size_t length, const char **wrong);

/* A member of an object; NULL: there is none, or there are two of that name. */
const json_value *json_member(const json_value *object, const char *name);
