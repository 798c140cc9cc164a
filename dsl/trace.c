/* trace: expressions as Lua values, and their merging; see trace.h. */
#include "trace.h"

#include "state.h"

#include <math.h>
#include <string.h>

#define EXPRESSION "pegen expression"

/* ---- nodes ---- */

static trace *fresh(lua_State *L, expr_op op) {
  dsl_state *s = dsl_state_of(L);
  if (++s->trace_nodes > DSL_TRACE_NODES)
    where_fail(L, "the expressions of a spec may have %d operations together", DSL_TRACE_NODES);
  trace *t = arena_new(s->memory, trace);
  t->op = op;
  t->size = t->depth = 1;
  return t;
}

static int push(lua_State *L, const trace *t) {
  *(const trace **)lua_newuserdatauv(L, sizeof t, 0) = t;
  luaL_setmetatable(L, EXPRESSION);
  return 1;
}

static int push_operation(lua_State *L, expr_op op, const trace *x, const trace *y, const trace *z) {
  const trace *arguments[3] = {x, y, z};
  trace *t = fresh(L, op);
  for (int i = 0; i < expr_op_arity(op); i++) {
    t->arg[i] = arguments[i];
    t->size += arguments[i]->size;
    if (t->sum && arguments[i]->sum && t->sum != arguments[i]->sum)
      where_fail(L, "the indices of two pe.sum together in one term; the outer sum was expected as a loop of Lua: "
                    "for k = 0, n - 1 do x = x + ... end");
    if (arguments[i]->sum) t->sum = arguments[i]->sum;
    if (arguments[i]->depth >= t->depth) t->depth = arguments[i]->depth + 1;
  }
  if (t->depth > DSL_TRACE_DEPTH) where_fail(L, "an expression may nest %d operations deep", DSL_TRACE_DEPTH);
  if (t->size > DSL_TRACE_SIZE) where_fail(L, "an expression may have %d operations", DSL_TRACE_SIZE);
  return push(L, t);
}

static const trace *constant(lua_State *L, double value) {
  trace *t = fresh(L, EXPR_CONST);
  t->value = value;
  return t;
}

bool trace_is(lua_State *L, int index) {
  if (lua_type(L, index) == LUA_TNUMBER) return isfinite(lua_tonumber(L, index));
  return luaL_testudata(L, index, EXPRESSION) != NULL;
}

bool trace_is_expression(lua_State *L, int index) { return luaL_testudata(L, index, EXPRESSION) != NULL; }

/* A value of the vocabulary's that is no number may say what was meant (dsl/remedy.lua); it then does not return. */
static void ask_remedy(lua_State *L, int index) {
  if (luaL_getmetafield(L, index, "__remedy") == LUA_TNIL) return;
  lua_pushvalue(L, index);
  lua_call(L, 1, 0);
}

const trace *trace_check(lua_State *L, int index) {
  const trace *const *t = luaL_testudata(L, index, EXPRESSION);
  if (t) return *t;
  if (lua_type(L, index) == LUA_TTABLE) ask_remedy(L, index);
  if (lua_type(L, index) != LUA_TNUMBER)
    where_fail(L, "arithmetic on a %s, a number or an expression was expected", luaL_typename(L, index));
  double value = lua_tonumber(L, index);
  if (!isfinite(value))
    where_fail(L, "%s in an expression, a finite number was expected", isnan(value) ? "NaN" : "infinity");
  return constant(L, value);
}

/* ---- operators ---- */

static expr_op operation(lua_State *L) { return (expr_op)lua_tointeger(L, lua_upvalueindex(1)); }

static int binary_event(lua_State *L) {
  const trace *x = trace_check(L, 1);
  return push_operation(L, operation(L), x, trace_check(L, 2), NULL);
}

static int negate(lua_State *L) { return push_operation(L, EXPR_NEG, trace_check(L, 1), NULL, NULL); }

/* x // y and x % y as Lua defines them: floor(x / y), x - floor(x / y) * y. */
static int floor_divide(lua_State *L) {
  lua_settop(L, 2);
  const trace *x = trace_check(L, 1);
  push_operation(L, EXPR_DIV, x, trace_check(L, 2), NULL);
  return push_operation(L, EXPR_FLOOR, trace_check(L, 3), NULL, NULL);
}

static int modulo(lua_State *L) {
  floor_divide(L); /* leaves x, y, x / y, floor(x / y) */
  push_operation(L, EXPR_MUL, trace_check(L, 4), trace_check(L, 2), NULL);
  const trace *x = trace_check(L, 1);
  return push_operation(L, EXPR_SUB, x, trace_check(L, 5), NULL);
}

