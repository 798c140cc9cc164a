/* spec_dump: loads a spec and prints what was understood, for people and for tests.
 *
 *   spec_dump DSL_DIR SPEC.lua [name=value...]
 */
#include "loader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *blade_name(unsigned mask, int sign, char *text) {
  char *c = text;
  if (sign < 0) *c++ = '-';
  *c++ = mask ? 'e' : '1';
  for (unsigned i = 0; i < SPEC_MAX_DIMENSIONS; i++)
    if (mask >> i & 1) *c++ = (char)('1' + i);
  *c = 0;
  return text;
}

static void print_operand(const spec_operand *o) {
  printf("operand %s [", o->name);
  for (int i = 0; i < o->rank; i++) printf("%s%s=%lld", i ? ", " : "", o->dimension[i], (long long)o->shape[i]);
  printf("] %s (%s)\n", o->doc, o->units);
}

static void print_skew(const spec *s, const char *what, const spec_skew *m, int blocks) {
  printf("%s %s %s", what, s->operand[m->operand].name, m->rule == SKEW_UPPER ? "upper" : "difference");
  for (int i = 0; i < m->n_heads * blocks; i++) printf(" %d", m->offset[i]);
  printf("\n");
}

static void print_block(const spec *s) {
  char text[16];
  if (!s->n_components) printf("no blocks\n");
  else if (s->dense) {
    printf("dense block of %d%s%s\n", s->n_components, s->dense->map == DENSE_SCHUR ? ", schur" : "",
           s->dense->is_f64 ? ", float64" : "");
    for (int a = 0; a < s->n_axes; a++) print_skew(s, s->axis[a], &s->dense->generator[a], s->n_blocks);
  } else {
    printf("block");
    for (int i = 0; i < s->n_components; i++)
      printf(" %s", blade_name(s->component[i].blade, s->component[i].sign, text));
    printf(" of Cl(%d,%d,%d)\n", s->algebra.p, s->algebra.q, s->algebra.r);
  }
  if (s->basis) print_skew(s, "basis", &s->basis->matrix, 1);
}

static void print(const spec *s) {
  static const char *const combine[] = {"sum", "mean", "product", "symmetric", "function"}; /* ORDER spec_combine */
  printf("spec %s: %s\n", s->name, s->doc);
  printf("head_dim %d heads %d blocks %d amplitude %.17g inverse %d skip %d\n", s->head_dim, s->heads, s->n_blocks,
         s->amplitude, s->inverse, s->skip_tokens);
  print_block(s);
  printf("%s", s->n_components ? "combine" : "axes");
  if (s->n_components) printf(" %s", combine[s->combine]);
  for (int i = 0; i < s->n_axes; i++) printf(" %s", s->axis[s->n_components ? s->order[i] : i]);
  printf("\ngrid");
  for (int i = 0; s->grid[0] && i < s->n_axes; i++) printf(" %lld", (long long)s->grid[i]);
  printf("\nchannels");
  for (int i = 0; i < s->n_components * s->n_blocks; i++) printf(" %d", s->channel[i]);
  printf("\n");
  for (int i = 0; i < s->n_parts; i++) {
    const spec_part *part = &s->part[i];
    printf("part of channels %d to %d, amplitude %.17g, axes", part->first, part->first + part->count - 1,
           part->of->amplitude);
    for (int a = 0; a < part->of->n_axes; a++) printf(" %s", part->of->axis[a]);
    printf("\n");
    print_block(part->of);
  }
  for (int i = 0; i < s->n_operands; i++) print_operand(&s->operand[i]);
  for (int i = 0; i < s->n_options; i++)
    printf("option %s=%s%s\n", s->option[i].name, s->option[i].value, s->option[i].given ? " (given)" : "");
  for (int i = 0; i < s->n_models; i++) {
    printf("model");
    for (int k = 0; k < s->model[i].n_names; k++) printf("%s %s", k ? "," : "", s->model[i].name[k]);
    for (int k = 0; k < s->model[i].n_defines; k++) printf(" -D %s", s->model[i].define[k]);
    printf("\n");
  }
  for (int i = 0; i < s->n_sources; i++) printf("source %s\n", s->source[i]);
}

static void print_expressions(arena *a, const spec *s) {
  enum { MOST = SPEC_MAX_AXES * (1 + SPEC_MAX_BIVECTORS) + 3 };
  const expr *roots[MOST];
  const char *names[MOST];
  char text[16];
  int count = 0;
  for (int i = 0; i < s->n_axes && s->n_components; i++) {
    names[count] = arena_printf(a, "angle %s", s->axis[i]);
    roots[count++] = s->angle[i];
    for (int k = 0; k < s->generator[i].count; k++) {
      names[count] = arena_printf(a, "generator %s %s", s->axis[i], blade_name(s->generator[i].blade[k], 1, text));
      roots[count++] = s->generator[i].coefficient[k];
    }
  }
  const expr *others[] = {s->additive ? s->additive->value : NULL, s->pairwise ? s->pairwise->bias : NULL,
                          s->polynomial ? s->polynomial->value : NULL};
  static const char *const words[] = {"added", "bias", "polynomial"};
  for (int i = 0; i < 3; i++)
    if (others[i]) names[count] = words[i], roots[count++] = others[i];
  expr_print_roots(stdout, roots, names, count);
}

int main(int count, char **arguments) {
  if (count < 3) return 2;
  arena *a = arena_create();
  loader_define *defines = arena_array(a, loader_define, count);
  int n = 0;
  for (int i = 3; i < count; i++) {
    char *equals = strchr(arguments[i], '=');
    if (equals) *equals = 0;
    defines[n++] = (loader_define){arguments[i], equals ? equals + 1 : ""};
  }
  spec *s = loader_load(a, arguments[2], arguments[1], n, defines);
  if (s) {
    print(s);
    print_expressions(a, s);
  }
  arena_destroy(a);
  return s ? 0 : 1;
}
