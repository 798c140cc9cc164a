/* tile/print: a tile program as text (--emit tile); see tile/tile.h. */
#include "tile/tile.h"

static const char *const spaces[] = {
    [TILE_ONE] = "1",         [TILE_OWN] = "own",    [TILE_STREAMED] = "streamed", [TILE_CHANNELS] = "channels",
    [TILE_VALUES] = "values", [TILE_PARTS] = "parts"};

static void print_value(FILE *out, const tile_program *p, const tile_op *op) {
  const tile_value *v = &p->value[op->value];
  fprintf(out, "%s %s %s", v->name, op->adds ? "+=" : "=", tile_kind_name(op->kind));
  if (op->kind == TILE_LOAD) fprintf(out, " %s%s", tile_tensor_name(op->tensor), op->ahead ? " of the next tile" : "");
  for (int i = 0; i < tile_arguments(op->kind); i++)
    fprintf(out, "%s %s%s%s", i ? "," : "", op->back && !i ? "back " : "", p->value[op->arg[i]].name,
            i && op->transposed ? "^T" : "");
  if (op->sinks) fprintf(out, " from the sink on");
  if (op->adds) return;
  fprintf(out, "  ; [%s, %s], %s", spaces[v->rows], spaces[v->columns],
          v->is_sum ? "float32 in registers" : "shared memory");
  if (v->stages > 1) fprintf(out, " for %d", v->stages);
}

void tile_print(FILE *out, const tile_program *p) {
  int depth = 1;
  const char *owns = p->owns_keys ? "keys" : p->owns_group ? "queries of all heads that share keys" : "queries";
  fprintf(out, "tile program %s: a block owns %s, %s are streamed\n", p->name, owns, p->owns_keys ? "queries" : "keys");
  for (int i = 0; i < p->n_ops; i++) {
    const tile_op *op = &p->op[i];
    if (op->kind == TILE_END) {
      depth--;
      continue;
    }
    fprintf(out, "%*s", 2 * depth, "");
    if (op->kind == TILE_EACH) {
      fprintf(out, "each streamed tile\n");
      depth++;
      continue;
    }
    if (op->kind == TILE_STORE)
      fprintf(out, "store %s, %s%s", tile_tensor_name(op->tensor), p->value[op->arg[0]].name,
              op->scales ? "  ; times the scale" : "");
    else if (op->kind == TILE_GIVE)
      fprintf(out, "give %s, %s, %s  ; to%s%s%s%s", p->value[op->arg[0]].name, p->value[op->arg[1]].name,
              p->value[op->arg[2]].name, op->to & TILE_OF_OPERANDS ? " operands" : "",
              op->to & TILE_OF_OPERANDS && op->to & TILE_OF_TOKENS ? " and" : "",
              op->to & TILE_OF_TOKENS ? " own tokens" : "",
              op->to & TILE_OF_SINK ? ", and behind the last tile what the sink gains" : "");
    else if (op->value == TILE_NONE) fprintf(out, "%s", tile_kind_name(op->kind));
    else print_value(out, p, op);
    fputc('\n', out);
  }
}
