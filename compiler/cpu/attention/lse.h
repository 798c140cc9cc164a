/* cpu/attention/lse: the log-sum-exp of a tile's queries. */
#ifndef PEGEN_CPU_ATTENTION_LSE_H
#define PEGEN_CPU_ATTENTION_LSE_H

#include "cpu/attention/tile.h"

/* Where the tile has room for it: ln of the sum over keys, of which maxima and sums [queries] are known; the maxima are
 * lost. */
void emit_attention_lse(const attention_emitter *e, ir_value maxima, ir_value sums);

#endif
