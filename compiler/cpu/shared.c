/* cpu/shared: see cpu/shared.h. */
#include "cpu/shared.h"

bool emit_is_shared(const plan *p) {
  int entries = p->spec->n_components * p->spec->n_components;
  if (!p->part || !p->per_head) return false;
  for (int i = 0; i < entries; i++)
    if (p->program->matrix.entry[i]->depends & DEPENDS_HEAD) return false;
  return true;
}
