/* spec/expr: scalar expressions as a hash-consed DAG.
 *
 * The DSL traces a description into these nodes, algebra/block.c builds the closed
 * forms from them, the reference evaluates the description's part in long
 * double, and the emitters print them as vector code. Nodes are immutable and
 * unique: equal expressions are one pointer, so common subexpressions cost
 * nothing. Constructors simplify (folding, neutral elements, constants
 * gathered into one factor) and never change a value by more than rounding.
 *
 * One expression stands for every block (and head) of a kernel at once: what
 * differs from block to block is in the leaves, as a table of values or of
 * operand offsets indexed [head][block].
 */
#pragma once

#include "base/arena.h"
#include "base/order.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* name, number of arguments, printed form.       ORDER EXPR_OP */
#define EXPR_OPS(X) \
  X(CONST, 0, "const")       /* one number, the same everywhere          */ \
  X(TABLE, 0, "table")       /* a number per [head][block]                */ \
  X(POSITION, 0, "position") /* the token's coordinate on an axis         */ \
  X(OPERAND, 0, "operand")   /* an operand's element per [head][block]    */ \
  X(INPUT, 0, "input")       /* an element of the token's row of an input, per [block] */ \
  X(TERMS, 0, "terms")       /* a number for each term of the SUM around it */ \
  X(CHANNEL, 0, "channel")   /* a number of the row: in maps of channels the one at hand */ \
  X(COTANGENT, 0, "cotangent") /* a gradient that comes in from where it was summed, per block (spec/adjoint.h) */ \
  X(ADD, 2, "+") \
  X(SUB, 2, "-") \
  X(MUL, 2, "*") \
  X(DIV, 2, "/") \
  X(MIN, 2, "min") \
  X(MAX, 2, "max") \
  X(ATAN2, 2, "atan2") /* the angle of (b, a) from (1, 0), in radians; of (0, 0): 0. Zeros have no sign */ \
  X(LESS, 2, "<")      /* 1 where a < b, else 0                           */ \
  X(NEG, 1, "neg") \
  X(ABS, 1, "abs") \
  X(SQRT, 1, "sqrt") \
  X(FLOOR, 1, "floor") \
  X(EXP, 1, "exp") \
  X(LOG, 1, "log") \
  X(LOG1P, 1, "log1p") /* log(1 + x), also of small x to the last digits */ \
  X(TANH, 1, "tanh") \
  X(SIGMOID, 1, "sigmoid")   /* 1 / (1 + exp(-x)), without overflow */ \
  X(SOFTPLUS, 1, "softplus") /* log(1 + exp x), without overflow, also of very negative x to the last digits */ \
  X(SINQ, 1, "sinq")   /* sin(pi/2 x): x in quarter turns                 */ \
  X(COSQ, 1, "cosq")   /* cos(pi/2 x)                                     */ \
  X(ELEMENT, 1, "element") /* an operand's element at offset[head][block] + x, rounded down */ \
  X(INPUT_AT, 1, "input_at") /* the element at x, rounded down, of the token's row of an input: attention alone */ \
  X(NARROW, 1, "f32")  /* round to float32: what follows needs no more    */ \
  X(WIDEN, 1, "f64")   /* the same value as a float64: sums of it round there  */ \
  X(ROUND32, 1, "round32") /* rounded to float32, whoever computes it: what is described is what a float32 loses */ \
  X(SUM, 1, "sum")     /* its argument's values in all terms, one after the other */ \
  X(SELECT, 3, "select") /* a != 0 ? b : c                                */ \
  X(SIN_FOLDED, 1, "sinfold") /* sin(pi (x - n)), n the integer next to x: a unit quaternion's, of either sign */ \
  X(COS_FOLDED, 1, "cosfold") /* cos(pi (x - n))                                  */

typedef enum expr_op {
#define X(name, arity, text) EXPR_##name,
  EXPR_OPS(X)
#undef X
      EXPR_OP_COUNT
} expr_op;

