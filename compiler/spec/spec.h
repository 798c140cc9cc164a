/* spec/spec: the validated description of an encoding. Plain data, no Lua behind it.
 *
 * In: what dsl/loader.c read from a spec. Out: what algebra/block.c turns into a block
 * program. A block of channels holds chosen blades of Cl(p,q,r); a position
 * acts on it through one generator per axis, a bivector B_a with an angle
 * theta_a, as the rotor sandwich (CARE, section 3.2)
 *
 *     x -> R x R^-1,   R_a = exp(theta_a/2 B_a),
 *
 * and `combine` says how the axes' rotors become one. A dense block turns by the
 * exponential of a sum of learned skew matrices instead (`dense`), and a change of
 * basis of the whole head may come first (`basis`). Every block-dependent quantity
 * is one expression whose leaves hold a value per [head][block].
 */
#pragma once

#include "base/arena.h"
#include "spec/expr.h"

#include <stdbool.h>
#include <stdint.h>

enum {
  SPEC_MAX_AXES = 8,
  SPEC_MAX_DIMENSIONS = 5,                     /* of the algebra's vector space */
  SPEC_MAX_BLADES = 1 << SPEC_MAX_DIMENSIONS,  /* basis blades of the algebra */
  SPEC_MAX_BIVECTORS = 10,                     /* basis bivectors of 5 dimensions */
  SPEC_MAX_ENTRIES = 4,                        /* channels of a block whose matrix the description writes */
  SPEC_MAX_BLOCK = 64,                         /* channels of a dense block; no block has more */
  SPEC_MAX_RANK = 6,
  SPEC_MAX_HEAD_DIM = 4096,
  SPEC_MAX_OPERANDS = 32, /* kernels and plans have a bit of each in 32 */
  SPEC_MAX_INPUTS = 8,
  SPEC_MAX_TERMS = 1024, /* that a bias sums over */
  SPEC_MAX_DEGREE = 16,
  SPEC_MAX_MODELS = 256,
  SPEC_MAX_ROTORS = 256, /* nodes of a function of rotors */
  SPEC_MAX_ARGUMENTS = 8, /* of one of them: at least the axes */
  SPEC_MAX_PARTS = 8      /* of a head */
};

typedef enum spec_combine {
  COMBINE_SUM,      /* exp(sum_a theta_a/2 B_a) */
  COMBINE_MEAN,     /* exp(1/P sum_a theta_a/2 B_a), GeoPE, eq. 5-6 */
  COMBINE_PRODUCT,  /* R_{o0} R_{o1} ...: order[0] is leftmost, acts last */
  COMBINE_SYMMETRIC, /* exp(A_o0/2) exp(A_o1/2) ... exp(A_on) ... exp(A_o1/2) exp(A_o0/2) (Strang) */
  COMBINE_FUNCTION   /* spec_function: means of rotations, slerp, what the spec writes of the axes' rotors */
} spec_combine;

/* Name, its word between the vocabulary and the loader. Values are rotors or, of LOG and SUM, bivectors: rotation
 * vectors of at most half a turn and sums of them. Rotors stand for rotations: R and -R are one.     ORDER ROTOR_OP
 *
 * CHORDAL: the rotation nearest in Frobenius' norm to the sum of factor[i] arg[i]; factors are not below 0, and their
 * sum is 1, or all of them are 0: then the identity. Where several are nearest it is one of those. LOG: of the shortest
 * turn; of half a turn either of the two. */
#define ROTOR_OPS(X) \
  X(AXIS, "axis")       /* the rotor of an axis */ \
  X(PRODUCT, "product") /* arg[0] arg[1]: the right one acts first */ \
  X(INVERSE, "inverse") \
  X(CHORDAL, "chordal") \
  X(LOG, "log") \
  X(SUM, "sum")         /* of bivectors: sum of factor[i] arg[i] */ \
  X(EXP, "exp")

typedef enum spec_rotor_op {
#define X(name, text) ROTOR_##name,
  ROTOR_OPS(X)
#undef X
      ROTOR_OP_COUNT
} spec_rotor_op;

