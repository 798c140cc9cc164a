/* border_test DSL_DIR TREE: what spec_validate refuses of a description that came over the wire.
 *
 * Whoever took over the process that runs a description can send any bytes that the reader takes. Each row takes an
 * honest description, makes one thing wrong of it that no description's Lua can, and expects it to be refused with a
 * text that says what.
 */
#include "base/diag.h"
#include "loader.h"
#include "spec/wire.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char said[1024];

static void hear(diag_kind kind, const char *file, int line, const char *text) {
  (void)file, (void)line;
  snprintf(said, sizeof said, "%s%s", kind == DIAG_ERROR ? "" : "no error of the user's: ", text);
}

static int failures;

static void expect(bool holds, const char *row, const char *what) {
  if (holds) return;
  printf("%s: %s: '%s'\n", row, what, said);
  failures++;
}

/* ---- descriptions ---- */

#define HEAD "local pe = require 'pegen'\n"
#define OPERAND(name, size) "local " name " = pe.learned { name = '" name "', shape = { " size " }, doc = 'd' }\n"
#define TURNS "axes = { 'x' }, head_dim = 8, heads = 2, block = pe.plane(), generators = pe.turn 'e12',\n"

static const char PAIRS[] = HEAD OPERAND("w", "'blocks'") OPERAND(
    "t",
    "8") "return pe.encoding { name = 'a', role = 'pairwise', " TURNS
         "  phase = function(_, i) return w(i) end, bias = function(d) return t(pe.floor(d.x)) + pe.abs(d.x) end }\n";
static const char TABLE[] =
    HEAD OPERAND("t", "4, 8") "return pe.encoding { name = 'a', axes = { 'x', 'y' }, head_dim = 8,"
                              " bias = function(d) return t(pe.floor(d.x), pe.floor(d.y)) end }\n";
static const char ROWS[] = HEAD OPERAND(
    "w", "'axes', 'blocks'") "return pe.encoding { name = 'a', axes = { 'x', 'y' }, head_dim = 8, block = pe.plane(),\n"
                             "  generators = pe.turn 'e12', combine = pe.product { 'x', 'y' }, phase = w }\n";
static const char SCORE[] =
    HEAD "local m = pe.input { name = 'm', shape = { 3 }, doc = 'm' }\n"
         "local p = pe.input { name = 'p', shape = {}, of = 'pair', doc = 'p' }\n"
         "return pe.encoding { name = 'a', axes = { 'x' }, head_dim = 8,\n"
         "  score = function(s, d, query, key) return s + m(2) + p() - m(d.x + 1) * pe.abs(d.x) end }\n";
static const char OPERANDS[] = HEAD
    "local o = {}\n"
    "for k = 0, 31 do o[k] = pe.learned { name = 'o' .. k, shape = { 4 }, doc = 'd' } end\n"
    "return pe.encoding { name = 'a', axes = { 'x' }, head_dim = 8, block = pe.plane(), generators = pe.turn 'e12',\n"
    "  phase = function() local s = 0 for k = 0, 31 do s = s + o[k](1) end return s end }\n";

/* ---- what is made wrong ---- */

/* The number-th node of that operation that is part of the description's pool; not const, since it was read into memory
 * of the test's own. */
static expr *find(const spec *s, expr_op op, int number) {
  const expr **nodes = calloc((size_t)expr_pool_count(s->pool), sizeof *nodes);
  const expr *found = NULL;
  if (!nodes) exit(2);
  expr_pool_nodes(s->pool, nodes);
  for (int i = 0; i < expr_pool_count(s->pool); i++)
    if (nodes[i]->op == op && number-- == 0) found = nodes[i];
  free(nodes);
  if (!found) {
    printf("no node %s\n", expr_op_name(op));
    exit(2);
  }
  return (expr *)(uintptr_t)found;
}

/* The number beside which a minimum or a maximum stands. */
static double *bound(const spec *s, expr_op op) {
  const expr *const *arg = find(s, op, 0)->arg;
  return &((expr *)(uintptr_t)arg[arg[1]->op == EXPR_CONST])->value;
}