/* What a value depends on; a node has the union of its arguments. Plans hoist by it. */
enum {
  DEPENDS_BLOCK = 1,    /* differs from block to block */
  DEPENDS_HEAD = 2,     /* differs from head to head */
  DEPENDS_OPERAND = 4,  /* known at the call */
  DEPENDS_POSITION = 8, /* known at the token */
  DEPENDS_CHANNEL = 16, /* known at the row */
  DEPENDS_QUERY = 32    /* known at the query: what an input holds for its token and head */
};

typedef struct expr {
  expr_op op;
  unsigned depends;
  bool unbounded; /* it may be infinite where its leaves are not: something in it divides, grows by exp, or is a log */
  bool is_f32; /* the value is a float32; otherwise float64 (constants fit either) */
  int id; /* order of creation in its pool; arguments have smaller ids */
  int index; /* POSITION: axis. OPERAND, ELEMENT: operand. INPUT, INPUT_AT: input. CHANNEL, COTANGENT: which. TERMS,
                SUM: terms */
  int terms; /* of the SUM that it is to stand in, since its value differs from term to term; 0: of none */
  int last; /* ELEMENT, INPUT_AT: the last element, which stands for all beyond it, as the first does below 0 */
  int n_heads; /* TABLE, OPERAND, ELEMENT: rows stored, 1 where all heads agree */
  double value; /* CONST */
  const struct expr *arg[3];
  const double *table; /* TABLE: [n_heads][blocks]. TERMS: [terms] */
  const int32_t *offsets; /* OPERAND, ELEMENT, INPUT: element offsets [n_heads][blocks] */
  uint64_t hash;
} expr;

typedef struct expr_pool expr_pool;

/* blocks: the number of blocks every TABLE and OPERAND leaf has values for. */
expr_pool *expr_pool_create(arena *a, int blocks);
int expr_pool_blocks(const expr_pool *pool);
int expr_pool_count(const expr_pool *pool); /* ids are below this */

/* nodes[expr_pool_count]: by id. */
void expr_pool_nodes(const expr_pool *pool, const expr **nodes);

const expr *expr_const(expr_pool *pool, double value);
/* values [heads][blocks] are copied; equal values collapse to a constant or to one row. */
const expr *expr_table(expr_pool *pool, int heads, const double *values);
const expr *expr_position(expr_pool *pool, int axis);
const expr *expr_operand(expr_pool *pool, int operand, int heads, const int32_t *offsets);
/* The element of an operand at offsets[head][block] + index, an expression with whole values, rounded down; kept
 * between the operand's first element and `last`. */
const expr *expr_element(expr_pool *pool, int operand, int last, int heads, const int32_t *offsets, const expr *index);
/* Elements offsets[blocks] of the query's row of an input; a float32. */
const expr *expr_input(expr_pool *pool, int input, const int32_t *offsets);
/* The element of a token's row of an input at index, an expression with whole values, rounded down; kept between the
 * row's first element and `last`; a float32. */
const expr *expr_input_at(expr_pool *pool, int input, int last, const expr *index);
const expr *expr_channel(expr_pool *pool, int component);
/* values [terms]. What is computed of such leaves and constants alone is one, too. */
const expr *expr_terms(expr_pool *pool, int terms, const double *values);
/* A float64 that whoever evaluates has: number `which` of what it was told; depends: DEPENDS_ bits of where it differs.
 */
const expr *expr_cotangent(expr_pool *pool, int which, unsigned depends);
const expr *expr_unary(expr_pool *pool, expr_op op, const expr *x);
const expr *expr_binary(expr_pool *pool, expr_op op, const expr *x, const expr *y);
const expr *expr_select(expr_pool *pool, const expr *condition, const expr *x, const expr *y);
/* The sum of x over so many terms: a loop where x differs from term to term. */
const expr *expr_sum(expr_pool *pool, int terms, const expr *x);
/* The operation of x on other arguments; a leaf is what it was. */
const expr *expr_rebuild(expr_pool *pool, const expr *x, const expr *const *arg);
/* Sums written out, a copy of the argument for each term. */
const expr *expr_unrolled(expr_pool *pool, const expr *x);