typedef struct spec_rotor {
  spec_rotor_op op;
  int axis;                                 /* AXIS */
  int n_args, arg[SPEC_MAX_ARGUMENTS];      /* nodes before this one */
  const expr *factor[SPEC_MAX_ARGUMENTS];   /* CHORDAL, SUM: no positions in it */
} spec_rotor;

/* The last node is the rotor of all axes. */
typedef struct spec_function {
  const char *text; /* what it is, for people */
  int count;
  spec_rotor *node;
} spec_function;

/* Whether a node is a bivector. */
static inline bool spec_rotor_is_bivector(const spec_rotor *r) { return r->op == ROTOR_LOG || r->op == ROTOR_SUM; }

/* Cl(p,q,r): the first p basis vectors square to +1, the next q to -1, the last r to 0.
 * A blade is a bit mask: bit i stands for e_{i+1}. */
typedef struct spec_algebra {
  int p, q, r;
} spec_algebra;

/* One component of a block: sign * blade, so that e31 is {0b101, -1}. */
typedef struct spec_component {
  unsigned blade;
  int sign;
} spec_component;

typedef struct spec_bivector {
  int count;
  unsigned blade[SPEC_MAX_BIVECTORS];           /* two bits each, ascending, no doubles */
  const expr *coefficient[SPEC_MAX_BIVECTORS];  /* no positions in it */
} spec_bivector;

/* What first values of an operand are drawn from: name, its word in the vocabulary and in explain's data.
 *                                                                                            ORDER INITIAL_KIND */
#define INITIAL_KINDS(X) \
  X(VALUE, "value") \
  X(UNIFORM, "uniform") \
  X(NORMAL, "normal") \
  X(DIRECTION, "direction")

typedef enum spec_initial_kind {
#define X(name, text) INITIAL_##name,
  INITIAL_KINDS(X)
#undef X
      INITIAL_KIND_COUNT
} spec_initial_kind;

enum { SPEC_MAX_FACTORS = 1 << 16 };
enum { SPEC_MAX_SUM = 4096 }; /* terms of a sum */

/* First values: what is drawn (of VALUE: 1), times a factor. */
typedef struct spec_initial {
  spec_initial_kind kind;
  double deviation; /* of NORMAL, around 0 */
  bool truncated;   /* NORMAL, to low .. high */
  double low, high; /* of UNIFORM, too */
  int direction;    /* DIRECTION: dimension along which a vector of length 1 lies, uniform on the sphere; else -1 */
  unsigned same;    /* bit d: what is drawn is the same along dimension d */
  int64_t sizes[SPEC_MAX_RANK]; /* of factor: the operand's, or 1 where it does not vary */
  const double *factor;
} spec_initial;

typedef struct spec_operand {
  const char *name;   /* C identifier */
  const char *doc;    /* what it is */
  const char *units;  /* "1", "radians per unit of position" */
  const char *source; /* paper and equation; may be "" */
  const char *initializer; /* how to initialise it for training; may be "" */
  const spec_initial *initial; /* the same as data, or NULL */
  int rank;
  int64_t shape[SPEC_MAX_RANK];
  const char *dimension[SPEC_MAX_RANK]; /* "axes", "heads", "blocks" or the number as text */
  double test_scale; /* check and bench draw its elements uniformly from [-test_scale, test_scale] */
  int line;
} spec_operand;

/* How a skew matrix A is made from a raw one, F.                  ORDER spec_skew_rule */
typedef enum spec_skew_rule {
  SKEW_UPPER,     /* triu(F, 1) - triu(F, 1)^T: A_ij = F_ij for i < j; diagonal and lower triangle are not read */
  SKEW_DIFFERENCE /* F - F^T: A_ij = F_ij - F_ji */
} spec_skew_rule;

/* A skew n x n matrix per head and block, read from the raw matrices that an operand ends in. Equal operand
 * and offset are the same matrix, of which the torus (algebra/torus.h) takes advantage. */
