/* sandbox_string: text without addresses, and string functions whose time and memory are bounded by what they are
 * given. */
#include "sandbox.h"
#include "state.h"

#include <string.h>

/* tostring without addresses. */
int sandbox_tostring(lua_State *L) {
  luaL_checkany(L, 1);
  int type = lua_type(L, 1);
  bool address = type >= LUA_TTABLE || type == LUA_TLIGHTUSERDATA;
  if (address && luaL_getmetafield(L, 1, "__tostring") == LUA_TNIL) lua_pushstring(L, luaL_typename(L, 1));
  else luaL_tolstring(L, 1, NULL);
  return 1;
}

/* Whether a format asks for an address. It may hold NULs, past which Lua reads on. */
static bool has_pointer(const char *format, size_t length) {
  const char *end = format + length;
  for (const char *c = format; (c = memchr(c, '%', (size_t)(end - c)));) {
    c++;
    c += strspn(c, "-+ #0123456789."); /* Lua ends every string with a NUL */
    if (c >= end) break;
    if (*c++ == 'p') return true;
  }
  return false;
}

/* format(...): no %p, and values with addresses as sandbox_tostring has them. */
int sandbox_format(lua_State *L) {
  size_t length;
  const char *format = luaL_checklstring(L, 1, &length);
  if (has_pointer(format, length)) return luaL_error(L, "format: %%p is not available");
  int top = lua_gettop(L);
  for (int i = 2; i <= top; i++) {
    if (lua_type(L, i) < LUA_TTABLE && lua_type(L, i) != LUA_TLIGHTUSERDATA) continue;
    lua_pushcfunction(L, sandbox_tostring);
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
int sandbox_rep(lua_State *L) {
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
int sandbox_pattern(lua_State *L) {
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
