/* loop.h: the border between the driver (see driver.h; compiled once and made part of
 * every kernel object) and the code that the compiler emits through MLIR.
 *
 * The driver checks arguments, picks the processor's code, and cuts the work
 * into runs of tokens; the emitted functions do all the arithmetic. Both sides
 * read this one header: the emitters take the offsets of these structs with
 * offsetof, so the layout must be the same on every 64-bit target (only
 * int64_t, double and pointers).
 */
#pragma once

#include "entries.h"
#include "number_types.h"
#include "pegen/pegen.h"

/* One tensor pair that rows are read from and written to; strides in bytes. */
typedef struct pegen_rows {
  const char *in;
  char *out;
  int64_t heads;
  int64_t in_batch, in_token, in_head;
  int64_t out_batch, out_token, out_head;
  int64_t converts; /* 1: written as the other type of an encode function that has two */
  double gain;      /* of rows that are converted: what they are multiplied by before they are rounded, a float32 */
  const float *norm; /* weights [head_dim] of the RMS norm of rows before they are encoded; NULL: none */
  double epsilon;    /* of the norm: what is added to the mean of the squares, a float32 */
  /* Where rows go to slots: int64 of each token, how many bytes further than `out` and its strides say its rows are
   * written, or PEGEN_NO_ROW: nowhere. It begins at batch 0 and token 0, and has strides in bytes. Where rows do not go
   * to slots, one 0 serves all. */
  const char *slot;
  int64_t slot_batch, slot_token;
} pegen_rows;

#define PEGEN_NO_ROW INT64_MIN

enum { PEGEN_MAX_ROTOR_AXES = 8 };

/* Positions of tokens, float64 [axes], have pegen_loop.side behind their coordinates in kernels whose q and k differ,
 * and behind these, where rows turn by inputs, the address of the row of each, of float32, in as many bytes. */
enum { PEGEN_MAX_PLACE = PEGEN_MAX_ROTOR_AXES + 1 };

/* A token's coefficient vectors: of its position, float64 [axes], and what is prepared of its head; or of its row of a
 * table. Gradients of rows go through the code of rows, as a rule, by the coefficients of transposed matrices. */
typedef void pegen_rotor_function(const double *position, const char *prepared, char *coefficients);
typedef void pegen_unfold_function(const char *values, char *coefficients);

/* Rows of an input, or of a tensor that is read alone; strides in bytes. */
typedef struct pegen_input_rows {
  const char *data; /* of token 0 of batch 0 (and head 0, or the first of the call) */
  int64_t batch, token, head;
} pegen_input_rows;

/* Work of one call of an emitted encode function: the rows of tokens [token_begin,
 * token_end) of batches [batch_begin, batch_end), for q and k. All batches of one
 * call share their positions; the rotor of a token is built once for all of them, and for
 * all heads too unless rotors differ from head to head: then the call covers heads
 * [head_begin, head_end), whose prepared values are given; otherwise all heads of every rows[]. */
typedef struct pegen_loop {
  int64_t token_begin, token_end;
  int64_t batch_begin, batch_end;
  int64_t head_begin, head_end;
  pegen_rows rows[2];      /* q, k; the second has 0 heads where only one is given */
  int64_t tile_tokens;     /* tokens whose rotors are built before their rows are turned, at least 1 */
  int64_t group_rows;      /* rows of a token (heads of q and k) that are walked together over a tile, at least 1; */
                           /* where each row has its own rotor, heads of a tensor: 1, or tiles are of one token */
  int64_t prefetch;        /* bytes ahead of the row that is read, into the nearest cache; 0: none */
  int64_t prefetch_second; /* the same into the second-level cache */
  int64_t prefetch_built;  /* 1: while a head's rotors are built, its rows' first halves, into that cache; 0: none */
  const char *positions;   /* of token 0 of batch_begin; NULL where a grid is built in */
  int64_t position_type;   /* pegen_position_type */
  int64_t position_token;  /* stride in bytes */
  int64_t position_axis;   /* stride in bytes */
  const char *prepared;    /* of head_begin: what `prepare` wrote; NULL for kernels without operands */
  int64_t prepared_stride; /* bytes from head to head */
  const char *table;       /* values of token 0 and head 0; NULL: rotors are built from positions */
  int64_t table_token, table_head; /* strides in bytes */
  pegen_rotor_function *rotor;
  pegen_rotor_function *rotor_own; /* of what differs from head to head, where not all does; else NULL */
  pegen_unfold_function *unfold;
  double side; /* of kernels whose q and k differ, where rows[0] is one of them: 0 of q, 1 of k */
  const struct pegen_input_rows *inputs; /* [kernel->n_inputs] of kernels that turn each row by its own */
  pegen_input_rows kept[2]; /* of q, k: what encode wrote or read, where rows are gradients that ask for it */
  const struct pegen_origin *origin; /* of columns: what positions count from, */
  const struct pegen_bounds *sequences; /* of rows' tokens, */
  int64_t origin_batch; /* and whose origin it is where there are no sequences */
  int64_t skipped; /* tokens at the front of a sequence that pass through */
} pegen_loop;

