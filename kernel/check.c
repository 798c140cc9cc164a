/* check.c: every argument of an encode call, in this order, before a byte is written:
 *
 *   1. args, struct_size, part                   NULL_ARGS STRUCT_SIZE UNKNOWN_FIELD PART NO_SEQUENCES NO_PAGES
 *                                                NO_SLOTS NO_NORM
 *   2. what is given: q and k with their outputs, positions, operands, inputs of q
 *                                                MISSING_OUTPUT NOTHING_TO_DO MISSING_POSITIONS MISSING_OPERAND
 *                                                MISSING_INPUT
 *      each operand, its memory too              NULL_SHAPE OPERAND_SHAPE OPERAND_DTYPE DEVICE .. ALIGNMENT
 *   3. shapes of q, q_out, k, k_out              RANK NULL_SHAPE NEGATIVE_SIZE HEAD_DIM
 *      and of each against the others            SHAPE_MISMATCH HEADS
 *   4. shapes of positions, grid, inputs         NULL_SHAPE POSITIONS_SHAPE GRID_SIZE INPUT_SHAPE
 *   5. number types, and memory of inputs        DTYPE DTYPE_MISMATCH OUTPUT_SCALE INPUT_DTYPE
 *   6. memory of each tensor                     DEVICE CHANNEL_STRIDE SIZE_OVERFLOW NULL_DATA ALIGNMENT STRIDE
 *      types of positions                        POSITIONS_DTYPE
 *      with a table, in place of 2.'s positions and operands and of all of 4.
 *                                                ALIGNMENT TABLE_BYTES TABLE
 *      and where columns count from              ORIGIN, and what positions are refused with
 *   7. outputs against every other tensor        OVERLAP (memory.c)
 *
 * Only tensors that the call reads or writes are looked at: positions is not
 * where only k is given and has k_positions, and k_positions is not where k is not given.
 */
#include "arguments.h"
#include "memory.h"
#include "table.h"

#include <float.h>

/* ---- 3. shapes ---- */

int pegen_check_rows_shape(const DLTensor *tensor, int64_t head_dim) {
  int rank = tensor->ndim;
  if (rank != 4 && rank != 3) return PEGEN_ERROR_RANK;
  if (!tensor->shape) return PEGEN_ERROR_NULL_SHAPE;
  for (int i = 0; i < rank; i++)
    if (tensor->shape[i] < 0) return PEGEN_ERROR_NEGATIVE_SIZE;
  return tensor->shape[rank - 1] == head_dim ? 0 : PEGEN_ERROR_HEAD_DIM;
}

int pegen_same_rows(const DLTensor *a, int rank_a, const DLTensor *b, int rank_b) {
  if (rank_a - a->ndim != rank_b - b->ndim) return 0;
  for (int i = 0; i < PEGEN_VIEW_DIMS - (rank_a - a->ndim); i++)
    if (a->shape[i] != b->shape[i]) return 0;
  return 1;
}

int64_t pegen_row_type(const DLTensor *tensor) {
  int64_t type = pegen_number_of(tensor->dtype);
  return type < PEGEN_ROW_TYPES ? type : -1;
}

/* Channels of an output, which may differ from number type to number type. */
static int64_t out_dim(const pegen_kernel *kernel, const DLTensor *tensor) {
  int64_t type = pegen_row_type(tensor);
  return kernel->widths && type >= 0 ? kernel->widths[type].out_dim : kernel->out_dim;
}

static int check_pair_shape(const pegen_kernel *kernel, const DLTensor *in, const DLTensor *out, int64_t is_written,
                            int64_t narrows) {
  if (in->ndim != out->ndim) return PEGEN_ERROR_RANK;
  PEGEN_TRY(pegen_check_rows_shape(in, narrows ? out_dim(kernel, in) : kernel->head_dim));
  if (!(narrows && !is_written)) /* what goes nowhere is as wide as it came */
    PEGEN_TRY(pegen_check_rows_shape(out, narrows ? kernel->head_dim : out_dim(kernel, out)));
  return in == out || pegen_same_rows(in, 4, out, 4) ? 0 : PEGEN_ERROR_SHAPE_MISMATCH;
}

/* Rows, and the cache in pages, [pages,page_size,heads,width], that they go to. */
static int check_cache_shape(const pegen_kernel *kernel, const DLTensor *in, const DLTensor *cache) {
  PEGEN_TRY(pegen_check_rows_shape(in, kernel->head_dim));
  if (cache->ndim != 4) return PEGEN_ERROR_RANK;
  PEGEN_TRY(pegen_check_rows_shape(cache, out_dim(kernel, cache)));
  return cache->shape[2] == pegen_rows_size(in, 4, PEGEN_HEAD) ? 0 : PEGEN_ERROR_SHAPE_MISMATCH;
}

