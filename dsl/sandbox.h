/* sandbox: the functions that stand for Lua's own where those could loop unseen, leak an address or differ
 * from run to run; private to dsl/. */
#pragma once

#include <lua.h>

/* ---- sandbox_string.c ---- */

int sandbox_tostring(lua_State *L);
/* Guards: upvalue 1 is Lua's own function. */
int sandbox_format(lua_State *L);
int sandbox_rep(lua_State *L);
int sandbox_pattern(lua_State *L); /* find, match, gmatch, gsub. Upvalue 2: takes find's fourth argument */

/* ---- sandbox_table.c ---- */

int sandbox_table(lua_State *L); /* a guard as above. Upvalue 2: the longest table; 3: arguments 2... are ranges */
int sandbox_sort(lua_State *L);
int sandbox_pairs(lua_State *L);
int sandbox_setmetatable(lua_State *L);
int sandbox_getmetatable(lua_State *L);