/* Rows of head_dim channels that are not encoded: v, and of tokens that are skipped (append.c). */
typedef struct pegen_plain_rows {
  const char *in;
  char *out; /* of rows that are not converted perhaps where in is */
  int64_t rows, in_step, out_step; /* steps in bytes */
  double gain;                     /* of rows that are converted: as of pegen_rows, */
  const float *norm;               /* as are these; where tokens are skipped */
  double epsilon;
} pegen_plain_rows;

typedef void pegen_plain_function(const pegen_plain_rows *rows);

typedef enum pegen_position_type {
  PEGEN_POSITION_F32,
  PEGEN_POSITION_F64,
  PEGEN_POSITION_I32,
  PEGEN_POSITION_I64
} pegen_position_type;

/* One leaf of the block program that the driver gathers: elements offsets[head][block] of an
 * operand, or, where operand is -1, constants values[head][block] that differ from head to head. The
 * leaves of a head are gathered into doubles [leaf][lanes], lanes past n_blocks zeroed, so
 * that `prepare` reads whole vectors. */
typedef struct pegen_leaf {
  int32_t operand;
  int32_t n_heads;        /* rows stored: 1 where all heads read the same elements */
  const int32_t *offsets; /* [n_heads][n_blocks]; NULL where operand is -1. In scatters -1 stands for a missing block */
  const double *values; /* [n_heads][n_blocks] where operand is -1 */
} pegen_leaf;

typedef void pegen_encode_function(const pegen_loop *loop);

/* From a head's gathered leaves to what its tokens need of them (all that depends on operands
 * alone, say unit axes); prepared is 64-byte aligned, its layout the emitted code's own affair. */
typedef void pegen_prepare_function(const double *leaves, char *prepared);

/* What a table holds of a token (and head): position float64 [axes], prepared of its head. */
typedef void pegen_values_function(const double *position, const char *prepared, char *values);

/* What rows in bfloat16 have a function of when the processor rounds: stores through the caches, past them, and through
 * them of rows that are normalised. */
enum { PEGEN_ROUNDING_CACHED, PEGEN_ROUNDING_STREAMING, PEGEN_ROUNDING_NORMALISED, PEGEN_ROUNDING_KINDS };

/* The emitted functions of rows. */
typedef struct pegen_row_code {
  pegen_encode_function
      *encode[PEGEN_ROW_TYPES][2]; /* [PEGEN_NUMBER_][cached stores, streaming stores]; NULL: not compiled in */
  pegen_encode_function *rounding[PEGEN_ROUNDING_KINDS]; /* for tuning->rounds; NULL: none of its own */
} pegen_row_code;

/* The emitted functions of one target. */
typedef struct pegen_target_code {
  pegen_prepare_function *prepare; /* NULL for kernels without operands */
  pegen_row_code rows;
  pegen_row_code of_tokens; /* of kernels whose rows turn by inputs, for calls in which heads share these */
  pegen_values_function *values; /* NULL: nothing depends on the token */
  /* [PEGEN_ROW_TYPES][PEGEN_OUT_TYPES - PEGEN_ROW_TYPES]: rows of the first type, written as it or, where they convert,
   * as the second; NULL: none are compiled in. */
  pegen_encode_function *const *converting;
  pegen_rotor_function *rotor;
  pegen_rotor_function *rotor_own; /* NULL: all heads are alike, or nothing is shared by them */
  pegen_unfold_function *unfold; /* NULL: nothing depends on the token */
  /* Functions for rows that are not encoded: norm normalises them, in kernels that skip tokens, and convert converts
   * them, by types as `converting`. */
  pegen_plain_function *norm[PEGEN_ROW_TYPES];
  pegen_plain_function *const *convert;
} pegen_target_code;

