/* cpu/attention/few: attention of few queries against many keys, as MLIR for one CPU target; see
 * kernel/attention_few.h.
 *
 * Keys and values have their channels in the lanes and are read where they lie, in their own type, once for all rows of
 * queries: a score is a product of registers whose lanes are summed at its end, of many keys at once; a value's
 * register times a weight that is spread. Between the two, scores have keys in the lanes. A file is a stage: channels
 * (few_rows), scores, soften, values, and what stands at both ends (few).
 */
#pragma once

#include "cpu/attention/tile.h"
#include "cpu/product.h"

#include "kernel/attention_few.h"

/* Keys of a tile of float32, half of those of 16 bits; 0: there is no such code, for pairs are widened, or stand on a
 * grid, or rows are shorter than four channels, or the target has sixteen registers of four lanes, by which little is
 * gained. */
int attention_few_keys(const attention_plan *p, const cpu_target *target);
/* So many queries of a head are no longer few: their own tile is faster. */
int attention_few_queries(const attention_plan *p, const cpu_target *target);

/* Rows that share what is read of a key, at most: their sums are to stay in registers. */
int attention_few_block(const cpu_target *target);

/* All functions of a target; nothing where it has none. */
void emit_attention_few(ir *b, arena *a, const attention_plan *p, const cpu_target *target, unsigned dtypes);

/* few_WHAT_T, few_WHAT_T_ROWS; 0 rows: any number. */
const char *emit_few_name(arena *a, const cpu_target *target, const char *what, int rows);

/* ---- rows of channels in registers, as a number type has them in memory ---- */

enum { FEW_MAX_TAIL = 2, FEW_MAX_LOADS = 8, FEW_MAX_VALUES = 48 };

/* How a row is cut: pairs of whole registers of channels follow each other (mlir/number says in which order they have
 * their channels: a score does not ask, and what is stored goes back), and behind them stand registers of what is left,
 * of which the last may begin inside what was counted before: its first lanes are then of channels that others have,
 * too. */
typedef struct few_row {
  unsigned dtypes; /* that it may have, as bits */
  ir_value type;   /* i64: which of them it has */
  int width, lanes;
  int pairs, tail; /* pairs of registers; registers behind them */
  int tail_channel[FEW_MAX_TAIL], tail_counted[FEW_MAX_TAIL]; /* where one begins; its lanes that no other has */
} few_row;

/* A register of a row in the tensor's own type, or a pair of them: from `channel` on, and `index` pairs further. Lines
 * of a cache that stand so far behind `ahead` are asked for; null: none. */
typedef struct few_place {
  ir_value row;
  int64_t channel;
  ir_value index; /* null: none */
  ir_value ahead;
  bool is_pair;
} few_place;

/* In the function that is open. */
few_row few_row_of(const attention_emitter *e, unsigned dtypes, int width);
MlirType few_row_lanes(const attention_emitter *e, const few_row *row);
few_place few_pair_place(const few_row *row, int64_t pair, ir_value at, ir_value index);
few_place few_tail_place(const few_row *row, int i, ir_value at);
/* FEW_MAX_LOADS registers at most: the type is asked for once for all of them. */
void emit_few_load(const attention_emitter *e, const few_row *row, int count, const few_place *places, ir_value *x);
/* The body adds to `count` sums what it reads of rows. Where registers are few it is emitted for each type of theirs,
 * for a branch in its loops takes registers that sums need. */
typedef void few_body(const void *context, const few_row *row, ir_value *sums);
void emit_few_loops(const attention_emitter *e, const few_row *row, int count, few_body *body, const void *context,
                    ir_value *sums);
/* 0 in the lanes of a register of the tail that others have. */
ir_value emit_few_counted(const attention_emitter *e, const few_row *row, int i, ir_value x);
/* Stores as many registers as the place has. */
void emit_few_store(const attention_emitter *e, const few_row *row, const few_place *place, const ir_value *x);

/* The pointer of row `index` in an array of the driver's struct that begins at `offset`. */
ir_value few_row_pointer(const attention_emitter *e, size_t offset, ir_value index);
/* Bytes between rows: of queries, of scores, and of the decay. */
int64_t few_query_bytes(const attention_plan *p);
enum { FEW_SCORE_BYTES = PEGEN_FEW_KEYS * 4, FEW_DECAY_BYTES = PEGEN_ATTENTION_PITCH * 4 };
/* In the state of a row. */
int64_t few_maximum_offset(const attention_plan *p);
int64_t few_sum_offset(const attention_plan *p);

/* ---- stages, which stand on these; see cpu/attention/few.h ---- */

/* Each opens and closes a function of that name. q . R k of pairs that are rotated, of rows of one token. */
void emit_few_pair_scores(attention_emitter *e, const char *name);
/* q k^T of `rows` rows of queries with the tile's keys. */
void emit_few_scores(attention_emitter *e, const char *name, unsigned dtypes, int rows);
/* Bias (where it is `paired`), mask, maximum, powers and their sums, of all rows. */
void emit_few_soften(attention_emitter *e, const char *name, bool paired);
/* output = output decay + p v of `rows` rows; of one row without keys whose power is 0. */
void emit_few_values(attention_emitter *e, const char *name, unsigned dtypes, int rows);

/* A field of the driver's struct. */
#define FEW(e, name, type) \
  ir_load((e)->b, (type), ir_offset_const((e)->b, (e)->tile, (int64_t)offsetof(pegen_attention_few, name)), 8)
