/* Programs that are not sound, each with a part of what the checker must say. */
#include "hand_spec.h"
#include "program/program.h"
#include "scoped.h"
#include "test.h"

#include <string.h>

typedef struct fixture {
  arena *memory;
  const plan *plan;
  program_blocks blocks;
  const expr *const *entries;
  const expr *head, *place; /* of a table that differs from head to head, a position */
  program_builder b;
  int x, y;
} fixture;

static fixture begin(void) {
  uint64_t random = 7;
  hand_request request = {.algebra = {3, 0, 0},
                          .combine = COMBINE_MEAN,
                          .axes = 2,
                          .blocks = 4,
                          .heads = 2,
                          .grades = 1u << 1,
                          .learned = true,
                          .leftover = 1,
                          .amplitude = 1};
  fixture f = {.memory = arena_create()};
  spec *s = hand_spec(f.memory, &request, &random);
  block_program *program = arena_new(f.memory, block_program);
  s->skip_tokens = 1;
  assert_true(block_build(f.memory, s, program));
  f.plan = plan_build(f.memory, program);
  f.blocks = (program_blocks){s->n_components, s->n_blocks, s->channel};
  f.entries = (const expr *const *)program->matrix.entry;
  f.place = expr_position(s->pool, 0);
  f.head = f.plan->leaf[0];
  f.b = program_begin(f.memory, s, "encode");
  f.x = program_stream_in(&f.b, "x", s->head_dim);
  f.y = program_stream_out(&f.b, "y", s->head_dim, f.x);
  return f;
}

static void rows(fixture *f) {
  program_for(&f->b, SPACE_TOKENS, PART_ALL);
  program_for(&f->b, SPACE_HEADS, PART_ALL);
  program_for_rows(&f->b);
}

static int matrix(fixture *f) { return program_matrix(&f->b, f->plan, f->blocks, f->entries, NULL, 0); }
static int numbers(fixture *f, const expr *const *x) { return program_eval(&f->b, f->plan, x, 1, NULL, 0); }
static int load(fixture *f) { return program_load(&f->b, f->x); }
static program_op *maker(fixture *f, int value) { return (program_op *)f->b.p->value[value].maker; }

/* ---- one function a program ---- */

static void sound(fixture *f) {
  program_for(&f->b, SPACE_TOKENS, PART_ALL);
  program_for(&f->b, SPACE_HEADS, PART_ALL);
  int m = matrix(f);
  program_for_rows(&f->b);
  program_store(&f->b, f->y, program_apply(&f->b, m, load(f), true));
}

static void empty_loop(fixture *f) {
  sound(f);
  program_for(&f->b, SPACE_BATCHES, PART_ALL);
  ((program_op *)f->b.p->body)->body = NULL;
}

static void nested_twice(fixture *f) {
  rows(f);
  program_for(&f->b, SPACE_TOKENS, PART_ALL);
  load(f);
}

static void tiles_inside(fixture *f) {
  program_for(&f->b, SPACE_TOKENS, PART_ALL);
  program_for(&f->b, SPACE_TILES, PART_ALL);
  load(f);
}

static void groups_inside(fixture *f) {
  rows(f);
  program_for(&f->b, SPACE_GROUPS, PART_ALL);
  load(f);
}

static void runs_inside(fixture *f) {
  rows(f);
  program_for(&f->b, SPACE_RUNS, PART_ALL);
  load(f);
}

static void no_part(fixture *f) {
  program_for(&f->b, SPACE_TOKENS, (program_part)0);
  load(f);
}

static void load_of_token(fixture *f) {
  program_for(&f->b, SPACE_TOKENS, PART_ALL);
  load(f);
}

static void load_of_output(fixture *f) {
  rows(f);
  program_load(&f->b, f->y);
}

static void store_to_input(fixture *f) {
  rows(f);
  program_store(&f->b, f->x, load(f));
}