typedef enum pegen_level {
  PEGEN_LEVEL_BASELINE,
  PEGEN_LEVEL_X86_64_V2,
  PEGEN_LEVEL_X86_64_V3,
  PEGEN_LEVEL_X86_64_V4
} pegen_level;

/* Whose heads differ, so that there must be kernel->heads of them: nobody's, those of q and k, those of q. PTX alone
 * has rows: each row has a rotor of its own, whatever the number of heads; kernel->heads where that is fixed. */
enum { PEGEN_PER_HEAD_NONE, PEGEN_PER_HEAD_ALL, PEGEN_PER_HEAD_QUERIES, PEGEN_PER_HEAD_ROWS };

/* What the driver needs to know of the kernel it is linked into, whatever the kernel's form. Constant
 * data, emitted by the compiler as NAME's private descriptor. */
typedef struct pegen_driver {
  const pegen_kernel *kernel;
  int64_t per_head; /* PEGEN_PER_HEAD_ */
  int64_t has_sides; /* 1: rows of q and k of one token are encoded differently */
  int64_t turns_rows; /* 1: inputs have a row for each of q and for each of k, of float32 */
  int64_t n_targets;
  const int64_t *levels; /* [n_targets] pegen_level that the processor must have, best first */
  int32_t *chosen; /* the dispatcher's choice: 0 none yet, else what pegen_choice (driver.h) makes; atomic */
  const void *form; /* what the form's own driver files need: pegen_blades for encode.c */
} pegen_driver;

/* The form of closed rotors on blades (compiler/forms/blades.c). */
typedef struct pegen_blades {
  int64_t n_blocks, lanes; /* lanes: n_blocks rounded up as `prepare` reads them */
  int64_t n_leaves;
  const pegen_leaf *leaves;
  int64_t prepared_bytes; /* of one head, the largest of all targets, a multiple of 64 */
  const pegen_target_code *targets; /* [n_targets] */
  int64_t values_bytes; /* of a table's row, a multiple of 64 */
  /* Gradients of rows: encode functions that turn by the transposed matrices, of the same prepared values and tables;
   * NULL where there are none, or where rows' gradients pass as they are (is_sum). */
  const pegen_target_code *backward; /* [n_targets] */
  const struct pegen_gradient *gradient; /* of operands and positions; NULL: there is none */
  int64_t is_sum; /* 1: what is computed of a token is added to rows */
} pegen_blades;

/* ---- the form that widens q and k by the columns of a polynomial bias (compiler/forms/polynomial.c) ---- */

enum { PEGEN_MAX_INPUTS = 8 };

/* Work of one call: as a pegen_loop, in which rows[0] is q and rows[1] k, either with 0 heads; all heads of each are
 * walked, from where `in` and `out` point. prepared is of the first head of q, prepared_stride 0 where heads share
 * it. */
typedef struct pegen_widen_loop {
  pegen_loop loop; /* first: pegen_driver_position reads it */
  pegen_input_rows input[PEGEN_MAX_INPUTS];
} pegen_widen_loop;

/* ---- gradients of operands and positions, of the forms of rotors and sums (compiler/plan/gradient.h) ---- */

/* Work of one call: as a pegen_loop, whose rows are gradients, with what encode wrote or read beside them. */
typedef struct pegen_gradient_loop {
  pegen_loop loop; /* first: pegen_driver_position reads it */
  int64_t from_input; /* 1: what encode read */
  char *sums; /* of head_begin: double [n_sums][lanes], added to; NULL: no operand's gradient is wanted */
  int64_t sums_stride; /* bytes from head to head */
  int64_t chunk_tokens, chunk_bytes; /* so many tokens on, counted from 0, sums are those of the next chunk */
  const char *prepared; /* of head_begin: what `prepare` wrote */
  int64_t prepared_stride;
  char *positions; /* of token 0 of batch_begin: added to, or written; NULL: not wanted */
  int64_t position_is_f64, position_token, position_axis, position_adds;
  char *torques; /* of token 0 of batch_begin and of head_begin: double [n_torques][lanes], to which a token's torques
                    are added, and nothing is made of them; NULL: no such table */
  int64_t torque_token, torque_head; /* strides in bytes */
  /* Gradients of inputs, [kernel->n_inputs], in kernels that turn each row by its own inputs: float32 rows that are
   * added to; data 0: not wanted. NULL: none are. */
  const pegen_input_rows *input_gains;
  const pegen_kernel *kernel;
} pegen_gradient_loop;

