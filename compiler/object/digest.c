/* object/digest: see object/digest.h. */
#include "object/digest.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

struct digest {
  arena *memory;
  XXH3_state_t *state;
  unsigned char *seen; /* by expr id */
};

void digest_expressions_of(digest *d, const expr_pool *pool) {
  d->seen = arena_alloc(d->memory, (size_t)expr_pool_count(pool) + 1);
}

digest *digest_begin(arena *a, const expr_pool *pool) {
  digest *d = arena_new(a, digest);
  d->state = arena_must(XXH3_createState());
  d->memory = a;
  digest_expressions_of(d, pool);
  XXH3_128bits_reset(d->state);
  return d;
}

void digest_bytes(digest *d, const void *bytes, size_t size) { XXH3_128bits_update(d->state, bytes, size); }

void digest_expr(digest *d, const expr *x) {
  digest_bytes(d, &x->hash, sizeof x->hash);
  if (d->seen[x->id]) return;
  d->seen[x->id] = 1;
  for (int i = 0; i < expr_op_arity(x->op); i++) digest_expr(d, x->arg[i]);
}

const char *digest_end(arena *a, digest *d) {
  XXH128_hash_t hash = XXH3_128bits_digest(d->state);
  XXH3_freeState(d->state);
  return arena_printf(a, "%016llx%016llx", (unsigned long long)hash.high64, (unsigned long long)hash.low64);
}
