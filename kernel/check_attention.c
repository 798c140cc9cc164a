/* check_attention.c: every argument of an attention call, in this order, before a byte is written:
 *
 *   1. args, struct_size, part                    NULL_ARGS STRUCT_SIZE UNKNOWN_FIELD PART
 *   2. what is given: q, k, v, out, positions, operands, inputs, scale
 *                                                 MISSING_TENSOR MISSING_POSITIONS GRID_ONLY MISSING_OPERAND
 *                                                 MISSING_INPUT SCALE
 *      each operand, its memory too               NULL_SHAPE OPERAND_SHAPE OPERAND_DTYPE DEVICE .. ALIGNMENT
 *   3. shapes of q, k, v, out                     RANK NULL_SHAPE NEGATIVE_SIZE HEAD_DIM VALUE_DIM
 *      and of each against the others             SHAPE_MISMATCH HEADS HEAD_GROUPS
 *      lse, its type too                          LSE
 *   4. shapes of positions, grid, inputs          NULL_SHAPE POSITIONS_SHAPE GRID_SIZE INPUT_SHAPE
 *   5. number types, and memory of inputs         DTYPE DTYPE_MISMATCH INDEXED_OPERAND INPUT_DTYPE
 *   6. memory of each tensor                      DEVICE CHANNEL_STRIDE SIZE_OVERFLOW NULL_DATA ALIGNMENT STRIDE
 *      types of positions                         POSITIONS_DTYPE
 *   7. out and lse against every other tensor     OVERLAP
 */
#include "check_attention.h"

#include "gradient.h"

static const DLTensor *key_positions(const pegen_args *args) {
  return args->k_positions ? args->k_positions : args->positions;
}

/* ---- 2. what is given ---- */

static double square_root(double x) {
  double root = x > 1 ? x : 1;
  for (int i = 0; i < 64; i++) /* Newton's steps from above: no library here, and they end in a few */
    root = 0.5 * (root + x / root);
  return root;
}

/* Kernels of before their descriptions could state it do not have it. */
static double own_scale(const pegen_kernel *kernel) {
  int states = kernel->struct_size >= offsetof(pegen_kernel, scale) + sizeof kernel->scale;
  return states ? kernel->scale : 1 / square_root((double)kernel->head_dim);
}

static int check_given(const pegen_driver *driver, const pegen_args *args, pegen_attention_call *call) {
  const pegen_attention *form = driver->form;
  const pegen_kernel *kernel = driver->kernel;
  if (!args->q || !args->k || !args->v || !args->out) return PEGEN_ERROR_MISSING_TENSOR;
  if (form->placed && !kernel->grid && (!args->positions || !key_positions(args))) return PEGEN_ERROR_MISSING_POSITIONS;
  if (form->by_rows && (args->positions || args->k_positions)) return PEGEN_ERROR_GRID_ONLY;
  int error = pegen_check_operands(kernel, args);
  if (!error) error = pegen_check_inputs_given(kernel, args);
  if (error) return error;
  call->causal = PEGEN_GIVEN(args, causal) != 0;
  call->scale = PEGEN_GIVEN(args, scale);
  if (call->scale == 0) call->scale = own_scale(kernel);
  return call->scale - call->scale == 0 ? 0 : PEGEN_ERROR_SCALE;
}

/* ---- 3. shapes ---- */

/* Rows of `width` channels; `wrong` where the last dimension is another. */
static int check_rows(const DLTensor *tensor, int64_t width, int wrong) {
  int error = pegen_check_rows_shape(tensor, width);
  return error == PEGEN_ERROR_HEAD_DIM ? wrong : error;
}

int pegen_check_lse(const DLTensor *lse, const DLTensor *q) {
  if (!lse) return 0;
  if (lse->ndim != q->ndim - 1 || !lse->shape || !pegen_one_of(lse, kDLFloat, 32)) return PEGEN_ERROR_LSE;
  return pegen_same_rows(lse, 3, q, 4) ? 0 : PEGEN_ERROR_LSE;
}

