/* where: from Lua's stack and messages to file and line.
 *
 * Lua shortens long paths in its messages, and loses the caller's line when a
 * word of the vocabulary is the innermost function. So places are looked up in
 * the stack, skipping the vocabulary's own files, and errors carry them as Lua's
 * own do ("id:line: text"), which a spec's pcall can read and we can take apart.
 */
#include "state.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

const dsl_source *where_source(const dsl_state *s, const char *lua_source) {
  if (lua_source[0] != '@') return NULL;
  for (int i = 0; i < s->n_sources; i++)
    if (strcmp(s->source[i].path, lua_source + 1) == 0) return &s->source[i];
  return NULL;
}

dsl_place where_user(lua_State *L) {
  dsl_state *s = dsl_state_of(L);
  if (s->compiling) return (dsl_place){s->compiling, 1};
  lua_Debug frame;
  for (int level = 0; lua_getstack(L, level, &frame); level++) {
    lua_getinfo(L, "Sl", &frame);
    const dsl_source *source = where_source(s, frame.source);
    if (source && !source->vocabulary) return (dsl_place){source->path, frame.currentline};
  }
  return (dsl_place){NULL, 0};
}

static const char *id_of(const dsl_state *s, const char *file) {
  for (int i = 0; i < s->n_sources; i++)
    if (s->source[i].path == file) return s->source[i].id;
  return file;
}

static void raise_text(lua_State *L, dsl_place place, const char *format, va_list arguments) {
  dsl_state *s = dsl_state_of(L);
  char text[1024];
  vsnprintf(text, sizeof text, format, arguments);
  if (place.file) lua_pushfstring(L, "%s:%d: %s", id_of(s, place.file), place.line, text);
  else lua_pushstring(L, text);
}

void where_raise(lua_State *L, dsl_place place, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  raise_text(L, place, format, arguments);
  va_end(arguments);
  lua_error(L);
  abort(); /* lua_error does not return, but is not declared so */
}

void where_fail(lua_State *L, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  raise_text(L, where_user(L), format, arguments);
  va_end(arguments);
  lua_error(L);
  abort();
}

const dsl_source *where_parse(const dsl_state *s, const char *message, dsl_place *place, const char **text) {
  for (int i = 0; i < s->n_sources; i++) {
    size_t length = strlen(s->source[i].id);
    if (strncmp(message, s->source[i].id, length) != 0 || message[length] != ':') continue;
    char *end;
    long line = strtol(message + length + 1, &end, 10);
    if (end == message + length + 1 || *end != ':') continue;
    *place = (dsl_place){s->source[i].path, (int)line};
    *text = end + 1 + (end[1] == ' ');
    return &s->source[i];
  }
  return NULL;
}

static bool is_word(char c) { return isalnum((unsigned char)c) || c == '_'; }

int where_field(const dsl_state *s, const char *file, int line, const char *field) {
  const char *text = NULL;
  for (int i = 0; i < s->n_sources; i++)
    if (s->source[i].path == file) text = s->source[i].text;
  size_t length = strlen(field);
  int at = 1;
  for (const char *c = text; c && *c && length > 0; c++) {
    if (*c == '\n') at++;
    if (at < line || strncmp(c, field, length) != 0) continue;
    if ((c > text && is_word(c[-1])) || is_word(c[length])) continue;
    const char *after = c + length;
    while (*after == ' ' || *after == '\t') after++;
    if (after[0] == '=' && after[1] != '=') return at;
  }
  return line;
}
