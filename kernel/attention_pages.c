/* attention_pages.c: keys and values in pages [pages,page_size,Hkv,D], of which a sequence has those that its row of a
 * block table names, in that order, and so many keys as its length says.
 *
 * What is checked first is a call without pages, as if a sequence's keys were one row again and again; then lengths,
 * the pages that they need, and the memory of all pages. A sequence is a window of that call (attention.c):
 * its keys are counted from 0 on as any others, and only what reads their rows asks where they are.
 */
#include "attention_pages.h"

enum { PAGE_STEP = 16 };

/* ---- shapes ---- */

static int check_pool(const DLTensor *of) {
  int error = pegen_check_pages_shape(of);
  return error || (of->shape[1] >= PAGE_STEP && of->shape[1] % PAGE_STEP == 0) ? error : PEGEN_ERROR_PAGES;
}

/* [sequences] or, where rank is 2, [sequences, most], of adjacent numbers. */
static int is_integers(const DLTensor *of, int rank) {
  if (!of || of->ndim != rank || !of->shape || !pegen_one_of(of, kDLInt, 32)) return 0;
  for (int i = 0; i < rank; i++)
    if (of->shape[i] < 0) return 0;
  return !of->strides || of->shape[rank - 1] < 2 || of->strides[rank - 1] == 1;
}

/* Keys that a sequence may have, as places are counted: those of k_positions, or of the grid, or any that pages have
 * room for. */
static int64_t keys_of(const pegen_pages *p, const pegen_driver *driver, const DLTensor *k_positions) {
  const pegen_attention *form = driver->form;
  const pegen_kernel *kernel = driver->kernel;
  int64_t room, cells = kernel->skip_tokens;
  if (form->placed && k_positions) return k_positions->shape[k_positions->ndim - 2]; /* of two or three dimensions */
  if (form->placed) {
    int64_t grid = 1;
    for (int i = 0; i < kernel->n_axes; i++) grid *= kernel->grid[i];
    return cells + grid;
  }
  if (__builtin_mul_overflow(p->most, p->size, &room) || room > INT32_MAX) room = INT32_MAX;
  return room;
}

/* [1,H,keys,..] as [keys,H,..]. */
static void leave_out_batch(pegen_permuted *rows) {
  int64_t tokens = rows->shape[2], step = rows->stride[2];
  rows->shape[2] = rows->shape[1];
  rows->stride[2] = rows->stride[1];
  rows->shape[1] = tokens;
  rows->stride[1] = step;
  rows->tensor.ndim--;
  rows->tensor.shape = rows->shape + 1;
  rows->tensor.strides = rows->stride + 1;
}

/* An input of keys, [pages,page_size,H,size] or, of one number a key, [pages,page_size,H]. */
static int flatten_input(pegen_pages *p, int i, const DLTensor *of, const int64_t *batches) {
  if (of->ndim != (p->kernel->inputs[i].size ? 4 : 3)) return PEGEN_ERROR_INPUT_SHAPE;
  if (!of->shape) return PEGEN_ERROR_NULL_SHAPE;
  for (int dim = 0; dim < of->ndim; dim++)
    if (of->shape[dim] < 0) return PEGEN_ERROR_INPUT_SHAPE;
  if (of->shape[0] != p->count || of->shape[1] != p->size) return PEGEN_ERROR_INPUT_SHAPE;
  PEGEN_TRY(pegen_permute_pages(&p->input_rows[i], &p->input[i], of, batches ? *batches : 1, p->keys));
  if (!batches) leave_out_batch(&p->input[i]);
  p->inputs[i] = &p->input[i].tensor;
  return 0;
}

static int flatten_inputs(pegen_pages *p, const pegen_args *args, const int64_t *batches, pegen_args *flat) {
  int error = pegen_check_inputs_given(p->kernel, args);
  for (int i = 0; i < p->kernel->n_inputs && !error; i++) {
    p->inputs[i] = args->inputs[i];
    if (p->kernel->inputs[i].size == PEGEN_SIZE_OF_KEYS) error = PEGEN_ERROR_INPUT_SHAPE; /* pages have no pairs */
    else if (pegen_input_is_of_keys(p->kernel, i)) error = flatten_input(p, i, args->inputs[i], batches);
  }
  if (p->kernel->n_inputs) flat->inputs = p->inputs;
  return error;
}

