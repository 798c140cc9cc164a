/* trace: expressions as a spec's functions build them, before the blocks are merged.
 *
 * A phase function is called once for every head and block, and each call
 * gives a separate small tree. The trees stay as written (nothing is
 * simplified: x * 1 in block 0 must keep the form of x * 0.5 in block 1) until
 * trace_merge makes one expression of them all.
 */
#pragma once

#include "spec/expr.h"

#include <lua.h>

typedef struct trace {
  expr_op op;
  int index;      /* POSITION: axis. OPERAND, ELEMENT: operand. INPUT, INPUT_AT: input. TERMS, SUM: how many */
  int32_t offset; /* OPERAND, ELEMENT, INPUT: element */
  int last;       /* ELEMENT, INPUT_AT: the last one of the operand, or of the row */
  double value;   /* CONST */
  const struct trace *arg[3];
  int depth, size; /* of the tree below */
  int sum;         /* whose index it reads, counted from 1; 0: of none */
} trace;

/* Adds position, operand, functions and the metatable of expressions to the table on the top. */
void trace_open(lua_State *L);
/* Arithmetic functions of numbers and expressions, added to the table on the top. */
int trace_words(lua_State *L);

/* The expression or finite number at an index; raises at the user's line for anything else. */
const trace *trace_check(lua_State *L, int index);
/* Whether the value at an index is an expression or a number that is finite. */
bool trace_is(lua_State *L, int index);

/* Whether the value at an index is an expression and no number. */
bool trace_is_expression(lua_State *L, int index);
/* Raises at the user's line: math.NAME of an expression, and the word of the vocabulary that was meant. */
_Noreturn void trace_refuse_math(lua_State *L, const char *name);

/* One expression of parts [heads][blocks of pool]; where a part differs in form from the
 * first, NULL and its index in *odd. */
const expr *trace_merge(lua_State *L, expr_pool *pool, int heads, const trace *const *parts, int *odd);
