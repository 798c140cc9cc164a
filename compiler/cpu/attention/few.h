/* cpu/attention/few: attention of few queries against many keys, as MLIR for one CPU target; see
 * kernel/attention_few.h.
 *
 * Keys and values have their channels in the lanes and are read where they lie, in their own type, once for all rows of
 * queries: a score is a product of registers whose lanes are summed at its end, of many keys at once; a value's
 * register times a weight that is spread. Between the two, scores have keys in the lanes. A file is a stage: channels
 * (few_rows), scores, soften, values (few_rows.h), and what stands at both ends (few).
 */
#ifndef PEGEN_CPU_ATTENTION_FEW_H
#define PEGEN_CPU_ATTENTION_FEW_H

#include "cpu/attention/tile.h"

#include "kernel/attention_few.h"

/* Keys of a tile of float32, half of those of 16 bits; 0: there is no such code, for pairs are turned or widened, or
 * stand on a grid, or rows are shorter than four channels, or the target has sixteen registers of four lanes, by which
 * little is gained. */
int attention_few_keys(const attention_plan *p, const cpu_target *target);
/* So many queries of a head are no longer few: their own tile is faster. */
int attention_few_queries(const attention_plan *p, const cpu_target *target);

/* Rows that share what is read of a key, at most: their sums are to stay in registers. */
int attention_few_block(const cpu_target *target);

/* All functions of a target; nothing where it has none. */
void emit_attention_few(ir *b, arena *a, const attention_plan *p, const cpu_target *target, unsigned dtypes);

/* few_WHAT_T, few_WHAT_T_ROWS; 0 rows: any number. */
const char *emit_few_name(arena *a, const cpu_target *target, const char *what, int rows);

#endif