int pegen_pages_flatten(pegen_pages *p, const pegen_driver *driver, const pegen_args *args, const int64_t *batches,
                        pegen_args *flat) {
  const DLTensor *table = PEGEN_GIVEN(args, block_table), *lengths = PEGEN_GIVEN(args, lengths),
                 *places = args->k_positions;
  const pegen_attention *form = driver->form;
  int64_t rows = batches ? *batches : 1;
  PEGEN_TRY(check_pool(args->k));
  PEGEN_TRY(check_pool(args->v));
  for (int i = 0; i < 3; i++)
    if (args->k->shape[i] != args->v->shape[i]) return PEGEN_ERROR_SHAPE_MISMATCH;
  if (!is_integers(table, 2) || !is_integers(lengths, 1) || table->shape[0] != lengths->shape[0] ||
      PEGEN_GIVEN(args, k_cu_seqlens) || (form->placed && !places && (args->positions || !driver->kernel->grid)))
    return PEGEN_ERROR_PAGES;
  if (form->placed && places &&
      ((places->ndim != 2 && places->ndim != 3) || !places->shape ||
       places->shape[places->ndim - 1] != driver->kernel->n_axes))
    return PEGEN_ERROR_POSITIONS_SHAPE;
  p->kernel = driver->kernel;
  p->sequences = lengths->shape[0];
  p->most = table->shape[1];
  p->count = args->k->shape[0];
  p->size = args->k->shape[1];
  p->keys = keys_of(p, driver, places);
  PEGEN_TRY(pegen_permute_pages(&p->k_rows, &p->k, args->k, rows, p->keys));
  PEGEN_TRY(pegen_permute_pages(&p->v_rows, &p->v, args->v, rows, p->keys));
  if (!batches) leave_out_batch(&p->k);
  if (!batches) leave_out_batch(&p->v);
  flat->k = &p->k.tensor;
  flat->v = &p->v.tensor;
  if (places && places->ndim == 3 && places->shape && places->shape[0] == p->sequences && rows != p->sequences) {
    pegen_tensor_like(&p->k_positions.tensor, places);
    p->k_positions.tensor.ndim = 2;
    p->k_positions.tensor.shape = places->shape + 1;
    p->k_positions.tensor.strides = places->strides ? places->strides + 1 : 0;
    flat->k_positions = &p->k_positions.tensor;
  }
  return flatten_inputs(p, args, batches, flat);
}

/* ---- memory ---- */

static int view_integers(const DLTensor *of, pegen_view *view) {
  view->empty = 1;
  for (int i = 0; i < of->ndim; i++)
    if (of->shape[i] == 0) return 0;
  return pegen_on_host(of) ? pegen_view_of(of, 1, view) : PEGEN_ERROR_DEVICE;
}

static const int32_t *table_row(const pegen_pages *p, int64_t sequence) {
  return (const int32_t *)(p->table_view.base + (uintptr_t)(sequence * p->table_view.stride[PEGEN_VIEW_DIMS - 1]));
}

static int check_sequences(const pegen_pages *p) {
  for (int64_t sequence = 0; sequence < p->sequences; sequence++) {
    int64_t length = p->lengths[sequence], pages = length > 0 ? (length - 1) / p->size + 1 : 0;
    if (length < 0 || length > p->keys || pages > p->most) return PEGEN_ERROR_LENGTHS;
    for (int64_t i = 0; i < pages; i++) {
      int64_t page = table_row(p, sequence)[i];
      if (page < 0 || page >= p->count) return PEGEN_ERROR_PAGE;
    }
  }
  return 0;
}

