/* Tile programs that are not sound, each with what the checker must say; sound ones; and their text. */
#include "scoped.h"
#include "test.h"
#include "tile/tile.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BUG = 3 }; /* the exit status of diag_bug */

/* ---- what the checker says ---- */

/* Its message about a program; it ends the process, so a child asks. */
static const char *message_of(arena *a, const tile_program *p) {
  int ends[2];
  char *text = arena_array(a, char, 1000);
  assert_int_equal(pipe(ends), 0);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    tile_check(p);
    _exit(0);
  }
  close(ends[1]);
  size_t length = 0;
  for (ssize_t got = 1; got > 0; length += (size_t)got) got = read(ends[0], text + length, 999 - length);
  close(ends[0]);
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), length ? BUG : 0);
  return text;
}

/* ---- a program by hand: out = (q k^T) v, each op once ---- */

typedef struct fixture {
  arena *memory;
  tile_program *p;
  int q, k, v, pairs, out;
} fixture;

static void arrive(fixture *f) { tile_add_op(f->p, TILE_WAIT, TILE_NONE); }
static void end(fixture *f) { tile_add_op(f->p, TILE_END, TILE_NONE); }
static void multiply(fixture *f) { tile_add_mma(f->p, f->pairs, f->q, f->k, true, false); }
static void add_values(fixture *f) { tile_add_mma(f->p, f->out, f->pairs, f->v, false, true); }
static void store(fixture *f) { tile_add_store(f->p, TILE_OUT, f->out); }

static void load_again(fixture *f, int value, tile_tensor tensor) {
  tile_add_op(f->p, TILE_LOAD, value)->tensor = tensor;
}

/* Up to the loads of the loop. */
static fixture begin(void) {
  fixture f = {.memory = arena_create()};
  f.p = arena_new(f.memory, tile_program);
  f.p->name = "by_hand";
  f.out = tile_add_value(f.p, "O", TILE_OWN, TILE_VALUES, true);
  f.pairs = tile_add_value(f.p, "S", TILE_OWN, TILE_STREAMED, true);
  f.q = tile_add_load(f.p, "Q", TILE_Q);
  tile_add_op(f.p, TILE_EACH, TILE_NONE);
  arrive(&f);
  f.k = tile_add_load(f.p, "K", TILE_K);
  f.v = tile_add_load(f.p, "V", TILE_V);
  return f;
}

static void sound(fixture *f) {
  arrive(f);
  multiply(f);
  add_values(f);
  end(f);
  store(f);
}

static void no_wait(fixture *f) {
  multiply(f);
  arrive(f);
  add_values(f);
  end(f);
  store(f);
}

/* The wait at the beginning of the turn is the one that lets the next tiles replace those that were read. */
static void no_wait_before_the_next_load(fixture *f) {
  for (int i = 0; i < f->p->n_ops; i++)
    if (f->p->op[i].kind == TILE_WAIT)
      memmove(&f->p->op[i], &f->p->op[i + 1], sizeof(tile_op) * (size_t)(--f->p->n_ops - i));
  sound(f);
}

static void load_over_a_read_tile(fixture *f) {
  arrive(f);
  multiply(f);
  load_again(f, f->k, TILE_K);
  arrive(f);
  add_values(f);
  end(f);
  store(f);
}

static void tile_of_another_turn(fixture *f) {
  f->p->op[f->p->n_ops - 2].ahead = true;
  sound(f);
}

static void never_loaded(fixture *f) {
  f->p->n_ops--;
  sound(f);
}

static void into_registers(fixture *f) {
  load_again(f, f->pairs, TILE_K);
  sound(f);
}

static void without_memory(fixture *f) {
  f->p->value[f->k].stages = 0;
  sound(f);
}

static void three_stages(fixture *f) {
  f->p->value[f->v].stages = 3;
  sound(f);
}

static void read_before_made(fixture *f) {
  arrive(f);
  add_values(f);
  multiply(f);
  end(f);
  store(f);
}

static void score_before_product(fixture *f) {
  arrive(f);
  int score = tile_add_value(f->p, "T", TILE_OWN, TILE_STREAMED, true);
  tile_add_unary(f->p, TILE_SCORE, score, f->pairs);
  end(f);
}

