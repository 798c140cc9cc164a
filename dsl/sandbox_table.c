/* sandbox_table: functions on tables that end, that give the same result in every run, and that read no table but their
 * argument's own entries. */
#include "sandbox.h"
#include "state.h"

#include <math.h>
#include <string.h>

/* The longest table that a function of upvalue 2 takes, without a metatable: metamethods could make it loop for ever.
 */
static lua_Unsigned plain_length(lua_State *L, lua_Integer longest) {
  luaL_checktype(L, 1, LUA_TTABLE);
  if (lua_getmetatable(L, 1)) luaL_argerror(L, 1, "a table without a metatable expected");
  lua_Unsigned length = lua_rawlen(L, 1);
  if (length > (lua_Unsigned)longest) luaL_argerror(L, 1, "the table is too long");
  return length;
}

int sandbox_table(lua_State *L) {
  lua_Unsigned length = plain_length(L, lua_tointeger(L, lua_upvalueindex(2)));
  /* Ranges: unpack(t, i, j), concat(t, separator, i, j). insert and remove check theirs. */
  for (int i = 2; lua_toboolean(L, lua_upvalueindex(3)) && i <= lua_gettop(L); i++)
    if (lua_isnumber(L, i) && fabs(lua_tonumber(L, i)) > DSL_TABLE_LENGTH)
      return luaL_argerror(L, i, "the range is too long");
  limits_charge(L, (long long)length / 4);
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
  return lua_gettop(L);
}

/* ---- sort ---- */

enum { SORTED = 1, ORDER, FROM, TO }; /* stack of sandbox_sort: the table, the comparator or nil, two copies */

/* Whether entry i of FROM goes before entry j. Comparing long strings is work that no instruction counts. */
static bool goes_before(lua_State *L, int i, int j, long long *work) {
  bool ordered = !lua_isnil(L, ORDER);
  if (ordered) lua_pushvalue(L, ORDER);
  lua_rawgeti(L, FROM, i);
  lua_rawgeti(L, FROM, j);
  *work += 4 + (lua_type(L, -1) == LUA_TSTRING ? (long long)lua_rawlen(L, -1) / 16 : 0);
  if (*work > 10000) {
    limits_charge(L, *work);
    *work = 0;
  }
  bool before;
  if (ordered) {
    lua_call(L, 2, 1);
    before = lua_toboolean(L, -1);
    lua_pop(L, 1);
  } else {
    before = lua_compare(L, -2, -1, LUA_OPLT);
    lua_pop(L, 2);
  }
  return before;
}

static void take(lua_State *L, int from, int to) {
  lua_rawgeti(L, FROM, from);
  lua_rawseti(L, TO, to);
}

/* Merges runs [first, middle) and [middle, end) of FROM into TO, indices from 1. */
static void merge_runs(lua_State *L, int first, int middle, int end, long long *work) {
  int left = first, right = middle;
  for (int to = first; to < end; to++) {
    bool from_right = left == middle || (right < end && goes_before(L, right, left, work));
    take(L, from_right ? right++ : left++, to);
  }
}

/* sort(t [, before]): stable, by merging. Lua's own takes a pivot by the clock where a table is badly ordered, and then
 * entries that are equal, or that a comparator judges at random, come out differently from run to run. */
int sandbox_sort(lua_State *L) {
  int count = (int)plain_length(L, DSL_SORT_LENGTH);
  if (!lua_isnoneornil(L, 2)) luaL_checktype(L, 2, LUA_TFUNCTION);
  lua_settop(L, 2);
  lua_createtable(L, count, 0);
  lua_createtable(L, count, 0);
  for (int i = 1; i <= count; i++) {
    lua_rawgeti(L, SORTED, i);
    lua_rawseti(L, FROM, i);
  }
  long long work = count;
  for (int run = 1; run < count; run *= 2) {
    for (int first = 1; first <= count; first += 2 * run) {
      int middle = first + run < count + 1 ? first + run : count + 1;
      int end = middle + run < count + 1 ? middle + run : count + 1;
      merge_runs(L, first, middle, end, &work);
    }
    lua_pushvalue(L, FROM);
    lua_copy(L, TO, FROM);
    lua_replace(L, TO);
  }
  limits_charge(L, work);
  for (int i = 1; i <= count; i++) {
    lua_rawgeti(L, FROM, i);
    lua_rawseti(L, SORTED, i);
  }
  return 0;
}

/* ---- metatables ---- */

static const char ORIGINAL; /* its address is a copy's key of the table that it was made of */

/* setmetatable(t, metatable) sets a copy of what the metatable holds now. Neither may it hold __gc, since finalizers
 * run with hooks off and a loop in one would never end, nor __mode, since a weak table shows when memory was collected,
 * which differs from run to run; and Lua looks for __mode at every collection, so a field that is added later must not
 * count. */
