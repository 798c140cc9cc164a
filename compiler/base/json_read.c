/* base/json_read: by recursive descent; see base/json_read.h. */
#include "base/json_read.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef struct reader {
  arena *a;
  const char *text, *at, *end;
  const char *wrong; /* the first thing that is */
} reader;

static bool refuse(reader *r, const char *what) {
  if (!r->wrong) r->wrong = arena_printf(r->a, "byte %zu: %s", (size_t)(r->at - r->text), what);
  return false;
}

static void skip_blanks(reader *r) {
  while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r')) r->at++;
}

static bool next_is(reader *r, char c) {
  if (r->at == r->end || *r->at != c) return false;
  r->at++;
  return true;
}

static bool is_digit(const reader *r) { return r->at < r->end && *r->at >= '0' && *r->at <= '9'; }

/* ---- strings ---- */

/* Bytes of the UTF-8 character that begins at `at`: 0 where none does (overlong, surrogate, beyond U+10FFFF). */
static int character_bytes(const char *at, const char *end) {
  const unsigned char *s = (const unsigned char *)at;
  int bytes = *s < 0x80                 ? 1
              : *s >= 0xc2 && *s < 0xe0 ? 2
              : *s >= 0xe0 && *s < 0xf0 ? 3
              : *s >= 0xf0 && *s < 0xf5 ? 4
                                        : 0;
  if (!bytes || end - at < bytes) return 0;
  for (int i = 1; i < bytes; i++)
    if ((s[i] & 0xc0) != 0x80) return 0;
  bool is_bad = (*s == 0xe0 && s[1] < 0xa0) || (*s == 0xed && s[1] > 0x9f) || (*s == 0xf0 && s[1] < 0x90) ||
                (*s == 0xf4 && s[1] > 0x8f);
  return is_bad ? 0 : bytes;
}

static char *put_character(char *out, uint32_t code) {
  if (code < 0x80) {
    *out++ = (char)code;
    return out;
  }
  int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  static const unsigned char lead[] = {0, 0xc0, 0xe0, 0xf0};
  *out++ = (char)(lead[more] | code >> 6 * more);
  while (more--) *out++ = (char)(0x80 | (code >> 6 * more & 0x3f));
  return out;
}

static bool read_unit(reader *r, uint32_t *unit) {
  *unit = 0;
  for (int i = 0; i < 4; i++, r->at++) {
    const char *digits = "0123456789abcdef";
    const char *found =
        r->at < r->end && *r->at ? strchr(digits, *r->at >= 'A' && *r->at <= 'F' ? *r->at + 32 : *r->at) : NULL;
    if (!found) return refuse(r, "expected four hexadecimal digits behind \\u");
    *unit = *unit << 4 | (uint32_t)(found - digits);
  }
  return true;
}

static bool read_escape(reader *r, char **out) {
  static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
  uint32_t code, low;
  if (r->at == r->end) return refuse(r, "the text ends in a string");
  const char *plain = *r->at ? strchr(names, *r->at) : NULL;
  if (plain) {
    *(*out)++ = values[plain - names];
    r->at++;
    return true;
  }
  if (!next_is(r, 'u')) return refuse(r, "no such escape");
  if (!read_unit(r, &code)) return false;
  if (code >= 0xd800 && code < 0xdc00) {
    if (!next_is(r, '\\') || !next_is(r, 'u') || !read_unit(r, &low) || low < 0xdc00 || low > 0xdfff)
      return refuse(r, "half of a surrogate pair");
    code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
  } else if (code >= 0xdc00 && code < 0xe000) return refuse(r, "half of a surrogate pair");
  if (!code) return refuse(r, "a string with U+0000 in it");
  *out = put_character(*out, code);
  return true;
}

static const char *read_text(reader *r) {
  if (!next_is(r, '"')) return refuse(r, "expected a string"), NULL;
  /* No escape is shorter than what it stands for. */
  const char *close = r->at;
  while (close < r->end && *close != '"') close += *close == '\\' && r->end - close > 1 ? 2 : 1;
  char *text = arena_array(r->a, char, close - r->at + 1), *out = text;
  while (r->at < r->end && *r->at != '"') {
    if ((unsigned char)*r->at < 0x20) return refuse(r, "a control character in a string"), NULL;
    if (*r->at == '\\') {
      r->at++;
      if (!read_escape(r, &out)) return NULL;
      continue;
    }
    int bytes = character_bytes(r->at, r->end);
    if (!bytes) return refuse(r, "a string that is not UTF-8"), NULL;
    memcpy(out, r->at, (size_t)bytes);
    out += bytes;
    r->at += bytes;
  }
  if (!next_is(r, '"')) return refuse(r, "the text ends in a string"), NULL;
  return text;
}

