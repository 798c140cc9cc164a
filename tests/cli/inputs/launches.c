/* launches: what the header of a PTX file says of its entries is what an object with the same PTX says. */
#include "attention.h"
#include "rope.h"

#include <pegen/pegen.h>

#include <stdio.h>
#include <string.h>

extern const pegen_kernel rope_kernel, attention_kernel;

static int check(const pegen_ptx *ptx, const char *name, const char *word, int access, int units, int columns,
                 int flight, int shared) {
  for (int i = 0; i < ptx->n_entries; i++) {
    const pegen_ptx_entry *e = &ptx->entries[i];
    if (strcmp(e->name, name)) continue;
    return printf("%s %d %d %d %d %d\n", name, access, units, columns, flight, shared), e->access != access ||
           e->units != units || e->columns != columns || e->flight != flight || ptx->shared[i] != shared ||
           strcmp(ptx->words[i], word);
  }
  return 1;
}

#define CHECK(kernel, entry, ENTRY, word) \
  check(kernel.ptx, entry, word, ENTRY##_ACCESS, ENTRY##_UNITS, ENTRY##_COLUMNS, ENTRY##_FLIGHT, ENTRY##_SHARED)

int main(void) {
  return rope_kernel.ptx->block != ROPE_LAUNCH_BLOCK ||
         CHECK(rope_kernel, "rope_encode_bf16", ROPE_ENCODE_BF16, "encode") ||
         CHECK(rope_kernel, "rope_encode_backward_f32_narrow", ROPE_ENCODE_BACKWARD_F32_NARROW, "encode_backward") ||
         CHECK(attention_kernel, "attention_attention_bf16_mma", ATTENTION_ATTENTION_BF16_MMA, "attention");
}