static void not_transposed(fixture *f) {
  arrive(f);
  tile_add_mma(f->p, f->pairs, f->q, f->k, false, false);
  end(f);
}

static void into_wrong_rows(fixture *f) {
  arrive(f);
  tile_add_mma(f->p, f->out, f->q, f->k, true, false);
  end(f);
}

static void by_registers(fixture *f) {
  arrive(f);
  multiply(f);
  tile_add_mma(f->p, f->out, f->pairs, f->pairs, false, true);
  end(f);
}

static void into_memory(fixture *f) {
  arrive(f);
  f->p->value[f->pairs].is_sum = false;
  multiply(f);
  end(f);
}

static void stored_twice(fixture *f) {
  sound(f);
  store(f);
}

static void stored_each_turn(fixture *f) {
  arrive(f);
  multiply(f);
  add_values(f);
  store(f);
  end(f);
}

static void stored_by_all(fixture *f) {
  arrive(f);
  multiply(f);
  add_values(f);
  tile_add_store(f->p, TILE_OUT, f->v);
  end(f);
}

static void stored_before_made(fixture *f) {
  arrive(f);
  end(f);
  store(f);
}

/* K' = turn K in place of K. */
static void turned(fixture *f, bool waits) {
  arrive(f);
  f->k = tile_add_turn(f->memory, f->p, f->k, false);
  if (waits) arrive(f);
  multiply(f);
  add_values(f);
  end(f);
  store(f);
}

static void turned_behind_a_wait(fixture *f) { turned(f, true); }
static void turned_without_a_wait(fixture *f) { turned(f, false); }

static void turned_before_it_came(fixture *f) {
  f->k = tile_add_turn(f->memory, f->p, f->k, false);
  sound(f);
}

static void turned_over_a_read_tile(fixture *f) {
  arrive(f);
  int k = f->k;
  f->k = tile_add_turn(f->memory, f->p, k, false);
  arrive(f);
  multiply(f);
  tile_add_unary(f->p, TILE_TURN, f->k, k);
  end(f);
}

static void turned_into_registers(fixture *f) {
  arrive(f);
  tile_add_unary(f->p, TILE_TURN, f->out, f->v);
  end(f);
}

static void turned_pairs(fixture *f) {
  arrive(f);
  multiply(f);
  tile_add_turn(f->memory, f->p, f->pairs, false);
  end(f);
}

/* give of three values, each of pairs or not, to operands or nothing. */
static void given(fixture *f, int third, unsigned to) {
  arrive(f);
  multiply(f);
  tile_op *op = tile_add_binary(f->p, TILE_GIVE, TILE_NONE, f->pairs, f->pairs);
  op->arg[2] = third;
  op->to = to;
}

static void given_once(fixture *f) {
  given(f, f->pairs, TILE_OF_OPERANDS | TILE_OF_TOKENS);
  add_values(f);
  end(f);
  store(f);
}

static void given_twice(fixture *f) {
  given(f, f->pairs, TILE_OF_OPERANDS | TILE_OF_TOKENS);
  given(f, f->pairs, TILE_OF_TOKENS);
  end(f);
}

static void given_to_nothing(fixture *f) {
  given(f, f->pairs, 0);
  end(f);
}

static void given_of_rows(fixture *f) {
  given(f, f->v, TILE_OF_TOKENS);
  end(f);
}

static void given_by_keys(fixture *f) {
  f->p->owns_keys = true;
  given(f, f->pairs, TILE_OF_OPERANDS);
  end(f);
}

static void rotate(fixture *f, tile_kind kind, int value, int first, int second) {
  arrive(f);
  multiply(f);
  tile_add_rotated(f->p, kind, value, first, second);
  end(f);
}

static void rotated_pairs(fixture *f) { rotate(f, TILE_ROTATED_PRODUCT, f->pairs, f->q, f->k); }
static void rotated_rows(fixture *f) { rotate(f, TILE_ROTATED_SUM, f->out, f->pairs, f->v); }
static void rotated_by_values(fixture *f) { rotate(f, TILE_ROTATED_PRODUCT, f->pairs, f->q, f->v); }
static void rotated_without_weights(fixture *f) { rotate(f, TILE_ROTATED_SUM, f->pairs, f->q, f->k); }

static void rotated_before_product(fixture *f) {
  arrive(f);
  tile_add_rotated(f->p, TILE_ROTATED_PRODUCT, f->pairs, f->q, f->k);
  end(f);
}

