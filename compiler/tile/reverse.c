/* tile/reverse: reverse mode over a tile program; see tile/tile.h.
 *
 * Scores are computed again from rows that are loaded again; the softmax is one op of each direction: its reverse takes
 * the log-sum-exp that forward wrote, and delta, the sum over channels of out times its gradient (less the gradient of
 * the log-sum-exp). Each product C = A B^T then gives dA += dC B and dB += dC^T A, and C = A B gives dA += dC B^T and
 * dB += A^T dC. What is added to the product of q and k, of a polynomial's columns, is made again and reversed
 * elsewhere: inputs and coordinates gain of it. What scores read beside products gains of them by pairs, in the same
 * turn (give). A block sums what its own rows gain, so that no two blocks write one number: a program of its own for
 * each side. Where keys are owned every [own, streamed] value is the transpose of forward's. Where sums of keys and of
 * values have no room together, each of them has a program, which computes the weights again. Rows that forward turns
 * are turned again, what comes in as values are, and what turned rows gain is turned back by the transpose. What
 * rotations of pairs change of a product is made again; rows gain by the same rotations of the other side's rows, or by
 * their transposes.
 */
#include "tile/tile.h"

#include "base/diag.h"

typedef struct reversal {
  const tile_program *forward;
  tile_program *p;
  unsigned gained;
  arena *memory;
  int load[TILE_TENSOR_COUNT]; /* the value that holds a tensor's tile; TILE_NONE: not loaded */
  bool turns[TILE_TENSOR_COUNT]; /* of tensors that are loaded */
} reversal;

static const tile_tensor gains[TILE_TENSOR_COUNT] = {[TILE_Q] = TILE_G_Q, [TILE_K] = TILE_G_K, [TILE_V] = TILE_G_V};

/* The op of the forward program that makes a value first. */
static const tile_op *maker_of(const tile_program *p, int value) {
  for (int i = 0; i < p->n_ops; i++)
    if (p->op[i].value == value) return &p->op[i];
  diag_bug("tile", "%s reverses a value that no op makes", p->name);
}

/* The tensor whose rows a value is, turned or not. */
static tile_tensor tensor_of(reversal *r, int value) {
  const tile_op *op = maker_of(r->forward, value);
  bool turns = op->kind == TILE_TURN;
  if (turns) op = maker_of(r->forward, op->arg[0]);
  r->turns[op->tensor] = turns;
  return op->tensor;
}

static const tile_op *only_op(const tile_program *p, tile_kind kind) {
  for (int i = 0; i < p->n_ops; i++)
    if (p->op[i].kind == kind) return &p->op[i];
  diag_bug("tile", "%s has no %s to reverse", p->name, tile_kind_name(kind));
}

static bool is_own(const reversal *r, tile_tensor tensor) { return tile_is_of_queries(tensor) != r->p->owns_keys; }

static void load(reversal *r, const char *name, tile_tensor tensor, bool own) {
  if (is_own(r, tensor) == own) r->load[tensor] = tile_add_load(r->p, name, tensor);
}

/* Whether scores gain something: not where values alone do, which need no values for it. */
static bool gives_scores(const reversal *r) { return (r->gained & ~TILE_OF_VALUES) != 0; }

/* Loads of one side: those of the forward program and the gradient that comes in. */
static void add_loads(reversal *r, bool own) {
  const tile_program *f = r->forward;
  for (int i = 0; i < f->n_ops; i++)
    if (f->op[i].kind == TILE_LOAD && (f->op[i].tensor != TILE_V || gives_scores(r)))
      load(r, f->value[f->op[i].value].name, f->op[i].tensor, own);
  load(r, "dO", TILE_G_OUT, own);
  for (int i = 0; i < TILE_TENSOR_COUNT; i++)
    if (r->turns[i] && r->load[i] != TILE_NONE && is_own(r, (tile_tensor)i) == own)
      r->load[i] = tile_add_turn(r->memory, r->p, r->load[i], false);
}

static int add_pairs(reversal *r, const char *name) {
  return tile_add_value(r->p, name, TILE_OWN, TILE_STREAMED, true);
}

/* [own, streamed] = product of two tensors' rows over their channels, whichever of them is own; or added to it. */
static void add_product(reversal *r, tile_kind kind, int value, tile_tensor one, tile_tensor other, bool adds) {
  tile_tensor own = is_own(r, one) ? one : other, streamed = own == one ? other : one;
  tile_add_mma(r->p, value, r->load[own], r->load[streamed], true, adds)->kind = kind;
}

static bool is_rotated(const reversal *r) {
  for (int i = 0; i < r->forward->n_ops; i++)
    if (r->forward->op[i].kind == TILE_ROTATED_PRODUCT) return true;
  return false;
}