typedef struct spec_skew {
  int operand; /* its last two dimensions are n, n, row-major */
  spec_skew_rule rule;
  int n_heads;           /* rows of offset: 1 where all heads share them */
  const int32_t *offset; /* [n_heads][blocks]: the element where the raw matrix begins */
} spec_skew;

/* Name, its word: what is made of M = sum_a angle[a] A_a, by which a dense block's channels are multiplied. Further
 * ones are rows here and in PROGRAM_SOURCES (program/program.h).                                            ORDER
 * DENSE_MAP
 *
 * SCHUR: the output stays in the basis of the real Schur form A = S (+ lambda_k J) S^T: out = (+ R(lambda_k theta)) S^T
 * x, plane k at components 2k, 2k + 1. The S in front cancels in scores. Only where the generators of each block
 * commute, and never with `inverse`. */
#define DENSE_MAPS(X) \
  X(EXP, "exp") \
  X(SCHUR, "schur")

typedef enum spec_dense_map {
#define X(name, text) DENSE_##name,
  DENSE_MAPS(X)
#undef X
      DENSE_MAP_COUNT
} spec_dense_map;

/* Blocks of b = n_components channels that turn by exp(M), M = sum_a angle[a] A_a, A_a skew b x b
 * (LieRE, section 4; ComRoPE, eq. 12-13). angle[a] is a scalar of position, operands, block and head; `algebra`,
 * `component` and `generator` are not used, and `combine` is COMBINE_SUM (a mean stands in the angles). */
typedef struct spec_dense {
  spec_skew generator[SPEC_MAX_AXES];
  spec_dense_map map;
  bool is_f64; /* exp(M) is formed in float64: within 2^-22 whatever ||M||, not 2^-22 max(1, ||M||) */
} spec_dense;

/* An orthogonal change of basis of the whole head before the blocks are turned (STRING, Cayley form):
 * x -> C x, C = (I - A)(I + A)^-1, A skew head_dim x head_dim; `inverse` multiplies by C^T after turning back. */
typedef struct spec_basis {
  spec_skew matrix; /* one block: offset [n_heads][1] */
} spec_basis;
/* A tensor with a row for each query token and head, beside q; of blocks of blades for each token and head of q or k;
 * of scores beside q, or beside k, whose rows may have the heads of q, too. */
typedef struct spec_input {
  const char *name, *doc, *units, *source; /* as an operand's */
  int64_t size; /* of a row, the tensor being [B,H,N,size]; 0: [B,H,N]; SPEC_SIZE_OF_KEYS: a number for each pair */
  double test_scale; /* check and bench draw its elements uniformly from [-test_scale, test_scale] */
  int line;
  bool of_keys;
} spec_input;

/* The tensor is [B,H,N,M], of M keys. */
enum { SPEC_SIZE_OF_KEYS = -1 };
/* Numbers of a token's row, which a pair's input has one of. */
static inline int64_t spec_input_numbers(const spec_input *input) { return input->size > 0 ? input->size : 1; }
static inline bool spec_input_is_pair(const spec_input *input) { return input->size == SPEC_SIZE_OF_KEYS; }

#define OPTION_KINDS(X) \
  X(INTEGER, "integer") \
  X(NUMBER, "number") \
  X(BOOLEAN, "boolean") \
  X(STRING, "string") \
  X(LIST, "list") \
  X(NUMBERS, "numbers")

typedef enum spec_option_kind {
#define X(name, text) OPTION_##name,
  OPTION_KINDS(X)
#undef X
      OPTION_KIND_COUNT
} spec_option_kind;

enum { SPEC_MAX_CHOICES = 256 };

typedef struct spec_option {
  const char *name, *value, *otherwise, *doc; /* value and default as texts, the way -D takes them */
  const char **choice; /* values that are allowed, of a list those of each entry; of none: all of its kind */
  int n_choices;
  double range[2]; /* of numbers: usual values, for controls; 0 and 0: none was stated */
  spec_option_kind kind;
  bool given; /* set by -D, not the default */
} spec_option;