int sandbox_setmetatable(lua_State *L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  if (!lua_isnil(L, 2) && !lua_istable(L, 2)) return luaL_typeerror(L, 2, "nil or table");
  lua_settop(L, 2);
  if (luaL_getmetafield(L, 1, "__metatable") != LUA_TNIL) return luaL_error(L, "cannot change a protected metatable");
  if (lua_isnil(L, 2)) {
    lua_setmetatable(L, 1);
    return 1;
  }
  static const char *const refused[] = {"__gc", "__mode"};
  for (int i = 0; i < 2; i++) {
    lua_pushstring(L, refused[i]);
    if (lua_rawget(L, 2) != LUA_TNIL) return luaL_error(L, "setmetatable: %s is not available", refused[i]);
    lua_pop(L, 1);
  }
  lua_newtable(L);
  int count = 0;
  for (lua_pushnil(L); lua_next(L, 2); count++) {
    lua_pushvalue(L, -2);
    lua_insert(L, -2);
    lua_rawset(L, 3);
  }
  limits_charge(L, 4LL * count);
  lua_pushvalue(L, 2);
  lua_rawsetp(L, 3, &ORIGINAL);
  lua_setmetatable(L, 1);
  lua_settop(L, 1);
  return 1;
}

/* getmetatable(v): what was given to setmetatable, or its __metatable; nil where neither is a spec's business. */
int sandbox_getmetatable(lua_State *L) {
  luaL_checkany(L, 1);
  if (luaL_getmetafield(L, 1, "__metatable") != LUA_TNIL) return 1;
  if (!lua_getmetatable(L, 1)) lua_pushnil(L);
  else lua_rawgetp(L, -1, &ORIGINAL);
  return 1;
}

/* ---- pairs in order ---- */

typedef struct sort_key {
  int type; /* numbers before strings before booleans */
  bool is_integer;
  lua_Integer integer;
  double number; /* also of an integer, rounded */
  const char *text;
  size_t length;
  int index; /* in the table of keys */
} sort_key;

static int compare_keys(const sort_key *a, const sort_key *b) {
  if (a->type != b->type) return a->type < b->type ? -1 : 1;
  if (a->is_integer && b->is_integer) return (a->integer > b->integer) - (a->integer < b->integer);
  if (a->number != b->number) return a->number < b->number ? -1 : 1;
  if (a->type != 1) return b->is_integer - a->is_integer; /* of 2^63 and the integer before it */
  int order = memcmp(a->text, b->text, a->length < b->length ? a->length : b->length);
  return order ? order : (a->length > b->length) - (a->length < b->length);
}

/* By merging, with `spare` for as many. libc's qsort asks the system how much memory it has, which a confined process
 * may not. */
static void sort_keys(sort_key *keys, sort_key *spare, int count) {
  if (count < 2) return;
  int half = count / 2, left = 0, right = half;
  sort_keys(keys, spare, half);
  sort_keys(keys + half, spare, count - half);
  for (int i = 0; i < count; i++) {
    bool from_right = left == half || (right < count && compare_keys(&keys[right], &keys[left]) < 0);
    spare[i] = from_right ? keys[right++] : keys[left++];
  }
  memcpy(keys, spare, sizeof *keys * (size_t)count);
}

/* The iterator: upvalues keys, next index, table. What it is called with does not count: a spec may call it with
 * anything. Entries removed meanwhile are left out. */
static int next_pair(lua_State *L) {
  lua_settop(L, 0);
  lua_Integer i = lua_tointeger(L, lua_upvalueindex(2));
  for (;; i++) {
    if (lua_rawgeti(L, lua_upvalueindex(1), i) == LUA_TNIL) return 1;
    lua_pushvalue(L, -1);
    if (lua_rawget(L, lua_upvalueindex(3)) != LUA_TNIL) break;
    lua_pop(L, 2);
  }
  lua_pushinteger(L, i + 1);
  lua_replace(L, lua_upvalueindex(2));
  return 2;
}

int sandbox_pairs(lua_State *L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_settop(L, 1);
  lua_newtable(L); /* 2: the keys as they come; they hold the strings */
  int count = 0;
  for (lua_pushnil(L); lua_next(L, 1); lua_pop(L, 1)) {
    lua_pushvalue(L, -2);
    lua_rawseti(L, 2, ++count);
  }
  limits_charge(L, 8LL * count);
  sort_key *keys = lua_newuserdatauv(L, 2 * sizeof(sort_key) * (size_t)(count + 1), 0);
  for (int i = 0; i < count; i++) {
    sort_key *key = &keys[i];
    *key = (sort_key){.index = i + 1};
    switch (lua_rawgeti(L, 2, i + 1)) {
    case LUA_TNUMBER:
      key->is_integer = lua_isinteger(L, -1);
      key->integer = lua_tointeger(L, -1);
      key->number = lua_tonumber(L, -1);
      break;
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
  sort_keys(keys, keys + count, count);
  lua_createtable(L, count, 0);
  for (int i = 0; i < count; i++) {
    lua_rawgeti(L, 2, keys[i].index);
    lua_rawseti(L, -2, i + 1);
  }
  lua_pushinteger(L, 1);
  lua_pushvalue(L, 1);
  lua_pushcclosure(L, next_pair, 3);
  lua_pushvalue(L, 1);
  return 2;
}