static void stored_twice(fixture *f) {
  rows(f);
  int row = load(f);
  program_store(&f->b, f->y, row);
  program_store(&f->b, f->y, row);
}

static void stored_in_part(fixture *f) {
  program_for(&f->b, SPACE_TOKENS, PART_ENCODED);
  program_for_rows(&f->b);
  program_store(&f->b, f->y, load(f));
}

static void stored_wide(fixture *f) {
  int wide = program_stream_out(&f->b, "wide", 100, -1);
  rows(f);
  program_store(&f->b, wide, load(f));
}

static void never_read(fixture *f) {
  rows(f);
  int row = load(f);
  load(f);
  program_store(&f->b, f->y, row);
}

static void read_before_made(fixture *f) {
  rows(f);
  int row = program_apply(&f->b, matrix(f), load(f), false);
  maker(f, row)->argument[1] = row;
}

static void too_few_arguments(fixture *f) {
  rows(f);
  int row = program_apply(&f->b, matrix(f), load(f), false);
  maker(f, row)->n_arguments = 1;
}

static void of_another_loop(fixture *f) {
  program_for(&f->b, SPACE_TOKENS, PART_ALL);
  program_for(&f->b, SPACE_HEADS, PART_ALL);
  int v = numbers(f, &f->place);
  program_end_for(&f->b, 1);
  program_hold(&f->b, v);
}

static void row_kept_for_token(fixture *f) {
  rows(f);
  int row = load(f);
  program_end_for(&f->b, 2);
  program_hold(&f->b, row);
}

static void position_of_call(fixture *f) { numbers(f, &f->place); }

static void heads_of_token(fixture *f) {
  program_for(&f->b, SPACE_TOKENS, PART_ALL);
  numbers(f, &f->head);
}

static void channel(fixture *f) {
  rows(f);
  const expr **x = arena_array(f->memory, const expr *, 1);
  *x = expr_channel(f->plan->spec->pool, 0);
  numbers(f, x);
}

static void no_expression(fixture *f) {
  rows(f);
  program_eval(&f->b, f->plan, &f->place, 0, NULL, 0);
}

static void too_few_entries(fixture *f) {
  rows(f);
  maker(f, matrix(f))->n_exprs--;
}

static const int32_t places[] = {0, 9, 18, 27};
static const spec_skew of_all = {0, SKEW_UPPER, 1, places}, of_heads = {0, SKEW_UPPER, 2, places};
static const spec_skew two_of_all[] = {{0, SKEW_UPPER, 1, places}, {0, SKEW_UPPER, 1, places}};

static int skew(fixture *f, program_source source, int count, const spec_skew *of, int angles) {
  return program_skew_matrix(&f->b, f->plan, f->blocks, (program_skew){source, count, of, 1, false, false}, angles);
}

static void no_angles(fixture *f) {
  rows(f);
  skew(f, SOURCE_EXP, 1, &of_all, -1);
}

static void two_for_one_angle(fixture *f) {
  rows(f);
  skew(f, SOURCE_EXP, 2, two_of_all, numbers(f, &f->place));
}

static void cayley_of_two(fixture *f) {
  rows(f);
  skew(f, SOURCE_CAYLEY, 2, two_of_all, -1);
}

static void skew_of_heads(fixture *f) {
  program_for(&f->b, SPACE_TOKENS, PART_ALL);
  skew(f, SOURCE_CAYLEY, 1, &of_heads, -1);
}

static void product_of_blocks(fixture *f) {
  rows(f);
  program_product(&f->b, matrix(f), matrix(f));
}

static void product_of_fewer_channels(fixture *f) {
  rows(f);
  int first = matrix(f);
  program_blocks one = {2, 1, f->blocks.channel};
  program_skew cayley = {.source = SOURCE_CAYLEY, .count = 1, .of = &of_all, .factor = 1};
  program_product(&f->b, first, program_skew_matrix(&f->b, f->plan, one, cayley, -1));
}