/* Models that use the encoding with these options: for people who look for it, and no part of a kernel. */
typedef struct spec_model {
  int n_names, n_defines;
  const char **name;
  const char **define; /* "layout=split", as -D takes it */
} spec_model;

/* POSITION leaves of a score that are no axis: scale q . k, and the indices of the query's and the key's token in the
 * sequence of keys, whose last one the last query stands beside. */
enum { SPEC_OF_SCORE = SPEC_MAX_AXES, SPEC_OF_QUERY, SPEC_OF_KEY, SPEC_MAX_PLACES };

/* Inside attention: something of the displacement r_j - r_i of a key j from a query i. In these expressions a
 * position leaf is a coordinate of the displacement. */
typedef struct spec_pairwise {
  int value_dim; /* channels of a value row, Dv */
  double scale; /* the factor of q . k in a call that gives none; 0: 1/sqrt(head_dim), see spec_scale */
  const expr *bias; /* added to scale q.k; may be -infinity, which hides the key; NULL: none */
  const expr *score; /* in place of scale q . k, of which it is a function; may be -infinity, too. NULL: there is none,
                      * or else no bias */
  const expr *sink; /* of the head: a score more in every row's softmax, whose value is 0; NULL: none */
  bool rotates; /* the key's blocks are turned by the rotor of r_j - r_i: generator, angle and combine as they stand.
                 * Without it there are no blocks: n_components is 0, and expressions have one block */
  bool turns_values; /* the key's row of v is turned by the same: out_i = sum_j p_ij R(r_j - r_i) v_j */
} spec_pairwise;

/* What a description may be beside, or in place of, rotors on blades. Each is declared in full by the
 * room that reads it first; NULL in struct spec: the description has none. */

/* Something of the position that is added to every channel: out_c = x_c + value_c(r), or less it with `inverse`.
 * `value` is one expression of all channels, which are the blocks of the spec's pool. */
typedef struct spec_additive {
  const expr *value;
} spec_additive;

/* A bias of attention that is a polynomial in delta = r_j - r_i, the displacement of a key from its query:
 *
 *     score(i, j) = scale (q_i . k_j + sum over l < n_terms of value_l(delta)).
 *
 * `value` is one expression of all terms (the blocks of the spec's pool); its POSITION leaves are delta, its
 * INPUT leaves the query's. algebra/polynomial.h expands it; what is widened by the result is in plan/widen.h. */
typedef struct spec_polynomial {
  int degree; /* highest total degree in delta */
  int n_terms;
  const expr *value;
  double origin[SPEC_MAX_AXES]; /* columns are monomials of r - origin */
  bool has_call_origin; /* of the call's own (pegen_args.origin) in place of this one */
  bool exact_scores; /* keep the column that is constant along a softmax row */
  bool split_columns; /* in 16 bits: columns as sums of two */
} spec_polynomial;

/* How a row of a block's matrix is multiplied with channels. Frameworks' operators round each product, so that kernels
 * with their results to the bit do so, too. */
typedef enum spec_products {
  PRODUCTS_FUSED, /* multiplied and added in float32, rounded once an addition */
  PRODUCTS_FLOAT32, /* each product is rounded to float32 before it is added */
  PRODUCTS_ROUNDED, /* the matrix's entries and each product are rounded to the rows' number type */
} spec_products;

typedef struct spec_part spec_part;