static void rotated_before_it_came(fixture *f) {
  tile_add_rotated(f->p, TILE_ROTATED_PRODUCT, f->pairs, f->q, f->k);
  arrive(f);
  end(f);
}

static void no_loop(fixture *f) {
  sound(f);
  end(f);
}

static void no_end(fixture *f) {
  arrive(f);
  multiply(f);
}

static const struct {
  const char *name;
  void (*make)(fixture *f);
  const char *says; /* NULL: nothing */
} cases[] = {
    {"sound", sound, NULL},
    {"no wait", no_wait, "by_hand: K is read before a wait behind its load"},
    {"no wait before the next load", no_wait_before_the_next_load,
     "by_hand: K is loaded over a tile that may still be read"},
    {"a load over a tile that is read", load_over_a_read_tile,
     "by_hand: K is loaded over a tile that may still be read"},
    {"another turn's tile", tile_of_another_turn, "by_hand: K is another turn's tile where it is read"},
    {"never loaded", never_loaded, "by_hand: V is read before a wait behind its load"},
    {"a load into registers", into_registers, "by_hand: S is loaded where it has no memory"},
    {"a load without memory", without_memory, "by_hand: K is loaded where it has no memory"},
    {"three stages", three_stages, "by_hand: V is loaded where it has no memory"},
    {"a sum that is read before it is made", read_before_made, "by_hand: S is read before it is made"},
    {"a score before its product", score_before_product, "by_hand: S is read before it is made"},
    {"a product that is not transposed", not_transposed, "by_hand: the shapes of S = Q K do not agree"},
    {"a product into wrong rows", into_wrong_rows, "by_hand: the shapes of O = Q K do not agree"},
    {"a product by registers", by_registers, "by_hand: the shapes of O = S S do not agree"},
    {"a product into memory", into_memory, "by_hand: the shapes of S = Q K do not agree"},
    {"two stores", stored_twice, "by_hand stores out twice"},
    {"a store in a loop", stored_each_turn, "by_hand stores out twice"},
    {"a store of streamed rows", stored_by_all, "by_hand stores V, which other blocks have, too"},
    {"a store of nothing", stored_before_made, "by_hand: O is read before it is made"},
    {"turned rows", turned_behind_a_wait, NULL},
    {"turned rows without a wait", turned_without_a_wait, "by_hand: K' is read before a wait behind its load"},
    {"rows that are turned before they came", turned_before_it_came,
     "by_hand: K is read before a wait behind its load"},
    {"a turn over a tile that is read", turned_over_a_read_tile,
     "by_hand: K' is loaded over a tile that may still be read"},
    {"a turn into registers", turned_into_registers, "by_hand: the shapes of O = turn V do not agree"},
    {"a turn of pairs", turned_pairs, "by_hand: S is no tile of tokens' rows"},
    {"gains of pairs", given_once, NULL},
    {"gains of pairs twice", given_twice, "by_hand gives a pair's gain twice, or to nothing"},
    {"gains of pairs to nothing", given_to_nothing, "by_hand gives a pair's gain twice, or to nothing"},
    {"gains of rows", given_of_rows, "by_hand gives of V, which is not of pairs"},
    {"gains of operands by keys", given_by_keys, "by_hand gives to operands, which programs of queries do"},
    {"rotated pairs", rotated_pairs, NULL},
    {"a sum of rotated rows", rotated_rows, NULL},
    {"a rotated product of other rows", rotated_by_values, "by_hand: the shapes of S = Q V do not agree"},
    {"a sum of rotated rows without weights", rotated_without_weights, "by_hand: the shapes of S = Q K do not agree"},
    {"a rotated product without a product", rotated_before_product, "by_hand: S is read before it is made"},
    {"a rotated product before its rows came", rotated_before_it_came,
     "by_hand: K is read before a wait behind its load"},
    {"an end without a loop", no_loop, "by_hand: an end without a loop"},
    {"a loop without an end", no_end, "by_hand: a loop without an end"},
};

TEST(faults) {
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    SCOPED fixture f = begin();
    cases[i].make(&f);
    const char *text = message_of(f.memory, f.p);
    if (cases[i].says ? !strstr(text, cases[i].says) : *text != 0) fail_msg("%s: '%s'", cases[i].name, text);
  }
}