static void exp_of_matrix(fixture *f) {
  rows(f);
  skew(f, SOURCE_EXP, 1, &of_all, matrix(f));
}

static void store_of_matrix(fixture *f) {
  rows(f);
  program_store(&f->b, f->y, matrix(f));
}

static void apply_numbers(fixture *f) {
  rows(f);
  int v = numbers(f, f->plan->value);
  program_apply(&f->b, v, load(f), false);
}

static void add_float64(fixture *f) {
  rows(f);
  program_blocks each = {1, f->blocks.count, f->blocks.channel};
  int v = numbers(f, &f->place);
  program_add(&f->b, v, load(f), each);
}

static void add_pairs(fixture *f) {
  rows(f);
  int v = numbers(f, f->plan->value);
  program_add(&f->b, v, load(f), f->blocks);
}

static void channel_outside(fixture *f) {
  int narrow = program_stream_in(&f->b, "narrow", f->plan->spec->head_dim - 1);
  rows(f);
  program_apply(&f->b, matrix(f), program_load(&f->b, narrow), false);
}

static void channel_of_two_blocks(fixture *f) {
  static const int same[] = {1, 2, 3, 1};
  program_blocks each = {1, 4, same};
  rows(f);
  int v = numbers(f, f->plan->value);
  program_add(&f->b, v, load(f), each);
}

static void read_after_written(fixture *f) {
  rows(f);
  program_store(&f->b, f->y, load(f));
  load(f);
}

static void read_after_written_elsewhere(fixture *f) {
  rows(f);
  program_store(&f->b, f->y, load(f));
  program_end_for(&f->b, 0);
  program_for(&f->b, SPACE_TOKENS, PART_SKIPPED);
  program_for_rows(&f->b);
  load(f);
}

static void write_of_other_spaces(fixture *f) {
  int table = program_array_out(&f->b, "table", IN(TOKENS));
  rows(f);
  program_write(&f->b, table, numbers(f, &f->place));
}

static void write_twice(fixture *f) {
  int table = program_array_out(&f->b, "table", IN(TOKENS));
  program_for(&f->b, SPACE_TOKENS, PART_ALL);
  int v = numbers(f, &f->place);
  program_write(&f->b, table, v);
  program_write(&f->b, table, v);
}

static void not_written(fixture *f) {
  program_array_out(&f->b, "table", IN(TOKENS));
  sound(f);
}

static const expr *const *sum(fixture *f) {
  const expr **name = arena_array(f->memory, const expr *, 1);
  *name = expr_cotangent(f->plan->spec->pool, 0, DEPENDS_POSITION);
  return name;
}

static int read_element(fixture *f, int array, int count) {
  return program_read(&f->b, NULL, array, f->blocks.count, sum(f), count, NUMBER_F64);
}

static void an_array_read(fixture *f) {
  int torques = program_array_in(&f->b, "torques", IN(TOKENS)), table = program_array_out(&f->b, "table", IN(TOKENS));
  sound(f);
  program_end_for(&f->b, 0);
  program_for(&f->b, SPACE_TOKENS, PART_ALL);
  program_write(&f->b, table, read_element(f, torques, 1));
}

static void read_of_other_spaces(fixture *f) {
  int torques = program_array_in(&f->b, "torques", IN(TOKENS) | IN(HEADS));
  program_for(&f->b, SPACE_TOKENS, PART_ALL);
  read_element(f, torques, 1);
}

static void read_what_is_written(fixture *f) {
  int table = program_array_out(&f->b, "table", IN(TOKENS));
  program_for(&f->b, SPACE_TOKENS, PART_ALL);
  read_element(f, table, 1);
}

static void write_what_is_read(fixture *f) {
  int torques = program_array_in(&f->b, "torques", IN(TOKENS));
  program_for(&f->b, SPACE_TOKENS, PART_ALL);
  program_write(&f->b, torques, numbers(f, &f->place));
}

