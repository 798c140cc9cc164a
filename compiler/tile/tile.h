/* tile/tile: attention as a program over tiles of rows, before a machine is chosen.
 *
 * A block of threads owns a tile of tokens of one side (queries; keys in the gradients of keys and values). Tiles of
 * the other side are streamed past it:
 *
 *     Q = load q [own, channels]
 *     each streamed tile
 *       K = load k [streamed, channels]
 *       V = load v [streamed, values]
 *       S = mma Q, K^T
 *       T = score S              ; scale, bias or score of the description, -infinity where a query does not see a key
 *       P = online T, O          ; P = 2^(T - maximum); O, maximum and sum are scaled when the maximum grows
 *       O += mma P, V
 *     store out, O               ; divided by the sum
 *
 * Three things read such a program: check.c (what ops promise), tests/interpret (the oracle of all machines)
 * and the emitter of a machine (gpu/mma.h). Passes make programs of programs: tile_reverse the gradients, tile_pipeline
 * a schedule of loads and waits.
 */
#pragma once

#include "base/arena.h"

#include <stdbool.h>
#include <stdio.h>

/* What a dimension of a value counts. */
typedef enum tile_space { TILE_ONE, TILE_OWN, TILE_STREAMED, TILE_CHANNELS, TILE_VALUES, TILE_PARTS } tile_space;

/* Tensors of a call: name, what its rows count as: queries (1) or keys (0), width. Columns are what a bias that is a
 * polynomial adds to a product (plan/widen.h). Their rows lie nowhere: a load computes them from tokens' coordinates
 * and weights, as parts that a machine multiplies exactly enough. */
#define TILE_TENSORS(X) \
  X(Q, "q", 1, TILE_CHANNELS) \
  X(K, "k", 0, TILE_CHANNELS) \
  X(V, "v", 0, TILE_VALUES) \
  X(Q_COLUMNS, "q_columns", 1, TILE_PARTS) \
  X(K_COLUMNS, "k_columns", 0, TILE_PARTS) \
  X(OUT, "out", 1, TILE_VALUES) \
  X(G_OUT, "dout", 1, TILE_VALUES) \
  X(G_Q, "dq", 1, TILE_CHANNELS) \
  X(G_K, "dk", 0, TILE_CHANNELS) \
  X(G_V, "dv", 0, TILE_VALUES)

#define TILE_TENSOR(word, name, of_queries, width) TILE_##word,
typedef enum tile_tensor { TILE_TENSORS(TILE_TENSOR) TILE_TENSOR_COUNT } tile_tensor;
#undef TILE_TENSOR

/* Ops, the arguments they take, and what they do. Factors of products are 16-bit or float32, sums float32. */
#define TILE_OPS(X) \
  X(LOAD, "load", 0)     /* value = a tile of a tensor's rows; it may be read behind the next wait */ \
  X(WAIT, "wait", 0)     /* loads have arrived, and what they are read for up to here is done by all threads */ \
  X(EACH, "each", 0)     /* the ops up to END, for each streamed tile in order */ \
  X(END, "end", 0) \
  X(MMA, "mma", 2)       /* value = a b, or a b^T; added to what it was where `adds` */ \
  X(ROTATED_PRODUCT, "rotated_product", 2) /* value += q . (R - 1) k of each pair, R by its displacement; the identity \
                                            * where one of the two is a prefix token */ \
  X(ROTATED_SUM, "rotated_sum", 2) /* value += a times rows (R - 1) b, pair by pair, or (R^T - 1) b where `back` */ \
  X(SCORE, "score", 1)   /* value = what the product a becomes, in powers of two */ \
  X(ONLINE, "online", 2) /* value = 2^(a - maximum of its row up to here); b is scaled by what the maximum grew */ \
  X(WEIGHT, "weight", 1) /* value = 2^(a - log-sum-exp of its query) */ \
  X(GAIN, "gain", 3)     /* value = a (b - delta of its query), times the derivative of the score of the product c */ \
  X(GIVE, "give", 3) /* what the score of a pair gains, a (b - delta of its query), goes on to what the score reads \
                      * beside the product c: `to` */ \
  X(TURN, "turn", 1) /* value = rows of a, each by the rotation of its own token's place, or by its transpose where \
                      * `back`; of tiles in memory it may be read behind the next wait */ \
  X(STORE, "store", 1) /* a tensor's rows = a: divided by the row's sum after an online, times the scale of products \
                        * where `scales` */

#define TILE_OP(word, name, arguments) TILE_##word,
typedef enum tile_kind { TILE_OPS(TILE_OP) TILE_KIND_COUNT } tile_kind;
#undef TILE_OP

enum { TILE_MOST_VALUES = 20, TILE_MOST_OPS = 32, TILE_MOST_ARGUMENTS = 3, TILE_NONE = -1 };

typedef struct tile_value {
  const char *name;
  tile_space rows, columns;
  bool is_sum; /* float32 in registers, a fragment a thread; else rows in memory that threads share */
  int stages; /* tiles of it that memory holds, taken in turn by the streamed tiles */
} tile_value;

