/* cpu/attention/products: rows of keys times rows of queries that were turned, the micro-kernel of scores. */
#ifndef PEGEN_CPU_ATTENTION_PRODUCTS_H
#define PEGEN_CPU_ATTENTION_PRODUCTS_H

#include "cpu/attention/tile.h"

/* sums [rows][vectors] += channels [begin, end) of each of shape.rows rows (pointers to float32, or to
 * bfloat16 that dot products take) times those of e->queries. */
void emit_products(const attention_emitter *e, const ir_value *rows, int begin, int end, ir_value *sums);

#endif
