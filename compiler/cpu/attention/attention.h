/* cpu/attention/attention: attention of one tile of queries, as MLIR for one CPU target; see kernel/attention.h.
 *
 * Everything has the queries in the lanes: scores are [key][query], the output is [channel][query] until it
 * is written. So a key's channel and a value's channel are scalars that are spread over the lanes as they
 * are read from their own memory: nothing is packed, the softmax's maxima and sums need no reduction across lanes,
 * and what a pair function computes is computed for a register of queries at once.
 */
#ifndef PEGEN_CPU_ATTENTION_ATTENTION_H
#define PEGEN_CPU_ATTENTION_ATTENTION_H

#include "cpu/rotors.h"
#include "mlir/exp2.h"
#include "plan/attention.h"

/* attend_T_DTYPE(tile) for each number type: attend_T, which is float32 throughout, with the type's own rows. */
void emit_attention(ir *b, arena *a, const attention_plan *p, const cpu_target *target, unsigned dtypes);
void emit_attention_imports(ir *b);
const char *emit_attend_name(arena *a, const cpu_target *target, int dtype);

/* ---- shared by the files that emit it ---- */

enum { ATTENTION_MAX_VECTORS = 4 };

/* Rows of a number type, as attend_T is given them: functions. */
typedef struct attention_rows {
  ir_value read_keys, read_values; /* (from, stride in bytes, count, to): rows as float32 */
  ir_value write;                  /* (from, to): a row of float32 as a row of the output */
  ir_value copied;                 /* i64: 0 where rows of keys and values are float32 and used where they are */
} attention_rows;

typedef struct attention_emitter {
  ir *b;
  arena *memory;
  const attention_plan *p;
  const cpu_target *target;
  attention_shape shape;
  grid_shape grid;    /* where the plan is by_rows */
  MlirType lanes;     /* a register of float32 */
  ir_value tile;      /* const pegen_attention_tile * */
  attention_rows rows;
  ir_value queries;   /* [head_dim][queries]: scaled */
  ir_value scores;    /* [keys][queries] of a tile of keys */
  ir_value output;    /* [value_dim][queries] */
  ir_value maximum, sum;  /* [queries] */
  ir_value key_rows, value_rows; /* room for rows as float32: [keys][head_dim], [keys][value_dim] */
  ir_value key_places, wide_places; /* coordinates of a tile's keys: [axis][key_room], float32 and float64 */
  ir_value query_places;        /* of the queries: [axis][queries], float32 */
  ir_value bias_table, bias_at; /* by_rows: biases of a tile's runs, and where each key's begin in them; by_tiles: the
                                 * tile's biases [key][queries] */
  ir_value entry_table, shared_table;
  ir_value query_columns, key_columns; /* of a polynomial: [column][queries], [column][key_room] of a tile of keys */
  int key_room;       /* keys of a tile, rounded up to registers */
  two_float *fixed;        /* by expr id: values that are the same for all pairs of the call */
  ir_value zero;      /* constants of the function: i64 0 */
} attention_emitter;

/* A run of keys [first, first + count) whose scores are wanted. */
typedef struct key_tile {
  ir_value first, count; /* i64 */
  ir_value rows,
      stride; /* where their rows of float32 (or, in place, of the tensor) begin, and the bytes between them */
  bool paired;           /* with bias and rotation */
} key_tile;

ir_value attention_add(ir *b, ir_value x, ir_value y);
ir_value attention_mul(ir *b, ir_value x, int64_t y);
ir_value attention_multiply_add(ir *b, ir_value x, ir_value y, ir_value z);
/* Register x of row `row` of [..][queries] numbers. */
ir_value attention_at(attention_emitter *e, ir_value base, ir_value row, int vector);
ir_value attention_at_constant(attention_emitter *e, ir_value base, int row, int vector);
/* A field of the tile: a pointer, or 64 bits. */
#define ATTENTION_TILE(e, name, type) \
  ir_load((e)->b, (type), ir_offset_const((e)->b, (e)->tile, (int64_t)offsetof(pegen_attention_tile, name)), 8)

/* ---- cpu/attention/rows.c: rows of tensors, where alone the number type matters ---- */