/* Heads of q that share operands; 0: they are no multiple of those that operands have. */
static int64_t group_of(const pegen_driver *driver, const DLTensor *q) {
  int64_t heads = pegen_rows_size(q, 4, PEGEN_HEAD), of = driver->kernel->heads;
  if (driver->per_head != PEGEN_PER_HEAD_ALL || driver->turns_rows) return !driver->per_head || heads == of;
  return heads % of == 0 ? heads / of : 0;
}

static int check_shapes(const pegen_driver *driver, const pegen_args *args, const int64_t *is_written, int64_t narrows,
                        int is_paged) {
  const pegen_kernel *kernel = driver->kernel;
  const DLTensor *q = args->q, *k = args->k;
  if (q) PEGEN_TRY(check_pair_shape(kernel, q, args->q_out, is_written[0], narrows));
  if (k && is_paged) PEGEN_TRY(check_cache_shape(kernel, k, args->k_out));
  else if (k) PEGEN_TRY(check_pair_shape(kernel, k, args->k_out, is_written[1], narrows));
  if (q && k && q->ndim != k->ndim) return PEGEN_ERROR_RANK;
  if (q && k && pegen_rows_size(q, 4, PEGEN_BATCH) != pegen_rows_size(k, 4, PEGEN_BATCH))
    return PEGEN_ERROR_SHAPE_MISMATCH;
  if (!driver->per_head) return 0;
  int of_keys = driver->per_head == PEGEN_PER_HEAD_ALL;
  if (of_keys && k && pegen_rows_size(k, 4, PEGEN_HEAD) != kernel->heads) return PEGEN_ERROR_HEADS;
  return !q || group_of(driver, q) ? 0 : PEGEN_ERROR_HEADS;
}

/* ---- 4. positions, grid, operands ---- */

int pegen_bare_positions(const pegen_kernel *kernel, const DLTensor *positions, int64_t tokens) {
  const int64_t *shape = positions->shape;
  if (kernel->n_axes != 1) return 0;
  if (positions->ndim == 1) return 1;
  return positions->ndim == 2 && shape && (shape[1] != 1 || (tokens == 1 && shape[0] != 1));
}

static int check_positions_shape(const pegen_kernel *kernel, const DLTensor *positions, const DLTensor *rows) {
  int64_t tokens = pegen_rows_size(rows, 4, PEGEN_TOKEN);
  int bare = pegen_bare_positions(kernel, positions, tokens), rank = positions->ndim + bare;
  const int64_t *shape = positions->shape;
  if (rank != 2 && rank != 3) return PEGEN_ERROR_POSITIONS_SHAPE;
  if (!shape) return PEGEN_ERROR_NULL_SHAPE;
  if ((!bare && shape[rank - 1] != kernel->n_axes) || shape[rank - 2] != tokens ||
      (rank == 3 && shape[0] != pegen_rows_size(rows, 4, PEGEN_BATCH)))
    return PEGEN_ERROR_POSITIONS_SHAPE;
  return 0;
}

int pegen_check_coordinates(const pegen_kernel *kernel, const DLTensor *positions, const DLTensor *rows) {
  if (positions) return check_positions_shape(kernel, positions, rows);
  return pegen_rows_size(rows, 4, PEGEN_TOKEN) == pegen_grid_tokens(kernel) ? 0 : PEGEN_ERROR_GRID_SIZE;
}

/* Sequences, of rows without batches: of a grid, each is one, and these are batches from then on. With positions rows
 * are what they are in one batch, but for tokens that pass through at the front of each. */
static int check_sequences(const pegen_kernel *kernel, const pegen_args *args, pegen_call *call) {
  const DLTensor *rows[2] = {args->q, args->k};
  int64_t several = 0;
  for (int s = 0; s < 2; s++) {
    call->as_batches[s] = 0;
    pegen_no_bounds(&call->bounds[s]);
    if (!rows[s] || !pegen_has_bounds(args)) continue;
    if (rows[s]->ndim != 3 || PEGEN_GIVEN(args, slots)) return PEGEN_ERROR_RANK;
    PEGEN_TRY(pegen_read_bounds(args, s, rows[s]->shape[0], &call->bounds[s]));
    several |= pegen_count_sequences(&call->bounds[s]) > 1;
  }
  if (rows[0] && rows[1] && call->bounds[0].sequences != call->bounds[1].sequences) return PEGEN_ERROR_SEQUENCES;
  if (!several) return 0;
  if (call->tabled) return kernel->grid || kernel->skip_tokens ? PEGEN_ERROR_NO_SEQUENCES : 0;
  for (int s = 0; s < 2; s++) {
    const DLTensor *positions = s && args->k_positions ? args->k_positions : args->positions;
    if (!rows[s]) continue;
    if (positions && kernel->skip_tokens) return PEGEN_ERROR_NO_SEQUENCES;
    if (!positions) call->as_batches[s] = pegen_count_sequences(&call->bounds[s]);
  }
  return 0;
}

