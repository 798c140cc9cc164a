/* cpu/attention/delta: expressions of a displacement r_j - r_i as code, queries in the lanes. */
#ifndef PEGEN_CPU_ATTENTION_DELTA_H
#define PEGEN_CPU_ATTENTION_DELTA_H

#include "cpu/attention/tile.h"
#include "mlir/expr.h"

typedef struct delta_emitter {
  /* First: a leaf is asked for by it. `fixed` holds scalars that no displacement changes and lives as long as they
   * dominate; `varying`, of one displacement, is the caller's to set. */
  expr_walker walker;
  const attention_emitter *e;
  ir_value block;         /* i64; null: block 0 */
  const ir_value *wide;   /* [axes] displacement, lanes of float64; NULL: not needed */
  const ir_value *narrow; /* [axes] the same as float32; NULL: rounded from wide */
} delta_emitter;

delta_emitter delta_emitter_create(const attention_emitter *e, two_float *fixed);
/* Values by expr id, none of them known. */
two_float *delta_memo(const attention_emitter *e);

#endif
