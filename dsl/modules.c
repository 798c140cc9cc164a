/* modules: the files a spec is made of.
 *
 * `require` reaches the vocabulary ("pegen") and what sources.h says. Every file read is remembered for depfiles.
 */
#include "state.h"

#include <string.h>

/* The path as Lua's messages shorten it (luaO_chunkid of an "@path"). */
static void shorten(const char *path, char *id) {
  size_t length = strlen(path);
  if (length < LUA_IDSIZE) {
    memcpy(id, path, length + 1);
    return;
  }
  const size_t keep = LUA_IDSIZE - 1 - 3;
  memcpy(id, "...", 3);
  memcpy(id + 3, path + length - keep, keep + 1);
}

void modules_load(lua_State *L, source_kind kind, const char *name, dsl_place asked) {
  dsl_state *s = dsl_state_of(L);
  if (s->n_sources == DSL_SOURCES) where_raise(L, asked, "a spec may consist of %d files", DSL_SOURCES);
  if (++s->n_requests > DSL_REQUESTS) where_raise(L, asked, "a spec may ask for %d files", DSL_REQUESTS);
  const char *why = NULL;
  source_text found = s->store->read(s->store, s->memory, kind, name, &why);
  limits_memory(L);
  if (!found.text) where_raise(L, asked, "%s", why);
  dsl_source *source = &s->source[s->n_sources];
  *source = (dsl_source){.path = found.path, .text = found.text, .vocabulary = kind == SOURCE_VOCABULARY};
  shorten(source->path, source->id);
  s->n_sources++;
  lua_pushfstring(L, "@%s", source->path);
  s->compiling = source->path;
  int status = luaL_loadbufferx(L, found.text, found.size, lua_tostring(L, -1), "t");
  s->compiling = NULL;
  if (status != LUA_OK) {
    dsl_place place;
    const char *rest;
    const char *message = lua_tostring(L, -1);
    /* "attempt to load a binary chunk" and the like carry no line. */
    if (!message || where_parse(s, message, &place, &rest)) lua_error(L);
    where_raise(L, (dsl_place){source->path, 1}, "%s", message);
  }
  lua_remove(L, -2);
}

/* Calls the chunk on the top, once: its first result stays on the stack and in registry[key]. */
static void run_once(lua_State *L, const char *key, int arguments) {
  lua_call(L, arguments, 1);
  if (lua_isnil(L, -1)) {
    lua_pop(L, 1);
    lua_pushboolean(L, 1);
  }
  lua_pushvalue(L, -1);
  lua_setfield(L, LUA_REGISTRYINDEX, key);
}

/* To be closed: however a module's loading ends, it is not being loaded any more. */
static int end_loading(lua_State *L) {
  dsl_state_of(L)->n_loading = *(int *)lua_touserdata(L, 1);
  return 0;
}

static void begin_loading(lua_State *L, const char *name) {
  dsl_state *s = dsl_state_of(L);
  *(int *)lua_newuserdatauv(L, sizeof(int), 0) = s->n_loading;
  lua_createtable(L, 0, 1);
  lua_pushcfunction(L, end_loading);
  lua_setfield(L, -2, "__close");
  lua_setmetatable(L, -2);
  lua_toclose(L, -1);
  s->loading[s->n_loading++] = arena_strdup(s->memory, name);
}

static int include(lua_State *L, const char *name, dsl_place asked) {
  const char *key = lua_pushfstring(L, "vocabulary %s", name);
  if (lua_getfield(L, LUA_REGISTRYINDEX, key) != LUA_TNIL) return 1;
  modules_load(L, SOURCE_VOCABULARY, name, asked);
  lua_getfield(L, LUA_REGISTRYINDEX, SANDBOX_VOCABULARY);
  lua_setupvalue(L, -2, 1); /* _ENV */
  lua_getfield(L, LUA_REGISTRYINDEX, DSL_CORE);
  run_once(L, key, 1);
  return 1;
}

int modules_include(lua_State *L) { return include(L, luaL_checkstring(L, 1), where_user(L)); }

int modules_require(lua_State *L) {
  dsl_state *s = dsl_state_of(L);
  dsl_place here = where_user(L);
  if (lua_type(L, 1) != LUA_TSTRING) where_raise(L, here, "require takes a name: require \"pegen\"");
  const char *name = lua_tostring(L, 1);
  if (strcmp(name, "pegen") == 0) return include(L, name, here);
  if (!source_is_plain(name) || strlen(name) != lua_rawlen(L, 1))
    where_raise(L, here,
                "require reaches \"pegen\" and files beside the spec (or in parts/ there): letters, digits and _ only");
  const char *key = lua_pushfstring(L, "module %s", name); /* anchored in its slot */
  if (lua_getfield(L, LUA_REGISTRYINDEX, key) != LUA_TNIL) return 1;
  for (int i = 0; i < s->n_loading; i++)
    if (strcmp(s->loading[i], name) == 0)
      where_raise(L, here, "'%s' requires itself%s%s", name, i + 1 < s->n_loading ? ", by way of " : "",
                  i + 1 < s->n_loading ? s->loading[i + 1] : "");
  begin_loading(L, name);
  modules_load(L, SOURCE_MODULE, name, here); /* bounds n_loading too: every module is a source */
  run_once(L, key, 0);
  return 1;
}