/* See base/order.h. */
#define expr_binary(p, op, x, y) ORDERED2(x, y, expr_binary(p, op, x_, y_))
#define expr_select(p, condition, x, y) ORDERED3(condition, x, y, expr_select(p, x_, y_, z_))

#define expr_add(p, x, y) expr_binary((p), EXPR_ADD, (x), (y))
#define expr_sub(p, x, y) expr_binary((p), EXPR_SUB, (x), (y))
#define expr_mul(p, x, y) expr_binary((p), EXPR_MUL, (x), (y))
#define expr_div(p, x, y) expr_binary((p), EXPR_DIV, (x), (y))
#define expr_neg(p, x) expr_unary((p), EXPR_NEG, (x))

static inline const expr *expr_scaled(expr_pool *pool, const expr *x, double factor) {
  return expr_mul(pool, x, expr_const(pool, factor));
}
static inline const expr *expr_squared(expr_pool *pool, const expr *x) { return expr_mul(pool, x, x); }
/* c[0] + x (c[1] + x (...)) */
const expr *expr_polynomial(expr_pool *pool, const expr *x, const double *c, int count);

/* x as a float32 unless it is one or fixed, and as a float64. */
const expr *expr_narrow(expr_pool *pool, const expr *x);
const expr *expr_widen(expr_pool *pool, const expr *x);

bool expr_is_const(const expr *x, double value);
/* A number or a table of numbers; known when the kernel is compiled. */
bool expr_is_fixed(const expr *x);
/* Whether x is fixed and alike for all heads, so that it can stand in the code as it is. */
bool expr_is_fixed_for_heads(const expr *x);

/* Where an expression is evaluated. positions [axes]; operands[i] points at operand i's elements, inputs[i]
 * at the query's row of input i. */
typedef struct expr_environment {
  int head, block;
  int blocks; /* of the pool: the row length of the leaves' tables */
  const double *positions;
  const double *const *operands;
  const double *channels;
  const double *const *inputs;
  const double *cotangents; /* of the block at hand */
  int term;
} expr_environment;

/* Interpreters: in long double (the reference) and rounded to double (oracles, tests). NARROW does not round. */
double expr_eval(const expr *x, const expr_environment *env);
long double expr_eval_long(const expr *x, const expr_environment *env);

/* An operation with arithmetic (no leaf, no ELEMENT), of numbers; arguments that it does not have are ignored. */
double expr_apply(expr_op op, double a, double b, double c);

/* Which element of its operand an ELEMENT reads in a head and block where its index is so much. The first one of NaN:
 * no index leads out of the operand. */
int expr_element_place(const expr *x, const expr_environment *env, long double index);

/* Values by expr id that need not be computed (again). */
typedef struct expr_memo {
  long double *value;
  unsigned char *known;
} expr_memo;
long double expr_eval_known(const expr *x, const expr_environment *env, expr_memo *memo);

/* Text of the DAG, one node a line as "%id = op args", every node once, for --emit expr. */
void expr_print_roots(FILE *out, const expr *const *roots, const char *const *names, int count);
const char *expr_op_name(expr_op op);
int expr_op_arity(expr_op op);
/* A function that takes tens of instructions: sines, exponentials, logarithms and their like. */
bool expr_op_is_elementary(expr_op op);
/* Elements at computed places; elements of inputs, at any. */
static inline bool expr_op_is_lookup(expr_op op) { return op == EXPR_ELEMENT || op == EXPR_INPUT_AT; }
static inline bool expr_op_is_input(expr_op op) { return op == EXPR_INPUT || op == EXPR_INPUT_AT; }
