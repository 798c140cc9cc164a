/* cpu/map: functions of the channels of rows, vector by vector. */
#ifndef PEGEN_CPU_MAP_H
#define PEGEN_CPU_MAP_H

#include "cpu/rows.h"

/* What an OP_MAP makes of the vectors of one group; rows: its arguments. */
row_vectors emit_vectors_map(row_emitter *r, int group, const program_op *op, const row_vectors *const *rows);

#endif