static int check_places(const pegen_kernel *kernel, const pegen_call *call, int s, const DLTensor *positions,
                        const DLTensor *rows) {
  if (positions || !call->bounds[s].sequences) return pegen_check_coordinates(kernel, positions, rows);
  return pegen_are_of_length(&call->bounds[s], pegen_grid_tokens(kernel)) ? 0 : PEGEN_ERROR_GRID_SIZE;
}

int pegen_check_operand_shape(const pegen_operand *want, const DLTensor *tensor, int wrong) {
  int64_t count = 1;
  if (tensor->ndim != want->rank) return wrong;
  if (want->rank > 0 && !tensor->shape) return wrong == PEGEN_ERROR_OPERAND_SHAPE ? PEGEN_ERROR_NULL_SHAPE : wrong;
  for (int i = want->rank - 1; i >= 0; i--) {
    if (tensor->shape[i] != want->shape[i]) return wrong;
    if (tensor->strides && want->shape[i] > 1 && tensor->strides[i] != count) return wrong;
    count *= want->shape[i]; /* the compiler's own sizes: small */
  }
  return 0;
}

/* An input is [B,H,N,size], or [B,H,N] where size is 0, or a pair's [B,H,N,keys] (-1: of packed sequences), as the rows
 * are; [N,H,size] and [N,H] where those are [N,H,D]. repeats: or has one batch, or head, for all; of keys it may have
 * heads, those of queries. */
static int check_input_shape(const pegen_input *want, const DLTensor *tensor, const DLTensor *rows, int64_t heads,
                             int64_t repeats, int64_t keys) {
  int rank = want->size ? 4 : 3;
  int64_t width = want->size == PEGEN_SIZE_OF_KEYS ? keys : want->size;
  if (tensor->ndim != rows->ndim - (4 - rank)) return PEGEN_ERROR_INPUT_SHAPE;
  if (!tensor->shape) return PEGEN_ERROR_NULL_SHAPE;
  for (int i = 0; i < PEGEN_VIEW_DIMS; i++) {
    int64_t size = pegen_rows_size(tensor, rank, i);
    if (size != pegen_rows_size(rows, 4, i) && !(repeats && i != PEGEN_TOKEN && size == 1) &&
        !(i == PEGEN_HEAD && size == heads))
      return PEGEN_ERROR_INPUT_SHAPE;
  }
  return rank == 3 || tensor->shape[tensor->ndim - 1] == width ? 0 : PEGEN_ERROR_INPUT_SHAPE;
}

int pegen_check_input_shapes(const pegen_driver *driver, const pegen_args *args, const DLTensor *rows) {
  const pegen_kernel *kernel = driver->kernel;
  for (int i = 0; i < kernel->n_inputs; i++) {
    const DLTensor *of = pegen_input_is_of_keys(kernel, i) ? args->k : rows;
    int64_t heads = pegen_rows_size(rows, 4, PEGEN_HEAD),
            repeats = driver->turns_rows || pegen_input_is_of_pairs(kernel, i),
            packed = PEGEN_GIVEN(args, cu_seqlens) || PEGEN_GIVEN(args, k_cu_seqlens),
            keys = !args->k || packed ? -1 : pegen_rows_size(args->k, 4, PEGEN_TOKEN);
    PEGEN_TRY(check_input_shape(&kernel->inputs[i], args->inputs[i], of, heads, repeats, keys));
  }
  return 0;
}

/* ---- 5. number types ---- */

int64_t pegen_position_type_of(const DLTensor *tensor) { /* pegen_position_type, or -1 */
  int64_t type = pegen_number_of(tensor->dtype);
  return type < PEGEN_NUMBER_COUNT ? pegen_number_at(type)->position : -1;
}

int pegen_same_type(const DLTensor *a, const DLTensor *b) { return pegen_one_of(a, b->dtype.code, b->dtype.bits); }

