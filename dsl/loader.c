/* loader: runs a spec in its sandbox and reports what goes wrong; see loader.h. */
#include "loader.h"

#include "base/diag.h"
#include "base/text.h"
#include "state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Message handler: the stack of the error is still there. From a Lua error message to a place and a text without it. */
static int on_error(lua_State *L) {
  dsl_state *s = dsl_state_of(L);
  const char *message = lua_tostring(L, 1);
  if (!message) message = lua_pushfstring(L, "the spec raised a %s as an error", luaL_typename(L, 1));
  dsl_place place = {NULL, 0}, user = where_user(L);
  const char *text = message;
  const dsl_source *source = where_parse(s, message, &place, &text);
  /* An error inside the vocabulary, or without a place: the user's innermost line. */
  if (user.file && (!source || source->vocabulary)) place = user;
  s->failure.place = place;
  s->failure.text = text_shown(s->memory, text, strlen(text));
  s->failure.known = true;
  return 1;
}

static void report(lua_State *L, int status) {
  dsl_state *s = dsl_state_of(L);
  dsl_place place = {s->file, 0};
  const char *text = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "the spec failed";
  if (s->failure.known) place = s->failure.place, text = s->failure.text;
  if (status == LUA_ERRMEM) place = s->refused, text = limits_refusal(s);
  if (s->fatal) place = s->fatal_place, text = s->fatal;
  diag_error(place.file ? place.file : s->file, place.line, "%s", text);
}

/* The whole of the spec's life inside Lua, protected. */
static int run(lua_State *L) {
  dsl_state *s = dsl_state_of(L);
  sandbox_open(L);
  core_open(L);
  modules_load(L, SOURCE_SPEC, s->file, (dsl_place){NULL, 0});
  lua_call(L, 0, 1);
  if (!s->result || !luaL_testudata(L, -1, DSL_DESCRIPTION))
    where_raise(L, (dsl_place){s->source[0].path, 1}, "the spec must return pegen.encoding{...}, it returned a %s",
                luaL_typename(L, -1));
  return 0;
}

/* -D names that no option took: the user mistyped. */
static bool check_defines(const dsl_state *s) {
  for (int i = 0; i < s->n_defines; i++) {
    if (s->define_used[i]) continue;
    const char **names = arena_array(s->memory, const char *, s->n_options);
    const char *list = "";
    const char *nearest = NULL;
    for (int k = 0; k < s->n_options; k++) names[k] = s->option[k].name;
    nearest = diag_nearest(s->defines[i].name, names, s->n_options);
    if (nearest) list = nearest;
    for (int k = 0; k < s->n_options; k++)
      if (!nearest || strcmp(nearest, names[k]) != 0)
        list = *list ? arena_printf(s->memory, "%s, %s", list, names[k]) : names[k];
    diag_error(s->file, 0, "no option '%s'%s%s%s; the spec's options: %s", s->defines[i].name,
               nearest ? ", did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "", list);
    return false;
  }
  return true;
}

/* "c" of "a/b/c.lua": what a file beside it would require it by. */
static const char *module_of(arena *a, const char *file) {
  const char *slash = strrchr(file, '/');
  const char *name = slash ? slash + 1 : file;
  const char *dot = strrchr(name, '.');
  return dot ? arena_printf(a, "%.*s", (int)(dot - name), name) : name;
}

static void finish(dsl_state *s) {
  spec *result = s->result;
  result->file = s->file;
  spec_share_with_parts(result);
  result->n_options = s->n_options;
  result->option = s->option;
  result->n_sources = s->n_sources;
  result->source = arena_array(s->memory, const char *, s->n_sources);
  for (int i = 0; i < s->n_sources; i++) result->source[i] = s->source[i].path;
}

spec *loader_run(arena *a, const char *file, source_store *store, int n_defines, const loader_define *defines) {
  dsl_state *s = arena_new(a, dsl_state);
  s->memory = a;
  s->arena_before = arena_bytes(a);
  s->file = arena_strdup(a, file);
  s->store = store;
  s->n_defines = n_defines;
  s->defines = defines;
  s->define_used = arena_array(a, bool, n_defines);
  s->loading[s->n_loading++] = module_of(a, file);
  lua_State *L = limits_open(s);
  if (!L) {
    diag_error(file, 0, "out of memory");
    return NULL;
  }
  lua_pushcfunction(L, on_error);
  lua_pushcfunction(L, run);
  int status = lua_pcall(L, 0, 0, 1);
  if (status != LUA_OK) report(L, status);
  lua_sethook(L, NULL, 0, 0);
  lua_close(L);
  if (status != LUA_OK || !check_defines(s)) return NULL;
  finish(s);
  return spec_validate(s->result) ? s->result : NULL;
}

spec *loader_load(arena *a, const char *file, const char *dsl_dir, int n_defines, const loader_define *defines) {
  source_files files = sources_of(a, arena_strdup(a, file), dsl_dir);
  return loader_run(a, file, &files.store, n_defines, defines);
}
