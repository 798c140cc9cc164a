/* program/program: a kernel as what all targets have in common: a few ops over named spaces.
 *
 * In: a plan. Out: a program for each entry, which passes rewrite, schedules of targets walk and tests/interpret
 * executes on arrays, slowly and obviously: the oracle of all targets.
 *
 * Loops walk the spaces whose size is known at the call. A value is an array over the spaces of the loops around the
 * op that makes it, and may be read in any later place with loops over the same spaces around it, of the same loop or
 * another: so a loop can be split after any op, and what a schedule keeps in memory or in registers is its own
 * affair. Spaces known when the kernel is compiled (blocks, components, channels) are the ops' own: an eval has
 * numbers for every block, a matrix one for every block, and a row all its channels.
 *
 * Programs are immutable once they are built; a pass makes another one. program_check holds what the ops promise, and
 * runs after every change.
 */
#pragma once

#include "algebra/torque.h"
#include "base/number.h"
#include "plan/plan.h"

#include <stdio.h>

typedef struct plan_widen plan_widen;

/* Name, its word. Tiles, groups and runs are a schedule's: tokens, a token's rows (heads of q and then of k) and heads
 * cut into pieces, which loops inside of them walk; they index no value.                          ORDER PROGRAM_SPACE
 */
#define PROGRAM_SPACES(X) \
  X(TILES, "tiles")     /* of tokens                                      */ \
  X(GROUPS, "groups")   /* of rows                                        */ \
  X(RUNS, "runs")       /* of heads, outside of tensors                   */ \
  X(TOKENS, "tokens")   /* that share a set of positions with the batches */ \
  X(BATCHES, "batches") /* of one set of positions                        */ \
  X(TENSORS, "tensors") /* q and k, those that the call has               */ \
  X(HEADS, "heads")     /* of the tensor at hand, or of the kernel        */ \
  X(KEYS, "keys")       /* that a query, the token at hand, sees: pairs   */

typedef enum program_space {
#define X(name, text) SPACE_##name,
  PROGRAM_SPACES(X)
#undef X
      SPACE_COUNT
} program_space;

/* A set of spaces; those that values are indexed by; those of a row. */
#define IN(space) (1u << SPACE_##space)
enum {
  SPACES_OF_ROW = IN(TOKENS) | IN(BATCHES) | IN(TENSORS) | IN(HEADS),
  SPACES_OF_QUERY = IN(TOKENS) | IN(BATCHES) | IN(HEADS),
  SPACES_OF_KEY = IN(KEYS) | IN(BATCHES) | IN(HEADS),
  SPACES_OF_VALUES = SPACES_OF_ROW | IN(KEYS)
};

/* How often a value is made, by the spaces it is indexed by. */
typedef enum program_level { LEVEL_CALL, LEVEL_TOKEN, LEVEL_ROW, LEVEL_PAIR } program_level;
program_level program_level_of(unsigned spaces);

/* Tokens or keys that a loop walks: a description may leave the first ones as they are. Tensors that a loop walks: q or
 * k. */
typedef enum program_part { PART_SKIPPED = 1, PART_ENCODED = 2, PART_Q = 1, PART_K = 2, PART_ALL = 3 } program_part;

/* What an op makes. */
typedef enum program_kind {
  KIND_NUMBERS, /* of an eval: one for every expression and block */
  KIND_MATRIX, /* one for every block */
  KIND_ROW, /* channels */
  KIND_COUNT
} program_kind;

typedef struct program_value {
  program_kind kind;
  number_type type; /* of arithmetic with it: NUMBER_F32 or NUMBER_F64 */
  unsigned spaces; /* that it is indexed by */
  int count; /* numbers of a block, rows of a matrix, channels */
  program_part keys; /* of a pair's: the keys that it is made for */
  program_part tensors; /* of a row's: the tensors that it is made for */
  const struct program_op *maker;
} program_value;

/* Rows of q and k, or of one tensor, that are read or written under one name. */
typedef struct program_stream {
  const char *name;
  int channels;
  unsigned spaces; /* of a row */
  bool is_output;
  int replaces; /* the input stream in whose place an output may lie; -1: none */
} program_stream;

/* An array that is written, or read, beside the rows, such as a table: one element for each index of its spaces. */
typedef struct program_array {
  const char *name;
  unsigned spaces;
  bool is_output;
} program_array;

