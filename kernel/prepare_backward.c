/* prepare_backward.c: gradients of operands and positions from a table of torques that many calls have added to.
 *
 * Each row is what a token (and head, where heads differ) gained of all those calls: what becomes of it is computed
 * once. As in backward.c tokens are cut into chunks that the sizes alone decide, a part takes whole chunks, and
 * `finish` adds up their sums in order. Heads go in groups whose prepared values fit on the stack.
 */
#include "prepare_backward.h"

/* A section, and what is worked on. */
typedef struct walk {
  const pegen_driver *driver;
  const pegen_backward_call *call;
  const pegen_gradient *of;
  const pegen_gradient_code *code;
  const pegen_args *args;
  const pegen_stream *stream;
  pegen_torque_rows rows;
  int64_t chunks, first_chunk, last_chunk;
  int64_t head, heads; /* the group: its first, and how many */
  int64_t stride;      /* bytes of what is prepared of a head */
  char *prepared;
  double *leaves;
  int which; /* of grad->positions and k_positions; -1: neither */
  int again; /* 1: the section before gave to the same */
  pegen_gradient_loop loop;
} walk;

static void set_positions(walk *w, int64_t batch) {
  const pegen_view *gained = w->which < 0 ? 0 : &w->call->positions[w->which];
  pegen_set_positions(&w->loop.loop, w->stream, batch);
  if (!gained) return;
  w->loop.positions = pegen_at(gained, batch, 0, 0);
  w->loop.position_is_f64 = w->call->position_is_f64[w->which];
  w->loop.position_token = gained->stride[PEGEN_POSITION_TOKEN];
  w->loop.position_axis = gained->stride[PEGEN_POSITION_AXIS];
  w->loop.position_adds = w->head > 0 || w->again || (w->call->grad->flags & PEGEN_GRAD_ACCUMULATE) != 0;
}

/* sums: of the chunk; NULL: no operand gains. Tokens that are skipped give nothing. */
static void run_token(walk *w, int64_t batch, int64_t token, char *sums) {
  const pegen_kernel *kernel = w->driver->kernel;
  int64_t axes = kernel->n_axes, lanes = ((const pegen_blades *)w->driver->form)->lanes;
  double position[PEGEN_MAX_PLACE], gained[PEGEN_MAX_ROTOR_AXES];
  pegen_clear((char *)gained, axes * 8);
  for (int64_t i = 0; i < w->heads && token >= kernel->skip_tokens; i++) {
    if (i == 0) position[axes] = w->loop.loop.side;
    if (i == 0 && w->stream->grid) pegen_grid_position(kernel, token, position);
    else if (i == 0) pegen_driver_position(&w->loop.loop, token, axes, position);
    const char *row = w->rows.at + batch * w->rows.batch + token * w->rows.token + (w->head + i) * w->rows.head;
    char *of_head = sums ? sums + (w->head + i) * w->of->n_sums * lanes * 8 : 0;
    w->code->gain[w->call->from_input](position, w->prepared + i * w->stride, (const double *)row,
                                       (int64_t)(uintptr_t)of_head, w->which >= 0, gained);
  }
  if (w->which >= 0) pegen_driver_position_gradient(&w->loop, token, axes, gained);
}

static void run_chunks(walk *w) {
  for (int64_t chunk = w->first_chunk; chunk < w->last_chunk; chunk++) {
    char *sums = w->call->of_operands ? (char *)w->args->workspace + chunk * w->call->facts->sums_bytes : 0;
    int64_t begin, end;
    if (!pegen_share(w->rows.tokens, (int)chunk, (int)w->chunks, &begin, &end)) continue;
    for (int64_t batch = 0; batch < w->rows.batches; batch++) {
      set_positions(w, batch);
      for (int64_t token = begin; token < end; token++) run_token(w, batch, token, sums);
    }
  }
}

static void prepare_heads(walk *w) {
  const pegen_blades *blades = w->driver->form;
  for (int64_t i = 0; i < w->heads && w->code->prepare; i++) {
    pegen_gather_leaves(w->of->leaves, w->of->n_leaves, blades->n_blocks, blades->lanes, w->args, w->head + i,
                        w->leaves);
    w->code->prepare(w->leaves, w->prepared + i * w->stride);
  }
}

static void run_sections(walk *w) {
  for (int s = 0; s < w->call->torques.sections; s++) {
    w->stream = &w->call->rows.stream[s];
    if (w->stream->in.empty) continue;
    pegen_torque_rows_of(w->call, s, &w->rows);
    int before = s > 0 && !w->call->rows.stream[0].in.empty ? w->which : -1;
    w->which = pegen_gaining_positions(w->call, w->stream);
    w->again = w->which >= 0 && w->which == before;
    w->loop.loop.side = s;
    run_chunks(w);
  }
}

static void run(walk *w) {
  const pegen_blades *blades = w->driver->form;
  int64_t heads = pegen_heads_apart(w->driver), most = 1;
  w->stride = w->of->prepared_bytes + 64;
  while (most < heads && (most + 1) * w->stride <= PEGEN_STACK_PREPARED) most++;
  w->prepared = PEGEN_STACK(most * w->stride);
  w->leaves = PEGEN_STACK(sizeof(double) * (size_t)(w->of->n_leaves * blades->lanes) + 64);
  for (w->head = 0; w->head < heads; w->head += most) {
    w->heads = w->head + most < heads ? most : heads - w->head;
    prepare_heads(w);
    run_sections(w);
  }
}

/* ---- the entries ---- */

static int prepare_backward(const pegen_driver *driver, const pegen_args *args, pegen_backward_call *call, int chosen,
                            int part, int parts) {
  const pegen_blades *blades = driver->form;
  if (!call->of_operands && !call->of_positions) return 0;
  pegen_gain_without_rows(call, part, parts);
  walk w;
  w.driver = driver;
  w.call = call;
  w.of = blades->gradient;
  w.code = &w.of->targets[chosen];
  w.args = args;
  w.chunks = pegen_backward_chunks(call);
  if (!pegen_share(w.chunks, part, parts, &w.first_chunk, &w.last_chunk)) return 0;
  if (call->of_operands)
    pegen_clear((char *)args->workspace + w.first_chunk * call->facts->sums_bytes,
                (w.last_chunk - w.first_chunk) * call->facts->sums_bytes);
  run(&w);
  return 0;
}

PEGEN_BACKWARD_ENTRY(pegen_driver_prepare_backward, pegen_blades_facts, pegen_check_prepare_backward, prepare_backward)
PEGEN_BACKWARD_ENTRY(pegen_driver_prepare_backward_finish, pegen_blades_facts, pegen_check_prepare_backward,
                     pegen_blades_finish)
PEGEN_SIZE_ENTRY(pegen_driver_prepare_backward_workspace, pegen_blades_facts, pegen_prepare_backward_needs)
PEGEN_SIZE_ENTRY(pegen_driver_gradient_table_bytes, pegen_blades_facts, pegen_gradient_table_size)
