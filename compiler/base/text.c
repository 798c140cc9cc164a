/* base/text: see base/text.h. */
#include "base/text.h"

#include <ctype.h>
#include <stdint.h>
#include <string.h>

bool text_is_identifier(const char *text) {
  size_t length = strlen(text);
  if (length == 0 || length > TEXT_IDENTIFIER_LENGTH || isdigit((unsigned char)*text)) return false;
  for (; *text; text++)
    if ((unsigned char)*text >= 128 || (!isalnum((unsigned char)*text) && *text != '_')) return false;
  return true;
}

/* The character at the front, and its bytes: 1 for a byte that begins none, whose code is then above Unicode's. */
static uint32_t decode(const unsigned char *text, size_t length, size_t *bytes) {
  static const struct {
    unsigned char mask, lead;
    uint32_t least; /* shorter spellings of the same are no UTF-8 */
  } kinds[] = {{0x80, 0x00, 0}, {0xe0, 0xc0, 0x80}, {0xf0, 0xe0, 0x800}, {0xf8, 0xf0, 0x10000}};
  *bytes = 1;
  for (size_t kind = 0; kind < 4; kind++) {
    if ((text[0] & kinds[kind].mask) != kinds[kind].lead) continue;
    if (kind >= length) break;
    uint32_t code = text[0] & (unsigned char)~kinds[kind].mask;
    for (size_t i = 1; i <= kind; i++) {
      if ((text[i] & 0xc0) != 0x80) return UINT32_MAX;
      code = code << 6 | (text[i] & 0x3f);
    }
    if (code < kinds[kind].least || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) break;
    *bytes = kind + 1;
    return code;
  }
  return UINT32_MAX;
}

static const char *flaw_of(uint32_t code) {
  static const struct {
    uint32_t first, last;
    const char *what;
  } flaws[] = {
      {0x00, 0x1f, "control characters"},
      {0x7f, 0x9f, "control characters"},
      {0x061c, 0x061c, "characters that reorder text"},
      {0x200b, 0x200b, "characters that are not seen"},
      {0x200e, 0x200f, "characters that reorder text"},
      {0x2028, 0x2029, "line separators"},
      {0x202a, 0x202e, "characters that reorder text"},
      {0x2060, 0x2064, "characters that are not seen"},
      {0x2066, 0x2069, "characters that reorder text"},
      {0xfeff, 0xfeff, "characters that are not seen"},
      {0xfff9, 0xfffb, "characters that are not seen"},
      {0xe0000, 0xe0fff, "characters that are not seen"},
      {0x110000, UINT32_MAX, "bytes that are no UTF-8"},
  };
  for (size_t i = 0; i < sizeof flaws / sizeof *flaws; i++)
    if (code >= flaws[i].first && code <= flaws[i].last) return flaws[i].what;
  return NULL;
}

const char *text_flaw(const char *text, size_t length) {
  for (size_t i = 0, bytes; i < length; i += bytes) {
    const char *what = flaw_of(decode((const unsigned char *)text + i, length - i, &bytes));
    if (what) return what;
  }
  return NULL;
}

const char *text_shown(arena *a, const char *text, size_t length) {
  char *shown = arena_alloc(a, length + 1), *to = shown;
  for (size_t i = 0, bytes; i < length; i += bytes) {
    bool flawed = flaw_of(decode((const unsigned char *)text + i, length - i, &bytes)) != NULL;
    memcpy(to, flawed ? "?" : text + i, flawed ? 1 : bytes);
    to += flawed ? 1 : bytes;
  }
  *to = 0;
  return shown;
}
