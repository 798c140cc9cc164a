/* cpu/attention/tile: what the stages of a tile of queries share: the function they are emitted into, its shape, and
 * where its numbers stand; see cpu/attention/attention.h for the order of the stages.
 */
#pragma once

#include "cpu/names.h"
#include "mlir/arith.h"
#include "plan/attention.h"

#include "kernel/attention.h"

#include <stddef.h>

enum {
  CACHE_LINE = 64,
  ATTENTION_MAX_VECTORS = 4,
  ATTENTION_MAX_ROWS = 8,
  ATTENTION_MAX_SUMS = ATTENTION_MAX_ROWS * ATTENTION_MAX_VECTORS
};

static const double LN_2 = 0.69314718055994530942;

typedef struct attention_emitter {
  ir *b;
  arena *memory;
  const attention_plan *p;
  const cpu_target *target;
  attention_shape shape;
  MlirType lanes;   /* a register of float32 */
  ir_value tile;    /* const pegen_attention_tile * */
  ir_value zero;    /* constants of the function: i64 0 */
  ir_value queries; /* [head_dim][queries] of a head, or of each: scaled */
  ir_value heads;   /* i64, of the tile; null where it has one */
  ir_value head;    /* i64: whose rows are read; null: the only one */
  bool calls_squares; /* squares are turned by the module's function (cpu/attention/queries), not in place */
  bool is_tangent;  /* the function is that of tangents, not of gradients */
  bool dots;        /* rows are bfloat16, two of which a product takes (cpu/attention/dots); else float32 */
  ir_value scale;   /* of dot products: what scores are multiplied by, lanes */
  ir_value leaves;  /* numbers that the driver gathered for the head; null: the tile's */
} attention_emitter;

attention_emitter attention_emitter_create(ir *b, arena *a, const attention_plan *p, const cpu_target *target);

/* A run of keys [first, first + count) whose scores are wanted. */
typedef struct key_tile {
  ir_value first, count; /* i64 */
  ir_value rows,
      stride; /* where their rows of float32 (or, in place, of the tensor) begin, and the bytes between them */
  ir_value scores; /* [keys][queries] */
  ir_value row_table; /* of some heads: where each one's rows begin; their scores follow each other */
  bool paired;     /* with bias and rotation */
  ir_value whole_begin, whole_end; /* i64: keys that are seen whole (cpu/attention/seen); null: none are */
  ir_value run_begin, run_end; /* i64: of the run of keys that the tile is of */
  ir_value lone; /* [keys / rows] i64 that scores write (cpu/attention/seen); null: nobody asks */
  ir_value ahead; /* of gradients: state of rows that are asked for in between; null: nothing is */
} key_tile;

/* A register of float32 in the tile's own memory. */
static inline ir_value load(const attention_emitter *e, ir_value at) { return ir_load(e->b, e->lanes, at, 4); }
static inline void store(const attention_emitter *e, ir_value v, ir_value at) { ir_store(e->b, v, at, 4, false); }
#define store(e, v, at) ORDERED2(v, at, store(e, x_, y_))
void emit_zeros(const attention_emitter *e, ir_value at, int64_t numbers); /* whole registers of them */
/* Adds lanes of float64, one after the other, to one number. */
void emit_add_lanes(const attention_emitter *e, ir_value lanes, ir_value to);
ir_value attention_mul(ir *b, ir_value x, int64_t y);
/* The address of item `index` of those that follow each other from `at` on, each of so many bytes. */
#define nth(b, at, index, bytes) ir_offset((b), (at), attention_mul((b), (index), (bytes)))
/* Groups of n that hold `count`: the last one may be less. */
ir_value attention_groups(ir *b, ir_value count, int64_t n);
ir_value attention_multiply_add(ir *b, ir_value x, ir_value y, ir_value z);
/* Register x of row `row` of [..][queries] numbers. */
ir_value attention_at(const attention_emitter *e, ir_value base, ir_value row, int vector);
ir_value attention_at_constant(const attention_emitter *e, ir_value base, int row, int vector);
/* ---- the heads of a tile, one after the other; where there is one, no loop ---- */

typedef struct head_loop {
  bool is_loop;
  ir_loop loop;
} head_loop;

head_loop attention_heads_begin(const attention_emitter *e);
void attention_heads_end(const attention_emitter *e, head_loop heads);
/* Room of as many bytes for each, and where the loop's head has it. */
ir_value attention_heads_room(const attention_emitter *e, int64_t bytes);
ir_value attention_of_head(const attention_emitter *e, const head_loop *heads, ir_value room, int64_t bytes);
/* The emitter of the loop's head, and its keys. */
attention_emitter attention_emitter_of_head(const attention_emitter *e, const head_loop *heads);
key_tile key_tile_of_head(const attention_emitter *e, const head_loop *heads, const key_tile *t);

/* A pointer of the tile to the emitter's head. */
#define ATTENTION_HEAD(e, name) attention_head_pointer((e), (int64_t)offsetof(pegen_attention_tile, name))
ir_value attention_head_pointer(const attention_emitter *e, int64_t offset);
/* A field of the tile: a pointer, or 64 bits. */
#define ATTENTION_TILE(e, name, type) \
  ir_load((e)->b, (type), ir_offset_const((e)->b, (e)->tile, (int64_t)offsetof(pegen_attention_tile, name)), 8)
/* A field of the gradient's tile: a pointer, or 64 bits. */
#define GRADIENT_TILE(e, name, type) \
  ir_load((e)->b, (type), ir_offset_const((e)->b, (e)->tile, (int64_t)offsetof(pegen_attention_gradient_tile, name)), 8)
/* A pointer of the tangents' tile. */
#define TANGENT_TILE(e, name) \
  ir_load((e)->b, (e)->b->ptr, \
          ir_offset_const((e)->b, (e)->tile, (int64_t)offsetof(pegen_attention_tangent_tile, name)), 8)
/* Whether a pointer is not 0: i1. */
ir_value attention_is_given(const attention_emitter *e, ir_value pointer);

/* ---- rows that are wanted soon, asked for while there is other work ---- */

/* Their state, in memory, i64 [2]: the first row that nobody asked for, and how many each call asks for. emit_ahead
 * will run so many times for each group of `keys` whose scores are summed together. */
ir_value emit_ahead_begin(const attention_emitter *e, ir_value keys, int calls);
/* Asks for the next few, by a function of the module, once for each target. */
void emit_ahead_function(attention_emitter of);
void emit_ahead(const attention_emitter *e, ir_value state);
