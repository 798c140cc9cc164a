/* cpu/attention/few_stages: the stages between the two ends of attention of few queries; see cpu/attention/few.h. */
#ifndef PEGEN_CPU_ATTENTION_FEW_STAGES_H
#define PEGEN_CPU_ATTENTION_FEW_STAGES_H

#include "cpu/attention/few_rows.h"

/* Each opens and closes a function of that name. q k^T of `rows` rows of queries with the tile's keys. */
void emit_few_scores(attention_emitter *e, const char *name, unsigned dtypes, int rows);
/* Bias (where it is `paired`), mask, maximum, powers and their sums, of all rows. */
void emit_few_soften(attention_emitter *e, const char *name, bool paired);
/* output = output decay + p v of `rows` rows; of one row without keys whose power is 0. */
void emit_few_values(attention_emitter *e, const char *name, unsigned dtypes, int rows);

#endif