static int32_t *offsets(const spec *s, expr_op op) { return (int32_t *)(uintptr_t)find(s, op, 0)->offsets; }

static void operand_at_its_end(spec *s) { offsets(s, EXPR_OPERAND)[0] = (int32_t)spec_operand_elements(s->operand); }
static void operand_before(spec *s) { offsets(s, EXPR_OPERAND)[0] = -1; }
static void operand_unknown(spec *s) { find(s, EXPR_OPERAND, 0)->index = s->n_operands; }
static void operands_many(spec *s) {
  static spec_operand many[SPEC_MAX_OPERANDS + 1];
  for (int i = 0; i <= SPEC_MAX_OPERANDS; i++) many[i] = s->operand[0];
  s->operand = many;
  s->n_operands = SPEC_MAX_OPERANDS + 1;
}
static void operand_of_nothing(spec *s) { s->operand[0].shape[0] = 0; }
static void operand_of_no_rank(spec *s) { s->operand[0].rank = 0; }
static void element_beyond(spec *s) { offsets(s, EXPR_ELEMENT)[0] = 1; }
static void element_before(spec *s) { offsets(s, EXPR_ELEMENT)[0] = -1; }
static void element_below(spec *s) { *bound(s, EXPR_MAX) = -1; }
static void element_of_any_index(spec *s) { find(s, EXPR_ELEMENT, 0)->arg[0] = find(s, EXPR_FLOOR, 0); }
static void element_of_half_an_index(spec *s) {
  expr *x = find(s, EXPR_MAX, 0);
  x->arg[x->arg[0]->op == EXPR_CONST] = find(s, EXPR_FLOOR, 0);
}
static void element_of_no_number(spec *s) { *bound(s, EXPR_MAX) = NAN; }
static void element_in_a_phase(spec *s) { s->angle[0] = find(s, EXPR_ELEMENT, 0); }
static void element_in_a_generator(spec *s) {
  expr *x = find(s, EXPR_ELEMENT, 0);
  x->arg[0] = expr_const(s->pool, 0);
  x->depends = DEPENDS_OPERAND;
  s->generator[0].coefficient[0] = x;
}
static void element_far(spec *s) { *bound(s, EXPR_MIN) = 32; }
static void input_at_its_end(spec *s) { offsets(s, EXPR_INPUT)[0] = 3; }
static void input_before(spec *s) { offsets(s, EXPR_INPUT)[0] = -1; }
static void input_unknown(spec *s) { find(s, EXPR_INPUT, 0)->index = 2; }
static void input_at_unknown(spec *s) { find(s, EXPR_INPUT_AT, 0)->index = 2; }
static void input_at_of_pairs(spec *s) { find(s, EXPR_INPUT_AT, 0)->index = 1; }
static void input_of_no_size(spec *s) { s->input[1].size = -2; }
static void pair_of_keys(spec *s) { s->input[1].of_keys = true; }
static void input_at_of_another_size(spec *s) { find(s, EXPR_INPUT_AT, 0)->last = 3; }
static void input_at_far(spec *s) { *bound(s, EXPR_MIN) = 3; }
static void input_at_below(spec *s) { *bound(s, EXPR_MAX) = -1; }
static void input_in_a_phase(spec *s) { s->angle[0] = expr_input(s->pool, 0, (int32_t[4]){0}); }
static void score_in_a_phase(spec *s) { s->angle[0] = expr_position(s->pool, SPEC_OF_SCORE); }
static void axis_unknown(spec *s) { s->angle[0] = expr_position(s->pool, 2); }
static void place_unknown(spec *s) {
  ((spec_pairwise *)(uintptr_t)s->pairwise)->score = expr_position(s->pool, SPEC_MAX_PLACES);
}
static void phase_of_channels(spec *s) { s->angle[0] = expr_channel(s->pool, 0); }
static void phase_not_finite(spec *s) { s->angle[0] = expr_const(s->pool, INFINITY); }
static void channel_twice(spec *s) { ((int *)(uintptr_t)s->channel)[1] = s->channel[0]; }
static void channel_outside(spec *s) { ((int *)(uintptr_t)s->channel)[0] = s->head_dim; }
static void channel_before(spec *s) { ((int *)(uintptr_t)s->channel)[0] = -1; }
static void blade_twice(spec *s) { s->component[1].blade = s->component[0].blade; }
static void blade_of_another_algebra(spec *s) { s->component[1].blade = 4; }
static void blade_without_sign(spec *s) { s->component[1].sign = 0; }
static void block_not_closed(spec *s) { s->component[1].blade = 0; }
static void generator_of_a_vector(spec *s) { s->generator[1].blade[0] = 1; }
static void generator_of_nothing(spec *s) { s->generator[1].count = 0; }
static void generator_beyond(spec *s) { s->generator[1].blade[0] = 5; }
static void order_twice(spec *s) { s->order[0] = s->order[1]; }
static void order_beyond(spec *s) { s->order[0] = 2; }
static void boost_of_a_turn(spec *s) { s->dual_axes = 1; }
static void boost_of_no_axis(spec *s) { s->dual_axes = 4; }
static void rounded_pairs(spec *s) { s->products = PRODUCTS_ROUNDED; }
static void amplitude_of_nothing(spec *s) { s->amplitude = 0; }
static void skipped_below(spec *s) { s->skip_tokens = -1; }
static void grid_of_nothing(spec *s) { s->grid[0] = 3, s->grid[1] = 0; }
static void gain_of_one_side(spec *s) { s->gain[0] = expr_const(s->pool, 1); }
static void name_of_ours(spec *s) { s->name = "pegen_x"; }
static void axis_nameless(spec *s) { s->axis[1] = ""; }
static void value_dim_of_nothing(spec *s) { ((spec_pairwise *)(uintptr_t)s->pairwise)->value_dim = 0; }
static void score_beside_bias(spec *s) { ((spec_pairwise *)(uintptr_t)s->pairwise)->score = s->pairwise->bias; }
static void heads_of_some(spec *s) {
  s->heads = 4;
  find(s, EXPR_OPERAND, 0)->n_heads = 2;
}
static void matrix_beyond(spec *s) {
  spec_skew *m = &((spec_basis *)(uintptr_t)s->basis)->matrix;
  ((int32_t *)(uintptr_t)m->offset)[0] = 1;
}
static void matrix_of_another_size(spec *s) { s->operand[0].shape[s->operand[0].rank - 1]--; }
static void matrix_by_no_rule(spec *s) { ((spec_basis *)(uintptr_t)s->basis)->matrix.rule = (spec_skew_rule)7; }
static void degree_of_nothing(spec *s) { ((spec_polynomial *)(uintptr_t)s->polynomial)->degree = 0; }
static void terms_too_few(spec *s) { ((spec_polynomial *)(uintptr_t)s->polynomial)->n_terms--; }
static void part_of_anothers_channels(spec *s) { ((spec_part *)(uintptr_t)s->part)[1].first = s->part[0].first; }
static void part_of_an_axis_twice(spec *s) {
  spec_part *part = (spec_part *)(uintptr_t)&s->part[0];
  part->axis[0] = s->n_axes;
}
static void rotor_of_itself(spec *s) {
  spec_rotor *node = (spec_rotor *)(uintptr_t)s->function->node;
  for (int i = 0; i < s->function->count; i++)
    if (node[i].n_args) node[i].arg[0] = i;
}

