/* cpu/encode_emitter: where the loops of cpu/encode.c stand, and what cpu/encode_row.c emits of one row there. */
#pragma once

#include "cpu/gain.h"
#include "cpu/plain.h"
#include "cpu/rows.h"
#include "mlir/arith.h"
#include "program/program.h"

#include "kernel/loop.h"

#include <stddef.h>

enum { CACHE_LINE = 64, NORM_ROWS = 16 };

/* From one index to another. */
typedef struct run {
  ir_value begin, end;
} run;

/* How a tensor's rows are written; nothing of functions that know one type. */
typedef struct conversion {
  ir_value is_other, gain; /* i1: the function's other type; float32 */
} conversion;

/* How a tensor's rows are normalised; nothing of functions that do not normalise. What each is multiplied by is found
 * some rows ahead, where that is known to be a few: a root and a quotient are long waited for. */
typedef struct normalisation {
  ir_value is_wanted, weights, epsilon; /* i1; pointer; float32 */
  ir_value factor;                      /* pointer to the row's; null: it is found with the row */
  bool is_certain;                      /* where it is wanted */
} normalisation;

/* Where row 0 of a token lies in a tensor, and the bytes from head to head. in_place: i1. */
typedef struct token_rows {
  ir_value in, out, in_step, out_step, in_place;
  ir_value kept, kept_step; /* where gradients take it: what encode wrote or read */
  ir_value first, last; /* heads of the group, where heads share their rotors */
  ir_value has_slot; /* i1: rows are written; null: they always are */
  conversion kind;
  normalisation norm;
} token_rows;

typedef struct encode_emitter {
  ir *b;
  arena *memory;
  const plan *p;                    /* of the first part, whose like the others are but for their blocks */
  const row_code *row;
  const program *program;
  const cpu_target *target;
  row_emitter part[SPEC_MAX_PARTS]; /* of the row's */
  ir_value loop;                    /* const pegen_loop * */
  prefetch_ahead ahead;
  ir_value positions;               /* scratch of a token: float64 [emit_place_numbers] */
  ir_value coefficients; /* scratch of a tile: coefficient vectors [tile][heads, where they differ][slots] */
  int64_t slot_bytes; /* of one token, or head of it */
  int most; /* of them that the scratch has room for */
  ir_value q_heads, prepared;
  /* what loops walk, and in what steps */
  run tokens, heads;
  ir_value tile_tokens, group_rows, all_rows, groups, run_heads, token_bytes, has_k;
  /* where the open loops are */
  run tile, group, run; /* of tokens; of rows, q's heads counted first and k's after them; of heads */
  ir_value batch, token, head; /* head: where rotors differ, else null */
  bool own_rows; /* each row has rotors of its own: */
  ir_value row_tensor, row_head; /* the same there */
  ir_value of_token; /* the token's part of the scratch, where heads differ */
  token_rows tensor[2]; /* the first: of the tensor at hand, where tensors are walked by a loop */
  int n_tensors;
  ir_value row_in, row_out, row_kept, in_place; /* pointers; i1 */
  conversion kind;
  bool has_slots; /* rows may go to slots, or nowhere: pegen_rows.slot */
  bool normalises, is_plain; /* is_plain: rows at hand are known to be encoded as they are */
  normalisation norm;
  ir_value factors; /* scratch of a tensor's rows, float32 [NORM_ROWS]; of heads that differ [2][most] */
  bool keeps; /* rows of what encode wrote or read stand beside the others */
  const gradient_code *gradient; /* NULL: rows alone */
  gradient_values gained; /* of the call */
  int n_held;
  ir_value *held; /* [n_held] sums of the torques of the rows at hand that are in registers; NULL: in memory */
} encode_emitter;

static inline ir_value field(encode_emitter *e, ir_value base, size_t offset, MlirType type) {
  return ir_load(e->b, type, ir_offset_const(e->b, base, (int64_t)offset), 8);
}

#define LOOP_I64(e, name) field((e), (e)->loop, offsetof(pegen_loop, name), (e)->b->i64)
#define LOOP_PTR(e, name) field((e), (e)->loop, offsetof(pegen_loop, name), (e)->b->ptr)
#define ROWS_I64(e, rows, name) field((e), (rows), offsetof(pegen_rows, name), (e)->b->i64)
#define KEPT_I64(e, kept, name) field((e), (kept), offsetof(pegen_input_rows, name), (e)->b->i64)

/* The ops of a row, normalised first or not, as the call says. */
void encode_row(encode_emitter *e, const program_op *list);
/* What rows of heads [first, last) of a tensor are multiplied by when they are normalised, to `factors`. */
void encode_find_factors(encode_emitter *e, const token_rows *t, ir_value first, ir_value last, ir_value factors);
/* Whether the op's matrices are the part's. */
bool encode_is_of_part(const encode_emitter *e, const program_op *op, int part);