static int whole_power(lua_State *L, const trace *x, int n) {
  const trace *result = NULL, *square = x;
  for (unsigned left = (unsigned)(n < 0 ? -n : n); left; left >>= 1) {
    if (left & 1) {
      if (result) {
        push_operation(L, EXPR_MUL, result, square, NULL);
        result = trace_check(L, -1);
      } else {
        result = square;
      }
    }
    if (left > 1) {
      push_operation(L, EXPR_MUL, square, square, NULL);
      square = trace_check(L, -1);
    }
  }
  if (!result) result = constant(L, 1);
  return n < 0 ? push_operation(L, EXPR_DIV, constant(L, 1), result, NULL) : push(L, result);
}

/* x ^ n: products for whole n, a root for 0.5, exp(n log x) otherwise (x > 0). */
static int power(lua_State *L) {
  lua_settop(L, 2);
  const trace *x = trace_check(L, 1), *n = trace_check(L, 2);
  if (n->op == EXPR_CONST && n->value == floor(n->value) && fabs(n->value) <= 64)
    return whole_power(L, x, (int)n->value);
  if (n->op == EXPR_CONST && n->value == 0.5) return push_operation(L, EXPR_SQRT, x, NULL, NULL);
  if (x->op == EXPR_CONST) {
    if (x->value <= 0) where_fail(L, "%g to the power of an expression: a positive base was expected", x->value);
    push_operation(L, EXPR_MUL, n, constant(L, log(x->value)), NULL);
  } else {
    push_operation(L, EXPR_LOG, x, NULL, NULL);
    push_operation(L, EXPR_MUL, trace_check(L, -1), n, NULL);
  }
  return push_operation(L, EXPR_EXP, trace_check(L, -1), NULL, NULL);
}

static int not_a_number(lua_State *L) {
  where_fail(L, "an expression has no value yet and cannot be compared; use pe.min, pe.max or pe.where"
                " (pe.where(x, y, a, b) is a where x < y, else b)");
}

static int no_field(lua_State *L) {
  const char *name = lua_type(L, 2) == LUA_TSTRING ? lua_tostring(L, 2) : "...";
  where_fail(L,
             "'.%.20s' of an expression, which is one number; a function that is called for each axis, as "
             "position = function(axis, r) is, is given that axis' coordinate alone; position = function(r) is "
             "given all of them",
             name);
}

static int no_call(lua_State *L) { where_fail(L, "an expression is one number, and was called as if it were more"); }

static int as_text(lua_State *L) {
  lua_pushliteral(L, "expression");
  return 1;
}

/* ---- functions of numbers and expressions ---- */

#define QUARTERS_PER_RADIAN 0.63661977236758134308 /* 2 / pi */

static double number_function(expr_op op, double x) {
  switch (op) {
  case EXPR_ABS: return fabs(x);
  case EXPR_SQRT: return sqrt(x);
  case EXPR_EXP: return exp(x);
  case EXPR_LOG: return log(x);
  case EXPR_LOG1P: return log1p(x);
  case EXPR_TANH: return tanh(x);
  case EXPR_SIGMOID:
  case EXPR_SOFTPLUS: return expr_apply(op, x, 0, 0);
  case EXPR_ROUND32: return (float)x;
  case EXPR_FLOOR: return floor(x);
  case EXPR_SINQ: return sin(x);
  default: return cos(x);
  }
}

static int unary_word(lua_State *L) {
  expr_op op = operation(L);
  lua_settop(L, 1);
  if (lua_type(L, 1) == LUA_TNUMBER) {
    lua_pushnumber(L, number_function(op, lua_tonumber(L, 1)));
    return 1;
  }
  const trace *x = trace_check(L, 1);
  if (op == EXPR_SINQ || op == EXPR_COSQ) { /* the kernel's sine takes quarter turns */
    push_operation(L, EXPR_MUL, x, constant(L, QUARTERS_PER_RADIAN), NULL);
    x = trace_check(L, -1);
  }
  return push_operation(L, op, x, NULL, NULL);
}

