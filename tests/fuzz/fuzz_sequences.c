/* fuzz_sequences: see fuzz_sequences.h. */
#include "fuzz_sequences.h"

#include <stdlib.h>
#include <string.h>

/* Dimensions [B,H,N,D] become [N,H,D], [B,N,axes] becomes [N,axes], and [B,H,N] (of_lse) [N,H]. */
static void drop_batch(fuzz_tensor *t, int rank, bool of_lse) {
  static const int of_rows[] = {2, 1, 3}, of_places[] = {1, 2};
  const int *from = rank == 4 || of_lse ? of_rows : of_places;
  if (t->dl.ndim != rank || !t->shape || !t->strides) return;
  int64_t *shape = malloc(sizeof(int64_t) * (size_t)(rank - 1)),
          *strides = malloc(sizeof(int64_t) * (size_t)(rank - 1));
  if (!shape || !strides) abort();
  for (int i = 0; i < rank - 1; i++) shape[i] = t->shape[from[i]], strides[i] = t->strides[from[i]];
  free(t->shape);
  free(t->strides);
  t->dl.shape = t->shape = shape;
  t->dl.strides = t->strides = strides;
  t->dl.ndim = rank - 1;
}

/* Boundaries that rise to `total`, or any. */
static bool place_bounds(reader *r, fuzz_sequences *s, int which, int64_t sequences, int64_t total) {
  bool sound = total >= 0 && total < 1 << 20 && (sequences > 0 || total == 0);
  int32_t *at = malloc(sizeof(int32_t) * (size_t)(sequences + 1)), before = 0;
  if (!at) abort();
  for (int64_t i = 0; i <= sequences; i++) {
    before += i > 0 && sound ? (int32_t)below(r, (unsigned)(total - before) + 1) : 0;
    at[i] = i == sequences && sound ? (int32_t)total : before;
  }
  s->count[which] = sequences + 1;
  s->stride[which] = 1;
  s->of[which] = (DLTensor){.data = at,
                            .device = {kDLCPU, 0},
                            .ndim = 1,
                            .dtype = {kDLInt, 32, 1},
                            .shape = &s->count[which],
                            .strides = &s->stride[which]};
  if (byte(r) % 4) return sound;
  switch (below(r, 8)) {
  case 0: at[below(r, (unsigned)sequences + 1)] = (int32_t)number(r); break;
  case 1: s->of[which].strides = NULL; return sound;
  case 2: s->stride[which] = number(r); break;
  case 3: s->of[which].dtype.bits = 64; break;
  case 4: s->of[which].ndim = (int32_t)below(r, 3); break;
  case 5: s->of[which].device.device_type = kDLCUDA; break;
  case 6: s->of[which].shape = NULL; break;
  case 7: s->count[which] = -(int64_t)below(r, 3); break;
  }
  return false;
}

static int64_t tokens_of(const fuzz_call *c, int which) {
  const fuzz_tensor *t = &c->tensor[which];
  return t->shape && t->dl.ndim == 3 ? t->shape[0] : -1;
}

void fuzz_sequences_make(reader *r, fuzz_call *c, fuzz_sequences *s) {
  static const int rows[] = {FUZZ_Q,       FUZZ_K,       FUZZ_V,     FUZZ_OUT, FUZZ_Q_OUT, FUZZ_K_OUT,
                             FUZZ_G_Q_OUT, FUZZ_G_K_OUT, FUZZ_G_OUT, FUZZ_G_Q, FUZZ_G_K,   FUZZ_G_V},
                   places[] = {FUZZ_POSITIONS, FUZZ_K_POSITIONS, FUZZ_G_POSITIONS, FUZZ_G_K_POSITIONS},
                   lse[] = {FUZZ_LSE, FUZZ_G_LSE};
  int64_t sequences = below(r, 5), batches = c->sound ? c->tensor[FUZZ_Q].shape[0] : 0;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) drop_batch(&c->tensor[rows[i]], 4, false);
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) drop_batch(&c->tensor[places[i]], 3, false);
  for (size_t i = 0; i < sizeof lse / sizeof *lse; i++) drop_batch(&c->tensor[lse[i]], 3, true);
  for (int i = 0; i < c->kernel->n_inputs; i++) {
    bool is_number = !c->kernel->inputs[i].size;
    drop_batch(&c->tensor[FUZZ_INPUT + i], is_number ? 3 : 4, is_number);
    drop_batch(&c->tensor[FUZZ_G_INPUT + i], is_number ? 3 : 4, is_number);
  }
  bool of_q = place_bounds(r, s, 0, sequences, tokens_of(c, FUZZ_Q)),
       of_k = place_bounds(r, s, 1, sequences, tokens_of(c, FUZZ_K));
  bool has_places = c->args.positions || !c->of.attention || !c->of.attention->placed;
  s->sound = c->entry == FUZZ_ATTENTION && c->sound && of_q && of_k && has_places && batches > 0;
  if (c->args.struct_size == PEGEN_ARGS_FIRST_SIZE) c->args.struct_size = sizeof c->args;
  c->args.cu_seqlens = &s->of[0];
  c->args.k_cu_seqlens = &s->of[1];
}

void fuzz_sequences_free(fuzz_sequences *s) {
  for (int i = 0; i < 2; i++) free(s->of[i].data);
}