static int check_shapes(const pegen_driver *driver, const pegen_args *args, pegen_attention_call *call) {
  const pegen_attention *form = driver->form;
  const DLTensor *q = args->q, *k = args->k, *v = args->v, *out = args->out;
  int64_t dim = driver->kernel->head_dim;
  if (k->ndim != q->ndim || v->ndim != q->ndim || out->ndim != q->ndim) return PEGEN_ERROR_RANK;
  PEGEN_TRY(check_rows(q, dim, PEGEN_ERROR_HEAD_DIM));
  PEGEN_TRY(check_rows(k, dim, PEGEN_ERROR_HEAD_DIM));
  PEGEN_TRY(check_rows(v, form->value_dim, PEGEN_ERROR_VALUE_DIM));
  PEGEN_TRY(check_rows(out, form->value_dim, PEGEN_ERROR_VALUE_DIM));
  if (!pegen_same_rows(q, 4, out, 4) || !pegen_same_rows(k, 4, v, 4)) return PEGEN_ERROR_SHAPE_MISMATCH;
  int64_t heads = pegen_rows_size(q, 4, PEGEN_HEAD), k_heads = pegen_rows_size(k, 4, PEGEN_HEAD);
  if (pegen_rows_size(q, 4, PEGEN_BATCH) != pegen_rows_size(k, 4, PEGEN_BATCH)) return PEGEN_ERROR_SHAPE_MISMATCH;
  if (pegen_rows_size(k, 4, PEGEN_TOKEN) > INT32_MAX) /* keys are counted in 32 bits where lanes compare them */
    return PEGEN_ERROR_SIZE_OVERFLOW;
  if (driver->per_head && heads != driver->kernel->heads) return PEGEN_ERROR_HEADS;
  PEGEN_TRY(pegen_check_lse(PEGEN_GIVEN(args, lse), q));
  call->group = 1;
  if (heads == k_heads) return 0;
  if (k_heads == 0 || heads % k_heads != 0) return PEGEN_ERROR_HEAD_GROUPS;
  call->group = heads / k_heads;
  return 0;
}

/* ---- 4. positions, operands ---- */

static int check_bounds(const pegen_args *args, pegen_attention_call *call) {
  const DLTensor *rows[2] = {args->q, args->k};
  for (int s = 0; s < 2; s++) {
    pegen_no_bounds(&call->bounds[s]);
    if (!pegen_has_bounds(args)) continue;
    if (rows[s]->ndim != 3) return PEGEN_ERROR_RANK;
    PEGEN_TRY(pegen_read_bounds(args, s, rows[s]->shape[0], &call->bounds[s]));
  }
  return call->bounds[0].sequences == call->bounds[1].sequences ? 0 : PEGEN_ERROR_SEQUENCES;
}

/* The grid's points are of one sequence. */
static int check_coordinates(const pegen_kernel *kernel, const DLTensor *positions, const DLTensor *rows,
                             const pegen_bounds *bounds) {
  if (!positions && bounds->sequences > 1) return PEGEN_ERROR_SEQUENCE_POSITIONS;
  return pegen_check_coordinates(kernel, positions, rows);
}

static int check_places(const pegen_driver *driver, const pegen_args *args, pegen_attention_call *call) {
  const pegen_attention *form = driver->form;
  const pegen_kernel *kernel = driver->kernel;
  PEGEN_TRY(check_bounds(args, call));
  if (form->placed) PEGEN_TRY(check_coordinates(kernel, args->positions, args->q, &call->bounds[0]));
  if (form->placed) PEGEN_TRY(check_coordinates(kernel, key_positions(args), args->k, &call->bounds[1]));
  if (form->placed && !args->positions && kernel->skip_tokens &&
      pegen_rows_size(args->q, 4, PEGEN_TOKEN) != pegen_rows_size(args->k, 4, PEGEN_TOKEN))
    return PEGEN_ERROR_GRID_SIZE; /* the grid says that its first tokens are prefix tokens, and the keys' end others */
  return pegen_check_input_shapes(driver, args, args->q);
}

/* ---- 5. number types ---- */

static int check_types(const pegen_driver *driver, const pegen_args *args, pegen_attention_call *call) {
  const pegen_attention *form = driver->form;
  call->type = pegen_row_type(args->q);
  if (call->type < 0 || !(driver->kernel->dtypes & pegen_number_at(call->type)->dtype)) return PEGEN_ERROR_DTYPE;
  if (!pegen_same_type(args->k, args->q) || !pegen_same_type(args->v, args->q) || !pegen_same_type(args->out, args->q))
    return PEGEN_ERROR_DTYPE_MISMATCH;
  for (int i = 0; i < driver->kernel->n_operands; i++)
    if (form->indexed >> i & 1 && !pegen_one_of(args->operands[i], kDLFloat, 32)) return PEGEN_ERROR_INDEXED_OPERAND;
  return pegen_check_inputs(driver->kernel, args, call->type, &call->wide_inputs, call->input);
}

/* ---- 6. memory ---- */

int pegen_view_lse(const DLTensor *lse, pegen_view *view) {
  view->empty = 1;
  if (!lse) return 0;
  return pegen_on_host(lse) ? pegen_view_like_rows(lse, 0, view) : PEGEN_ERROR_DEVICE;
}

