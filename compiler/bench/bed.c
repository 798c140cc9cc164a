/* bench/bed: see bench/bed.h. */
#include "bench/bed.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { HUGE_PAGE = 2 * 1024 * 1024, PATTERN = 65521 };

void *bed_allocate(size_t bytes) {
  size_t room = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
  void *memory = aligned_alloc(HUGE_PAGE, room);
  if (!memory) return NULL;
  madvise(memory, room, MADV_HUGEPAGE);
  return memset(memory, 0, room);
}

void bed_fill(const bed *b) {
  for (int t = TENSOR_Q; t <= TENSOR_K; t++)
    for (size_t at = 0; at < b->bytes; at += b->pattern_bytes) {
      size_t left = b->bytes - at;
      memcpy((char *)b->data[t] + at, b->pattern, left < b->pattern_bytes ? left : b->pattern_bytes);
    }
}

DLTensor bed_tensor(void *data, number_type type, int rank, int64_t *dims, int64_t *strides) {
  return (DLTensor){.data = data,
                    .device = {kDLCPU, 0},
                    .ndim = rank,
                    .dtype = number_type_info(type)->dl,
                    .shape = dims,
                    .strides = strides};
}

static void lay_operands(arena *a, bed *b, const spec *s, uint64_t *seed) {
  b->operand = arena_array(a, DLTensor, s->n_operands);
  b->operands = arena_array(a, const DLTensor *, s->n_operands);
  for (int i = 0; i < s->n_operands; i++) {
    const spec_operand *o = &s->operand[i];
    int64_t count = 1, *dims = arena_array(a, int64_t, o->rank);
    for (int d = 0; d < o->rank; d++) count *= dims[d] = o->shape[d];
    float *values = arena_array(a, float, count);
    for (int64_t j = 0; j < count; j++) values[j] = (float)random_uniform(seed, -o->test_scale, o->test_scale);
    b->operand[i] = bed_tensor(values, NUMBER_F32, o->rank, dims, NULL);
    b->operands[i] = &b->operand[i];
  }
}

static const char *lay_pattern(arena *a, bed *b, uint64_t *seed) {
  size_t element = (size_t)number_type_info(b->type)->bytes;
  char *pattern = arena_alloc(a, PATTERN * element);
  for (size_t i = 0; i < PATTERN; i++) number_store(b->type, pattern + i * element, random_uniform(seed, -1, 1));
  b->pattern_bytes = PATTERN * element;
  return pattern;
}

void bed_clear(bed *b) {
  for (int t = 0; t < TENSOR_COUNT; t++) free(b->data[t]), free(b->scratch[t]);
  for (int i = 0; i < SPEC_MAX_INPUTS; i++) free(b->input[i]);
  free(b->table);
  for (int i = 0; i < 2; i++) free(b->backward.kept[i]);
  for (int i = 0; i < SPEC_MAX_INPUTS; i++) free(b->backward.input[i]);
  free(b->backward.workspace);
  free(b->backward.torques);
  free(b->backward.prepare_workspace);
}

static void set_strides(int64_t *strides, const bench_shape *size, bench_layout layout, int64_t channels) {
  bench_shape rows = *size;
  rows.head_dim = channels;
  bench_strides(&rows, layout, strides);
}

/* Inputs of the query tokens, in the memory order of q; of rows that they turn in float32, the only type of these. */
static bool lay_inputs(arena *a, bed *b, const spec *s, bench_layout layout, uint64_t *seed) {
  number_type type = spec_turns_rows(s) ? NUMBER_F32 : b->type;
  size_t element = (size_t)number_type_info(type)->bytes;
  bench_shape rows = b->size;
  if (rows.shares_inputs) rows.heads = 1;
  for (int i = 0; i < s->n_inputs; i++) {
    int64_t size = s->input[i].size ? s->input[i].size : 1, count = rows.batches * rows.heads * rows.tokens * size;
    int64_t *dims = arena_array(a, int64_t, 4), *strides = arena_array(a, int64_t, 4);
    memcpy(dims, (int64_t[]){rows.batches, rows.heads, rows.tokens, size}, 4 * sizeof *dims);
    set_strides(strides, &rows, layout, size);
    if (!(b->input[i] = bed_allocate((size_t)count * element))) return false;
    for (int64_t k = 0; k < count; k++)
      number_store(type, (char *)b->input[i] + (size_t)k * element,
                   random_uniform(seed, -s->input[i].test_scale, s->input[i].test_scale));
    b->input_tensor[i] = bed_tensor(b->input[i], type, s->input[i].size ? 4 : 3, dims, strides);
    b->inputs[i] = &b->input_tensor[i];
    b->input_bytes[i] = (size_t)count * element;
    b->moved += b->input_bytes[i];
  }
  return true;
}

