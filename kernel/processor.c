/* processor.c: the table of processors; see processor.h.
 *
 * A row is what was measured on the machine that it names, and stands for its kind until somebody measures another.
 * "The limit" is a loop that only moves the same bytes. Times of outputs that are elsewhere are judged together with
 * what comes next: an attention that reads q and k once. What fits into the last cache is then better left there
 * ([8,196,12,64] on Zen 5, 19 MB of 32: 413 us through the caches, 542 past them), what does not is better written past
 * the caches ([32,196,12,64], 77 MB: 3.5 and 2.6 ms). So that is one rule for all, and the size is asked for.
 */
#include "driver.h"

enum { NEVER = -1, LAST_CACHE = -2 }; /* in place of a number of bytes */
enum { MIB = 1 << 20, UNKNOWN_CACHE = 16 * MIB };

typedef struct row {
  int64_t vendor, first_family, last_family;
  int64_t largest_cache; /* what a last cache larger than this counts as */
  pegen_tuning wishes;
} row;

/* Best match first; the last row takes everybody. */
static const row rows[] = {
    /* Intel: an AVX-512 Xeon with 2 MiB of second-level cache a core. Prefetching is worth .65 to .95 of the limit at
     * 192 MiB, nothing within 2 MiB; there, in place, rows asked for 1, 2, 4, 8 and 12 KiB ahead reach of the limit:
     * geope2d .85, .90, .86, .85, .82, geope3d .81, .90, .86, .84, .80, care .87, .91, .87, .82, .79, rope .90, .91,
     * .91, .90, .87 (a Xeon with 480 MiB of last cache). Tiles of tokens reused over batches are slower there: .67 to
     * .93 where streaming gets .85 to 1.0. Rotors that differ from head to head, 12 heads at [8,196,12,64] in place, by
     * tiles of 6, 12, 24 and 48: care .85, .85, .84, .80, quatro .73, .73, .72, .70, rope_mixed .91, .92, .91, .89.
     * Rows of these asked for while their rotors are built, and not ahead of one another, on model 207 (260 MiB):
     * quatro 567 and 484 us, care 493 and 455, rope_mixed 454 and 429; at [8,4096,12,64], beyond the last cache,
     * rope_mixed 11.9 and 14.7 ms. Both at once bring nothing, and bfloat16 loses (rope_mixed 460 and 486 us), so that
     * float32 alone is. Rotors of 1, 2 and 4 tokens at once at [1,196,12,64]: care .80, .77, .75, rope .97, .92, .91.
     * The last cache is a whole socket's, and one program has not all of it: outputs elsewhere with one reading of q
     * and k after them, through the caches and past them, rope: 39 MB 1.99 and 2.50 ms, 77 MB 5.2 and 5.1, 154 MB 12.9
     * and 10.1 (two threads 2.2 and 2.7, 2.5 and 2.7, 6.5 and 5.6). Gradients of attention at [8,12,196,64] (38 MB)
     * with rows asked for that are read, with those that are written, too, and without: 18.8, 17.9 and 19.6 ms (model
     * 207); many rows at once gain nothing (19.7). */
    {PEGEN_VENDOR_INTEL,
     0,
     INT64_MAX,
     80 * MIB,
     {.prefetch_above = 2 * MIB,
      .prefetch_broken = NEVER,
      .prefetch_bytes = 2048,
      .prefetch_built = LAST_CACHE,
      .stream_above = LAST_CACHE,
      .share_below = NEVER,
      .tile_tokens = 128,
      .tile_once = 1,
      .tile_rotors = 12,
      .group_rows = 8,
      .attention_ahead = 1}},
    /* AMD Zen 5: an EPYC of family 26 with 1 MiB of second-level cache a core and 32 MiB behind it. Rotors that differ
     * from head to head, 12 heads at [8,196,12,64] in place, by tiles of 12, 24, 48 and 84 rotors: rope_mixed 158, 150,
     * 156 and 201 us, care 222, 220, 283 and 292; one rotor at a time, its rows of all batches far apart, 207 and 273.
     * Batches that share positions, at [8,196,12,64] together and one after the other: geope2d in place 130 and 166 us,
     * care 126 and 162; care elsewhere (19 MB) 211 and 236. A token's rotor is a chain of some hundred cycles that the
     * rows of one token do not cover: at [1,196,12,64] in place, rotors of 1, 2, 4, 8 and 16 tokens at once, care 17.9,
     * 17.4, 17.1, 17.8 and 17.7 us, geope2d 19.7, 19.3, 18.9, 19.5 and 19.2, rope 13.0, 13.2, 12.9, 13.4, 13.6. Above
     * the last cache prefetching takes 1 to 3 % off, within it costs: scaling 9.6 MB takes 94 us without and 158 with.
     * Gradients of operands read four tensors and write two: at [8,196,12,64] and [8,4096,12,64] over encode,
     * rope_mixed 2.49 and 1.70, geope 2.65 and 2.06, quatro 3.08 and 2.09, care 2.71 and 1.97. Where rotors differ
     * from head to head, one token at a time with rows asked for 1536 bytes ahead took a quarter less than two
     * tokens and no requests (rope_mixed 1.80 to 2.36, care 2.23 to 2.86, quatro 2.32 to 2.88: a loaded machine, on
     * which these compare with one another alone). Where heads share them requests cost (care 1.98 without, 2.20
     * with, there, too). Gradients of attention at [8,12,196,64] read rows of queries once, from memory, and few of
     * them between products of registers: asked for while the tile before multiplies, 8 % less, in [B,N,H,D], too. */
    {PEGEN_VENDOR_AMD,
     0x1a,
     INT64_MAX,
     INT64_MAX,
     {.prefetch_above = LAST_CACHE,
      .prefetch_broken = 16 * MIB,
      .prefetch_bytes = 4096,
      .stream_above = LAST_CACHE,
      .share_below = LAST_CACHE,
      .tile_tokens = 128,
      .tile_once = 4,
      .tile_rotors = 24,
      .group_rows = 8,
      .torque_prefetch = 1536,
      .attention_ahead = 1}},
    /* AMD Zen 4, an EPYC, and everybody else: the hardware's own prefetching keeps up with a walk in order
     * of memory, and requests into the nearest cache cost more than they bring (.97 of the limit without, .75 with, at
     * 192 MiB). A broken walk gains, from requests into the second-level cache alone, of which more can be under way:
     * geope3d and rope [8,4096,12,64] in [B,H,N,D] memory, in place .58 to .72 and .71 to .81, elsewhere .68 to .81 and
     * .82 to .87; PaPE's columns at [32,196,12,64] .36 without, .54 with the nearest cache, .70 with the second.
     * Where a head's tokens are neighbours in memory, each head's part of a tile is a run of its own: memory wants long
     * runs and few of them at a time, coefficients want to serve many rows from registers: at 192 MiB 16 tokens, 1 row
     * .33; 128 tokens, 1 row .3, 8 rows .8, 12 rows .75. Where batches share rotors in caches, each batch's part is
     * such a run, too: rope at [8,196,12,64] .77 with 16 tokens, .80 with 64, .83 with 128. Dot products of bfloat16
     * are twice as many multiply-adds as those of float32 on Zen 4 (236 and 118 GFLOP/s); on a Xeon of model 207 no
     * more. Rows in bfloat16 at [8,196,12,64], rounded by AVX512_BF16's instruction and by integer ones, elsewhere, on
     * Zen 4: rope 117 and 208 us, geope3d 220 and 402, care 217 and 371. On aarch64 nothing was measured, and a program
     * may not ask for the size of the caches. */
    {PEGEN_VENDOR_ANY,
     0,
     INT64_MAX,
     INT64_MAX,
     {.prefetch_above = NEVER,
      .prefetch_broken = 16 * MIB,
      .prefetch_bytes = 4096,
      .stream_above = LAST_CACHE,
      .share_below = 16 * MIB,
      .tile_tokens = 128,
      .tile_once = 1,
      .tile_rotors = 24,
      .group_rows = 8,
      .dots = 1,
      .rounds = 1}},
};