static int check_memory(const pegen_driver *driver, const pegen_args *args, pegen_attention_call *call) {
  int error, placed = ((const pegen_attention *)driver->form)->placed != 0;
  if ((error = pegen_view_rows(args->q, &call->q)) != 0 || (error = pegen_view_rows(args->k, &call->k)) != 0 ||
      (error = pegen_view_rows(args->v, &call->v)) != 0 || (error = pegen_view_rows(args->out, &call->out)) != 0)
    return error == PEGEN_ERROR_SIZE_OVERFLOW && call->v.high && args->out->strides ? PEGEN_ERROR_STRIDE : error;
  PEGEN_TRY(pegen_view_lse(PEGEN_GIVEN(args, lse), &call->lse));
  PEGEN_TRY(pegen_view_coordinates(driver->kernel, placed ? args->positions : 0, call->q.size[PEGEN_TOKEN],
                                   &call->position_type, &call->bare, &call->positions));
  PEGEN_TRY(pegen_view_coordinates(driver->kernel, placed ? key_positions(args) : 0, call->k.size[PEGEN_TOKEN],
                                   &call->k_position_type, &call->k_bare, &call->k_positions));
  for (int i = 0; i < driver->kernel->n_inputs; i++)
    if (pegen_input_is_of_pairs(driver->kernel, i) && call->input[i].size[PEGEN_BATCH] == 1)
      call->input[i].stride[PEGEN_BATCH] = 0; /* of all batches */
  return 0;
}

/* ---- 7. overlap ---- */

void pegen_memory_of_attention(pegen_memory *m, const pegen_driver *driver, const pegen_args *args,
                               const pegen_attention_call *call) {
  pegen_memory_begin(m, driver->kernel, args, 0);
  pegen_memory_reads(m, &call->q);
  pegen_memory_reads(m, &call->k);
  pegen_memory_reads(m, &call->v);
  if (call->position_type >= 0) pegen_memory_reads(m, &call->positions);
  if (call->k_position_type >= 0) pegen_memory_reads(m, &call->k_positions);
  for (int s = 0; s < 2; s++) pegen_memory_reads(m, &call->bounds[s].view);
  for (int i = 0; i < driver->kernel->n_inputs; i++) pegen_memory_reads(m, &call->input[i]);
}

/* ---- all of them ---- */

int pegen_check_attention_read(const pegen_driver *driver, const pegen_args *args, int part, int parts,
                               pegen_attention_call *call) {
  PEGEN_TRY(pegen_check_part(args, part, parts, PEGEN_USE_attention));
  call->pages.size = 0;
  call->q.high = call->k.high = call->v.high = call->out.high = 0;
  PEGEN_TRY(check_given(driver, args, call));
  PEGEN_TRY(check_shapes(driver, args, call));
  PEGEN_TRY(check_places(driver, args, call));
  PEGEN_TRY(check_types(driver, args, call));
  return check_memory(driver, args, call);
}

int pegen_check_attention(const pegen_driver *driver, const pegen_args *args, int part, int parts,
                          pegen_attention_call *call) {
  PEGEN_TRY(pegen_check_attention_read(driver, args, part, parts, call));
  if ((!call->out.empty && !pegen_view_nests(&call->out)) || (!call->lse.empty && !pegen_view_nests(&call->lse)))
    return PEGEN_ERROR_STRIDE;
  pegen_memory memory;
  pegen_memory_of_attention(&memory, driver, args, call);
  pegen_memory_writes(&memory, &call->out);
  pegen_memory_writes(&memory, &call->lse);
  return pegen_check_memory(&memory);
}

void pegen_attention_go_to(const pegen_driver *driver, pegen_attention_call *c, int64_t from, int64_t to) {
  const pegen_bounds *q = &c->bounds[0], *k = &c->bounds[1];
  pegen_go_to_sequence(&c->q, PEGEN_TOKEN, q, from, to);
  pegen_go_to_sequence(&c->out, PEGEN_TOKEN, q, from, to);
  if (!c->lse.empty) pegen_go_to_sequence(&c->lse, PEGEN_TOKEN, q, from, to);
  for (int i = 0; i < driver->kernel->n_inputs; i++) {
    const pegen_bounds *of = pegen_input_is_of_keys(driver->kernel, i) ? k : q;
    if (of->sequences) pegen_go_to_sequence(&c->input[i], PEGEN_TOKEN, of, from, to);
  }
  if (c->position_type >= 0) pegen_go_to_sequence(&c->positions, PEGEN_POSITION_TOKEN, q, from, to);
  if (!k->sequences) return; /* in pages: attention.c */
  pegen_go_to_sequence(&c->k, PEGEN_TOKEN, k, from, to);
  pegen_go_to_sequence(&c->v, PEGEN_TOKEN, k, from, to);
  if (c->k_position_type >= 0) pegen_go_to_sequence(&c->k_positions, PEGEN_POSITION_TOKEN, k, from, to);
}

int pegen_check_split(const pegen_driver *driver, const pegen_args *args, const pegen_attention_call *call,
                      int64_t bytes) {
  pegen_view room;
  pegen_memory memory;
  int error = bytes ? pegen_check_workspace(args, bytes, &room) : 0;
  if (error || !bytes) return error;
  pegen_memory_of_attention(&memory, driver, args, call);
  pegen_memory_reads(&memory, &call->out);
  pegen_memory_reads(&memory, &call->lse);
  pegen_memory_writes(&memory, &room);
  return pegen_check_memory(&memory);
}
