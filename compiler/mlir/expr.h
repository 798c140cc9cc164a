/* mlir/expr: the walker, from expressions to code.
 *
 * One walk serves every place where an expression stands: a processor's chunks of blocks (cpu/chunk), attention's
 * displacements (cpu/attention/delta), a GPU's threads (gpu/thread). They hand it an arithmetic (mlir/arithmetic),
 * what differs from lane to lane, and their leaves. A place is a struct that begins with its walker.
 */
#pragma once

#include "mlir/arithmetic.h"

/* The term at hand of a sum. */
typedef struct expr_term {
  ir_value index;   /* i64; null: none is at hand */
  two_float *known; /* by id: values that differ from term to term */
} expr_term;

typedef struct expr_walker expr_walker;
struct expr_walker {
  arithmetic_context context;
  const expr_machine *machine;
  unsigned varies; /* DEPENDS_ bits of values that differ from lane to lane (or, with a stride, from slot to slot) */
  int lanes;       /* of such values; 0: scalars */
  /* Values that are known, by id * stride: of what varies, and of what does not (they may be one array). The caller may
   * put some in. */
  two_float *varying, *fixed;
  int stride;
  signed char *turned; /* by id: 1: a sine, a cosine or a cotangent is in it, -1: none, 0: not yet asked; NULL: nobody
                          asks */
  bool turns_narrow; /* such values are computed in float32 where its arithmetic has the operation, though they are
                        wide: for gradients, which need no digits that a float32 sine has not */
  /* The caller's own code of a node: of every leaf but numbers (all but ARITHMETIC ones), and of any other node that it
   * has already. false: it is computed from its arguments. is_f32: the type that is wanted of a table of numbers, which
   * fits either; whatever comes is converted. */
  bool (*leaf)(expr_walker *w, const expr *x, bool is_f32, two_float *value);
  arena *memory; /* of what terms of sums are remembered in */
  expr_term term;
  bool types_tables; /* leaf() gives tables of numbers in the type that is wanted: they are not remembered */
};

static inline bool expr_varies(const expr_walker *w, const expr *x) { return x->depends & w->varies; }
/* Lanes of a node's value. */
static inline int expr_lanes(const expr_walker *w, const expr *x) { return expr_varies(w, x) ? w->lanes : 0; }
/* Where a node's value is remembered. */
static inline two_float *expr_known(const expr_walker *w, const expr *x) {
  if (x->terms) return w->term.known + x->id;
  return (expr_varies(w, x) ? w->varying : w->fixed) + x->id * w->stride;
}

/* The value in the node's own type: lanes where it varies, else a scalar. */
ir_value emit_expr(expr_walker *w, const expr *x);
/* Emits x as emit_expr does, spread over the lanes where it is a scalar. */
ir_value emit_expr_lanes(expr_walker *w, const expr *x);
/* As float32, on all lanes. */
ir_value emit_expr_f32(expr_walker *w, const expr *x);
/* An expression of channels alone, by index of their leaves, as float32 on so many lanes (0: a scalar). */
ir_value emit_expr_map(arena *a, const expr_machine *machine, arithmetic_context context, int lanes, expr_pool *pool,
                       const expr *map, const ir_value *channels);
/* In the wide arithmetic, with the node's lanes. */
two_float emit_expr_wide(expr_walker *w, const expr *x);
/* Emits here what below x does not vary. */
void emit_expr_fixed(expr_walker *w, const expr *x);

/* Begins a term, of which nothing is known, for nodes with ids below `nodes`; gives what it stands in for. */
expr_term emit_expr_term(expr_walker *w, ir_value index, int nodes);
/* A loop over terms; what below the roots does not differ from term to term is emitted before it. */
typedef struct expr_loop {
  ir_loop loop;
  expr_term before;
} expr_loop;
expr_loop emit_expr_terms(expr_walker *w, int terms, const expr *const *roots, int count);
void emit_expr_end_terms(expr_walker *w, expr_loop loop);
/* The number of the term at hand, float32; the whole number that is not above it, which is none below 0, i64. */
ir_value emit_expr_of_terms(expr_walker *w, const expr *x);
ir_value emit_expr_place_of_terms(expr_walker *w, const expr *x);