/* The type of an output: the input's, or one that the kernel converts to, which may have a scale. */
static int check_output(const pegen_kernel *kernel, const DLTensor *in, const DLTensor *out, const DLTensor *scale,
                        pegen_stream *stream) {
  stream->in_type = pegen_row_type(in);
  stream->out_type = pegen_number_of(out->dtype);
  int is_other = stream->out_type >= PEGEN_ROW_TYPES && stream->out_type < PEGEN_OUT_TYPES;
  if (stream->out_type != stream->in_type && !is_other) return PEGEN_ERROR_DTYPE_MISMATCH;
  if (!(kernel->dtypes & pegen_number_pair(stream->in_type, stream->out_type))) return PEGEN_ERROR_DTYPE;
  if (!scale) return 0;
  if (!is_other || !pegen_one_of(scale, kDLFloat, 32) || (scale->ndim > 0 && !scale->shape))
    return PEGEN_ERROR_OUTPUT_SCALE;
  for (int i = 0; i < scale->ndim; i++)
    if (scale->shape[i] != 1) return PEGEN_ERROR_OUTPUT_SCALE;
  return scale->ndim < 0 ? PEGEN_ERROR_OUTPUT_SCALE : 0;
}

/* Bits of kernels that read such rows, whatever they write. */
static uint32_t bits_of(int64_t type) {
  uint32_t bits = pegen_number_at(type)->dtype;
  for (int64_t out = PEGEN_ROW_TYPES; out < PEGEN_OUT_TYPES; out++) bits |= pegen_number_pair(type, out);
  return bits;
}

static int check_types(const pegen_driver *driver, const pegen_args *args, pegen_call *call) {
  const DLTensor *first = args->q ? args->q : args->k;
  call->type = pegen_row_type(first);
  call->wide_inputs = 0; /* also of k alone, whose call has no inputs */
  if (call->type < 0 || !(driver->kernel->dtypes & bits_of(call->type))) return PEGEN_ERROR_DTYPE;
  if (args->k && !pegen_same_type(args->k, first)) return PEGEN_ERROR_DTYPE_MISMATCH;
  const DLTensor *q_scale = PEGEN_GIVEN(args, q_scale), *k_scale = PEGEN_GIVEN(args, k_scale);
  if (args->q) PEGEN_TRY(check_output(driver->kernel, args->q, args->q_out, q_scale, &call->stream[0]));
  return args->k ? check_output(driver->kernel, args->k, args->k_out, k_scale, &call->stream[1]) : 0;
}

/* Inputs that pairs read are of float32, or 16 bits where pairs have a number each; all others of q's type, or all of
 * float32. */
int pegen_check_inputs(const pegen_kernel *kernel, const pegen_args *args, int64_t type, int64_t *are_wide,
                       pegen_view *views) {
  int is_first = 1;
  *are_wide = 0;
  for (int i = 0; i < kernel->n_inputs; i++) {
    const DLTensor *input = args->inputs[i];
    int is_f32 = pegen_one_of(input, kDLFloat, 32), wide = type > 0 && is_f32;
    if (!pegen_input_is_of_pairs(kernel, i)) {
      if ((!wide && pegen_row_type(input) != type) || (!is_first && wide != *are_wide)) return PEGEN_ERROR_INPUT_DTYPE;
      *are_wide = wide;
      is_first = 0;
    } else if (!is_f32 && !(pegen_reads_narrow_pairs(kernel, i) && pegen_row_type(input) > 0)) {
      return PEGEN_ERROR_INPUT_DTYPE;
    }
    if (!pegen_on_host(input)) return PEGEN_ERROR_DEVICE;
    PEGEN_TRY(pegen_view_like_rows(input, kernel->inputs[i].size != 0, &views[i]));
  }
  return 0;
}

/* ---- 6. memory ---- */

int pegen_view_rows(const DLTensor *tensor, pegen_view *view) {
  return pegen_on_host(tensor) ? pegen_view_like_rows(tensor, 1, view) : PEGEN_ERROR_DEVICE;
}

static int view_cache(const DLTensor *cache, pegen_view *view) {
  return pegen_on_host(cache) ? pegen_view_pages(cache, view) : PEGEN_ERROR_DEVICE;
}