static void nothing_read(fixture *f) {
  int torques = program_array_in(&f->b, "torques", IN(TOKENS));
  program_for(&f->b, SPACE_TOKENS, PART_ALL);
  read_element(f, torques, 0);
}

static void of_another_op(fixture *f) {
  rows(f);
  int row = load(f);
  f->b.p->value[row].maker = NULL;
}

static void of_other_spaces(fixture *f) {
  rows(f);
  int row = load(f);
  f->b.p->value[row].spaces = IN(TOKENS);
}

/* ---- columns ---- */

static const int some[] = {0, 1, -1, 2};

static void columns_of(fixture *f, int count) {
  const expr *const x[] = {expr_const(f->plan->spec->pool, 1), expr_const(f->plan->spec->pool, 2)};
  const expr **kept = arena_array(f->memory, const expr *, 2);
  memcpy(kept, x, sizeof x);
  int wide = program_stream_out(&f->b, "wide", f->plan->spec->head_dim + count, -1);
  rows(f);
  int numbers = program_eval_once(&f->b, f->plan, kept, 2);
  program_store(&f->b, wide, program_columns(&f->b, NULL, load(f), numbers, -1, some, count));
}

static void columns(fixture *f) {
  columns_of(f, 3);
  program_end_for(&f->b, 0);
  rows(f);
  program_store(&f->b, f->y, load(f));
}

static void column_of_none(fixture *f) { columns_of(f, 4); }

static void columns_of_blocks(fixture *f) {
  rows(f);
  program_columns(&f->b, NULL, load(f), numbers(f, f->plan->value), -1, some, 1);
}

/* What the last channels of a row gain for `count` names; the row itself is stored as it is. */
static void gathers(fixture *f, int columns, int gains, int count) {
  const expr **name = arena_array(f->memory, const expr *, count + 1);
  for (int i = 0; i < count; i++) name[i] = expr_cotangent(f->plan->spec->pool, i, DEPENDS_QUERY);
  int of_rows = program_array_out(&f->b, "gained", SPACES_OF_ROW);
  rows(f);
  int row = load(f);
  program_store(&f->b, f->y, row);
  program_write(&f->b, of_rows, program_gather(&f->b, row, gains, some, columns, name, count));
}

static void gather(fixture *f) { gathers(f, 4, -1, 3); }
static void gather_of_none(fixture *f) { gathers(f, 4, -1, 2); }
static void gather_of_more(fixture *f) { gathers(f, f->plan->spec->head_dim + 1, -1, 3); }
static void gather_unnamed(fixture *f) { gathers(f, 4, -1, 0); }
static void gather_by_blocks(fixture *f) {
  static const expr *one[1];
  one[0] = expr_const(f->plan->spec->pool, 1);
  gathers(f, 4, numbers(f, one), 1);
}

static void gather_by_gains(fixture *f) {
  const expr *const two[] = {expr_const(f->plan->spec->pool, 1), expr_const(f->plan->spec->pool, 2)};
  const expr **kept = arena_array(f->memory, const expr *, 2);
  memcpy(kept, two, sizeof two);
  gathers(f, 2, program_eval_once(&f->b, f->plan, kept, 2), 3);
}

static void take_more(fixture *f) {
  rows(f);
  program_store(&f->b, f->y, program_take(&f->b, load(f), f->plan->spec->head_dim + 1));
}

static void keys_alone(fixture *f) {
  program_for(&f->b, SPACE_TENSORS, PART_K);
  program_for(&f->b, SPACE_TOKENS, PART_ALL);
  program_for_rows(&f->b);
  program_store(&f->b, f->y, load(f));
}

static void keys_twice(fixture *f) {
  keys_alone(f);
  program_end_for(&f->b, 0);
  rows(f);
  program_store(&f->b, f->y, load(f));
}

/* ---- pairs ---- */

typedef struct pairs {
  int query, score, row, out;
} pairs;