typedef struct tile_op {
  tile_kind kind;
  int value; /* index of the value it makes; TILE_NONE: it makes none */
  int arg[TILE_MOST_ARGUMENTS];
  tile_tensor tensor; /* of load and store */
  bool transposed; /* of products: the second argument is */
  bool adds; /* of products and sums */
  bool ahead; /* of a load in a loop: the tile of the turn to come */
  bool scales; /* of a store */
  bool back; /* of a turn, and of sums of rotated rows */
  bool sinks; /* of an online: a row begins with the score of its head's sink, whose value is 0 */
  unsigned to; /* of a give: TILE_OF_OPERANDS, TILE_OF_TOKENS, TILE_OF_SINK */
} tile_op;

typedef struct tile_program {
  const char *name;
  bool owns_keys; /* keys are the block's own and queries are streamed; else the other way */
  bool owns_group; /* own queries are those of all heads that share the streamed keys, a range of which a block has */
  int n_values, n_ops;
  tile_value value[TILE_MOST_VALUES];
  tile_op op[TILE_MOST_OPS];
} tile_program;

/* Rows of a tile of each side, and channels. */
typedef struct tile_shape {
  int own, streamed;
  int channels, values, parts;
} tile_shape;

/* Attention as above, with every load where its tile is needed. columns: products are those of q and k and, added to
 * them, those of a polynomial's columns. */
const tile_program *tile_forward(arena *a, bool columns);
/* A pass: the same for few queries. Blocks share keys: where a range is not all of them, its sums, maxima and totals
 * are stored as they are, and merged in the order of ranges. */
const tile_program *tile_few(arena *a, const tile_program *forward);
/* A pass: rows begin with the score of a sink. */
const tile_program *tile_sunk(arena *a, const tile_program *forward);
/* A pass: rows of q and k, and those of v where `values`, are turned before products read them; what turned values add
 * up to is turned back before it is stored. */
const tile_program *tile_turned(arena *a, const tile_program *forward, bool values);
/* A pass: pairs are rotated, where rows cannot be: q . R k is the product q . k and what R changes of it. */
const tile_program *tile_rotated(arena *a, const tile_program *forward);
/* A pass: turns are left to programs of their own. Rows that are loaded come turned; those that are stored are turned
 * back where they are. */
const tile_program *tile_apart(arena *a, const tile_program *p);
/* Such a program: a tensor's rows. */
const tile_program *tile_turn(arena *a, tile_tensor tensor, bool back);
/* A pass: what tensors of the inputs gain of what `out` gains. gained: TILE_OF_QUERIES, or one or both of the
 * others; and what scores are computed from: operands, where queries gain, so that one program meets each pair; numbers
 * and coordinates of the program's own tokens. */
enum {
  TILE_OF_QUERIES = 1 << TILE_Q,
  TILE_OF_KEYS = 1 << TILE_K,
  TILE_OF_VALUES = 1 << TILE_V,
  TILE_OF_OPERANDS = 1 << TILE_TENSOR_COUNT,
  TILE_OF_TOKENS = 2 << TILE_TENSOR_COUNT,
  TILE_ALONE = 4 << TILE_TENSOR_COUNT, /* those gain alone: the rows that are named are own, and are not stored */
  TILE_OF_SINK = 8 << TILE_TENSOR_COUNT /* of a give: operands gain what own rows' sink does, behind the last tile */
};
const tile_program *tile_reverse(arena *a, const tile_program *forward, unsigned gained);
/* A pass: streamed tiles are loaded a turn ahead of their use, into memory for two of them; one wait a turn. Or into
 * memory for one, in the turn that needs it. */
const tile_program *tile_pipeline(arena *a, const tile_program *p);
const tile_program *tile_in_turn(arena *a, const tile_program *p);

const char *tile_kind_name(tile_kind kind);
const char *tile_tensor_name(tile_tensor tensor);
int tile_arguments(tile_kind kind);
bool tile_is_of_queries(tile_tensor tensor);
bool tile_is_of_columns(tile_tensor tensor);
tile_space tile_width_of(tile_tensor tensor);
int tile_size(const tile_shape *shape, tile_space space);

/* What ops promise; a fault is the compiler's own bug (diag_bug). Returns p. */
const tile_program *tile_check(const tile_program *p);
void tile_print(FILE *out, const tile_program *p);

/* ---- building ---- */

int tile_add_value(tile_program *p, const char *name, tile_space rows, tile_space columns, bool is_sum);
tile_op *tile_add_op(tile_program *p, tile_kind kind, int value);
tile_op *tile_add_unary(tile_program *p, tile_kind kind, int value, int argument);
tile_op *tile_add_binary(tile_program *p, tile_kind kind, int value, int first, int second);
tile_op *tile_add_mma(tile_program *p, int value, int first, int second, bool transposed, bool adds);
tile_op *tile_add_rotated(tile_program *p, tile_kind kind, int value, int first, int second);
int tile_add_load(tile_program *p, const char *name, tile_tensor tensor);
tile_op *tile_add_store(tile_program *p, tile_tensor tensor, int value);
int tile_add_turn(arena *a, tile_program *p, int value, bool back);
