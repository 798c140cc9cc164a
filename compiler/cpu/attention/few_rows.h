/* cpu/attention/few_rows: rows of channels in registers, as a number type has them in memory. */
#ifndef PEGEN_CPU_ATTENTION_FEW_ROWS_H
#define PEGEN_CPU_ATTENTION_FEW_ROWS_H

#include "cpu/attention/tile.h"

#include "kernel/attention_few.h"

enum { FEW_MAX_UNIT = 2, FEW_MAX_TAIL = 2 };

/* How a row is cut. Units of channels follow each other, and behind them registers of what is left, which may begin
 * inside what was counted before: their first lanes are then of channels that others have, too. A unit is a register;
 * of a type that is the upper half of a float32 two, of its even channels and its odd ones, for which nothing has to be
 * moved between lanes. */
typedef struct few_row {
  int type, width, lanes;
  int unit, registers; /* of a unit: channels, registers */
  int units, tail;     /* of the row: units, registers behind them */
  int tail_channel[FEW_MAX_TAIL], tail_counted[FEW_MAX_TAIL]; /* where one begins; its lanes that no other has */
} few_row;

few_row few_row_of(const attention_emitter *e, int type, int width);
/* All registers of a row. */
int few_row_registers(const few_row *row);
MlirType few_row_lanes(const attention_emitter *e, const few_row *row);
/* A unit at its first channel; a register of the tail of the row at its first. */
void emit_few_unit(const attention_emitter *e, const few_row *row, ir_value at, ir_value *x);
ir_value emit_few_tail(const attention_emitter *e, const few_row *row, int i, ir_value at);
/* The same, 0 in the lanes that others have. */
ir_value emit_few_counted(const attention_emitter *e, const few_row *row, int i, ir_value at);
/* And back. */
void emit_few_store_unit(const attention_emitter *e, const few_row *row, const ir_value *x, ir_value at);
void emit_few_store_tail(const attention_emitter *e, const few_row *row, int i, ir_value x, ir_value at);

/* Bytes between rows: of queries, of scores, and of the decay. */
int64_t few_query_bytes(const attention_plan *p);
enum { FEW_SCORE_BYTES = PEGEN_FEW_KEYS * 4, FEW_DECAY_BYTES = PEGEN_ATTENTION_PITCH * 4 };
/* In the state of a row. */
int64_t few_maximum_offset(const attention_plan *p);
int64_t few_sum_offset(const attention_plan *p);

/* A field of the driver's struct. */
#define FEW(e, name, type) \
  ir_load((e)->b, (type), ir_offset_const((e)->b, (e)->tile, (int64_t)offsetof(pegen_attention_few, name)), 8)

#endif