typedef void pegen_gradient_function(const pegen_gradient_loop *loop);

enum { PEGEN_WEIGHT_QUERIES = 64 };
/* So many of them, from the first on, are summed in float32 before they are added to sums. */
enum { PEGEN_WEIGHT_FEW = 8 };

/* Gradients of the weights that a polynomial bias has for some queries of a head, and the gradients that they give to
 * inputs and operands. */
typedef struct pegen_weight_gains {
  int64_t count; /* queries, at most PEGEN_WEIGHT_QUERIES */
  const char *input[PEGEN_MAX_INPUTS]; /* of the first of them; */
  int64_t input_step[PEGEN_MAX_INPUTS]; /* bytes from one to the next */
  char *gain[PEGEN_MAX_INPUTS]; /* the same of what inputs gain, in the inputs' type; NULL: not wanted */
  int64_t gain_step[PEGEN_MAX_INPUTS];
  int64_t adds; /* 1: to what is there; else it is written */
  const float *weights; /* [weight][PEGEN_WEIGHT_QUERIES]: what they gain */
  const char *prepared; /* of the head: what pegen_gradient_code.prepare wrote */
  double *sums; /* of the head: [n_sums][lanes], added to; NULL: no operand's is wanted */
} pegen_weight_gains;

typedef void pegen_weight_gains_function(const pegen_weight_gains *work);

/* From a head's gathered leaves and the sums of all its tokens to what each scatter's elements gain: double
 * [n_scatters][lanes]. */
typedef void pegen_scatter_function(const double *leaves, const double *sums, double *gained);

/* What a token (and head) gives of its torques, double [n_torques][lanes]: adds to sums [n_sums][lanes] (an address; 0:
 * not wanted), and to gained, where positions is not 0, what its coordinates do. */
typedef void pegen_torque_function(const double *position, const char *prepared, const double *torques, int64_t sums,
                                   int64_t positions, double *gained);

/* The emitted functions of one target. */
typedef struct pegen_gradient_code {
  pegen_prepare_function *prepare; /* NULL: nothing is gathered */
  pegen_gradient_function *encode[PEGEN_ROW_TYPES]; /* [PEGEN_NUMBER_]; NULL: not compiled in */
  pegen_scatter_function *scatter; /* NULL: operands have no gradient */
  pegen_weight_gains_function *unweigh[PEGEN_ROW_TYPES]; /* of a polynomial's weights, by the inputs' type */
  pegen_torque_function *gain[2]; /* of torques in the frame of what encode wrote, and read */
} pegen_gradient_code;

typedef struct pegen_gradient {
  int64_t n_leaves, prepared_bytes; /* of `prepare`, as in pegen_blades */
  const pegen_leaf *leaves;
  int64_t n_sums; /* 0: operands have no gradient */
  int64_t n_scatter_leaves; /* that `scatter` reads */
  const pegen_leaf *scatter_leaves;
  int64_t n_scatters;
  const pegen_leaf *scatters; /* where the operands' elements are that gain */
  int64_t has_positions; /* 1: positions have a gradient */
  int64_t n_torques; /* of a block */
  const pegen_gradient_code *targets; /* [n_targets] */
} pegen_gradient;

/* Rows of gradients of widened q and k, for tokens token_begin to token_end, at most PEGEN_WEIGHT_QUERIES, of one
 * batch. `in` of loop.rows is of token 0 of that batch; rows[0] is one head of q, rows[1] all of k; loop.prepared is of
 * the head. */
typedef struct pegen_column_gains {
  pegen_loop loop; /* first: pegen_driver_position reads it */
  const char *input[PEGEN_MAX_INPUTS]; /* of token 0 of that batch and head */
  int64_t input_step[PEGEN_MAX_INPUTS]; /* bytes from token to token */
  float *weights; /* [weight][PEGEN_WEIGHT_QUERIES]: what they gain, from token_begin on */
  double *places; /* [token - token_begin][axes]: what positions gain, added to */
} pegen_column_gains;