typedef struct spec {
  const char *file; /* as given on the command line, for messages */
  int line; /* of pe.encoding */
  const char *name; /* C identifier; prefix of all symbols */
  const char *description; /* the name in the description, where --name has given another; else NULL */
  const char *doc; /* one line: what it is, and whose */

  int n_axes;
  const char *axis[SPEC_MAX_AXES];

  int head_dim; /* channels of a row, D */
  int heads; /* rows of per-head leaves; 1: every head is encoded alike, any number of heads */

  spec_algebra algebra;
  int n_components; /* channels of a block; 0: no rotors, and what stands below of them means nothing */
  spec_component component[SPEC_MAX_BLADES];
  int n_blocks; /* also of the pool's leaves; of a polynomial its terms */
  const int *channel; /* [n_components][n_blocks]: channel of a block's component; no doubles */

  spec_combine combine;
  int order[SPEC_MAX_AXES]; /* of a product: axes, leftmost first; otherwise 0, 1, ... */
  const spec_function *function; /* of COMBINE_FUNCTION, else NULL */
  spec_bivector generator[SPEC_MAX_AXES];
  const expr *angle[SPEC_MAX_AXES]; /* theta_a in radians, positions included; of q where dual_axes says so, -theta_a */
  /* Bit a: rows of q are boosted back by axis a, so that they take R^-T where rows of k take R and a score is one of
   * R(r_i)^-1 R(r_j). 0: they take R, which for turns is the same. */
  unsigned dual_axes;
  spec_products products; /* of the rows' channels and the matrices of their blocks */
  double amplitude; /* factor of the encoded channels (YaRN's attention factor) */
  /* A further factor of those of q and of k (xPos, Sun et al., eq. 14), of positions and operands; NULL, both: 1. */
  const expr *gain[2];
  /* For rows of q, and of k: the matrix by which a block is multiplied where the description writes it,
   * [n_components^2] by rows, of positions, operands and inputs; nothing else turns then, and the algebra means
   * nothing. NULL, both: rotors do. Never with `inverse`. */
  const expr *const *entries[2];
  /* What becomes of each channel of a block before it turns, an expression of channel[0] and numbers: the same of q, k
   * and all blocks. Never with `inverse`. NULL: it turns as it is. */
  const expr *pre;
  bool exact; /* closed forms stay in float64 and are rounded once: small dense blocks that say is_f64 */

  const spec_dense *dense; /* NULL: blocks of blades */
  const spec_basis *basis; /* NULL: channels are turned as they come */
  const spec_polynomial *polynomial;
  const spec_pairwise *pairwise;
  const spec_additive *additive;

  int n_parts; /* kinds of blocks that share a head, each on channels of its own; 0: all blocks are those above */
  const spec_part *part; /* in the order of their channels */

  bool inverse; /* turn back: x -> R^-1 x R, and divide by the amplitude and the gain */
  /* Tokens at the front that are not turned (CLS, registers). They pass through as they are, but for a
   * change of basis (`basis`, dense->map == DENSE_SCHUR): that is every token's, or scores would compare two bases. */
  int skip_tokens;
  int64_t grid[SPEC_MAX_AXES]; /* sizes of the built-in row-major grid; grid[0] = 0: none */

  int n_operands;
  spec_operand *operand;
  int n_inputs;
  spec_input *input;
  int n_options;
  spec_option *option;
  int n_models;
  spec_model *model;
  int n_sources; /* files read: the spec, what it requires, the vocabulary (for -MD) */
  const char **source;

  expr_pool *pool;
} spec;

/* One of several kinds of blocks in a head: a description by itself, of some of the whole's axes and of the whole's
 * head, heads, operands and tokens. It has no inputs, no grid and no parts, and expressions of its own (a pool). */
struct spec_part {
  spec *of;
  int axis[SPEC_MAX_AXES]; /* of its axes: which of the whole's */
  int first, count; /* its channels: none of its blocks has others, and no other part has these */
};

/* Whether rows of q and of k of one token are encoded differently. */
static inline bool spec_has_sides(const spec *s) {
  bool differ = s->gain[0] != s->gain[1] || s->dual_axes;
  for (int i = 0; s->entries[0] && i < s->n_components * s->n_components; i++)
    differ = differ || s->entries[0][i] != s->entries[1][i];
  return differ;
}
/* The description as it is of q (0) or k (1) alone. */
static inline spec spec_of_side(const spec *s, int side) {
  spec one = *s;
  one.gain[0] = one.gain[1] = s->gain[side];
  one.entries[0] = one.entries[1] = s->entries[side];
  for (int axis = 0; axis < s->n_axes && side == 0; axis++)
    if (s->dual_axes >> axis & 1) one.angle[axis] = expr_neg(s->pool, s->angle[axis]);
  one.dual_axes = 0;
  return one;
}
/* In expressions that a kernel computes of a token: 0 of rows of q, 1 of k. It is a coordinate behind those of the
 * axes, which whoever computes them provides where spec_has_sides. */
