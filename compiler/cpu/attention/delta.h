/* cpu/attention/delta: expressions of a displacement r_j - r_i as code, queries in the lanes. */
#ifndef PEGEN_CPU_ATTENTION_DELTA_H
#define PEGEN_CPU_ATTENTION_DELTA_H

#include "cpu/attention/attention.h"

typedef struct delta_emitter {
  attention_emitter *e;
  ir_value block;        /* i64; null: block 0 */
  ir_value *fixed;       /* memo by expr id of scalars that no displacement changes; lives as long as they dominate */
  ir_value *varying;     /* memo by expr id, of one displacement */
  const ir_value *wide;   /* [axes] displacement, lanes of float64; NULL: not needed */
  const ir_value *narrow; /* [axes] the same as float32; NULL: rounded from wide */
} delta_emitter;

/* In the node's own type: lanes where it depends on the displacement, else a scalar. */
ir_value emit_delta(delta_emitter *d, const expr *x);
/* As lanes of float32. */
ir_value emit_delta_f32(delta_emitter *d, const expr *x);
/* Emits here what below x depends on no displacement. */
void emit_delta_fixed(delta_emitter *d, const expr *x);

#endif