/* Where outputs are wider than inputs, the limit copies as many bytes between tensors of one size. */
static bool lay_scratch(bed *b) {
  for (int t = 0; t < TENSOR_COUNT && b->out_bytes != b->bytes; t++)
    if (!(b->scratch[t] = bed_allocate(b->moved / 4))) return false;
  return true;
}

bool bed_lay(arena *a, bed *b, const spec *s, const pegen_kernel *kernel, const bench_shape *size, number_type type,
             bench_layout layout, bool in_place) {
  uint64_t seed = 1;
  *b = (bed){.size = *size, .type = type};
  int64_t B = size->batches, N = size->tokens, H = size->heads, D = size->head_dim;
  b->bytes = (size_t)(B * N * H * D) * (size_t)number_type_info(type)->bytes;
  b->pattern = lay_pattern(a, b, &seed);
  int64_t E = kernel->widths ? kernel->widths[type].out_dim : kernel->out_dim;
  b->out_bytes = b->bytes / (size_t)D * (size_t)E;
  b->moved = 2 * (b->bytes + b->out_bytes);
  memcpy(b->dims, (int64_t[]){B, H, N, D}, sizeof b->dims);
  memcpy(b->out_dims, (int64_t[]){B, H, N, E}, sizeof b->out_dims);
  set_strides(b->strides, size, layout, D);
  set_strides(b->out_strides, size, layout, E);
  for (int t = 0; t < TENSOR_COUNT; t++) {
    bool is_out = t >= TENSOR_Q_OUT, shared = in_place && is_out;
    if (!shared && !(b->data[t] = bed_allocate(is_out ? b->out_bytes : b->bytes))) {
      bed_clear(b);
      return false;
    }
    b->tensor[t] = bed_tensor(b->data[shared ? t - TENSOR_Q_OUT : t], type, 4, is_out ? b->out_dims : b->dims,
                              is_out ? b->out_strides : b->strides);
  }
  if (!lay_inputs(a, b, s, layout, &seed) || !lay_scratch(b)) {
    bed_clear(b);
    return false;
  }
  bed_fill(b);
  int64_t *dims = arena_array(a, int64_t, 2);
  dims[0] = N, dims[1] = kernel->n_axes;
  b->positions = bed_tensor(bench_positions(a, N, kernel->n_axes), NUMBER_F32, 2, dims, NULL);
  lay_operands(a, b, s, &seed);
  b->args = (pegen_args){.struct_size = sizeof(pegen_args),
                         .n_operands = s->n_operands,
                         .operands = b->operands,
                         .q = &b->tensor[TENSOR_Q],
                         .k = &b->tensor[TENSOR_K],
                         .q_out = &b->tensor[TENSOR_Q_OUT],
                         .k_out = &b->tensor[TENSOR_K_OUT],
                         .positions = kernel->grid ? NULL : &b->positions,
                         .inputs = b->inputs,
                         .n_inputs = s->n_inputs};
  return true;
}

int bed_lay_table(bed *b, const pegen_kernel *kernel) {
  b->table_bytes = kernel->table_bytes(&b->args);
  if (!(b->table = bed_allocate(b->table_bytes ? b->table_bytes : 1))) return 0;
  b->args.table = b->table;
  b->args.table_bytes = b->table_bytes;
  return kernel->prepare(&b->args, 0, 1);
}