/* ---- passes ---- */

/* Each program needs each of its waits: without any one of them it is not sound. */
TEST(waits_are_needed) {
  SCOPED arena *a = arena_create();
  const tile_program *forward = tile_forward(a, false), *columns = tile_forward(a, true),
                     *turned = tile_turned(a, forward, false), *rotated = tile_rotated(a, forward);
  const unsigned of_keys = TILE_OF_KEYS | TILE_OF_VALUES;
  const struct {
    const tile_program *program;
    int in_turn, pipelined; /* waits */
  } programs[] = {{forward, 2, 1},
                  {tile_reverse(a, forward, TILE_OF_QUERIES), 2, 1},
                  {tile_reverse(a, forward, of_keys), 2, 1},
                  {tile_reverse(a, forward, TILE_OF_QUERIES | TILE_OF_OPERANDS | TILE_OF_TOKENS), 2, 1},
                  {columns, 2, 1},
                  {tile_reverse(a, columns, TILE_OF_QUERIES), 2, 1},
                  {tile_reverse(a, columns, of_keys), 2, 1},
                  {rotated, 2, 1},
                  {tile_reverse(a, rotated, TILE_OF_QUERIES), 2, 1},
                  {tile_reverse(a, rotated, of_keys), 2, 1},
                  {turned, 4, 3},
                  {tile_reverse(a, turned, TILE_OF_QUERIES), 4, 3},
                  {tile_reverse(a, turned, of_keys), 4, 3},
                  {tile_apart(a, tile_reverse(a, turned, of_keys)), 2, 1},
                  {tile_turn(a, TILE_K, true), 2, 2}};
  for (size_t i = 0; i < 2 * sizeof programs / sizeof *programs; i++) {
    const tile_program *p = (i % 2 ? tile_pipeline : tile_in_turn)(a, programs[i / 2].program);
    int waits = 0;
    assert_string_equal(message_of(a, p), "");
    for (int op = 0; op < p->n_ops; op++) {
      if (p->op[op].kind != TILE_WAIT) continue;
      tile_program *less = arena_new(a, tile_program);
      *less = *p;
      memmove(&less->op[op], &less->op[op + 1], sizeof(tile_op) * (size_t)(--less->n_ops - op));
      assert_true(*message_of(a, less));
      waits++;
    }
    assert_int_equal(waits, i % 2 ? programs[i / 2].pipelined : programs[i / 2].in_turn);
  }
}

/* ---- text ---- */

static const char forward_text[] = //
    "tile program attention: a block owns queries, keys are streamed\n"
    "  Q = load q  ; [own, channels], shared memory\n"
    "  each streamed tile\n"
    "    K = load k  ; [streamed, channels], shared memory\n"
    "    V = load v  ; [streamed, values], shared memory\n"
    "    S = mma Q, K^T  ; [own, streamed], float32 in registers\n"
    "    T = score S  ; [own, streamed], float32 in registers\n"
    "    P = online T, O  ; [own, streamed], float32 in registers\n"
    "    O += mma P, V\n"
    "  store out, O\n";

static const char keys_text[] = //
    "tile program attention_backward_keys: a block owns keys, queries are streamed\n"
    "  K = load k  ; [own, channels], shared memory\n"
    "  V = load v  ; [own, values], shared memory\n"
    "  Q = load q  ; [streamed, channels], shared memory for 2\n"
    "  dO = load dout  ; [streamed, values], shared memory for 2\n"
    "  each streamed tile\n"
    "    wait\n"
    "    Q = load q of the next tile  ; [streamed, channels], shared memory for 2\n"
    "    dO = load dout of the next tile  ; [streamed, values], shared memory for 2\n"
    "    S = mma K, Q^T  ; [own, streamed], float32 in registers\n"
    "    T = score S  ; [own, streamed], float32 in registers\n"
    "    P = weight T  ; [own, streamed], float32 in registers\n"
    "    dV += mma P, dO\n"
    "    dP = mma V, dO^T  ; [own, streamed], float32 in registers\n"
    "    dS = gain P, dP, S  ; [own, streamed], float32 in registers\n"
    "    dK += mma dS, Q\n"
    "  store dk, dK  ; times the scale\n"
    "  store dv, dV\n";