/* Name, its word, arguments (-1: any number).                                                       ORDER PROGRAM_OP */
#define PROGRAM_OPS(X) \
  X(FOR, "for", 0) /* walks a space */ \
  X(EVAL, "eval", -1) /* expressions of positions, operands and the numbers of other evals, blocks in the index */ \
  X(MATRIX, "matrix", -1) /* the blocks' matrices, made from one of PROGRAM_SOURCES */ \
  X(LOAD, "load", 0) /* a row of a stream */ \
  X(STORE, "store", 1) /* a row to a stream */ \
  X(APPLY, "apply", 2) /* blocks' matrices, or their transposes, to a row; other channels pass through */ \
  X(MAP, "map", -1) /* a function of the blocks' channels of rows; other channels are those of the last row */ \
  X(ADD, "add", 2) /* numbers of blocks of one channel to a row */ \
  X(WEDGE, "wedge", -1) /* blocks' torques of a row: of g and y; of g alone, its channels */ \
  X(REDUCE, "reduce", 1) /* numbers summed over spaces, and over blocks */ \
  X(HOLD, "hold", 1) /* a schedule's: keep a value near for what follows (registers, shared memory) */ \
  X(WRITE, "write", 1) /* an element of an array */ \
  X(READ, "read", 0) /* numbers of an element of an array, that an earlier call has written */ \
  X(SUM, "sum", 1) /* of a number over all blocks */ \
  X(COLUMNS, "columns", -1) /* a row with more channels: numbers, weights times a matrix of numbers, or zeros */ \
  X(GATHER, "gather", -1) /* what the numbers gain that columns has made channels of, or the weights of these */ \
  X(TAKE, "take", 1) /* the first channels of a row */ \
  X(SCORE, "score", -1) /* of a pair: scale times the product of a query's row and a key's, and a number */ \
  X(ATTEND, "attend", -1) /* rows of keys weighed by the softmax of scores, which loops over keys have made */

typedef enum program_op_kind {
#define X(name, text, arguments) OP_##name,
  PROGRAM_OPS(X)
#undef X
      OP_COUNT
} program_op_kind;

/* Name, its word: what a matrix is made from. A, A_a: skew matrices that operands hold. Those from EXP on are what may
 * be made of a dense block's (spec.h), ORDER DENSE_MAP.                                              ORDER
 * PROGRAM_SOURCE */
#define PROGRAM_SOURCES(X) \
  X(ENTRIES, "entries") /* expressions of positions, operands and the numbers of evals */ \
  X(PRODUCT, \
    "product") /* of two matrices, of which the second is of one block that has all channels of the first's */ \
  X(CAYLEY, "cayley") /* (I - A) (I + A)^-1 */ \
  X(EXP, "exp") /* exp(sum of an eval's numbers times A_a) */ \
  X(SCHUR, "schur") /* (+ R(number lambda_k)) S^T, A = S (+ lambda_k J) S^T its real Schur form; of no eval: S^T */

typedef enum program_source {
#define X(name, text) SOURCE_##name,
  PROGRAM_SOURCES(X)
#undef X
      SOURCE_COUNT
} program_source;

/* Matrices that are not made of expressions. */
typedef struct program_skew {
  program_source source;
  int count; /* of skew matrices */
  const spec_skew *of;
  double factor; /* of the whole */
  bool in_f64; /* made in float64, not float32, and rounded */
  bool may_act; /* a target may apply it to few rows without making it */
} program_skew;

/* Blocks of a row: component c of block g is channel[c * count + g]. */
typedef struct program_blocks {
  int size, count;
  const int *channel;
} program_blocks;

enum { PROGRAM_MAX_ARGUMENTS = 4 };

