/* core: what the vocabulary (pegen.lua and the files it includes) calls in C.
 *
 * The table is handed to the vocabulary's chunks as their argument and is
 * reachable from nowhere else, so its functions may trust their callers.
 */
#include "core.h"

#include "base/diag.h"
#include "base/text.h"
#include "state.h"
#include "trace.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- errors ---- */

/* core.fail(message [, function]): at the user's line, or where the function is defined. */
static int fail(lua_State *L) {
  const char *message = luaL_checkstring(L, 1);
  dsl_place place = where_user(L);
  if (lua_isfunction(L, 2) && !lua_iscfunction(L, 2)) {
    lua_Debug info;
    lua_pushvalue(L, 2);
    lua_getinfo(L, ">S", &info);
    const dsl_source *source = where_source(dsl_state_of(L), info.source);
    if (source && !source->vocabulary) place = (dsl_place){source->path, info.linedefined};
  }
  where_raise(L, place, "%s", message);
}

/* core.fail_field(field, message): at the line after the user's on which "field =" stands. */
static int fail_field(lua_State *L) {
  dsl_place place = where_user(L);
  if (place.file) place.line = where_field(dsl_state_of(L), place.file, place.line, luaL_checkstring(L, 1));
  where_raise(L, place, "%s", luaL_checkstring(L, 2));
}

/* core.line(): the user's line. */
static int line(lua_State *L) {
  lua_pushinteger(L, where_user(L).line);
  return 1;
}

/* core.nearest(word, list): the word of the list that was probably meant, or nil. */
static int nearest(lua_State *L) {
  const char *word = luaL_checkstring(L, 1);
  luaL_checktype(L, 2, LUA_TTABLE);
  int length = (int)lua_rawlen(L, 2), count = 0;
  const char **list = lua_newuserdatauv(L, sizeof *list * (size_t)(length + 1), 0);
  for (int i = 0; i < length; i++) {
    if (lua_rawgeti(L, 2, i + 1) == LUA_TSTRING) list[count++] = lua_tostring(L, -1); /* the list keeps it alive */
    lua_pop(L, 1);
  }
  lua_pushstring(L, diag_nearest(word, list, count));
  return 1;
}

/* core.text_flaw(text): what no line of text may hold and this one does, or nil; ASCII's control characters are not
 * meant. */
static int flaw(lua_State *L) {
  size_t length;
  const char *text = luaL_checklstring(L, 1, &length);
  for (size_t i = 0; i < length;) {
    size_t ascii = i;
    while (ascii < length && (unsigned char)text[ascii] < 128) ascii++;
    size_t end = ascii;
    while (end < length && (unsigned char)text[end] >= 128) end++;
    const char *what = text_flaw(text + ascii, end - ascii);
    if (what) {
      lua_pushstring(L, what);
      return 1;
    }
    i = end;
  }
  lua_pushnil(L);
  return 1;
}

/* ---- words ---- */

static int call_word(lua_State *L) {
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
  return lua_gettop(L);
}

/* core.word(function): the same as a C function. A tail call of a Lua function, as in
 * "return pe.encoding{...}", would take the user's line off the stack. */
static int word(lua_State *L) {
  luaL_checktype(L, 1, LUA_TFUNCTION);
  lua_settop(L, 1);
  lua_pushcclosure(L, call_word, 1);
  return 1;
}

/* core.parameters(function): how many it names; a large number where it takes any. */
static int parameters(lua_State *L) {
  lua_Debug info;
  luaL_checktype(L, 1, LUA_TFUNCTION);
  lua_settop(L, 1);
  lua_getinfo(L, ">u", &info);
  lua_pushinteger(L, info.isvararg ? 255 : info.nparams);
  return 1;
}

/* ---- options ---- */

/* core.define(name): the text given by -D, or nil. The last one counts. */
static int define(lua_State *L) {
  dsl_state *s = dsl_state_of(L);
  const char *name = luaL_checkstring(L, 1), *value = NULL;
  for (int i = 0; i < s->n_defines; i++) {
    if (strcmp(s->defines[i].name, name) != 0) continue;
    s->define_used[i] = true;
    value = s->defines[i].value;
  }
  lua_pushstring(L, value);
  return 1;
}