int32_t pegen_processor_row(const pegen_processor_id *id) {
  int32_t i = 0;
  while (rows[i].vendor != PEGEN_VENDOR_ANY &&
         (rows[i].vendor != id->vendor || id->family < rows[i].first_family || id->family > rows[i].last_family))
    i++;
  return i;
}

/* A wish that is a number stays one. */
static int64_t bytes_of(int64_t wish, int64_t last_cache) {
  if (wish == LAST_CACHE) return last_cache > 0 ? last_cache : UNKNOWN_CACHE;
  return wish == NEVER ? INT64_MAX : wish;
}

/* The cache in units of 64 KiB, above the target and the row; above it whether there are dot products. */
enum { ROW_SHIFT = 8, ROW_MOST = 15, CACHE_SHIFT = 12, CACHE_MOST = (1 << 18) - 1, CACHE_UNIT = 64 << 10 };
_Static_assert(PEGEN_CHOSEN_DOTS == (CACHE_MOST + 1) << CACHE_SHIFT, "the bit above the cache's");
_Static_assert(PEGEN_CHOSEN_TARGET == (1 << ROW_SHIFT) - 1, "the target's bits");
_Static_assert(sizeof rows / sizeof *rows <= ROW_MOST + 1, "the row's bits");

int32_t pegen_choice(int32_t target, int32_t i, int64_t last_cache) {
  int64_t units = last_cache / CACHE_UNIT;
  return (target + 1) | i << ROW_SHIFT | (int32_t)(units < CACHE_MOST ? units : CACHE_MOST) << CACHE_SHIFT;
}

void pegen_tune(pegen_tuning *tuning, int32_t choice) {
  const row *r = &rows[choice >> ROW_SHIFT & ROW_MOST];
  const pegen_tuning *wishes = &r->wishes;
  int64_t last_cache = (int64_t)(choice >> CACHE_SHIFT & CACHE_MOST) * CACHE_UNIT;
  if (last_cache > r->largest_cache) last_cache = r->largest_cache;
  const int64_t *wish = (const int64_t *)wishes;
  int64_t *to = (int64_t *)tuning;
  for (size_t i = 0; i < sizeof *tuning / sizeof *to; i++) to[i] = bytes_of(wish[i], last_cache);
  if (wishes->share_below == NEVER) tuning->share_below = 0;
  tuning->dots = wishes->dots && choice & PEGEN_CHOSEN_DOTS;
  tuning->rounds = wishes->rounds && choice & PEGEN_CHOSEN_DOTS;
}