int pegen_check_rows_like(const DLTensor *rows, const DLTensor *of, int64_t width, int is_gradient, pegen_view *view) {
  if (is_gradient && rows->ndim != of->ndim) return PEGEN_ERROR_RANK;
  int error = pegen_check_rows_shape(rows, width);
  if (error) return is_gradient && error == PEGEN_ERROR_HEAD_DIM ? PEGEN_ERROR_GRADIENT_SHAPE : error;
  if (rows->ndim != of->ndim) return PEGEN_ERROR_RANK;
  if (!pegen_same_rows(rows, 4, of, 4)) return is_gradient ? PEGEN_ERROR_GRADIENT_SHAPE : PEGEN_ERROR_SHAPE_MISMATCH;
  if (!pegen_same_type(rows, of)) return is_gradient ? PEGEN_ERROR_GRADIENT_DTYPE : PEGEN_ERROR_DTYPE_MISMATCH;
  return pegen_view_rows(rows, view);
}

static int view_pair(const DLTensor *in, const DLTensor *out, int64_t is_written, int is_paged, pegen_stream *stream) {
  int error = pegen_view_rows(in, &stream->in), is_same = in == out && !is_paged;
  if (error) return error;
  stream->in_place = is_same; /* the usual way to say it: nothing to compute twice */
  stream->out = is_same ? &stream->in : &stream->out_of_place;
  if (!is_same) error = (is_paged ? view_cache : pegen_view_rows)(out, &stream->out_of_place);
  if (error == PEGEN_ERROR_SIZE_OVERFLOW && out->strides) return PEGEN_ERROR_STRIDE;
  if (error) return error;
  if (is_written && !stream->out->empty && !pegen_view_nests(stream->out)) return PEGEN_ERROR_STRIDE;
  if (!is_same && !is_paged) stream->in_place = pegen_views_equal(&stream->in, stream->out);
  return 0;
}

int pegen_view_coordinates(const pegen_kernel *kernel, const DLTensor *positions, int64_t tokens, int64_t *type,
                           int64_t *is_bare, pegen_view *view) {
  *type = positions ? pegen_position_type_of(positions) : -1;
  *is_bare = positions && pegen_bare_positions(kernel, positions, tokens);
  if (!positions) return 0;
  if (*type < 0) return PEGEN_ERROR_POSITIONS_DTYPE;
  return pegen_on_host(positions) ? pegen_view_positions(positions, *is_bare, view) : PEGEN_ERROR_DEVICE;
}

static int view_positions(const pegen_kernel *kernel, const DLTensor *positions, int64_t tokens, pegen_stream *stream) {
  stream->grid = !positions;
  return pegen_view_coordinates(kernel, positions, tokens, &stream->position_type, &stream->bare, &stream->positions);
}

/* What there is to know of positions without q and k. */
static int check_positions_alone(const pegen_kernel *kernel, const DLTensor *positions) {
  int rank = positions->ndim;
  if (rank != 2 && rank != 3 && !(rank == 1 && kernel->n_axes == 1)) return PEGEN_ERROR_POSITIONS_SHAPE;
  if (!positions->shape) return PEGEN_ERROR_NULL_SHAPE;
  for (int i = 0; i < rank; i++)
    if (positions->shape[i] < 0) return PEGEN_ERROR_NEGATIVE_SIZE;
  return pegen_bare_positions(kernel, positions, -1) || positions->shape[rank - 1] == kernel->n_axes
             ? 0
             : PEGEN_ERROR_POSITIONS_SHAPE;
}

/* [P], or [B,P] of as many batches or sequences as the call has. */
static int view_given_origin(const pegen_kernel *kernel, const DLTensor *given, int64_t batches, pegen_origin *o) {
  int rank = given->ndim;
  if ((rank != 1 && rank != 2) || !given->shape || given->shape[rank - 1] != kernel->n_axes ||
      (rank == 2 && given->shape[0] != batches) || (o->type = pegen_position_type_of(given)) < 0)
    return PEGEN_ERROR_ORIGIN;
  o->is_given = 1;
  return pegen_on_host(given) ? pegen_view_of(given, 0, &o->view) : PEGEN_ERROR_DEVICE;
}

/* positions of q, which may not be given. */
static int view_middle(const pegen_kernel *kernel, const pegen_args *args, int64_t batches, pegen_origin *o) {
  const DLTensor *positions = args->positions;
  PEGEN_TRY(check_positions_alone(kernel, positions));
  o->type = pegen_position_type_of(positions);
  if (o->type < 0) return PEGEN_ERROR_POSITIONS_DTYPE;
  if (!pegen_on_host(positions)) return PEGEN_ERROR_DEVICE;
  PEGEN_TRY(pegen_view_positions(positions, pegen_bare_positions(kernel, positions, -1), &o->view));
  if (o->view.size[PEGEN_POSITION_BATCH] != 1 && o->view.size[PEGEN_POSITION_BATCH] != batches)
    return PEGEN_ERROR_POSITIONS_SHAPE;
  return pegen_has_bounds(args) ? pegen_read_bounds(args, 0, o->view.size[PEGEN_POSITION_TOKEN], &o->bounds) : 0;
}