/* The kind that options.lua names, and the texts of the choices, which may be nil. */
static void read_option(lua_State *L, dsl_state *s, spec_option *o) {
  static const char *const kinds[] = {
#define X(name, text) text,
      OPTION_KINDS(X)
#undef X
          NULL};
  o->kind = (spec_option_kind)luaL_checkoption(L, 5, NULL, kinds);
  o->otherwise = arena_strdup(s->memory, luaL_checkstring(L, 6));
  o->n_choices = lua_istable(L, 7) ? (int)lua_rawlen(L, 7) : 0;
  if (o->n_choices > SPEC_MAX_CHOICES) where_fail(L, "option '%s' has more than %d choices", o->name, SPEC_MAX_CHOICES);
  o->choice = arena_array(s->memory, const char *, o->n_choices + 1);
  for (int i = 0; i < o->n_choices; i++) {
    lua_rawgeti(L, 7, i + 1);
    o->choice[i] = arena_strdup(s->memory, luaL_checkstring(L, -1));
    lua_pop(L, 1);
  }
  o->range[0] = luaL_optnumber(L, 8, 0);
  o->range[1] = luaL_optnumber(L, 9, 0);
}

/* core.option(name, value as text, doc, given, kind, default as text, choices as texts, range): remembers it for the
 * description. */
static int option(lua_State *L) {
  dsl_state *s = dsl_state_of(L);
  if (s->n_options == DSL_OPTIONS) where_fail(L, "a spec may have %d options", DSL_OPTIONS);
  if (s->n_options == s->options_room) {
    int room = s->options_room ? 2 * s->options_room : 16;
    spec_option *grown = arena_array(s->memory, spec_option, room);
    if (s->option) memcpy(grown, s->option, sizeof *grown * (size_t)s->n_options);
    s->option = grown;
    s->options_room = room;
  }
  spec_option *o = &s->option[s->n_options++];
  o->name = arena_strdup(s->memory, luaL_checkstring(L, 1));
  o->value = arena_strdup(s->memory, luaL_checkstring(L, 2));
  o->doc = arena_strdup(s->memory, luaL_checkstring(L, 3));
  o->given = lua_toboolean(L, 4);
  read_option(L, s, o);
  return 0;
}

/* core.number_text(number): the shortest text that reads back as the same number. */
static int number_text(lua_State *L) {
  char text[64];
  if (lua_isinteger(L, 1)) {
    snprintf(text, sizeof text, "%lld", (long long)lua_tointeger(L, 1));
  } else {
    double value = luaL_checknumber(L, 1);
    bool whole = value == floor(value) && fabs(value) < 1e15;
    if (whole) snprintf(text, sizeof text, "%.0f", value); /* 10000, not 1e+04 */
    for (int digits = 1; !whole && digits <= 17; digits++) {
      snprintf(text, sizeof text, "%.*g", digits, value);
      if (strtod(text, NULL) == value) break;
    }
  }
  lua_pushstring(L, text);
  return 1;
}

static void push_limits(lua_State *L) {
  static const struct {
    const char *name;
    lua_Integer value;
  } limits[] = {{"sum", SPEC_MAX_SUM},
                {"axes", SPEC_MAX_AXES},
                {"dimensions", SPEC_MAX_DIMENSIONS},
                {"rank", SPEC_MAX_RANK},
                {"head_dim", SPEC_MAX_HEAD_DIM},
                {"rows", DSL_MAX_ROWS},
                {"block", SPEC_MAX_BLOCK},
                {"operands", SPEC_MAX_OPERANDS},
                {"inputs", SPEC_MAX_INPUTS},
                {"terms", SPEC_MAX_TERMS},
                {"degree", SPEC_MAX_DEGREE},
                {"rotors", SPEC_MAX_ROTORS},
                {"arguments", SPEC_MAX_ARGUMENTS},
                {"models", SPEC_MAX_MODELS},
                {"parts", SPEC_MAX_PARTS},
                {"place_score", SPEC_OF_SCORE},
                {"place_query", SPEC_OF_QUERY},
                {"place_key", SPEC_OF_KEY}};
  lua_newtable(L);
  for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
    lua_pushinteger(L, limits[i].value);
    lua_setfield(L, -2, limits[i].name);
  }
}

void core_open(lua_State *L) {
  static const luaL_Reg functions[] = {{"fail", fail},
                                       {"fail_field", fail_field},
                                       {"line", line},
                                       {"nearest", nearest},
                                       {"text_flaw", flaw},
                                       {"word", word},
                                       {"parameters", parameters},
                                       {"define", define},
                                       {"option", option},
                                       {"include", modules_include},
                                       {"number_text", number_text},
                                       {"begin", convert_begin},
                                       {"merge", convert_merge},
                                       {"part", convert_part},
                                       {"finish", convert_finish},
                                       {NULL, NULL}};
  lua_newtable(L);
  luaL_setfuncs(L, functions, 0);
  trace_open(L);
  push_limits(L);
  lua_setfield(L, -2, "limits");
  lua_newtable(L);
  trace_words(L);
  lua_setfield(L, -2, "arithmetic");
  lua_setfield(L, LUA_REGISTRYINDEX, DSL_CORE);
}
