/* processor.h: what a processor wants of a walk through memory, as rows of a table (processor.c).
 *
 * None of it changes a result but `dots` and `rounds`: rows are asked for ahead or not, stored through the caches or
 * past them, and walked in another order.
 */
#pragma once

#include <stdint.h>

enum { PEGEN_VENDOR_ANY, PEGEN_VENDOR_INTEL, PEGEN_VENDOR_AMD, PEGEN_VENDOR_ARM };

/* What can be asked at run time. */
typedef struct pegen_processor_id {
  int64_t vendor; /* PEGEN_VENDOR_ */
  int64_t family; /* as cpuid counts: 6 is every Intel of today, 0x19 Zen 3 and 4, 0x1a Zen 5 */
  int64_t last_cache; /* bytes of the last cache before memory; 0: unknown */
  int64_t has_dots; /* 1: dot products of bfloat16 in registers of 512 bits */
} pegen_processor_id;

/* What this processor wants; bytes are those that a call reads and writes. */
typedef struct pegen_tuning {
  int64_t prefetch_above;  /* from how many bytes on rows are asked for ahead, into the nearest cache */
  int64_t prefetch_broken; /* the same, into the second cache, where the hardware cannot see what is read next */
  int64_t prefetch_bytes;  /* how far ahead */
  int64_t prefetch_built; /* up to how many rows are asked for while rotors are built, where heads have their own */
  int64_t stream_above;    /* from how many bytes on outputs that are elsewhere go past the caches */
  int64_t share_below;     /* up to how many bytes batches that share positions are walked together */
  int64_t tile_tokens;     /* tokens whose rotors are built at once where rows are walked over and over by a tile */
  int64_t tile_once; /* the same where each rotor serves the rows of one token, which are walked in order of memory */
  int64_t tile_rotors; /* rotors built at once where every head has its own and batches share them */
  int64_t group_rows; /* rows walked together over a tile where a head's tokens are neighbours */
  int64_t torque_prefetch; /* how far ahead where torques are summed head by head; 0: as elsewhere, by tiles */
  int64_t dots; /* 1: attention multiplies bfloat16 by dot products, where the processor has them; 0: float32 */
  int64_t rounds; /* 1: rows in bfloat16 are rounded by an instruction, where the processor has it; 0: by others */
  int64_t attention_ahead; /* 1: gradients of attention ask for the next tile's rows while they multiply; 0: never */
} pegen_tuning;
