/* launch_kernel.c: what a kernel has for GPUs, of this version or an older one; see launch.h. */
#include "launch.h"

#include <string.h>

const pegen_ptx_attention *pegen_launch_attention_of(const pegen_kernel *kernel) {
  return kernel->attention ? kernel->ptx->attention
                           : NULL; /* older kernels with PTX had no attention, nor that field */
}

/* Older kernels with PTX had no words: entries for encode and, behind them, attention; those of version 0.1 gradients
 * of rows as the last, which are not launched. */
const char *pegen_launch_word_of(const pegen_kernel *kernel, int i) {
  const pegen_ptx_attention *attention = pegen_launch_attention_of(kernel);
  if (PEGEN_LAUNCH_HAS(kernel, attention_backward)) return kernel->ptx->words[i];
  return attention && i >= attention->first_entry ? "attention" : "encode";
}

const pegen_ptx_gradient *pegen_launch_gradient_of(const pegen_kernel *kernel) {
  return PEGEN_LAUNCH_HAS(kernel, attention_backward) ? kernel->ptx->gradient : NULL;
}

/* Older kernels' entries have static shared memory alone. */
int32_t pegen_launch_shared_of(const pegen_kernel *kernel, const pegen_ptx_entry *entry) {
  size_t end = offsetof(pegen_ptx, shared) + sizeof kernel->ptx->shared;
  if (!PEGEN_LAUNCH_HAS(kernel, ptx_size) || kernel->ptx_size < end) return 0;
  return kernel->ptx->shared[entry - kernel->ptx->entries];
}

const void *pegen_launch_cubin_of(const pegen_kernel *kernel) {
  size_t end = offsetof(pegen_ptx, cubin) + sizeof kernel->ptx->cubin;
  return PEGEN_LAUNCH_HAS(kernel, ptx_size) && kernel->ptx_size >= end ? kernel->ptx->cubin : NULL;
}

int pegen_launch_fits(const pegen_launch_request *request, const pegen_ptx_entry *entry) {
  return !request->shared || pegen_launch_shared_of(request->kernel, entry) <= request->shared;
}

int pegen_launch_next(const pegen_kernel *kernel, const char *word, int from) {
  for (int i = from; i < kernel->ptx->n_entries; i++)
    if (strcmp(pegen_launch_word_of(kernel, i), word) == 0) return i;
  return -1;
}

int pegen_launch_is_for(const pegen_kernel *kernel, int i, pegen_launch_entry entry) {
  return strcmp(pegen_launch_word_of(kernel, i), pegen_launch_word(entry)) == 0;
}

/* Rows that are rotated ahead have entries of their own, and so may gradients of rows alone. */
static int gives(const pegen_kernel *kernel, int i, pegen_launch_entry entry) {
  static const struct {
    pegen_launch_entry of;
    const char *word;
  } others[] = {{PEGEN_LAUNCH_attention, PEGEN_PTX_WORD_TURNED},
                {PEGEN_LAUNCH_attention_backward, PEGEN_PTX_WORD_QUERIES_MMA},
                {PEGEN_LAUNCH_attention_backward, PEGEN_PTX_WORD_QUERIES_TURNED}};
  for (int k = 0; k < (int)(sizeof others / sizeof *others); k++)
    if (entry == others[k].of && !strcmp(pegen_launch_word_of(kernel, i), others[k].word)) return 1;
  return pegen_launch_is_for(kernel, i, entry);
}

pegen_launch_entry pegen_launch_find(const pegen_kernel *kernel, const char *name) {
  for (int e = 0; e < PEGEN_LAUNCH_COUNT; e++) {
    pegen_launch_entry entry = (pegen_launch_entry)e, found_by = entry;
    if (entry == PEGEN_LAUNCH_encode_backward_finish) found_by = PEGEN_LAUNCH_encode_backward;
    if (entry == PEGEN_LAUNCH_attention_backward_finish) found_by = PEGEN_LAUNCH_attention_backward;
    if (entry == PEGEN_LAUNCH_attention_finish)
      found_by = PEGEN_LAUNCH_attention; /* of calls not split it is nothing */
    if (name && strcmp(name, pegen_launch_word(entry)) != 0) continue;
    for (int i = 0; i < kernel->ptx->n_entries; i++)
      if (gives(kernel, i, found_by)) return entry;
  }
  return PEGEN_LAUNCH_NONE;
}
