/* core: the C functions that the vocabulary's Lua stands on. */
#pragma once

#include <lua.h>

/* core.begin(blocks), core.merge(parts, heads), core.part(description), core.finish(description): convert.c */
int convert_begin(lua_State *L);
int convert_merge(lua_State *L);
int convert_part(lua_State *L);
int convert_finish(lua_State *L);