typedef void pegen_column_gains_function(const pegen_column_gains *gains);

/* The emitted functions of one target. NULL: not compiled in. */
typedef struct pegen_widen_gradient_code {
  pegen_column_gains_function *weights[PEGEN_ROW_TYPES]; /* of queries: what their weights gain of their columns */
  pegen_column_gains_function *queries[PEGEN_ROW_TYPES][2]; /* what their positions do; inputs of that type, float32 */
  pegen_column_gains_function *keys[PEGEN_ROW_TYPES]; /* what positions of keys gain */
} pegen_widen_gradient_code;

typedef void pegen_widen_function(const pegen_widen_loop *loop);

/* The emitted functions of one target. */
typedef struct pegen_widen_code {
  pegen_prepare_function *prepare; /* NULL: nothing to prepare */
  /* [PEGEN_NUMBER_][inputs of that type, of float32][cached stores, streaming stores]; NULL: not compiled in */
  pegen_widen_function *widen[PEGEN_ROW_TYPES][2][2];
} pegen_widen_code;

typedef struct pegen_widen {
  int64_t n_blocks, lanes; /* terms of the bias; rounded up as `prepare` reads them */
  int64_t n_leaves;
  const pegen_leaf *leaves;
  int64_t prepared_bytes; /* of one head, a multiple of 64 */
  const pegen_widen_code *targets; /* [n_targets] */
  int64_t n_weights;
  const double *origin; /* [axes] that columns count from where a call has none */
  const pegen_widen_gradient_code *backward; /* [n_targets]; NULL: there are no gradients */
  const pegen_gradient *gradient; /* of inputs and operands; NULL: there are none of these */
} pegen_widen;

/* Prepared values live on the stack of the call, as many heads at a time as fit in this
 * (at least one); so no kernel of this kind needs a workspace. */
enum { PEGEN_STACK_PREPARED = 64 * 1024 };

/* Implemented by the driver. The emitted NAME_ entries that compute call pegen_enter with the form's own function;
 * those of sizes call theirs. */
typedef int pegen_driver_entry(const pegen_driver *driver, const pegen_args *args, int part, int parts);
int pegen_enter(const pegen_driver *driver, const pegen_args *args, int part, int parts, pegen_driver_entry *entry);
typedef size_t pegen_driver_size(const pegen_driver *driver, const pegen_args *args);
/* pegen_driver_NAME and pegen_dense_NAME of the entries that there are. */
#define PEGEN_DRIVER_CALL pegen_driver_entry
#define PEGEN_DRIVER_FINISH pegen_driver_entry
#define PEGEN_DRIVER_SIZE pegen_driver_size
#define X(name, role, of, option, text) PEGEN_DRIVER_##role pegen_driver_##name, pegen_dense_##name;
PEGEN_ENTRIES(X)
#undef X
int pegen_driver_widen(const pegen_driver *driver, const pegen_args *args, int part, int parts);
int pegen_driver_widen_backward(const pegen_driver *driver, const pegen_args *args, int part, int parts);
int pegen_driver_widen_backward_finish(const pegen_driver *driver, const pegen_args *args, int part, int parts);
size_t pegen_driver_widen_backward_workspace(const pegen_driver *driver, const pegen_args *args);
/* Implemented by the driver, called by the emitted gradient functions: what a token's coordinates gain. */
void pegen_driver_position_gradient(const pegen_gradient_loop *loop, int64_t token, int64_t axes, const double *gained);
/* Implemented by the driver, called by the emitted gradient functions: adds to the gradients of a token's and head's
 * inputs. `gained` has the elements of one input after the other. */
void pegen_driver_input_gradient(const pegen_gradient_loop *loop, int64_t batch, int64_t token, int64_t head,
                                 const double *gained);
/* Implemented by the driver, called by the emitted encode functions: coordinates of a token, as doubles. */
void pegen_driver_position(const pegen_loop *loop, int64_t token, int64_t axes, double *out);
/* Counts a token's coordinates from the loop's origin. */
void pegen_driver_centre(const pegen_loop *loop, int64_t token, int64_t axes, double *place);