/* The products that a value of the forward program is the sum of. */
static void add_products(reversal *r, int value, int forward_value) {
  const tile_program *f = r->forward;
  for (int i = 0; i < f->n_ops; i++) {
    const tile_op *op = &f->op[i];
    if ((op->kind != TILE_MMA && op->kind != TILE_ROTATED_PRODUCT) || op->value != forward_value) continue;
    tile_tensor one = tensor_of(r, op->arg[0]), other = tensor_of(r, op->arg[1]);
    add_product(r, op->kind, value, one, other, op->adds);
  }
}

/* What own rows of a tensor gain: sums over streamed tiles of pairs times the rows of the other tensor. */
static void add_gain(reversal *r, tile_tensor gained, int pairs, tile_tensor other, int *sum) {
  if (!(r->gained >> gained & 1)) return;
  tile_add_mma(r->p, sum[gained], pairs, r->load[other], false, true);
  if (is_rotated(r) && gained != TILE_V)
    tile_add_rotated(r->p, TILE_ROTATED_SUM, sum[gained], pairs, r->load[other])->back = gained == TILE_K;
}

const tile_program *tile_reverse(arena *a, const tile_program *forward, unsigned gained) {
  tile_program *p = arena_new(a, tile_program);
  reversal r = {.forward = forward, .p = p, .gained = gained, .memory = a};
  unsigned given = gained & (TILE_OF_OPERANDS | TILE_OF_TOKENS);
  p->owns_keys = !(gained & TILE_OF_QUERIES);
  p->name = arena_printf(a, "attention_backward_%s%s",
                         !p->owns_keys              ? "queries"
                         : gained == TILE_OF_VALUES ? "values"
                                                    : "keys",
                         gained & TILE_ALONE ? "_gives"
                         : given             ? "_gains"
                                             : "");
  if (gained & TILE_ALONE) r.gained = gained = given;
  for (int i = 0; i < TILE_TENSOR_COUNT; i++) r.load[i] = TILE_NONE;

  const tile_op *online = only_op(forward, TILE_ONLINE), *score = maker_of(forward, online->arg[0]);
  const tile_op *product = maker_of(forward, score->arg[0]);
  const tile_op *weighted = only_op(forward, TILE_MMA);
  for (int i = 0; i < forward->n_ops; i++)
    if (forward->op[i].kind == TILE_MMA && forward->op[i].arg[0] == online->value) weighted = &forward->op[i];
  tile_tensor q = tensor_of(&r, product->arg[0]), k = tensor_of(&r, product->arg[1]),
              v = tensor_of(&r, weighted->arg[1]);
  r.turns[TILE_G_OUT] = r.turns[v];

  static const char *const names[TILE_TENSOR_COUNT] = {[TILE_Q] = "dQ", [TILE_K] = "dK", [TILE_V] = "dV"};
  int sum[TILE_TENSOR_COUNT];
  const tile_tensor read[] = {q, k, v};
  for (int i = 0; i < 3; i++)
    if (gained >> read[i] & 1) sum[read[i]] = tile_add_value(p, names[read[i]], TILE_OWN, tile_width_of(read[i]), true);

  add_loads(&r, true);
  tile_add_op(p, TILE_EACH, TILE_NONE);
  add_loads(&r, false);
  int s = add_pairs(&r, "S"), t = add_pairs(&r, "T"), weights = add_pairs(&r, "P");
  add_products(&r, s, score->arg[0]);
  tile_add_unary(p, TILE_SCORE, t, s);
  tile_add_unary(p, TILE_WEIGHT, weights, t);
  add_gain(&r, v, weights, TILE_G_OUT, sum);
  if (gives_scores(&r)) {
    int dp = add_pairs(&r, "dP"), ds = add_pairs(&r, "dS");
    add_product(&r, TILE_MMA, dp, TILE_G_OUT, v, false);
    tile_op *gain = tile_add_binary(p, TILE_GAIN, ds, weights, dp);
    gain->arg[2] = s;
    if (given) {
      tile_op *give = tile_add_binary(p, TILE_GIVE, TILE_NONE, weights, dp);
      give->arg[2] = s;
      give->to = given | (online->sinks && given & TILE_OF_OPERANDS ? TILE_OF_SINK : 0);
    }
    add_gain(&r, q, ds, k, sum);
    add_gain(&r, k, ds, q, sum);
  }
  tile_add_op(p, TILE_END, TILE_NONE);
  for (int i = 0; i < 3; i++) {
    if (!(gained >> read[i] & 1)) continue;
    int total = r.turns[read[i]] ? tile_add_turn(a, p, sum[read[i]], true) : sum[read[i]];
    tile_add_store(p, gains[read[i]], total)->scales = read[i] != v;
  }
  return p;
}