static const struct {
  const char *name;
  const char *text; /* or a file of the tree */
  void (*change)(spec *s);
  const char *says;
} rows[] = {
#define ROW(text, change, says) {#change, text, change, says}
    ROW(PAIRS, operand_at_its_end, "an angle reads past the end of operand 'w'"),
    ROW(PAIRS, operand_before, "an angle reads past the end of operand 'w'"),
    ROW(PAIRS, operand_unknown, "an angle reads operand 2"),
    ROW(PAIRS, operands_many, "33 operands, at most 32 were expected"),
    ROW(PAIRS, operand_of_nothing, "operand 'w' has a dimension of 0"),
    ROW(PAIRS, operand_of_no_rank, "operand 'w' has rank 0"),
    ROW(PAIRS, element_beyond, "the bias reads operand 't' as far as element 8 of 8"),
    ROW(PAIRS, element_before, "the bias reads past the end of operand 't'"),
    ROW(PAIRS, element_below, "the bias reads operand 't' at a place from -1 to 7"),
    ROW(PAIRS, element_of_any_index, "the bias reads operand 't' at a place from -inf to inf"),
    ROW(PAIRS, element_of_half_an_index, "the bias reads operand 't' at a place from 0 to inf"),
    ROW(PAIRS, element_of_no_number, "the bias"),
    ROW(PAIRS, element_in_a_phase, "an angle reads operand 't' at a computed place"),
    ROW(PAIRS, element_in_a_generator, "a coefficient of a generator reads operand 't' at a computed place"),
    ROW(TABLE, element_far, "the bias reads operand 't' at a place from 0 to "),
    ROW(TABLE, element_beyond, "the bias reads operand 't' as far as element 32 of 32"),
    ROW(SCORE, input_at_its_end, "the score reads past the end of input 'm'"),
    ROW(SCORE, input_before, "the score reads past the end of input 'm'"),
    ROW(SCORE, input_unknown, "the score reads input 2"),
    ROW(SCORE, input_at_unknown, "the score reads input 2"),
    ROW(SCORE, input_at_of_pairs, "the score takes input 'p' to end at element 2"),
    ROW(SCORE, input_of_no_size, "input 'p' has -2 elements"),
    ROW(SCORE, pair_of_keys, "input 'p' has -1 elements"),
    ROW(SCORE, input_at_of_another_size, "the score takes input 'm' to end at element 3"),
    ROW(SCORE, input_at_far, "the score reads input 'm' at a place from 0 to 3, 0 to 2 was expected"),
    ROW(SCORE, input_at_below, "the score reads input 'm' at a place from -1 to 2, 0 to 2 was expected"),
    ROW(PAIRS, input_in_a_phase, "an angle reads an input, which it may not here"),
    ROW(ROWS, score_in_a_phase, "an angle reads axis 8"),
    ROW(ROWS, axis_unknown, "an angle reads axis 2"),
    ROW(SCORE, place_unknown, "the score reads axis 11"),
    ROW(ROWS, phase_of_channels, "an angle reads a channel, which it may not here"),
    ROW(ROWS, phase_not_finite, "an angle is not finite"),
    ROW(ROWS, channel_twice, "channel 0 is in two blocks"),
    ROW(ROWS, channel_outside, "channel 8 is outside the head"),
    ROW(ROWS, channel_before, "channel -1 is outside the head"),
    ROW(ROWS, blade_twice, "component 1 repeats a blade"),
    ROW(ROWS, blade_of_another_algebra, "component 1 is no blade of the algebra"),
    ROW(ROWS, blade_without_sign, "component 1 is no blade of the algebra"),
    ROW(ROWS, block_not_closed, "the generator of axis 'x' turns a blade of the block into one outside of it"),
    ROW(ROWS, generator_of_a_vector, "no ascending bivector blades"),
    ROW(ROWS, generator_of_nothing, "the generator of axis 'y' has 0 blades"),
    ROW(ROWS, generator_beyond, "no ascending bivector blades"),
    ROW(ROWS, order_twice, "no permutation"),
    ROW(ROWS, order_beyond, "no permutation"),
    ROW(ROWS, boost_of_a_turn, "with no inverse transpose"),
    ROW(ROWS, boost_of_no_axis, "more axes to boost back by"),
    ROW(ROWS, amplitude_of_nothing, "amplitude is 0"),
    ROW(ROWS, skipped_below, "skip_tokens is -1"),
    ROW(ROWS, grid_of_nothing, "the grid's size on axis 'y' is 0"),
    ROW(ROWS, gain_of_one_side, "an amplitude of one side alone"),
    ROW(ROWS, name_of_ours, "kept for pegen's own"),
    ROW(ROWS, axis_nameless, "axis 1 has no name"),
    ROW(PAIRS, value_dim_of_nothing, "value_dim is 0"),
    ROW(PAIRS, rounded_pairs, "products rounded of no blocks of blades"),
    ROW(PAIRS, score_beside_bias, "a score beside a bias"),
    ROW(PAIRS, heads_of_some, "is for 2 heads"),
    ROW("specs/string_cayley.lua", matrix_beyond, "the change of basis reads past the end of operand"),
    ROW("specs/string_cayley.lua", matrix_of_another_size, "whose matrices are not"),
    ROW("specs/string_cayley.lua", matrix_by_no_rule, "is made by rule 7"),
    ROW("specs/pape.lua", degree_of_nothing, "a bias of degree 0"),
    ROW("specs/pape.lua", terms_too_few, "a bias of"),
    ROW("specs/pape.lua", input_before, "the bias reads past the end of input"),
    ROW("tests/spec/good/head_parts.lua", part_of_anothers_channels, "a part of the channels"),
    ROW("tests/spec/good/head_parts.lua", part_of_an_axis_twice, "a part of axis"),
    ROW("tests/check/cut.lua", rotor_of_itself, "a rotor of what comes behind it"),
};

