/* gpu/attention_weights: from what the weights of attention's queries gain to what inputs and operands do; see
 * gpu/attention_backward.h and gpu/weight_gains.h.
 *
 * The entry of queries has laid what weights gain in memory, [batches][heads][queries][weights], which here are rows of
 * q whose channels are weights: its parameters are those of gradients of columns.
 */
#include "gpu/attention_backward.h"
#include "gpu/index.h"
#include "gpu/weight_gains.h"
#include "gpu/widen_rows.h"

#include "kernel/launch.h"

enum { WARP = 32, MOST_SHARED = 48 << 10 };

/* The fewest with which the tokens of a block fit; 0: none. */
static int lanes_of(const attention_plan *p) {
  for (int lanes = 8; lanes <= WARP; lanes *= 2)
    if ((int64_t)weight_gains_bytes(p->columns, p->weights) * (PEGEN_PTX_BLOCK / lanes) <= MOST_SHARED) return lanes;
  return 0;
}

bool attend_weights_fit(const attention_plan *p) {
  int count = gpu_parameters(p->spec) + pegen_ptx_behind_inputs(PEGEN_PTX_COLUMN_INPUTS, 0, p->spec->n_inputs);
  return count <= PEGEN_PTX_MAX_PARAMETERS && lanes_of(p) > 0;
}

void attend_add_weight_entries(arena *a, gpu_program *program, const attention_plan *p, unsigned dtypes) {
  const spec *s = p->spec;
  for (int dtype = 0; dtype < NUMBER_CHANNEL_TYPES; dtype++) {
    if (!(dtypes & 1u << dtype)) continue;
    int element = number_bytes(dtype), lanes = lanes_of(p);
    program->entry[program->n_entries++] =
        (gpu_entry){.name = arena_printf(a, "%s_%s_%s", s->name, PEGEN_PTX_WORD_WEIGHTS, number_name(dtype)),
                    .of = PEGEN_LAUNCH_attention_backward,
                    .word = PEGEN_PTX_WORD_WEIGHTS,
                    .kind = GPU_ATTENTION_WEIGHTS,
                    .dtype = dtype,
                    .access = element,
                    .tile = widen_tile(a, p->columns, element, element, lanes),
                    .units = lanes,
                    .flight = 1,
                    .blocks = 1};
  }
}

/* What weights gained of the owner's query of a head. */
static void lay_weights(weight_gains *g, ir_value head) {
  ir *b = g->b;
  gpu_body *t = g->body;
  const ir_value *of = t->parameter + PEGEN_PTX_Q;
  ir_value at = add(b, of[PEGEN_PTX_TENSOR_IN], mul(b, wide(b, t->owner.batch), of[PEGEN_PTX_TENSOR_IN_BATCH]));
  at = add(b, at, mul(b, wide(b, t->owner.token), of[PEGEN_PTX_TENSOR_IN_TOKEN]));
  ir_value row = ir_pointer(b, add(b, at, mul(b, wide(b, head), of[PEGEN_PTX_TENSOR_IN_HEAD])));
  lane_turns turns = begin_turns(&g->lanes, g->p->p->n_weights);
  weight_gains_lay(g, turns.index, ir_load(b, b->f32, ir_offset(b, row, wide(b, scaled(b, turns.index, 4))), 4));
  end_turns(&g->lanes, turns);
}

void gpu_emit_attention_weights(ir *b, arena *a, const gpu_program *program, const gpu_entry *entry, unsigned native,
                                bool host) {
  const attend_design *design = program->plan;
  const plan_widen *p = design->p->columns;
  gpu_body t = gpu_open(b, a, p->values, false, entry, native, host);
  weight_gains g = {.b = b, .p = p, .of = gpu_gains_of(program), .body = &t, .lanes = widen_lanes_of(&t, p)};
  g.gains = (gpu_gains){.body = &t, .of = gpu_gains_of(program), .own = t.parameter + gpu_parameters(p->spec)};
  t.rows.exprs = g.lanes.exprs = &t.exprs;
  g.first = narrow(b, t.parameter[PEGEN_PTX_PREFIX]);
  weight_gains_open(&g);
  ir_loop items = weight_gains_begin_items(&g);
  ir_loop heads = ir_for(b, i64(b, 0), t.parameter[PEGEN_PTX_Q + PEGEN_PTX_TENSOR_HEADS]);
  ir_value head = narrow(b, heads.index);
  weight_gains_set_query(&g, head);
  lay_weights(&g, head);
  ir_wait(b, IR_BARRIER_WARP);
  weight_gains_give(&g);
  ir_wait(b, IR_BARRIER_WARP); /* all have read what was laid */
  ir_end_for(b, heads);
  ir_end_for(b, items);
  ir_return(b);
}