static pairs attention(fixture *f, program_part part, int key_channels) {
  *f->b.p = (program){.spec = f->plan->spec, .entry = "attention"};
  f->b.end[0] = &f->b.p->body;
  int q = program_stream_of(&f->b, "q", 8, SPACES_OF_QUERY, false),
      k = program_stream_of(&f->b, "k", key_channels, SPACES_OF_KEY, false);
  pairs p = {.out = program_stream_of(&f->b, "out", key_channels, SPACES_OF_QUERY, true)};
  program_for(&f->b, SPACE_BATCHES, PART_ALL);
  program_for(&f->b, SPACE_HEADS, PART_ALL);
  program_for(&f->b, SPACE_TOKENS, PART_ALL);
  p.query = program_load(&f->b, q);
  program_for(&f->b, SPACE_KEYS, part);
  p.row = program_load(&f->b, k);
  p.score = program_score(&f->b, p.query, p.row, -1, false);
  program_end_for(&f->b, 3);
  return p;
}

static void attend(fixture *f, const pairs *p) {
  program_store(&f->b, p->out, program_attend(&f->b, (int[]){p->score, p->row}, 1));
}

static void all_keys(fixture *f) {
  pairs p = attention(f, PART_ALL, 8);
  attend(f, &p);
}

static void some_keys(fixture *f) {
  pairs p = attention(f, PART_ENCODED, 8);
  attend(f, &p);
}

static void narrow_keys(fixture *f) {
  pairs p = attention(f, PART_ALL, 4);
  attend(f, &p);
}

static void pair_of_query(fixture *f) {
  pairs p = attention(f, PART_ALL, 8);
  program_store(&f->b, p.out, p.row);
}

static void query_as_row(fixture *f) {
  pairs p = attention(f, PART_ALL, 8);
  program_store(&f->b, p.out, program_attend(&f->b, (int[]){p.score, p.query}, 1));
}

static void keys_of_none(fixture *f) {
  program_for(&f->b, SPACE_KEYS, PART_ALL);
  load(f);
}