/* Where columns count from. is_known: the call has all rows that count from there, or (backward) is one of a call that
 * had. */
static int check_origin(const pegen_kernel *kernel, const pegen_args *args, int is_known, pegen_call *call) {
  const DLTensor *given = PEGEN_GIVEN(args, origin), *rows = args->q ? args->q : args->k;
  const pegen_stream *of = &call->stream[args->q ? 0 : 1];
  const pegen_bounds *sequences = &call->bounds[args->q ? 0 : 1];
  int64_t batches = sequences->sequences ? sequences->sequences : pegen_rows_size(rows, 4, PEGEN_BATCH);
  pegen_origin *o = &call->origin;
  o->is_given = 0;
  o->type = -1;
  o->view.empty = 1;
  pegen_no_bounds(&o->bounds);
  if (!pegen_has_origin(kernel) || (!args->positions && !args->k_positions)) return given ? PEGEN_ERROR_ORIGIN : 0;
  if (given) return view_given_origin(kernel, given, batches, o);
  if (!is_known || (!args->positions && !kernel->grid)) return PEGEN_ERROR_ORIGIN;
  if (!args->positions) return 0;
  if (!args->q && args->k_positions) return view_middle(kernel, args, batches, o);
  o->type = of->position_type;
  o->view = of->positions;
  o->bounds = *sequences;
  return 0;
}

/* 1 / scale, or NaN of what is no scale; of GPUs' scales nothing is read. */
static int view_scale(const DLTensor *scale, pegen_view *view, double *gain) {
  *gain = 1;
  view->empty = 1;
  if (!scale) return 0;
  if (!pegen_on_host(scale)) return PEGEN_ERROR_DEVICE;
  PEGEN_TRY(pegen_view_contiguous(scale, view));
#ifndef PEGEN_CHECK_ANY_DEVICE
  float value = *(const float *)view->base;
  *gain = value >= FLT_MIN && value <= FLT_MAX ? 1 / value : __builtin_nan("");
#endif
  return 0;
}

/* Inputs that there are not: nothing meets them, and their strides are 0. */
static void clear_inputs(const pegen_kernel *kernel, pegen_call *call) {
  for (int i = 0; i < kernel->n_inputs; i++) pegen_view_memory(0, 0, &call->input[i]);
}

/* ---- all of them ---- */

int pegen_check_struct(const void *given, uint32_t size, size_t first, size_t known) {
  const uint64_t *words = given;
  if (size < first || size > PEGEN_ARGS_MOST_SIZE || size % sizeof *words) return PEGEN_ERROR_STRUCT_SIZE;
  for (size_t i = known / sizeof *words; i < size / sizeof *words; i++)
    if (words[i]) return PEGEN_ERROR_UNKNOWN_FIELD;
  return 0;
}

