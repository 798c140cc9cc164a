/* gpu/body: what the bodies of all GPU entries share: parameters, owners of rows, rows, positions. */
#pragma once

#include "gpu/entries.h"
#include "gpu/staged_rows.h"

typedef struct gpu_body {
  ir *b;
  const plan *p;
  bool per_head;          /* owners are tokens' heads and their rows batches, not tokens of batches and heads */
  bool of_rows; /* and batches are apart: rows turn by inputs, which are one row for q and k */
  const program *program; /* scheduled; NULL: the body is emitted from the plan */
  const gpu_entry *entry;
  const thread_tile *tile; /* the entry's, or that of the plan's part of a head */
  const ir_value *parameter; /* i64 */
  ir_value block, grid_row, thread; /* i32 */
  row_owner owner;
  ir_value begin, end; /* i32: rows [begin, end) */
  thread_emitter exprs;
  row_thread rows;
} gpu_body;

/* An entry's function: its indices and parameters. */
typedef struct gpu_function {
  const ir_value *parameter;     /* [count] i64 */
  ir_value block, grid_row, thread; /* i32 */
} gpu_function;

/* Parameters of every entry (kernel/launch.h); those that convert have PEGEN_PTX_SCALE_COUNT more. */
int gpu_parameters(const spec *s);
/* Behind those of an entry that counts columns from an origin of the call. */
int gpu_origin_parameters(const spec *s);
/* Where columns count from: what those parameters say, or the description. */
void gpu_origin(ir *b, const spec *described, const ir_value *parameter, ir_value batch, two_float *out);
/* blocks: of ir_kernel. */
gpu_function gpu_open_function(ir *b, arena *a, const char *name, int count, int blocks, bool host);
/* Coordinates of a token: [axes]. parameter: those from PEGEN_PTX_POSITIONS on, or others in their order. */
void gpu_coordinates(ir *b, const spec *described, const ir_value *parameter, ir_value batch, ir_value token,
                     two_float *out);
/* The coordinate to the nearest float32 or its neighbour, by loads that do not wait for a branch. */
void gpu_rough_coordinates(ir *b, const spec *described, const ir_value *parameter, ir_value batch, ir_value token,
                           ir_value *out);
/* A coordinate less an origin: the sum of three float32, largest first. part[i] of two places differ exactly where the
 * places are near each other, so that their displacement is the sum of three differences, in this order. */
typedef struct gpu_place {
  ir_value part[3];
} gpu_place;
/* An origin at a token: [axes] i64, near its coordinates. i1: whether they are all finite. */
ir_value gpu_place_origin(ir *b, const spec *described, const ir_value *parameter, ir_value batch, ir_value token,
                          ir_value *origin);
/* Coordinates of a token less the origin: [axes]. */
void gpu_places(ir *b, const spec *described, const ir_value *parameter, ir_value batch, ir_value token,
                const ir_value *origin, gpu_place *out);
two_float gpu_place_value(ir *b, const gpu_place *place);
/* Coordinates in two steps, each as one float32 with an error of 2^-23 of it. First they are loaded as they lie, i32,
 * without a branch, so that nothing waits for them. Then the origin is taken off, which is given as two float32, too.
 */
typedef struct gpu_raw_place {
  ir_value low, high;
} gpu_raw_place;
void gpu_raw_places(ir *b, const spec *described, const ir_value *parameter, ir_value batch, ir_value token,
                    gpu_raw_place *out);
void gpu_narrow_places(ir *b, const spec *described, const ir_value *parameter, ir_value token,
                       const gpu_raw_place *raw, const ir_value *origin, const two_float *narrow_origin, ir_value *out);
two_float gpu_narrow_origin(ir *b, ir_value origin);

/* Opens the entry's function. rows.exprs is the caller's to set, to where the body's exprs then lie. */
gpu_body gpu_open(ir *b, arena *a, const plan *p, bool per_head, const gpu_entry *entry, unsigned native, bool host);
/* The body of a head's next part, number `index`, in the same function. rows.exprs is the caller's to set. */
gpu_body gpu_of_part(const gpu_body *last, int index, const plan *p);
/* The parameters of rows, with what encode wrote or read in their place; own: from PEGEN_PTX_KEPT_Q on. */
const ir_value *gpu_kept_parameters(const gpu_body *t, const ir_value *own);
/* Which of a row's ops are those of the body's part. */
void gpu_set_row_ops(gpu_body *t, const program_op *ops);
/* Walks what an owner does, in the program's order: loops over the spaces of owners are threads. matrix: after the
 * evals of a token, with the last of its evals and matrices. rows: with the ops of a row. */
typedef struct gpu_owner_walk {
  void (*matrix)(void *context, const program_op *op);
  void (*rows)(void *context, const program_op *ops);
  void *context;
} gpu_owner_walk;
void gpu_walk_owner(const gpu_body *t, const gpu_owner_walk *walk, const program_op *list);
/* The ops of a row, inside of loops. */
const program_op *gpu_row_ops(const program_op *loop);
/* A token's matrices, from operands that are loaded and its coordinates. */
void gpu_make_coefficients(gpu_body *t);
/* The loop over a part of the program's tokens; NULL: there is none. */
const program_op *gpu_tokens(const program *p, program_part part);
/* i1: the owner's token is encoded; null: all are. */
ir_value gpu_is_encoded(gpu_body *t);
/* Heads whose owners are apart (i32): those of the kernel, or of the call where rows turn by inputs; 1: they share. */
ir_value gpu_heads(gpu_body *t);
/* Columns: tokens of all batches, or of all heads where rotors differ by head (i32). */
ir_value gpu_owners(gpu_body *t);
/* A stage_owner of the body. */
row_owner gpu_owner_of(void *body, ir_value index);
/* Sets the rows of the thread's row of the grid. */
void gpu_range(gpu_body *t);
/* The thread's unit and owner, for expressions and positions. */
void gpu_set_owner(gpu_body *t, ir_value unit, ir_value owner);
/* Loads the owner's coordinates, and finds its rows of inputs. */
void gpu_load_positions(gpu_body *t);
/* A loop over the rows, `flight` at a time; first: the number of the first. */
ir_loop gpu_begin_rows(gpu_body *t, ir_value *first);

/* A table of a row's channels that are of no block; their number, 0: there is none. */
int gpu_passing_table(ir *b, arena *a, const program_blocks *blocks, int head_dim, const char *name);
/* Where raw matrices begin, as expressions: made before the emitter, which has room for the nodes that there are. */
void gpu_generators(const program *of, const program_skew *skew, const expr **generator);