/* ---- the test ---- */

static spec *load(arena *a, const char *tree, const char *dsl, const char *text) {
  char path[] = "/tmp/border_test_XXXXXX";
  const spec *s;
  if (*text == 'l') { /* "local": a description, no path */
    int file = mkstemp(path);
    if (file < 0 || write(file, text, strlen(text)) != (ssize_t)strlen(text)) exit(2);
    close(file);
    s = loader_load(a, path, dsl, 0, NULL);
    unlink(path);
  } else s = loader_load(a, arena_printf(a, "%s/%s", tree, text), dsl, 0, NULL);
  if (!s) return NULL;
  size_t size;
  const unsigned char *bytes = wire_write(a, s, &size);
  const char *why;
  spec *read = wire_read(a, bytes, size, &why);
  if (read) read->file = "border";
  return read;
}

static void try_row(int i, const char *tree, const char *dsl) {
  arena *a = arena_create();
  *said = 0;
  spec *s = load(a, tree, dsl, rows[i].text);
  expect(s != NULL, rows[i].name, "its description is not read");
  if (s) {
    expect(spec_validate(s), rows[i].name, "its description is refused as it is");
    rows[i].change(s);
    expect(!spec_validate(s), rows[i].name, "is taken");
    expect(strstr(said, rows[i].says) != NULL, rows[i].name, rows[i].says);
  }
  arena_destroy(a);
}