/* With a polynomial's columns; no tensor gains of them. */
static const char columns_text[] = //
    "tile program attention_backward_queries: a block owns queries, keys are streamed\n"
    "  Q = load q  ; [own, channels], shared memory\n"
    "  Qc = load q_columns  ; [own, parts], shared memory\n"
    "  dO = load dout  ; [own, values], shared memory\n"
    "  each streamed tile\n"
    "    K = load k  ; [streamed, channels], shared memory\n"
    "    V = load v  ; [streamed, values], shared memory\n"
    "    Kc = load k_columns  ; [streamed, parts], shared memory\n"
    "    S = mma Q, K^T  ; [own, streamed], float32 in registers\n"
    "    S += mma Qc, Kc^T\n"
    "    T = score S  ; [own, streamed], float32 in registers\n"
    "    P = weight T  ; [own, streamed], float32 in registers\n"
    "    dP = mma dO, V^T  ; [own, streamed], float32 in registers\n"
    "    dS = gain P, dP, S  ; [own, streamed], float32 in registers\n"
    "    dQ += mma dS, K\n"
    "  store dq, dQ  ; times the scale\n";

static const char turned_text[] = //
    "tile program attention: a block owns queries, keys are streamed\n"
    "  Q = load q  ; [own, channels], shared memory\n"
    "  Q' = turn Q  ; [own, channels], shared memory\n"
    "  each streamed tile\n"
    "    K = load k  ; [streamed, channels], shared memory\n"
    "    V = load v  ; [streamed, values], shared memory\n"
    "    K' = turn K  ; [streamed, channels], shared memory\n"
    "    V' = turn V  ; [streamed, values], shared memory\n"
    "    S = mma Q', K'^T  ; [own, streamed], float32 in registers\n"
    "    T = score S  ; [own, streamed], float32 in registers\n"
    "    P = online T, O  ; [own, streamed], float32 in registers\n"
    "    O += mma P, V'\n"
    "  O' = turn back O  ; [own, values], float32 in registers\n"
    "  store out, O'\n";

static const char gains_text[] = //
    "tile program attention_backward_queries_gains: a block owns queries, keys are streamed\n"
    "  Q = load q  ; [own, channels], shared memory\n"
    "  dO = load dout  ; [own, values], shared memory\n"
    "  each streamed tile\n"
    "    K = load k  ; [streamed, channels], shared memory\n"
    "    V = load v  ; [streamed, values], shared memory\n"
    "    S = mma Q, K^T  ; [own, streamed], float32 in registers\n"
    "    T = score S  ; [own, streamed], float32 in registers\n"
    "    P = weight T  ; [own, streamed], float32 in registers\n"
    "    dP = mma dO, V^T  ; [own, streamed], float32 in registers\n"
    "    dS = gain P, dP, S  ; [own, streamed], float32 in registers\n"
    "    give P, dP, S  ; to operands and own tokens\n"
    "    dQ += mma dS, K\n"
    "  store dq, dQ  ; times the scale\n";

static void assert_text(const tile_program *p, const char *expected) {
  char *text;
  size_t size;
  FILE *stream = open_memstream(&text, &size);
  tile_print(stream, p);
  assert_int_equal(fclose(stream), 0);
  assert_string_equal(text, expected);
  free(text);
}

TEST(texts) {
  SCOPED arena *a = arena_create();
  const tile_program *forward = tile_forward(a, false);
  assert_text(forward, forward_text);
  assert_text(tile_reverse(a, tile_forward(a, true), TILE_OF_QUERIES), columns_text);
  assert_text(tile_pipeline(a, tile_reverse(a, forward, TILE_OF_KEYS | TILE_OF_VALUES)), keys_text);
  assert_text(tile_reverse(a, forward, TILE_OF_QUERIES | TILE_OF_OPERANDS | TILE_OF_TOKENS), gains_text);
  /* Turns that are left to other programs leave those of rows as they are. */
  const tile_program *turned = tile_turned(a, forward, true);
  assert_text(turned, turned_text);
  assert_text(tile_apart(a, turned), forward_text);
  assert_text(tile_pipeline(a, tile_apart(a, tile_reverse(a, turned, TILE_OF_KEYS | TILE_OF_VALUES))), keys_text);
}

int main(void) { return run_listed(); }
