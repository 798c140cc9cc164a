/* sandbox: the globals a spec sees.
 *
 * Only functions that compute. Library functions that loop in C, where the
 * instruction hook cannot see them, are bounded by what they are given. What
 * would make two runs differ is gone or put in order: random numbers, addresses,
 * weak tables, and the order of pairs (Lua seeds its hashes from the clock).
 */
#include "sandbox.h"
#include "state.h"
#include "trace.h"

#include <lualib.h>
#include <string.h>

/* ---- what is not there ---- */

static int missing_global(lua_State *L) {
  static const char *const refused[] = {"io",       "os",     "package", "debug",          "load",  "loadstring",
                                        "loadfile", "dofile", "print",   "collectgarbage", "utf8",  "coroutine",
                                        "warn",     "next",   "_G",      "_ENV",           "module"};
  const char *name = lua_type(L, 2) == LUA_TSTRING ? lua_tostring(L, 2) : "";
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
    if (strcmp(name, refused[i]) == 0)
      return luaL_error(L, "'%s' is not available: a spec describes, and reaches nothing outside itself", name);
  lua_pushnil(L);
  return 1;
}

/* ---- the globals ---- */

static const char *const BASE[] = {"assert", "error",  "ipairs",   "rawequal", "rawget", "rawlen",
                                   "rawset", "select", "tonumber", "type",     NULL};
static const char *const METATABLES[] = {"getmetatable", "setmetatable", NULL};
static const char *const STRING[] = {"byte", "char", "len", "lower", "reverse", "sub", "upper", NULL};

/* Copies functions by name from the table at `from` into the table on the top. */
static void copy_names(lua_State *L, int from, const char *const *names) {
  for (; *names; names++) {
    lua_getfield(L, from, *names);
    lua_setfield(L, -2, *names);
  }
}

/* top[name] = guard, with the original function of the table at `from` as its first upvalue. */
static void guard(lua_State *L, int from, const char *name, lua_CFunction function, lua_Integer limit, bool ranges) {
  lua_getfield(L, from, name);
  lua_pushinteger(L, limit);
  lua_pushboolean(L, ranges);
  lua_pushcclosure(L, function, 3);
  lua_setfield(L, -2, name);
}

/* find has a fourth argument that makes it plain; upvalue 2 says so. */
static void guard_pattern(lua_State *L, int from, const char *name, bool takes_plain) {
  lua_getfield(L, from, name);
  lua_pushboolean(L, takes_plain);
  lua_pushcclosure(L, sandbox_pattern, 2);
  lua_setfield(L, -2, name);
}

/* Pushes the strings' table, made of the originals at `from`. */
static void push_string(lua_State *L, int from) {
  lua_newtable(L);
  copy_names(L, from, STRING);
  guard(L, from, "format", sandbox_format, 0, false);
  guard(L, from, "rep", sandbox_rep, 0, false);
  guard_pattern(L, from, "find", true);
  guard_pattern(L, from, "match", false);
  guard_pattern(L, from, "gmatch", false);
  guard_pattern(L, from, "gsub", false);
}

static void push_table(lua_State *L, int from) {
  lua_newtable(L);
  lua_getfield(L, from, "pack");
  lua_setfield(L, -2, "pack");
  guard(L, from, "concat", sandbox_table, DSL_TABLE_LENGTH, true);
  guard(L, from, "unpack", sandbox_table, DSL_TABLE_LENGTH, true);
  guard(L, from, "insert", sandbox_table, DSL_TABLE_LENGTH, false);
  guard(L, from, "remove", sandbox_table, DSL_TABLE_LENGTH, false);
  lua_pushcfunction(L, sandbox_sort);
  lua_setfield(L, -2, "sort");
}

/* A function of Lua's math (upvalue 1, its name upvalue 2), which takes numbers and is asked for expressions. */
static int math_word(lua_State *L) {
  for (int i = 1; i <= lua_gettop(L); i++)
    if (trace_is_expression(L, i)) trace_refuse_math(L, lua_tostring(L, lua_upvalueindex(2)));
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
  return lua_gettop(L);
}

/* for_specs: an expression where a number is expected is answered by the word that takes both. */
static void push_math(lua_State *L, bool for_specs) {
  luaopen_math(L);
  static const char *const gone[] = {"random", "randomseed"};
  for (size_t i = 0; i < sizeof gone / sizeof *gone; i++) {
    lua_pushnil(L);
    lua_setfield(L, -2, gone[i]);
  }
  static const char *const guarded[] = {"abs",  "acos", "asin", "atan", "ceil", "cos", "deg", "exp",  "floor",
                                        "fmod", "log",  "max",  "min",  "modf", "rad", "sin", "sqrt", "tan"};
  for (size_t i = 0; for_specs && i < sizeof guarded / sizeof *guarded; i++) {
    lua_getfield(L, -1, guarded[i]);
    lua_pushstring(L, guarded[i]);
    lua_pushcclosure(L, math_word, 2);
    lua_setfield(L, -2, guarded[i]);
  }
}

/* Methods of strings, s:rep(3), come from their metatable: a table of their own, out of a spec's reach. */
static void open_methods(lua_State *L, int from) {
  lua_pushliteral(L, "");
  lua_newtable(L);
  push_string(L, from);
  lua_setfield(L, -2, "__index");
  lua_pushliteral(L, "string");
  lua_setfield(L, -2, "__metatable");
  lua_setmetatable(L, -2);
  lua_pop(L, 1);
}

/* Pushes a table of globals, made of the original libraries at base, string and table. The vocabulary's have metatables
 * as Lua has them: weak tables of its own, in which it only looks up what a spec still holds. */
static void push_globals(lua_State *L, int base, int string, int table, bool is_vocabulary) {
  static const luaL_Reg replaced[] = {{"tostring", sandbox_tostring},
                                      {"getmetatable", sandbox_getmetatable},
                                      {"setmetatable", sandbox_setmetatable},
                                      {"pairs", sandbox_pairs},
                                      {"pcall", limits_pcall},
                                      {"xpcall", limits_xpcall},
                                      {"require", modules_require},
                                      {NULL, NULL}};
  lua_newtable(L);
  copy_names(L, base, BASE);
  luaL_setfuncs(L, replaced, 0);
  if (is_vocabulary) copy_names(L, base, METATABLES);
  push_string(L, string);
  lua_setfield(L, -2, "string");
  push_table(L, table);
  lua_setfield(L, -2, "table");
  push_math(L, !is_vocabulary);
  lua_setfield(L, -2, "math");
  lua_newtable(L);
  lua_pushcfunction(L, missing_global);
  lua_setfield(L, -2, "__index");
  lua_pushliteral(L, "globals");
  lua_setfield(L, -2, "__metatable");
  lua_setmetatable(L, -2);
}

void sandbox_open(lua_State *L) {
  luaopen_base(L);
  luaopen_string(L);
  luaopen_table(L);
  open_methods(L, 2);
  push_globals(L, 1, 2, 3, false);
  lua_rawseti(L, LUA_REGISTRYINDEX, LUA_RIDX_GLOBALS);
  /* The vocabulary has globals of its own: whatever a spec does to its `math`, the checks hold. */
  push_globals(L, 1, 2, 3, true);
  lua_setfield(L, LUA_REGISTRYINDEX, SANDBOX_VOCABULARY);
  lua_settop(L, 0);
}