static int atan2_word(lua_State *L) {
  if (lua_gettop(L) != 2)
    where_fail(L, "pe.atan2 takes two values, it was given %d: pe.atan2(y, x) is the angle of (x, y) from (1, 0)",
               lua_gettop(L));
  if (lua_type(L, 1) == LUA_TNUMBER && lua_type(L, 2) == LUA_TNUMBER) {
    lua_pushnumber(L, atan2(lua_tonumber(L, 1) + 0.0, lua_tonumber(L, 2) + 0.0)); /* zeros have no sign */
    return 1;
  }
  const trace *y = trace_check(L, 1);
  return push_operation(L, EXPR_ATAN2, y, trace_check(L, 2), NULL);
}

/* min(a, b, ...), max(a, b, ...). */
static int fold_word(lua_State *L) {
  expr_op op = operation(L);
  int count = lua_gettop(L);
  if (count == 0) where_fail(L, "pe.%s of nothing", expr_op_name(op));
  for (int i = 2; i <= count;
       i++) { /* the result so far is at 1: a call may have more arguments than the stack has room */
    if (lua_type(L, 1) == LUA_TNUMBER && lua_type(L, i) == LUA_TNUMBER) {
      double a = lua_tonumber(L, 1), b = lua_tonumber(L, i);
      if (op == EXPR_MIN ? b < a : b > a) lua_copy(L, i, 1);
      continue;
    }
    const trace *x = trace_check(L, 1);
    push_operation(L, op, x, trace_check(L, i), NULL);
    lua_replace(L, 1);
  }
  lua_settop(L, 1);
  return 1;
}

static int relu_word(lua_State *L) {
  lua_settop(L, 1);
  lua_pushinteger(L, 0);
  return fold_word(L);
}

/* where(a < b ...): where(x, y, then, otherwise) is `then` where x < y. */
static int where_word(lua_State *L) {
  if (lua_gettop(L) != 4)
    where_fail(L, "pe.where takes four values, it was given %d: pe.where(x, y, a, b) is a where x < y, else b",
               lua_gettop(L));
  const trace *x = trace_check(L, 1);
  push_operation(L, EXPR_LESS, x, trace_check(L, 2), NULL);
  const trace *then = trace_check(L, 3);
  return push_operation(L, EXPR_SELECT, trace_check(L, 5), then, trace_check(L, 4));
}

static const struct {
  const char *name;
  expr_op op;
  lua_CFunction function;
} words[] = {
    {"abs", EXPR_ABS, unary_word},         {"sqrt", EXPR_SQRT, unary_word},
    {"exp", EXPR_EXP, unary_word},         {"log", EXPR_LOG, unary_word},
    {"log1p", EXPR_LOG1P, unary_word},     {"floor", EXPR_FLOOR, unary_word},
    {"sin", EXPR_SINQ, unary_word},        {"cos", EXPR_COSQ, unary_word},
    {"min", EXPR_MIN, fold_word},          {"max", EXPR_MAX, fold_word},
    {"where", EXPR_SELECT, where_word},    {"tanh", EXPR_TANH, unary_word},
    {"float32", EXPR_ROUND32, unary_word}, {"atan2", EXPR_ATAN2, atan2_word},
    {"sigmoid", EXPR_SIGMOID, unary_word}, {"softplus", EXPR_SOFTPLUS, unary_word},
    {"relu", EXPR_MAX, relu_word},
};
enum { WORDS = sizeof words / sizeof *words };

int trace_words(lua_State *L) {
  for (int i = 0; i < WORDS; i++) {
    lua_pushinteger(L, words[i].op);
    lua_pushcclosure(L, words[i].function, 1);
    lua_setfield(L, -2, words[i].name);
  }
  return 1;
}

void trace_refuse_math(lua_State *L, const char *name) {
  for (int i = 0; i < WORDS; i++)
    if (strcmp(name, words[i].name) == 0)
      where_fail(L, "math.%s takes numbers, and an expression has no value yet; pe.%s takes both", name, name);
  where_fail(L,
             "math.%s takes numbers, and an expression has no value yet; no word of the vocabulary is the same of it",
             name);
}

/* ---- leaves, for the vocabulary ---- */

/* core.position(axis from 0) */
static int core_position(lua_State *L) {
  trace *t = fresh(L, EXPR_POSITION);
  t->index = (int)luaL_checkinteger(L, 1);
  return push(L, t);
}

/* core.channel(): the channel that a map of channels is of */
static int core_channel(lua_State *L) { return push(L, fresh(L, EXPR_CHANNEL)); }

