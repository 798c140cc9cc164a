/* modules: the files a spec is made of.
 *
 * `require` reaches the vocabulary ("pegen") and plain names beside the spec or in
 * the folder parts beside it, nothing else: no dots, no slashes, no search path. Every
 * file read is remembered for depfiles.
 */
#include "state.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

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

/* The file's text in the arena, or NULL with errno set (EFBIG: longer than a source may be). */
static const char *read_text(arena *memory, const char *path, size_t *size) {
  FILE *in = fopen(path, "rb");
  if (!in) return NULL;
  struct stat info = {0};
  if (fstat(fileno(in), &info) == 0 && S_ISDIR(info.st_mode)) {
    fclose(in);
    errno = EISDIR;
    return NULL;
  }
  size_t room = S_ISREG(info.st_mode) && info.st_size < DSL_SOURCE_BYTES ? (size_t)info.st_size : DSL_SOURCE_BYTES;
  char *text = arena_alloc(memory, room + 2);
  *size = fread(text, 1, room + 1, in);
  int error = ferror(in) ? EIO : *size > room ? EFBIG : 0;
  fclose(in);
  if (error) {
    errno = error;
    return NULL;
  }
  text[*size] = 0;
  return text;
}

void modules_load(lua_State *L, const char *path, bool vocabulary, dsl_place asked) {
  dsl_state *s = dsl_state_of(L);
  if (s->n_sources == DSL_SOURCES) where_raise(L, asked, "a spec may consist of %d files", DSL_SOURCES);
  if (++s->n_requests > DSL_REQUESTS) where_raise(L, asked, "a spec may ask for %d files", DSL_REQUESTS);
  size_t size = 0;
  const char *text = read_text(s->memory, path, &size);
  limits_memory(L);
  if (!text && errno == EFBIG) where_raise(L, asked, "'%s' has more than %d bytes", path, DSL_SOURCE_BYTES);
  if (!text) where_raise(L, asked, "cannot read '%s': %s", path, strerror(errno));
  dsl_source *source = &s->source[s->n_sources];
  *source = (dsl_source){.path = arena_strdup(s->memory, path), .text = text, .vocabulary = vocabulary};
  shorten(source->path, source->id);
  s->n_sources++;
  lua_pushfstring(L, "@%s", source->path);
  s->compiling = source->path;
  int status = luaL_loadbufferx(L, text, size, lua_tostring(L, -1), "t");
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

static bool is_plain(const char *name) {
  if (!*name || strlen(name) > 64) return false;
  for (; *name; name++)
    if (!isalnum((unsigned char)*name) && *name != '_') return false;
  return true;
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
  dsl_state *s = dsl_state_of(L);
  const char *key = lua_pushfstring(L, "vocabulary %s", name);
  if (lua_getfield(L, LUA_REGISTRYINDEX, key) != LUA_TNIL) return 1;
  const char *path = arena_printf(s->memory, "%s/%s.lua", s->dsl_dir, name);
  modules_load(L, path, true, asked);
  lua_getfield(L, LUA_REGISTRYINDEX, SANDBOX_VOCABULARY);
  lua_setupvalue(L, -2, 1); /* _ENV */
  core_push(L);
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
  if (!is_plain(name) || strlen(name) != lua_rawlen(L, 1))
    where_raise(L, here,
                "require reaches \"pegen\" and files beside the spec (or in parts/ there): letters, digits and _ only");
  const char *key = lua_pushfstring(L, "module %s", name); /* anchored in its slot */
  if (lua_getfield(L, LUA_REGISTRYINDEX, key) != LUA_TNIL) return 1;
  for (int i = 0; i < s->n_loading; i++)
    if (strcmp(s->loading[i], name) == 0)
      where_raise(L, here, "'%s' requires itself%s%s", name, i + 1 < s->n_loading ? ", by way of " : "",
                  i + 1 < s->n_loading ? s->loading[i + 1] : "");
  const char *path = arena_printf(s->memory, "%s%s.lua", s->directory, name);
  const char *part = arena_printf(s->memory, "%sparts/%s.lua", s->directory, name);
  struct stat info;
  if (stat(path, &info) != 0 && stat(part, &info) == 0) path = part;
  if (stat(path, &info) == 0 && !S_ISREG(info.st_mode)) /* a pipe would hang */
    where_raise(L, here, "'%s' is not a file", path);
  begin_loading(L, name);
  modules_load(L, path, false, here); /* bounds n_loading too: every module is a source */
  run_once(L, key, 0);
  return 1;
}
