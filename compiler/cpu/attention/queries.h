/* cpu/attention/queries: queries and outputs, turned so that queries are in the lanes. */
#ifndef PEGEN_CPU_ATTENTION_QUERIES_H
#define PEGEN_CPU_ATTENTION_QUERIES_H

#include "cpu/attention/rows.h"

/* Rows of the tile's queries, scaled; 0 in empty lanes. */
void emit_attention_queries(const attention_emitter *e, const attention_rows *r);
/* output / sums as rows of the tensor; 0 where a query saw nothing. */
void emit_attention_output(const attention_emitter *e, const attention_rows *r, ir_value output, ir_value sums);

#endif