/* core.reads_channel(merged): whether it depends on that channel, and whether on it alone */
static int core_reads_channel(lua_State *L) {
  const expr *x = lua_touserdata(L, 1);
  unsigned depends = x ? x->depends : 0;
  lua_pushboolean(L, depends & DEPENDS_CHANNEL);
  lua_pushboolean(L, !(depends & ~(unsigned)(DEPENDS_CHANNEL | DEPENDS_BLOCK)));
  return 2;
}

/* core.operand(operand from 0, element from 0) */
static int core_operand(lua_State *L) {
  trace *t = fresh(L, EXPR_OPERAND);
  t->index = (int)luaL_checkinteger(L, 1);
  t->offset = (int32_t)luaL_checkinteger(L, 2);
  return push(L, t);
}

/* An element at a computed place. Arguments: its operand or input, ..., the index, the last element. */
static trace *push_lookup(lua_State *L, expr_op op, int arguments) {
  lua_settop(L, arguments);
  push_operation(L, op, trace_check(L, arguments - 1), NULL, NULL);
  trace *t = (trace *)trace_check(L, arguments + 1); /* made just now, and nobody else's */
  t->index = (int)luaL_checkinteger(L, 1);
  t->last = (int)luaL_checkinteger(L, arguments);
  return t;
}

/* core.element(operand from 0, element from 0, index, last element): the element of an operand at a computed index
 * beyond that one */
static int core_element(lua_State *L) {
  push_lookup(L, EXPR_ELEMENT, 4)->offset = (int32_t)luaL_checkinteger(L, 2);
  return 1;
}

/* core.term(count): the index of a sum's terms, from 0 */
static int core_term(lua_State *L) {
  trace *t = fresh(L, EXPR_TERMS);
  t->index = (int)luaL_checkinteger(L, 1);
  t->sum = ++dsl_state_of(L)->sums;
  return push(L, t);
}

/* core.sum(value of a term, index of the terms) */
static int core_sum(lua_State *L) {
  lua_settop(L, 2);
  const trace *term = trace_check(L, 1), *index = trace_check(L, 2);
  if (term->sum && term->sum != index->sum) where_fail(L, "a term of pe.sum reads the index of another one");
  push_operation(L, EXPR_SUM, term, NULL, NULL);
  trace *t = (trace *)trace_check(L, 3); /* made just now, and nobody else's */
  t->index = index->index;
  t->sum = 0;
  return 1;
}

/* core.masked(): minus infinity, which no arithmetic of a spec gives. */
static int core_masked(lua_State *L) { return push(L, constant(L, -INFINITY)); }

/* core.input(input from 0, element from 0, whether what is computed of it is float64) */
static int core_input(lua_State *L) {
  lua_settop(L, 3);
  trace *t = fresh(L, EXPR_INPUT);
  t->index = (int)luaL_checkinteger(L, 1);
  t->offset = (int32_t)luaL_checkinteger(L, 2);
  push(L, t);
  if (lua_toboolean(L, 3)) push_operation(L, EXPR_WIDEN, trace_check(L, 4), NULL, NULL);
  return 1;
}

/* core.input_at(input from 0, index, last element): the element of the token's row at a computed index, as float64 */
static int core_input_at(lua_State *L) {
  push_operation(L, EXPR_WIDEN, push_lookup(L, EXPR_INPUT_AT, 3), NULL, NULL);
  return 1;
}

/* core.is_expression(value): an expression or a finite number */
static int core_is_expression(lua_State *L) {
  lua_pushboolean(L, trace_is(L, 1));
  return 1;
}

static int core_is_traced(lua_State *L) {
  lua_pushboolean(L, trace_is_expression(L, 1));
  return 1;
}

void trace_open(lua_State *L) {
  static const luaL_Reg functions[] = {{"position", core_position},
                                       {"operand", core_operand},
                                       {"element", core_element},
                                       {"term", core_term},
                                       {"sum", core_sum},
                                       {"masked", core_masked},
                                       {"input", core_input},
                                       {"input_at", core_input_at},
                                       {"is_expression", core_is_expression},
                                       {"is_traced", core_is_traced},
                                       {"channel", core_channel},
                                       {"reads_channel", core_reads_channel},
                                       {NULL, NULL}};
  static const struct {
    const char *event;
    expr_op op;
    lua_CFunction function;
  } events[] = {
      {"__add", EXPR_ADD, binary_event},  {"__sub", EXPR_SUB, binary_event},   {"__mul", EXPR_MUL, binary_event},
      {"__div", EXPR_DIV, binary_event},  {"__unm", EXPR_NEG, negate},         {"__pow", EXPR_EXP, power},
      {"__idiv", EXPR_DIV, floor_divide}, {"__mod", EXPR_DIV, modulo},         {"__lt", EXPR_LESS, not_a_number},
      {"__le", EXPR_LESS, not_a_number},  {"__tostring", EXPR_CONST, as_text}, {"__index", EXPR_CONST, no_field},
      {"__call", EXPR_CONST, no_call},
  };
  luaL_setfuncs(L, functions, 0);
  if (luaL_newmetatable(L, EXPRESSION)) {
    for (size_t i = 0; i < sizeof events / sizeof *events; i++) {
      lua_pushinteger(L, events[i].op);
      lua_pushcclosure(L, events[i].function, 1);
      lua_setfield(L, -2, events[i].event);
    }
    lua_pushliteral(L, "expression");
    lua_setfield(L, -2, "__metatable");
  }
  lua_pop(L, 1);
}