/* Opens attend_T. */
void emit_attend_begin(attention_emitter *e);
/* A number type's functions, and attend_T_DTYPE, which calls attend_T with them. */
void emit_attend_rows(attention_emitter *e, int dtype);
/* Rows first, first + 1, ... of a tensor as float32 where they are, or copied to `room` by `read`. */
void emit_attention_rows(attention_emitter *e, ir_value base, ir_value token, ir_value first, ir_value count, int width,
                         ir_value read, ir_value room, ir_value *rows, ir_value *stride);

/* ---- cpu/attention/queries.c: queries and outputs, turned so that queries are in the lanes ---- */

/* Rows of the tile's queries, scaled; 0 in empty lanes. */
void emit_attention_queries(attention_emitter *e);
/* output / sum as rows of the tensor; 0 where a query saw nothing. */
void emit_attention_output(attention_emitter *e);

/* ---- cpu/attention/values.c: output = output decay + p v ---- */

/* look_T_DTYPE(tile): whether some key or value of the head is not finite. */
void emit_look(attention_emitter *e, int dtype);
const char *emit_look_name(arena *a, const cpu_target *target, int dtype);
void emit_attention_values(attention_emitter *e, const key_tile *t, const ir_value *decay);

/* ---- cpu/attention/pairwise.c: what a pair adds ---- */

/* Constants of a target's functions; once, before them. */
void emit_pairwise_tables(ir *b, arena *a, const attention_plan *p, const cpu_target *target);

/* bias_T(tile, places of keys, places of queries, keys, biases) of a plan by_tiles: one code for all number types, in
 * a loop, since an elementary function is long. */
void emit_pair_biases(ir *b, arena *a, const attention_plan *p, const cpu_target *target);
/* Values that do not differ from pair to pair; once, at the head of the function. */
void emit_delta_begin(attention_emitter *e);
/* Coordinates of a tile's keys: their room, once, and what stands in it, for each tile. */
void emit_key_places_begin(attention_emitter *e);
void emit_key_places(attention_emitter *e, const key_tile *t);
/* Before the scores of a tile of keys: the coordinates of its keys. */
void emit_delta_keys(attention_emitter *e, const key_tile *t);
/* bias of key `key` (counted from the tile's first) with the queries of register `vector`. */
ir_value emit_delta_bias(attention_emitter *e, ir_value key, int vector);
/* Adds the rotated part of the scores of a tile to `scores`. */
void emit_delta_rotations(attention_emitter *e, const key_tile *t);

/* A block's channels, and the queries' components there: [register][component]. */
typedef struct block_rows {
  ir_value channel[SPEC_MAX_BLADES], q[ATTENTION_MAX_VECTORS][SPEC_MAX_BLADES];
} block_rows;
void emit_block_rows(attention_emitter *e, ir_value index, block_rows *block);
/* A key's components in the block, spread over the lanes. */
void emit_key_components(attention_emitter *e, ir_value row, const block_rows *block, ir_value *k);
/* score + q . (R k); entry: lanes of the plan's distinct entries. */
ir_value emit_turned_score(attention_emitter *e, const ir_value *entry, const ir_value *q, const ir_value *k,
                           ir_value score);

/* ---- cpu/attention/grid.c: the same on the built-in grid, from tables ---- */

grid_shape grid_shape_of(const attention_plan *p, const attention_shape *s);
void emit_grid_begin(attention_emitter *e);
/* Calls tile(e, first key, count, paired) for whole runs of keys. */
void emit_grid_keys(attention_emitter *e, ir_value begin, ir_value end,
                    void (*tile)(attention_emitter *, ir_value, ir_value, bool));
void emit_grid_bias_table(attention_emitter *e, const key_tile *t);
ir_value emit_grid_bias(attention_emitter *e, ir_value key, int vector);
void emit_grid_rotations(attention_emitter *e, const key_tile *t);

/* ---- cpu/attention/columns.c: a bias that is a polynomial, as further channels of q and k ---- */

/* weigh_T_INPUT(tile) for each number type of inputs, and prepare_T. */
void emit_weigh(ir *b, arena *a, const attention_plan *p, const cpu_target *target, unsigned dtypes);
const char *emit_weigh_name(arena *a, const cpu_target *target, int input_dtype);
/* The queries' columns; once, at the head of the function. */
void emit_columns_begin(attention_emitter *e);
/* Those of a tile of keys. */
void emit_columns_keys(attention_emitter *e, const key_tile *t);
/* Adds to the scores [rows][vectors] of keys from `key` on. */
void emit_columns_products(attention_emitter *e, ir_value key, ir_value *sums);

#endif