/* ---- numbers ---- */

static bool skip_digits(reader *r) {
  if (!is_digit(r)) return refuse(r, "expected a digit");
  while (is_digit(r)) r->at++;
  return true;
}

static bool read_number(reader *r, json_value *v) {
  enum { MOST = 400 }; /* characters */
  const char *start = r->at;
  v->kind = JSON_NUMBER, v->is_whole = true;
  next_is(r, '-');
  if (!next_is(r, '0') && !skip_digits(r)) return false;
  if (next_is(r, '.')) {
    v->is_whole = false;
    if (!skip_digits(r)) return false;
  }
  if (next_is(r, 'e') || next_is(r, 'E')) {
    v->is_whole = false;
    if (!next_is(r, '+')) next_is(r, '-');
    if (!skip_digits(r)) return false;
  }
  if (r->at - start > MOST) return refuse(r, "a number of more than 400 characters");
  char *copy = arena_printf(r->a, "%.*s", (int)(r->at - start), start);
  v->number = strtod(copy, NULL);
  errno = 0;
  v->whole = strtoll(copy, NULL, 10);
  if (errno == ERANGE) v->is_whole = false;
  return true;
}

/* ---- all values ---- */

static bool read_word(reader *r, const char *word) {
  size_t length = strlen(word);
  if ((size_t)(r->end - r->at) < length || memcmp(r->at, word, length) != 0) return refuse(r, "expected a value");
  r->at += length;
  return true;
}

static bool read_value(reader *r, json_value *v, int depth);

/* Elements of an array, members of an object. */
static bool read_elements(reader *r, json_value *v, int depth, char close) {
  json_value **last = &v->first;
  if (depth == JSON_DEPTH) return refuse(r, "nested more than 32 deep");
  skip_blanks(r);
  if (next_is(r, close)) return true;
  do {
    json_value *one = arena_new(r->a, json_value);
    skip_blanks(r);
    if (v->kind == JSON_OBJECT) {
      if (!(one->name = read_text(r))) return false;
      skip_blanks(r);
      if (!next_is(r, ':')) return refuse(r, "expected a colon");
    }
    if (!read_value(r, one, depth + 1)) return false;
    *last = one, last = &one->next;
    v->count++;
    skip_blanks(r);
  } while (next_is(r, ','));
  return next_is(r, close) || refuse(r, "expected a comma or the end of an array or object");
}

static bool read_value(reader *r, json_value *v, int depth) {
  skip_blanks(r);
  if (r->at == r->end) return refuse(r, "the text ends where a value is expected");
  if (*r->at == '"') {
    v->kind = JSON_TEXT;
    return (v->text = read_text(r)) != NULL;
  }
  if (next_is(r, '[')) return v->kind = JSON_ARRAY, read_elements(r, v, depth, ']');
  if (next_is(r, '{')) return v->kind = JSON_OBJECT, read_elements(r, v, depth, '}');
  if (*r->at == '-' || is_digit(r)) return read_number(r, v);
  if (*r->at == 'n') return v->kind = JSON_NULL, read_word(r, "null");
  v->kind = JSON_BOOL, v->whole = *r->at == 't';
  return read_word(r, v->whole ? "true" : "false");
}

const json_value *json_read(arena *a, const char *text, size_t length, const char **wrong) {
  reader r = {.a = a, .text = text, .at = text, .end = text + length};
  json_value *v = arena_new(a, json_value);
  bool good = read_value(&r, v, 0);
  skip_blanks(&r);
  if (good && r.at != r.end) good = refuse(&r, "something behind the end of the value");
  *wrong = r.wrong;
  return good ? v : NULL;
}

const json_value *json_member(const json_value *object, const char *name) {
  const json_value *found = NULL;
  if (object->kind != JSON_OBJECT) return NULL;
  for (const json_value *v = object->first; v; v = v->next) {
    if (strcmp(v->name, name) != 0) continue;
    if (found) return NULL;
    found = v;
  }
  return found;
}
