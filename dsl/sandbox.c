/* sandbox: the globals a spec sees.
 *
 * Only functions that compute. Library functions that loop in C, where the
 * instruction hook cannot see them, are bounded by what they are given. What
 * would make two runs differ is gone or put in order: random numbers, addresses,
 * and the order of pairs (Lua seeds its hashes from the clock).
 */
#include "state.h"

#include <lualib.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- text ---- */

/* tostring without addresses. */
static int safe_tostring(lua_State *L) {
  luaL_checkany(L, 1);
  int type = lua_type(L, 1);
  bool address = type >= LUA_TTABLE || type == LUA_TLIGHTUSERDATA;
  if (address && luaL_getmetafield(L, 1, "__tostring") == LUA_TNIL) lua_pushstring(L, luaL_typename(L, 1));
  else luaL_tolstring(L, 1, NULL);
  return 1;
}

/* format(...) of upvalue 1: no %p, and values with addresses as safe_tostring has them. */
static int safe_format(lua_State *L) {
  const char *format = luaL_checkstring(L, 1);
  for (const char *c = format; (c = strchr(c, '%')); c++) {
    c++;
    c += strspn(c, "-+ #0123456789.");
    if (*c == 'p') return luaL_error(L, "format: %%p is not available");
    if (!*c) break;
  }
  int top = lua_gettop(L);
  for (int i = 2; i <= top; i++) {
    if (lua_type(L, i) < LUA_TTABLE && lua_type(L, i) != LUA_TLIGHTUSERDATA) continue;
    lua_pushcfunction(L, safe_tostring);
    lua_pushvalue(L, i);
    lua_call(L, 1, 1);
    lua_replace(L, i);
  }
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  lua_call(L, top, 1);
  return 1;
}

/* rep(s, n, separator): the original loops n times even for an empty string. */
static int safe_rep(lua_State *L) {
  size_t length, separator;
  luaL_checklstring(L, 1, &length);
  lua_Number count = (lua_Number)luaL_checkinteger(L, 2);
  luaL_optlstring(L, 3, "", &separator);
  lua_Number total = count * (lua_Number)(length + separator);
  if (total > DSL_STRING_BYTES)
    return luaL_error(L, "string.rep: out of memory: a string may have %d bytes", DSL_STRING_BYTES);
  lua_settop(L, 3);
  if (total <= 0) {
    lua_pushliteral(L, "");
    return 1;
  }
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  lua_call(L, 3, 1);
  return 1;
}

/* find, match, gmatch, gsub: every repetition of a pattern can multiply the time by the
 * string's length, so length ^ (repetitions + 1) is bounded, and charged. */
static int safe_pattern(lua_State *L) {
  size_t length, pattern_length;
  luaL_checklstring(L, 1, &length);
  const char *pattern = luaL_checklstring(L, 2, &pattern_length);
  double steps = (double)length + 1;
  for (size_t i = 0; i < pattern_length; i++) {
    bool repeats = strchr("*+-?", pattern[i]) && pattern[i];
    if (pattern[i] == '%' && i + 1 < pattern_length) {
      i++;
      repeats = pattern[i] == 'b' || pattern[i] == 'f' || (pattern[i] >= '0' && pattern[i] <= '9');
    }
    if (repeats) steps *= (double)length + 1;
  }
  steps *= (double)pattern_length + 1;
  bool plain = lua_toboolean(L, lua_upvalueindex(2)) && lua_toboolean(L, 4);
  if (!plain && steps > 1e8)
    return luaL_error(L, "the pattern has too many repetitions for a string of %d bytes", (int)length);
  limits_charge(L, plain ? 1 : (long long)(steps / 16));
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
  return lua_gettop(L);
}

/* ---- tables ---- */

/* table.*: metamethods and far-off indices could make the originals loop for ever. Upvalue 2:
 * the longest table. */
static int safe_table(lua_State *L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  if (lua_getmetatable(L, 1)) return luaL_argerror(L, 1, "a table without a metatable expected");
  lua_Integer longest = lua_tointeger(L, lua_upvalueindex(2));
  if (lua_rawlen(L, 1) > (lua_Unsigned)longest) return luaL_argerror(L, 1, "the table is too long");
  /* Ranges: unpack(t, i, j), concat(t, separator, i, j). insert and remove check theirs. */
  for (int i = 2; lua_toboolean(L, lua_upvalueindex(3)) && i <= lua_gettop(L); i++)
    if (lua_isnumber(L, i) && fabs(lua_tonumber(L, i)) > DSL_TABLE_LENGTH)
      return luaL_argerror(L, i, "the range is too long");
  limits_charge(L, (long long)lua_rawlen(L, 1) / 4);
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
  return lua_gettop(L);
}

/* Finalizers run with hooks off: a loop in one would never end. */
static int safe_setmetatable(lua_State *L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  if (lua_istable(L, 2)) {
    lua_pushliteral(L, "__gc");
    lua_rawget(L, 2);
    if (!lua_isnil(L, -1)) return luaL_error(L, "setmetatable: __gc is not available");
    lua_pop(L, 1);
  } else if (!lua_isnil(L, 2)) {
    return luaL_typeerror(L, 2, "nil or table");
  }
  lua_settop(L, 2);
  if (luaL_getmetafield(L, 1, "__metatable") != LUA_TNIL) return luaL_error(L, "cannot change a protected metatable");
  lua_setmetatable(L, 1);
  return 1;
}

/* ---- pairs in order ---- */

typedef struct sort_key {
  int type; /* numbers before strings before booleans */
  double number;
  const char *text;
  size_t length;
  int index; /* in the table of keys */
} sort_key;