static const struct program_row {
  const char *name;
  void (*build)(fixture *f);
  const char *fault; /* NULL: none */
} programs[] = {
    {"sound", sound, NULL},
    {"an empty loop", empty_loop, "for tokens: the loop is empty"},
    {"tokens inside of tokens", nested_twice, "for tokens: a loop over the same space stands around"},
    {"tiles inside of tokens", tiles_inside, "for tiles: tiles are cut from tokens"},
    {"groups inside of tensors", groups_inside, "for groups: groups are cut from all rows"},
    {"runs inside of heads", runs_inside, "for runs: runs are cut from all heads"},
    {"no part of the tokens", no_part, "for tokens: no part of the tokens"},
    {"a load of a token", load_of_token, "load x: a row is of one token, batch, tensor and head"},
    {"a load of what is written", load_of_output, "load y: rows that are not read"},
    {"a store to what is read", store_to_input, "store x: rows that are not written"},
    {"two stores", stored_twice, "store y: rows are stored twice"},
    {"skipped tokens forgotten", stored_in_part, "rows y: not all are stored"},
    {"a row of other width", stored_wide, "store wide: a row of 13 channels, expected 100"},
    {"a value nobody reads", never_read, "is never read"},
    {"a value that reads itself", read_before_made, "argument 1 is read before it is made"},
    {"an argument left out", too_few_arguments, "1 arguments, expected 2"},
    {"a head's value for all heads", of_another_loop, "indexed by heads, which no loop around walks"},
    {"columns", columns, NULL},
    {"a column of none", column_of_none, "column 2 of 2"},
    {"columns of blocks", columns_of_blocks, "argument 1 is of several blocks"},
    {"columns gathered", gather, NULL},
    {"a column gathered for none", gather_of_none, "column 2 of 2"},
    {"more columns than channels", gather_of_more, "columns of a row of 13 channels"},
    {"columns gathered for nobody", gather_unnamed, "0 names of 0 numbers"},
    {"columns gathered by blocks' gains", gather_by_blocks, "argument 1 is of several blocks"},
    {"columns gathered by fewer gains", gather_by_gains, "2 gains of 3 weights"},
    {"more than a row taken", take_more, "14 channels of a row of 13"},
    {"rows of k alone", keys_alone, "rows y: not all are stored"},
    {"rows of k again", keys_twice, "load x: read after y was written"},
    {"attention", all_keys, NULL},
    {"keys left out", some_keys, "not all keys are attended to"},
    {"keys of fewer channels", narrow_keys, "rows of 8 and 4 channels"},
    {"a pair's row for its query", pair_of_query, "is indexed by keys, which no loop around walks"},
    {"a query's row for its keys", query_as_row, "are not of the same keys"},
    {"keys of no query", keys_of_none, "keys of no query"},
    {"a row's value for its token", row_kept_for_token, "indexed by batches, tensors, which no loop around walks"},
    {"a position of no token", position_of_call, "is a position, outside of tokens"},
    {"a head's number of no head", heads_of_token, "differs from head to head, outside of heads"},
    {"a channel in an expression", channel, "is a channel"},
    {"an eval of nothing", no_expression, "no expression"},
    {"entries left out", too_few_entries, "8 entries, expected 9"},
    {"an exponential of no numbers", no_angles, "0 arguments, expected 1"},
    {"fewer numbers than matrices", two_for_one_angle, "1 numbers for 2 skew matrices"},
    {"a Cayley transform of a sum", cayley_of_two, "cayley of 2 skew matrices"},
    {"a head's matrix for all heads", skew_of_heads, "differs from head to head, outside of heads"},
    {"a product with blocks", product_of_blocks, "4 blocks of 3 channels, expected one of 3"},
    {"a product with a part of the row", product_of_fewer_channels, "is in the first alone"},
    {"an exponential of a matrix", exp_of_matrix, "argument 0 is a matrix, expected numbers"},
    {"a matrix as a row", store_of_matrix, "argument 0 is a matrix, expected a row"},
    {"numbers as a matrix", apply_numbers, "argument 0 is numbers, expected a matrix"},
    {"float64 onto a row", add_float64, "argument 0 is f64, expected f32"},
    {"one number for three channels", add_pairs, "1 numbers for 4 blocks of 3 channels"},
    {"a channel past the row", channel_outside, "channel 12 of a row of 12"},
    {"a channel of two blocks", channel_of_two_blocks, "channel 1 belongs to two blocks"},
    {"a row read after it was written", read_after_written, "read after y was written, which may lie in its place"},
    {"the same in another loop", read_after_written_elsewhere, "read after y was written"},
    {"an element for each row", write_of_other_spaces, "write table: elements of tokens"},
    {"an element twice", write_twice, "write table: elements are written twice"},
    {"an array left out", not_written, "array table is not written"},
    {"an array that is read", an_array_read, NULL},
    {"a head's element for all heads", read_of_other_spaces, "read torques: elements of tokens, heads"},
    {"an element of what is written", read_what_is_written, "read table: an array that is not read"},
    {"an element of what is read", write_what_is_read, "write torques: an array that is not written"},
    {"an element of no numbers", nothing_read, "read torques: 0 names"},
    {"another op's value", of_another_op, "the value is another op's"},
    {"a value of other loops", of_other_spaces, "the loops around walk tokens, batches, tensors, heads"},
};

static void checked(void **state) {
  const struct program_row *row = *state;
  SCOPED fixture f = begin();
  row->build(&f);
  const char *fault = program_fault(f.memory, f.b.p);
  if (!row->fault ? fault != NULL : !fault || !strstr(fault, row->fault)) fail_msg("%s", fault ? fault : "sound");
}

int main(void) {
  for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) list_row(programs[i].name, checked, &programs[i]);
  return run_listed();
}