void pegen_memory_of_pages(pegen_memory *m, const pegen_pages *p, const pegen_attention_call *call) {
  const pegen_view *read[] = {&p->k_view, &p->v_view, &p->table_view, &p->lengths_view, &call->bounds[0].view};
  for (int i = 0; i < 5; i++) pegen_memory_reads(m, read[i]);
  if (call->k_position_type >= 0) pegen_memory_reads(m, &call->k_positions);
  for (int i = 0; i < p->kernel->n_inputs; i++) pegen_memory_reads(m, &p->input_view[i]);
}

/* A sequence's rows as those of one batch, which begins at page 0: gives bytes from one page to the next. */
static int64_t go_to_pages(pegen_view *rows, const pegen_view *of) {
  rows->base = of->base;
  for (int dim = 0; dim < PEGEN_VIEW_DIMS; dim++) {
    rows->size[dim] = of->size[dim];
    rows->stride[dim] = of->stride[dim];
  }
  rows->size[PEGEN_BATCH] = 1;
  rows->stride[PEGEN_BATCH] = 0;
  return of->stride[PEGEN_BATCH];
}

static int view_inputs(pegen_pages *p) {
  int error = 0;
  for (int i = 0; i < p->kernel->n_inputs && !error; i++) {
    p->input_view[i].empty = 1;
    if (pegen_input_is_of_keys(p->kernel, i))
      error = pegen_view_like_rows(&p->input_rows[i].tensor, p->kernel->inputs[i].size > 0, &p->input_view[i]);
  }
  return error;
}

int pegen_pages_check(pegen_pages *p, const pegen_args *args, int64_t sequences, pegen_attention_call *call) {
  if (p->sequences != sequences) return PEGEN_ERROR_PAGES;
  PEGEN_TRY(pegen_view_rows(&p->k_rows.tensor, &p->k_view));
  PEGEN_TRY(pegen_view_rows(&p->v_rows.tensor, &p->v_view));
  PEGEN_TRY(view_inputs(p));
  PEGEN_TRY(view_integers(args->block_table, &p->table_view));
  PEGEN_TRY(view_integers(args->lengths, &p->lengths_view));
  p->lengths = (const int32_t *)p->lengths_view.base;
  if (call->k_position_type >= 0) PEGEN_TRY(pegen_view_of(args->k_positions, 0, &call->k_positions));
  PEGEN_TRY(check_sequences(p));
  pegen_memory memory;
  pegen_memory_begin(&memory, 0, args, 0); /* the rest was checked with the call without pages */
  pegen_memory_of_pages(&memory, p, call);
  pegen_memory_writes(&memory, &call->out);
  pegen_memory_writes(&memory, &call->lse);
  PEGEN_TRY(pegen_check_memory(&memory));
  call->pages.size = p->size;
  call->pages.k_page = go_to_pages(&call->k, &p->k_view);
  call->pages.v_page = go_to_pages(&call->v, &p->v_view);
  for (int i = 0; i < p->kernel->n_inputs; i++)
    if (pegen_input_is_of_keys(p->kernel, i))
      call->pages.input_page[i] = go_to_pages(&call->input[i], &p->input_view[i]);
  return 0;
}

/* ---- a sequence ---- */

void pegen_pages_set(const pegen_pages *p, int64_t sequence, pegen_attention_call *call) {
  call->pages.table = table_row(p, sequence);
  call->k.size[PEGEN_TOKEN] = call->v.size[PEGEN_TOKEN] = p->lengths[sequence];
}

void pegen_attention_read_pages(const pegen_attention_tile *tile, const char *rows, int64_t of_values, int64_t first,
                                int64_t count, pegen_attention_read_function *read, float *to, int64_t width) {
  const pegen_attention_pages *p = tile->pages;
  int64_t token = of_values ? tile->v_token : tile->k_token, page = of_values ? p->v_page : p->k_page,
          end = first + count;
  for (int64_t key = first, next; key < end; key = next) {
    next = pegen_page_end(p, key, end);
    read((const char *)pegen_paged_row(p, rows, page, token, key), token, next - key, to);
    to += (next - key) * width;
  }
}