/* The reader counts operands as spec_validate does: 32 are read, and the same bytes with 33 in their place are not. */
static void count_operands(const char *tree, const char *dsl) {
  arena *a = arena_create();
  const int64_t before[2] = {SPEC_MAX_OPERANDS, 2}, after = SPEC_MAX_OPERANDS + 1; /* 2: the length of "o0" */
  const char *why = "";
  size_t size, at = 0;
  spec *s = load(a, tree, dsl, OPERANDS);
  expect(s != NULL, "count_operands", "32 operands are not read");
  unsigned char *bytes = s ? wire_write(a, s, &size) : NULL;
  while (s && at + sizeof before < size && memcmp(bytes + at, before, sizeof before)) at++;
  if (s) memcpy(bytes + at, &after, sizeof after);
  expect(s && !wire_read(a, bytes, size, &why), "count_operands", "33 operands are read");
  expect(!strcmp(why, "a number out of its range"), "count_operands", why);
  arena_destroy(a);
}

int main(int count, char **arguments) {
  if (count != 3) return 2;
  diag_send_to(hear);
  int n = sizeof rows / sizeof *rows;
  for (int i = 0; i < n; i++) try_row(i, arguments[2], arguments[1]);
  count_operands(arguments[2], arguments[1]);
  printf("%d changes, %d failures\n", n, failures);
  return failures > 0;
}