int pegen_check_part(const pegen_args *args, int part, int parts, pegen_argument_use use) {
  if (!args) return PEGEN_ERROR_NULL_ARGS;
  PEGEN_TRY(pegen_check_struct(args, args->struct_size, PEGEN_ARGS_FIRST_SIZE, sizeof *args));
  if (part < 0 || part >= parts) return PEGEN_ERROR_PART;
  int64_t token = PEGEN_GIVEN(args, first_token);
#ifdef PEGEN_CHECK_ANY_DEVICE /* boundaries are read here, and entries know how many tokens are skipped */
  if (pegen_has_bounds(args)) return PEGEN_ERROR_NO_SEQUENCES;
  if (token) return PEGEN_ERROR_FIRST_TOKEN;
  if (PEGEN_GIVEN(args, block_table) || PEGEN_GIVEN(args, lengths)) return PEGEN_ERROR_NO_PAGES;
  if (PEGEN_GIVEN(args, slots)) return PEGEN_ERROR_NO_SLOTS;
#endif
  if (token < 0) return PEGEN_ERROR_FIRST_TOKEN;
#define GIVEN_args(field) PEGEN_GIVEN(args, field)
#define GIVEN_grad(field) 0
#define X(of, field, kind, shape, type, uses, wrong, refused) \
  if (PEGEN_ERROR_##refused != 0 && GIVEN_##of(field) && uses[use] == '.') return PEGEN_ERROR_##refused;
  PEGEN_ARGUMENTS(X)
#undef X
  return 0;
}

int pegen_check_inputs_given(const pegen_kernel *kernel, const pegen_args *args) {
  const DLTensor *const *inputs = PEGEN_GIVEN(args, inputs);
  if (PEGEN_GIVEN(args, n_inputs) < kernel->n_inputs || (kernel->n_inputs && !inputs)) return PEGEN_ERROR_MISSING_INPUT;
  for (int i = 0; i < kernel->n_inputs; i++)
    if (!inputs[i]) return PEGEN_ERROR_MISSING_INPUT;
  return 0;
}

int pegen_check_operands(const pegen_kernel *kernel, const pegen_args *args) {
  pegen_view view;
  if (args->n_operands < kernel->n_operands || (kernel->n_operands && !args->operands))
    return PEGEN_ERROR_MISSING_OPERAND;
  for (int i = 0; i < kernel->n_operands; i++) {
    const DLTensor *operand = args->operands[i];
    if (!operand) return PEGEN_ERROR_MISSING_OPERAND;
    PEGEN_TRY(pegen_check_operand_shape(&kernel->operands[i], operand, PEGEN_ERROR_OPERAND_SHAPE));
    if (!pegen_number_is_operand(operand->dtype)) return PEGEN_ERROR_OPERAND_DTYPE;
    if (!pegen_on_host(operand)) return PEGEN_ERROR_DEVICE;
    PEGEN_TRY(pegen_view_contiguous(operand, &view));
  }
  return 0;
}

int pegen_check_written(const pegen_driver *driver, const pegen_args *args, int64_t row_bytes,
                        const int64_t *is_written, int64_t narrows, pegen_call *call) {
  const pegen_kernel *kernel = driver->kernel;
  int is_paged = PEGEN_GIVEN(args, slots) != 0;
  const DLTensor *q = args->q, *k = args->k, *with_inputs = driver->turns_rows && !q ? k : q;
  if (!q != !args->q_out || !k != !args->k_out || (is_paged && !k)) return PEGEN_ERROR_MISSING_OUTPUT;
  if (!q && !k) return PEGEN_ERROR_NOTHING_TO_DO;
  /* With a table, positions and operands are not needed and not looked at. */
#ifdef PEGEN_CHECK_ANY_DEVICE /* tables are for processors */
  int tabled = 0;
#else
  int tabled = kernel->prepare && PEGEN_GIVEN(args, table) != 0;
#endif
  call->tabled = tabled;
  const DLTensor *q_positions = tabled ? 0 : args->positions;
  const DLTensor *k_positions = tabled ? 0 : args->k_positions ? args->k_positions : args->positions;
  if (!tabled && !kernel->grid && ((q && !q_positions) || (k && !k_positions))) return PEGEN_ERROR_MISSING_POSITIONS;
  if (PEGEN_GIVEN(args, first_token) && ((q && !q_positions) || (k && !k_positions))) return PEGEN_ERROR_FIRST_TOKEN;
  if (!tabled) PEGEN_TRY(pegen_check_operands(kernel, args));
  if (with_inputs) PEGEN_TRY(pegen_check_inputs_given(kernel, args));

  PEGEN_TRY(check_shapes(driver, args, is_written, narrows, is_paged));
  PEGEN_TRY(check_sequences(kernel, args, call));
  if (!tabled && q) PEGEN_TRY(check_places(kernel, call, 0, q_positions, q));
  if (!tabled && k) PEGEN_TRY(check_places(kernel, call, 1, k_positions, k));
  if (with_inputs) PEGEN_TRY(pegen_check_input_shapes(driver, args, with_inputs));
  if (driver->turns_rows && k) PEGEN_TRY(pegen_check_input_shapes(driver, args, k));

  PEGEN_TRY(check_types(driver, args, call));
  clear_inputs(kernel, call);
  int64_t input_type = driver->turns_rows ? PEGEN_NUMBER_F32 : call->type;
  if (with_inputs) PEGEN_TRY(pegen_check_inputs(kernel, args, input_type, &call->wide_inputs, call->input));

  pegen_stream *queries = &call->stream[0], *keys = &call->stream[1];
  for (int s = 0; s < 2; s++) {
    pegen_stream *stream = &call->stream[s];
    stream->given = (s ? k : q) != 0;
    stream->keys = s;
    stream->group = !s && q ? group_of(driver, q) : 1;
    stream->slots = 0;
    stream->norm = 0;
    stream->epsilon = 0;
  }
  if (q) PEGEN_TRY(view_pair(q, args->q_out, is_written[0], 0, queries));
  if (k) PEGEN_TRY(view_pair(k, args->k_out, is_written[1], is_paged, keys));
  if (q) PEGEN_TRY(view_positions(kernel, q_positions, pegen_rows_size(q, 4, PEGEN_TOKEN), queries));
  if (k) PEGEN_TRY(view_positions(kernel, k_positions, pegen_rows_size(k, 4, PEGEN_TOKEN), keys));
  if (q) PEGEN_TRY(view_scale(PEGEN_GIVEN(args, q_scale), &queries->scale, &queries->gain));
  if (k) PEGEN_TRY(view_scale(PEGEN_GIVEN(args, k_scale), &keys->scale, &keys->gain));
  int is_known = narrows || (q && k && is_written[0] && is_written[1] && !is_paged);
  PEGEN_TRY(check_origin(kernel, args, is_known, call));
  if (tabled) PEGEN_TRY(pegen_table_check(driver, args, row_bytes));

  if (is_paged) PEGEN_TRY(pegen_check_slots(args->slots, k, keys));
  const pegen_view *const written[2] = {is_written[0] ? queries->out : 0, is_written[1] ? keys->out : 0};
  pegen_memory memory;
  pegen_memory_of_rows(&memory, driver, args, call, written);
  if (is_paged) pegen_memory_reads(&memory, &keys->slot_view);
  PEGEN_TRY(pegen_check_memory(&memory));
  /* One pass knows one type beside that of the inputs. */
  int both_convert = q && k && pegen_converts(queries) && pegen_converts(keys) && queries->out_type != keys->out_type;
  call->joint = q && k && !both_convert && !driver->has_sides && q_positions == k_positions &&
                pegen_rows_size(q, 4, PEGEN_TOKEN) == pegen_rows_size(k, 4, PEGEN_TOKEN) &&
                !(tabled && pegen_table_sections(args) > 1) && call->as_batches[0] == call->as_batches[1];
  pegen_as_batches(&queries->in, call->as_batches[0]);
  pegen_as_batches(&queries->out_of_place, queries->given && queries->out != &queries->in ? call->as_batches[0] : 0);
  pegen_as_batches(&keys->in, call->as_batches[1]);
  pegen_as_batches(&keys->out_of_place, keys->given && keys->out != &keys->in ? call->as_batches[1] : 0);
  for (int i = 0; i < kernel->n_inputs && q; i++) pegen_as_batches(&call->input[i], call->as_batches[0]);
  return 0;
}

int pegen_check_values(const pegen_driver *driver, const pegen_args *args, pegen_stream *stream) {
  const DLTensor *scale = PEGEN_GIVEN(args, v_scale);
  PEGEN_TRY(check_cache_shape(driver->kernel, args->v, args->v_out));
  PEGEN_TRY(check_output(driver->kernel, args->v, args->v_out, scale, stream));
  PEGEN_TRY(view_pair(args->v, args->v_out, 1, 1, stream));
  PEGEN_TRY(view_scale(scale, &stream->scale, &stream->gain));
  return pegen_check_slots(args->slots, args->v, stream);
}

int pegen_check(const pegen_driver *driver, const pegen_args *args, int part, int parts, int64_t row_bytes,
                pegen_call *call) {
  static const int64_t is_written[2] = {1, 1};
  PEGEN_TRY(pegen_check_part(args, part, parts, PEGEN_USE_encode));
  PEGEN_TRY(pegen_check_written(driver, args, row_bytes, is_written, 0, call));
  if (PEGEN_GIVEN(args, slots)) pegen_go_to_page(&call->stream[1]);
  return 0;
}

int pegen_check_prepare(const pegen_driver *driver, const pegen_args *args, int part, int parts, pegen_call *call) {
  const pegen_kernel *kernel = driver->kernel;
  PEGEN_TRY(pegen_check_part(args, part, parts, PEGEN_USE_prepare));
  const DLTensor *positions[2] = {args->positions, args->k_positions};
  call->origin.view.empty = 1;
  if (driver->has_sides && !positions[1]) positions[1] = positions[0];
  if (!positions[0] && !kernel->grid) return PEGEN_ERROR_MISSING_POSITIONS;
  PEGEN_TRY(pegen_check_operands(kernel, args));
  for (int s = 0; s < 2; s++)
    if (positions[s]) PEGEN_TRY(check_positions_alone(kernel, positions[s]));
  for (int s = 0; s < 2; s++) {
    call->stream[s].given = s == 0 || positions[s] || driver->has_sides;
    if (call->stream[s].given) PEGEN_TRY(view_positions(kernel, positions[s], -1, &call->stream[s]));
  }
  return 0;
}