typedef struct program_op program_op;
struct program_op {
  program_op_kind kind;
  program_op *next, *body; /* body: of a loop */
  program_space space; /* FOR */
  program_part part; /* FOR tokens */
  int result; /* a value; -1: none */
  int n_arguments, argument[PROGRAM_MAX_ARGUMENTS]; /* values */
  int stream, array; /* LOAD, STORE; WRITE, READ */
  bool transposed; /* APPLY */
  /* EVAL, MATRIX: expressions, of a matrix [size][size]. WEDGE, REDUCE, READ: leaves that stand for the numbers in
   * evals that use them. SUM, GATHER: the same, where there are any. MAP: one, of channel[i] of row i. ADD, MAP,
   * MATRIX, WEDGE: the blocks. */
  int n_exprs;
  const expr *const *expr;
  program_blocks blocks;
  program_skew skew; /* MATRIX; its source, ENTRIES where nothing else is said */
  int n_columns; /* COLUMNS: channels more; GATHER: the last ones of the row */
  const int *column; /* which of the numbers; -1: 0 */
  const plan_widen *widen; /* how targets compute them */
  bool scales_all; /* SCORE: the number, too */
  bool is_tabled; /* EVAL, MATRIX: a call may bring the result in a table */
  const plan *plan; /* EVAL, MATRIX: how targets compute them; MAP, WEDGE, REDUCE, READ of a part: whose they are */
  const torque_basis *basis; /* WEDGE of two rows */
  unsigned over; /* REDUCE: spaces that are summed over */
  bool over_blocks; /* REDUCE */
};

enum {
  PROGRAM_MAX_STREAMS = 8,
  PROGRAM_MAX_ARRAYS = 2 * SPEC_MAX_PARTS,
  PROGRAM_MAX_VALUES = 128,
  PROGRAM_MAX_DEPTH = 8
};

typedef struct program {
  const spec *spec;
  const char *entry; /* the word of the entry that it is the body of: "encode" */
  bool heads_share; /* inputs that rows turn by have a row for each token, which heads of q and k share */
  int n_streams, n_arrays, n_values;
  program_stream stream[PROGRAM_MAX_STREAMS];
  program_array array[PROGRAM_MAX_ARRAYS];
  program_value value[PROGRAM_MAX_VALUES];
  program_op *body;
} program;

/* ---- building ---- */

typedef struct program_builder {
  arena *memory;
  program *p;
  program_op **end[PROGRAM_MAX_DEPTH + 1]; /* where the next op of each loop goes */
  program_space open[PROGRAM_MAX_DEPTH + 1];
  program_part part[PROGRAM_MAX_DEPTH + 1];
  int depth;
  unsigned spaces; /* of the loops that are open */
} program_builder;

program_builder program_begin(arena *a, const spec *s, const char *entry);
int program_stream_in(program_builder *b, const char *name, int channels);
int program_stream_out(program_builder *b, const char *name, int channels, int replaces);
/* A stream of one tensor, with its rows' spaces. */
int program_stream_of(program_builder *b, const char *name, int channels, unsigned spaces, bool is_output);
int program_array_out(program_builder *b, const char *name, unsigned spaces);
int program_array_in(program_builder *b, const char *name, unsigned spaces);

void program_for(program_builder *b, program_space space, program_part part);
/* The loops over what is not walked yet of a token's rows. */
void program_for_rows(program_builder *b);
/* Ends loops until `depth` are open. */
void program_end_for(program_builder *b, int depth);
/* The others make a value where there is one to make, and give its number. `used`: evals of which expressions are part
 * of these. */
int program_eval(program_builder *b, const plan *how, const expr *const *exprs, int count, const int *used, int n_used);
/* Evaluates expressions in which blocks have no part, as for one block. */
int program_eval_once(program_builder *b, const plan *how, const expr *const *exprs, int count);
int program_eval_once_of(program_builder *b, const expr *const *exprs, int count, const int *used, int n_used);
int program_matrix(program_builder *b, const plan *how, program_blocks blocks, const expr *const *entries,
                   const int *used, int n_used);
/* numbers: of the matrices' eval; -1: there is none. */
int program_skew_matrix(program_builder *b, const plan *how, program_blocks blocks, program_skew skew, int numbers);
/* first times second; the product has the second's one block. */
int program_product(program_builder *b, int first, int second);
int program_load(program_builder *b, int stream);
int program_apply(program_builder *b, int matrix, int row, bool transposed);
int program_add(program_builder *b, int numbers, int row, program_blocks blocks);
/* of: as in wedge. x: an expression of channel[0], of the first row, channel[1] ... */
int program_map(program_builder *b, const plan *of, program_blocks blocks, const expr *x, const int *rows, int n_rows);
int program_sum(program_builder *b, int numbers);
/* A row with `count` more channels, channel i being number column[i] of `numbers`: of one eval (gains -1), or of
 * weights times gains [weights][numbers]. numbers -1: zeros. */