/* ---- merging ---- */

typedef struct merger {
  lua_State *L;
  arena *memory;
  expr_pool *pool;
  int heads, count, odd;
} merger;

static const expr *merge(merger *m, const trace *const *parts) {
  const trace *first = parts[0];
  limits_memory(m->L);
  for (int i = 1; i < m->count; i++) {
    if (parts[i]->op == first->op && parts[i]->index == first->index) continue;
    m->odd = i;
    return NULL;
  }
  switch (first->op) {
  case EXPR_CONST: {
    double *values = arena_array(m->memory, double, m->count);
    for (int i = 0; i < m->count; i++) values[i] = parts[i]->value;
    return expr_table(m->pool, m->heads, values);
  }
  case EXPR_OPERAND: {
    int32_t *offsets = arena_array(m->memory, int32_t, m->count);
    for (int i = 0; i < m->count; i++) offsets[i] = parts[i]->offset;
    return expr_operand(m->pool, first->index, m->heads, offsets);
  }
  case EXPR_INPUT: { /* one row for all heads: an element may differ from block to block only */
    int blocks = expr_pool_blocks(m->pool);
    int32_t *offsets = arena_array(m->memory, int32_t, blocks);
    for (int i = 0; i < m->count; i++) {
      if (i < blocks) offsets[i] = parts[i]->offset;
      if (offsets[i % blocks] == parts[i]->offset) continue;
      m->odd = i;
      return NULL;
    }
    return expr_input(m->pool, first->index, offsets);
  }
  case EXPR_POSITION: return expr_position(m->pool, first->index);
  case EXPR_CHANNEL: return expr_channel(m->pool, first->index);
  case EXPR_TERMS: {
    double *index = arena_array(m->memory, double, first->index);
    for (int i = 0; i < first->index; i++) index[i] = i;
    return expr_terms(m->pool, first->index, index);
  }
  default: break;
  }
  int32_t *offsets = NULL;
  if (first->op == EXPR_ELEMENT) {
    offsets = arena_array(m->memory, int32_t, m->count);
    for (int i = 0; i < m->count; i++) offsets[i] = parts[i]->offset;
  }
  const expr *arguments[3] = {NULL};
  const trace **column = arena_array(m->memory, const trace *, m->count);
  int arity = expr_op_arity(first->op);
  for (int j = 0; j < arity; j++) {
    for (int i = 0; i < m->count; i++) column[i] = parts[i]->arg[j];
    if (!(arguments[j] = merge(m, column))) return NULL;
  }
  if (first->op == EXPR_SUM) return expr_sum(m->pool, first->index, arguments[0]);
  if (first->op == EXPR_INPUT_AT) return expr_input_at(m->pool, first->index, first->last, arguments[0]);
  if (offsets) return expr_element(m->pool, first->index, first->last, m->heads, offsets, arguments[0]);
  if (arity == 1) return expr_unary(m->pool, first->op, arguments[0]);
  if (arity == 2) return expr_binary(m->pool, first->op, arguments[0], arguments[1]);
  return expr_select(m->pool, arguments[0], arguments[1], arguments[2]);
}

const expr *trace_merge(lua_State *L, expr_pool *pool, int heads, const trace *const *parts, int *odd) {
  for (int i = 0; i < heads * expr_pool_blocks(pool); i++)
    if (parts[i]->sum) where_fail(L, "the index of a pe.sum is read outside of it");
  merger m = {L, dsl_state_of(L)->memory, pool, heads, heads * expr_pool_blocks(pool), -1};
  const expr *merged = merge(&m, parts);
  *odd = m.odd;
  return merged;
}
