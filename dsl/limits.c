/* limits: memory cap and instruction budget of a spec.
 *
 * Both are final: once passed, every further instruction raises again, and the
 * spec's pcall and xpcall hand the error on instead of hiding it. Strings have
 * a cap of their own, because one instruction may copy or compare a whole
 * string; with short strings the budget bounds the time as well.
 */
#include "state.h"

#include <stdlib.h>

enum { LAST_WORDS = 1 << 20 };

/* Instructions between two looks at the clock. One instruction can take milliseconds (a call with a million arguments),
 * so the nearer the end, the fewer. */
enum { MOST_STEPS = 1000, LEAST_STEPS = 20, STEPS_A_SECOND_LEFT = 200 };

static double seconds_left(const dsl_state *s) { return DSL_SECONDS - (double)(clock() - s->begun) / CLOCKS_PER_SEC; }

/* Lua's bytes, and what the arena has taken meanwhile. */
static size_t used(const dsl_state *s) { return s->bytes + arena_bytes(s->memory) - s->arena_before; }

static size_t most(const dsl_state *s) { return ((size_t)DSL_MEMORY_MIB << 20) + (s->fatal ? LAST_WORDS : 0); }

static void on_every_instruction(lua_State *L, lua_Debug *unused);

static void set_fatal(dsl_state *s, dsl_place place, const char *message) {
  if (s->fatal) return;
  s->fatal = message;
  s->fatal_place = place;
  if (s->L) lua_sethook(s->L, on_every_instruction, LUA_MASKCOUNT, 1);
}

/* Lua asks once more for what it was refused, after a collection. Refused again, or not asked for again, it raises an
 * error, which the spec may turn into another one in a __close. */
static void set_lacking(dsl_state *s) {
  s->lacking_size = 0;
  set_fatal(s, s->refused, limits_refusal(s));
}

static void *allocate(void *context, void *block, size_t old_size, size_t new_size) {
  dsl_state *s = context;
  size_t held = block ? old_size : 0;
  if (new_size == 0) {
    free(block);
    s->bytes -= held;
    return NULL;
  }
  /* For a fresh block Lua passes the kind of object in place of the old size. */
  bool grows = new_size > held, again = s->lacking_size == new_size && s->lacking_block == block;
  if (grows && s->lacking_size && !again) set_lacking(s);
  bool long_string = !block && old_size == LUA_TSTRING && new_size > DSL_STRING_BYTES;
  bool refused = grows && (long_string || used(s) - held + new_size > most(s));
  /* Near the cap every allocation may cost a full collection: once the time is over, none helps. */
  if (refused && !s->fatal && seconds_left(s) <= 0) s->exhausted = true;
  if (s->exhausted && !s->fatal && grows) refused = true;
  void *moved = refused ? NULL : realloc(block, new_size);
  if (moved) {
    s->bytes += new_size - held;
    if (grows) s->lacking_size = 0;
    return moved;
  }
  s->refused_string = long_string;
  if (s->L) s->refused = where_user(s->L);
  s->lacking_block = block;
  s->lacking_size = new_size;
  if (again) set_lacking(s);
  return NULL;
}

static const char *too_long(const dsl_state *s) {
  return arena_printf(s->memory, "the spec ran for more than %d seconds", DSL_SECONDS);
}

const char *limits_refusal(const dsl_state *s) {
  if (s->exhausted) return too_long(s);
  if (s->refused_string) return arena_printf(s->memory, "out of memory: a string may have %d bytes", DSL_STRING_BYTES);
  return arena_printf(s->memory, "out of memory: a spec may use %d MiB; is there an endless loop or recursion?",
                      DSL_MEMORY_MIB);
}

static void on_count(lua_State *L, lua_Debug *unused) {
  (void)unused;
  dsl_state *s = dsl_state_of(L);
  limits_charge(L, s->step);
  double left = seconds_left(s) * STEPS_A_SECOND_LEFT;
  int step = left > MOST_STEPS ? MOST_STEPS : left < LEAST_STEPS ? LEAST_STEPS : (int)left;
  if (step == s->step) return; /* setting a hook takes as long as calls are deep */
  s->step = step;
  lua_sethook(L, on_count, LUA_MASKCOUNT, step);
}

static void on_every_instruction(lua_State *L, lua_Debug *unused) {
  (void)unused;
  dsl_state *s = dsl_state_of(L);
  where_raise(L, s->fatal_place, "%s", s->fatal);
}

void limits_charge(lua_State *L, long long instructions) {
  dsl_state *s = dsl_state_of(L);
  s->instructions += instructions;
  if (s->instructions > DSL_INSTRUCTIONS_MILLIONS * 1000000LL)
    set_fatal(s, where_user(L),
              arena_printf(s->memory, "the spec ran for more than %d million instructions: is there an endless loop?",
                           DSL_INSTRUCTIONS_MILLIONS));
  else if (seconds_left(s) <= 0) set_fatal(s, where_user(L), too_long(s));
  if (s->lacking_size) set_lacking(s);
  limits_memory(L);
}

void limits_memory(lua_State *L) {
  dsl_state *s = dsl_state_of(L);
  if (used(s) > most(s)) {
    s->refused_string = false;
    set_fatal(s, where_user(L), limits_refusal(s));
  }
  if (s->fatal) where_raise(L, s->fatal_place, "%s", s->fatal);
}

/* After a protected call: errors that no pcall may hide go on. */
static void keep_fatal(lua_State *L, int status) {
  dsl_state *s = dsl_state_of(L);
  if (status == LUA_ERRMEM || s->lacking_size) set_lacking(s);
  if (status != LUA_OK && s->fatal) where_raise(L, s->fatal_place, "%s", s->fatal);
}

/* pcall(f, ...) of the sandbox. What it adds is on the stack before the call: results may fill it. */
int limits_pcall(lua_State *L) {
  luaL_checkany(L, 1);
  lua_pushboolean(L, 1);
  lua_insert(L, 1);
  int status = lua_pcall(L, lua_gettop(L) - 2, LUA_MULTRET, 0);
  keep_fatal(L, status);
  if (status == LUA_OK) return lua_gettop(L);
  lua_pushboolean(L, 0);
  lua_insert(L, -2);
  return 2;
}

/* xpcall(f, handler, ...) of the sandbox. The handler runs after the stack is unwound: while an
 * error is raised by the instruction hook no hook runs, and a handler could loop for ever. */
int limits_xpcall(lua_State *L) {
  luaL_checktype(L, 2, LUA_TFUNCTION);
  lua_pushboolean(L, 1);
  lua_pushvalue(L, 1);
  lua_rotate(L, 3, 2); /* f handler true f ... */
  int status = lua_pcall(L, lua_gettop(L) - 4, LUA_MULTRET, 0);
  keep_fatal(L, status);
  if (status == LUA_OK) return lua_gettop(L) - 2;
  lua_pushboolean(L, 0);
  lua_replace(L, 3);
  lua_pushvalue(L, 2);
  lua_insert(L, 4); /* f handler false handler message */
  lua_call(L, 1, LUA_MULTRET);
  return lua_gettop(L) - 2;
}

lua_State *limits_open(dsl_state *s) {
  lua_State *L = lua_newstate(allocate, s);
  if (!L) return NULL;
  *(dsl_state **)lua_getextraspace(L) = s;
  s->L = L;
  s->begun = clock();
  s->step = MOST_STEPS;
  lua_sethook(L, on_count, LUA_MASKCOUNT, s->step);
  return L;
}