int program_columns(program_builder *b, const plan_widen *how, int row, int numbers, int gains, const int *column,
                    int count);
/* The transpose of program_columns: what its numbers gain of the row's last `count` channels, or with gains its
 * weights. names: leaves as in wedge, one of each of n_names numbers. */
int program_gather(program_builder *b, int row, int gains, const int *column, int count, const expr *const *names,
                   int n_names);
/* The first channels of a row. */
int program_take(program_builder *b, int row, int channels);
/* number -1: none; scales_all: it is scaled as the product is. */
int program_score(program_builder *b, int query, int key, int number, bool scales_all);
/* The leaf that stands for a score in the evals that use it. */
void program_name_score(program_builder *b, int score, const expr *leaf);
/* Leaves that stand for sums in the evals that use them. */
void program_name_sum(program_builder *b, int sum, const expr *const *names);
/* Pairs of a score and a key's row, one after the other. */
int program_attend(program_builder *b, const int *scores_and_rows, int count);
/* tau: leaves that stand for the numbers. y -1: of g alone. of: the plan of a part, whose blocks they are; else NULL.
 */
int program_wedge(program_builder *b, const plan *of, const torque_basis *basis, program_blocks blocks,
                  const expr *const *tau, int count, int g, int y);
/* over: spaces of the value whose loops are closed; over_blocks: one number for all blocks. names: leaves as in wedge.
 */
int program_reduce(program_builder *b, int value, unsigned over, bool over_blocks, const expr *const *names);
void program_store(program_builder *b, int stream, int row);
void program_hold(program_builder *b, int value);
void program_write(program_builder *b, int array, int value);
/* of, names: as in wedge, a leaf a number of each of that many blocks. */
int program_read(program_builder *b, const plan *of, int array, int blocks, const expr *const *names, int count,
                 number_type type);
/* Marks what a table holds. */
void program_set_tabled(program_builder *b, int value);

/* ---- from one program to another: what passes and schedules are written with ---- */

typedef struct program_rewrite {
  const program *from;
  program_builder to;
  int value[PROGRAM_MAX_VALUES]; /* of `to`, by value of `from`; -1: not made yet */
} program_rewrite;

/* Streams and arrays are those of `from`. */
program_rewrite program_begin_rewrite(arena *a, const program *from, const char *entry);
/* Appends an op, of a loop all that is in it, with its arguments' counterparts. */
void program_repeat(program_rewrite *r, const program_op *op);

/* ---- reading ---- */

const char *program_space_word(program_space space);
const char *program_op_word(program_op_kind kind);
const char *program_source_word(program_source source);
int program_op_arguments(program_op_kind kind); /* -1: any number */
/* Rows that are neither written nor in whose place anything is: what encode wrote or read. */
bool program_stream_is_kept(const program *p, int stream);
/* The plan of the program's first eval or matrix. */
const plan *program_plan(const program *p);
/* The plans of a row whose parts differ, in the order of their channels; in other programs the one above. Returns their
 * number. */
int program_plans(const program *p, const plan **plans);
/* The part of a head whose expressions an op's are; NULL: they are the whole's. */
const spec_part *program_part_of(const program_op *op);
/* What an op's expressions are in the words of: the part's description, or the whole's. */
const spec *program_spec_of(const program *p, const program_op *op);
/* The first apply of rows of tokens that are encoded; NULL: there is none. */
const program_op *program_encoded_apply(const program *p);
/* The ops of a row of tokens that are encoded, of q (PART_Q) or k. */
const program_op *program_row_ops(const program *p, program_part tensor);
/* What columns are computed by, in a program that has them. */
const plan_widen *program_widen_plan(const program *p);
/* The name of a value in the text: v0, m1, x2. */
const char *program_value_name(arena *a, const program *p, int value);

/* Text for --emit program. */
void program_print(FILE *out, const program *p);

/* What is wrong with a program, in words; NULL: nothing. */
const char *program_fault(arena *a, const program *p);
/* Ends the compiler where a program has a fault, which is the compiler's own bug. stage: who made the program. */
void program_check(arena *a, const program *p, const char *stage);