static int compare_keys(const void *left, const void *right) {
  const sort_key *a = left, *b = right;
  if (a->type != b->type) return a->type < b->type ? -1 : 1;
  if (a->type != 1) return (a->number > b->number) - (a->number < b->number);
  int order = memcmp(a->text, b->text, a->length < b->length ? a->length : b->length);
  return order ? order : (a->length > b->length) - (a->length < b->length);
}

/* The iterator: upvalues keys, next index. Entries removed meanwhile are left out. */
static int next_pair(lua_State *L) {
  lua_Integer i = lua_tointeger(L, lua_upvalueindex(2));
  for (;; i++) {
    if (lua_rawgeti(L, lua_upvalueindex(1), i) == LUA_TNIL) return 1;
    lua_pushvalue(L, -1);
    if (lua_rawget(L, 1) != LUA_TNIL) break;
    lua_pop(L, 2);
  }
  lua_pushinteger(L, i + 1);
  lua_replace(L, lua_upvalueindex(2));
  return 2;
}

static int ordered_pairs(lua_State *L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_settop(L, 1);
  lua_newtable(L); /* 2: the keys as they come; they hold the strings */
  int count = 0;
  for (lua_pushnil(L); lua_next(L, 1); lua_pop(L, 1)) {
    lua_pushvalue(L, -2);
    lua_rawseti(L, 2, ++count);
  }
  limits_charge(L, 8LL * count);
  sort_key *keys = lua_newuserdatauv(L, sizeof(sort_key) * (size_t)(count + 1), 0);
  for (int i = 0; i < count; i++) {
    sort_key *key = &keys[i];
    *key = (sort_key){.index = i + 1};
    switch (lua_rawgeti(L, 2, i + 1)) {
    case LUA_TNUMBER: key->number = lua_tonumber(L, -1); break;
    case LUA_TSTRING:
      key->type = 1;
      key->text = lua_tolstring(L, -1, &key->length);
      break;
    case LUA_TBOOLEAN:
      key->type = 2;
      key->number = lua_toboolean(L, -1);
      break;
    default:
      return luaL_error(L, "pairs: a key is a %s; only numbers, strings and booleans have an order",
                        luaL_typename(L, -1));
    }
    lua_pop(L, 1);
  }
  qsort(keys, (size_t)count, sizeof *keys, compare_keys);
  lua_createtable(L, count, 0);
  for (int i = 0; i < count; i++) {
    lua_rawgeti(L, 2, keys[i].index);
    lua_rawseti(L, -2, i + 1);
  }
  lua_pushinteger(L, 1);
  lua_pushcclosure(L, next_pair, 2);
  lua_pushvalue(L, 1);
  return 2;
}

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

static const char *const BASE[] = {"assert", "error",  "getmetatable", "ipairs",   "rawequal", "rawget",
                                   "rawlen", "rawset", "select",       "tonumber", "type",     NULL};
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
  lua_pushcclosure(L, safe_pattern, 2);
  lua_setfield(L, -2, name);
}

/* Pushes the strings' table, made of the originals at `from`. */
static void push_string(lua_State *L, int from) {
  lua_newtable(L);
  copy_names(L, from, STRING);
  guard(L, from, "format", safe_format, 0, false);
  guard(L, from, "rep", safe_rep, 0, false);
  guard_pattern(L, from, "find", true);
  guard_pattern(L, from, "match", false);
  guard_pattern(L, from, "gmatch", false);
  guard_pattern(L, from, "gsub", false);
}

static void push_table(lua_State *L, int from) {
  lua_newtable(L);
  lua_getfield(L, from, "pack");
  lua_setfield(L, -2, "pack");
  guard(L, from, "concat", safe_table, DSL_TABLE_LENGTH, true);
  guard(L, from, "unpack", safe_table, DSL_TABLE_LENGTH, true);
  guard(L, from, "insert", safe_table, DSL_TABLE_LENGTH, false);
  guard(L, from, "remove", safe_table, DSL_TABLE_LENGTH, false);
  guard(L, from, "sort", safe_table, DSL_SORT_LENGTH, false);
}

static void push_math(lua_State *L) {
  luaopen_math(L);
  lua_pushnil(L);
  lua_setfield(L, -2, "random");
  lua_pushnil(L);
  lua_setfield(L, -2, "randomseed");
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

/* Pushes a table of globals, made of the original libraries at base, string and table. */
static void push_globals(lua_State *L, int base, int string, int table) {
  static const luaL_Reg replaced[] = {{"tostring", safe_tostring},
                                      {"setmetatable", safe_setmetatable},
                                      {"pairs", ordered_pairs},
                                      {"pcall", limits_pcall},
                                      {"xpcall", limits_xpcall},
                                      {"require", modules_require},
                                      {NULL, NULL}};
  lua_newtable(L);
  copy_names(L, base, BASE);
  luaL_setfuncs(L, replaced, 0);
  push_string(L, string);
  lua_setfield(L, -2, "string");
  push_table(L, table);
  lua_setfield(L, -2, "table");
  push_math(L);
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
  push_globals(L, 1, 2, 3);
  lua_rawseti(L, LUA_REGISTRYINDEX, LUA_RIDX_GLOBALS);
  /* The vocabulary has globals of its own: whatever a spec does to its `math`, the checks hold. */
  push_globals(L, 1, 2, 3);
  lua_setfield(L, LUA_REGISTRYINDEX, SANDBOX_VOCABULARY);
  lua_settop(L, 0);
}
