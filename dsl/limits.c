/* limits: memory cap and instruction budget of a spec.
 *
 * Both are final: once passed, every further instruction raises again, and the
 * spec's pcall and xpcall hand the error on instead of hiding it. Strings have
 * a cap of their own, because one instruction may copy or compare a whole
 * string; with short strings the budget bounds the time as well.
 */
#include "state.h"

#include <stdlib.h>

enum { HOOK_STEP = 1000, LAST_WORDS = 1 << 20 };

static void *allocate(void *context, void *block, size_t old_size, size_t new_size) {
  dsl_state *s = context;
  size_t held = block ? old_size : 0;
  if (new_size == 0) {
    free(block);
    s->bytes -= held;
    return NULL;
  }
  /* For a fresh block Lua passes the kind of object in place of the old size. */
  bool long_string = !block && old_size == LUA_TSTRING && new_size > DSL_STRING_BYTES;
  size_t cap = ((size_t)DSL_MEMORY_MIB << 20) + (s->fatal ? LAST_WORDS : 0);
  bool refused = new_size > held && (long_string || s->bytes - held + new_size > cap);
  /* Near the cap every allocation may cost a full collection: once the time is over, none helps. */
  if (refused && !s->fatal && (clock() - s->begun) / CLOCKS_PER_SEC >= DSL_SECONDS) s->exhausted = true;
  if (s->exhausted && !s->fatal && new_size > held) refused = true;
  void *moved = refused ? NULL : realloc(block, new_size);
  if (moved) {
    s->bytes += new_size - held;
    return moved;
  }
  s->refused_string = long_string;
  if (s->L) s->refused = where_user(s->L);
  return NULL;
}

const char *limits_refusal(const dsl_state *s) {
  if (s->refused_string) return arena_printf(s->memory, "out of memory: a string may have %d bytes", DSL_STRING_BYTES);
  return arena_printf(s->memory, "out of memory: a spec may use %d MiB; is there an endless loop or recursion?",
                      DSL_MEMORY_MIB);
}

static void set_fatal(lua_State *L, dsl_place place, const char *message) {
  dsl_state *s = dsl_state_of(L);
  if (s->fatal) return;
  s->fatal = message;
  s->fatal_place = place;
}

static void on_count(lua_State *L, lua_Debug *unused) {
  (void)unused;
  limits_charge(L, HOOK_STEP);
}

static void on_every_instruction(lua_State *L, lua_Debug *unused) {
  (void)unused;
  dsl_state *s = dsl_state_of(L);
  where_raise(L, s->fatal_place, "%s", s->fatal);
}

void limits_charge(lua_State *L, long long instructions) {
  dsl_state *s = dsl_state_of(L);
  s->instructions += instructions;
  bool too_long = (clock() - s->begun) / CLOCKS_PER_SEC >= DSL_SECONDS;
  if (!too_long && s->instructions <= DSL_INSTRUCTIONS_MILLIONS * 1000000LL) return;
  const char *message =
      arena_printf(s->memory,
                   too_long ? "the spec ran for more than %d seconds"
                            : "the spec ran for more than %d million instructions: is there an endless loop?",
                   too_long ? DSL_SECONDS : DSL_INSTRUCTIONS_MILLIONS);
  set_fatal(L, where_user(L), message);
  lua_sethook(L, on_every_instruction, LUA_MASKCOUNT, 1);
  where_raise(L, s->fatal_place, "%s", s->fatal);
}

/* After a protected call: errors that no pcall may hide go on. */
static void keep_fatal(lua_State *L, int status) {
  dsl_state *s = dsl_state_of(L);
  if (status == LUA_ERRMEM) {
    set_fatal(L, s->refused, limits_refusal(s));
    lua_sethook(L, on_every_instruction, LUA_MASKCOUNT, 1);
  }
  if (status != LUA_OK && s->fatal) where_raise(L, s->fatal_place, "%s", s->fatal);
}

/* pcall(f, ...) of the sandbox. */
int limits_pcall(lua_State *L) {
  luaL_checkany(L, 1);
  int status = lua_pcall(L, lua_gettop(L) - 1, LUA_MULTRET, 0);
  keep_fatal(L, status);
  lua_pushboolean(L, status == LUA_OK);
  lua_insert(L, 1);
  return lua_gettop(L);
}

/* xpcall(f, handler, ...) of the sandbox. The handler runs after the stack is unwound: while an
 * error is raised by the instruction hook no hook runs, and a handler could loop for ever. */
int limits_xpcall(lua_State *L) {
  luaL_checktype(L, 2, LUA_TFUNCTION);
  lua_pushvalue(L, 2);
  lua_insert(L, 1); /* handler f handler ... */
  lua_remove(L, 3);
  int status = lua_pcall(L, lua_gettop(L) - 2, LUA_MULTRET, 0);
  keep_fatal(L, status);
  if (status != LUA_OK) {
    lua_call(L, 1, LUA_MULTRET); /* handler(message) */
    lua_pushboolean(L, 0);
    lua_insert(L, 1);
    return lua_gettop(L);
  }
  lua_pushboolean(L, 1);
  lua_replace(L, 1);
  return lua_gettop(L);
}

lua_State *limits_open(dsl_state *s) {
  lua_State *L = lua_newstate(allocate, s);
  if (!L) return NULL;
  *(dsl_state **)lua_getextraspace(L) = s;
  s->L = L;
  s->begun = clock();
  lua_sethook(L, on_count, LUA_MASKCOUNT, HOOK_STEP);
  return L;
}
