/* cases: reads golden cases; see cases.h. */
#include "cases.h"

#include <lauxlib.h>
#include <lua.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Noreturn void fail(const char *what, const char *detail) {
  fprintf(stderr, "golden cases: %s: %s\n", what, detail);
  exit(1);
}

static const char *field_text(arena *a, lua_State *L, const char *name) {
  lua_getfield(L, -1, name);
  const char *text = lua_tostring(L, -1);
  if (!text) fail("missing field", name);
  text = arena_strdup(a, text);
  lua_pop(L, 1);
  return text;
}

static const double *read_values(arena *a, const char *path, int64_t count) {
  FILE *file = fopen(path, "rb");
  if (!file) fail("cannot open", path);
  double *values = arena_array(a, double, count + 1);
  if (fread(values, sizeof(double), (size_t)count + 1, file) != (size_t)count)
    fail("not as long as its shape says", path);
  fclose(file);
  return values;
}

/* The array of a case whose shape is on top of the stack. */
static golden_array read_array(arena *a, lua_State *L, const char *dir, const char *of, const char *name) {
  golden_array array = {.name = arena_strdup(a, name)};
  int64_t count = 1;
  array.rank = (int)luaL_len(L, -1);
  if (array.rank > SPEC_MAX_RANK) fail("rank too large", name);
  for (int i = 0; i < array.rank; i++) {
    lua_geti(L, -1, i + 1);
    count *= array.shape[i] = lua_tointeger(L, -1);
    lua_pop(L, 1);
  }
  array.values = read_values(a, arena_printf(a, "%s/%s.%s.f64", dir, of, name), count);
  return array;
}

/* An option as -D writes it: lists with commas. */
static const char *option_text(arena *a, lua_State *L) {
  if (!lua_istable(L, -1)) return arena_strdup(a, luaL_tolstring(L, -1, NULL));
  const char *text = "";
  for (int i = 1; i <= (int)luaL_len(L, -1); i++) {
    lua_geti(L, -1, i);
    text = arena_printf(a, "%s%s%s", text, i > 1 ? "," : "", lua_tostring(L, -1));
    lua_pop(L, 1);
  }
  return text;
}

static void read_options(arena *a, lua_State *L, golden_case *c) {
  lua_getfield(L, -1, "options");
  for (lua_pushnil(L); lua_next(L, -2);) {
    if (c->n_defines == CASE_MAX_DEFINES) fail("too many options", c->name);
    int top = lua_gettop(L);
    const char *value = option_text(a, L);
    lua_settop(L, top);
    c->define[c->n_defines++] = (loader_define){arena_strdup(a, lua_tostring(L, -2)), value};
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
}

static golden_array read_expected(arena *a, lua_State *L, const char *dir, const char *of, const char *name) {
  golden_array array = {.name = name};
  if (lua_getfield(L, -1, name) != LUA_TNIL) array = read_array(a, L, dir, of, name);
  lua_pop(L, 1);
  return array;
}

static void read_case(arena *a, lua_State *L, const char *dir, golden_case *c) {
  c->name = field_text(a, L, "name");
  c->encoding = field_text(a, L, "encoding");
  read_options(a, L, c);
  lua_getfield(L, -1, "reference_only");
  c->reference_only = lua_toboolean(L, -1);
  lua_pop(L, 1);
  lua_getfield(L, -1, "inputs");
  for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1)) {
    if (c->n_inputs == CASE_MAX_INPUTS) fail("too many inputs", c->name);
    c->input[c->n_inputs++] = read_array(a, L, dir, c->name, lua_tostring(L, -2));
  }
  lua_pop(L, 1);
  lua_getfield(L, -1, "scale");
  c->scale = lua_tonumber(L, -1);
  lua_pop(L, 1);
  lua_getfield(L, -1, "expect");
  c->out = read_expected(a, L, dir, c->name, "out");
  c->scores = read_expected(a, L, dir, c->name, "scores");
  c->attention = read_expected(a, L, dir, c->name, "attention");
  if (!c->out.rank && !c->attention.rank) fail("nothing is expected", c->name);
  lua_pop(L, 1);
}

int golden_read(arena *a, const char *dir, const char *file, const golden_case **cases) {
  lua_State *L = luaL_newstate();
  const char *path = arena_printf(a, "%s/%s", dir, file);
  if (!L || luaL_dofile(L, path)) fail(path, L ? lua_tostring(L, -1) : "out of memory");
  int count = (int)luaL_len(L, -1);
  golden_case *all = arena_array(a, golden_case, count);
  for (int i = 0; i < count; i++) {
    lua_geti(L, -1, i + 1);
    read_case(a, L, dir, &all[i]);
    lua_pop(L, 1);
  }
  lua_close(L);
  *cases = all;
  return count;
}

const golden_array *golden_input(const golden_case *c, const char *name) {
  for (int i = 0; i < c->n_inputs; i++)
    if (strcmp(c->input[i].name, name) == 0) return &c->input[i];
  return NULL;
}

spec *golden_load(arena *a, const golden_case *c, const char *specs_dir, const char *dsl_dir,
                  const double ***operands) {
  const char *file = arena_printf(a, "%s/%s.lua", specs_dir, c->encoding);
  spec *s = loader_load(a, file, dsl_dir, c->n_defines, c->define);
  if (!s) return NULL;
  *operands = arena_array(a, const double *, s->n_operands + 1);
  for (int i = 0; i < s->n_operands; i++) {
    const spec_operand *operand = &s->operand[i];
    const golden_array *given = golden_input(c, operand->name);
    bool fits = given && given->rank == operand->rank;
    for (int d = 0; fits && d < operand->rank; d++) fits = given->shape[d] == operand->shape[d];
    if (!fits) {
      fprintf(stderr, "%s: operand '%s' is not an input of the case, or has another shape\n", c->name, operand->name);
      return NULL;
    }
    (*operands)[i] = given->values;
  }
  return s;
}