static inline const expr *spec_side(const spec *s) { return expr_position(s->pool, s->n_axes); }
/* The gain of rows of whichever side; NULL: there is none. */
static inline const expr *spec_gain(const spec *s) {
  bool differ = s->gain[0] != s->gain[1];
  return differ ? expr_select(s->pool, spec_side(s), s->gain[1], s->gain[0]) : s->gain[0];
}
/* An entry of the matrix that the description writes, of rows of whichever side. */
static inline const expr *spec_entry(const spec *s, int i) {
  const expr *q = s->entries[0][i], *k = s->entries[1][i];
  return q == k ? q : expr_select(s->pool, spec_side(s), k, q);
}
/* The angle of rows of whichever side. */
static inline const expr *spec_angle(const spec *s, int axis) {
  const expr *angle = s->angle[axis];
  return s->dual_axes >> axis & 1 ? expr_select(s->pool, spec_side(s), angle, expr_neg(s->pool, angle)) : angle;
}

/* Consistency of the whole (channels in range, no doubles, finite tables, axes with
 * generators...). The loader catches users' mistakes with their lines; this catches
 * what it missed, as an error at spec->line. */
bool spec_validate(const spec *s);

/* The expressions of a description itself, without its parts'. Returns their number. */
enum { SPEC_MAX_EXPRESSIONS = SPEC_MAX_AXES * (1 + SPEC_MAX_BIVECTORS) + 2 * SPEC_MAX_ENTRIES * SPEC_MAX_ENTRIES + 6 };
int spec_expressions(const spec *s, const expr **out);

/* Gives the parts what is the whole's. */
void spec_share_with_parts(spec *s);

/* Whether channels are mapped before they turn, of some part at least. */
static inline bool spec_maps_channels(const spec *s) {
  bool maps = s->pre != NULL;
  for (int i = 0; i < s->n_parts; i++) maps = maps || s->part[i].of->pre;
  return maps;
}

/* Whether blocks, or a part's, round the matrix's entries and each product to the rows' type. */
static inline bool spec_rounds_products(const spec *s) {
  bool rounds = s->products == PRODUCTS_ROUNDED;
  for (int i = 0; i < s->n_parts; i++) rounds = rounds || s->part[i].of->products == PRODUCTS_ROUNDED;
  return rounds;
}

/* Whether gradients take what encode read, of some part at least: what was written does not tell what was mapped, or
 * multiplied by a matrix that may have no inverse. */
static inline bool spec_needs_input(const spec *s) {
  bool needs = s->pre || s->entries[0];
  for (int i = 0; i < s->n_parts; i++) needs = needs || spec_needs_input(s->part[i].of);
  return needs;
}

/* The factor of q . k in a call of attention that gives none. */
long double spec_scale(const spec *s);
/* Whether blocks turn by what inputs hold, so that every row has a matrix of its own. */
static inline bool spec_turns_rows(const spec *s) { return s->n_components > 0 && !s->pairwise && s->n_inputs > 0; }

/* Whether attention's pairs read an input: all inputs of scores and biases, but a polynomial's of queries. */
bool spec_input_is_of_pairs(const spec *s, int input);

/* Tokens of the built-in grid, skipped ones included; 0: there is no grid. */
int64_t spec_grid_tokens(const spec *s);
/* Numbers that an operand holds. */
int64_t spec_operand_elements(const spec_operand *operand);
/* Those that operands before this one hold; before n_operands: all. */
int64_t spec_elements_before(const spec *s, int operand);
