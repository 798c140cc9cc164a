/* explain/explain: fills an explanation and prints it; see explain/explain.h. */
#include "explain/explain.h"

#include "algebra/clifford.h"
#include "base/json.h"
#include "explain/map.h"
#include "explain/numbers.h"
#include "explain/words.h"
#include "forms/form.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- text for a person ---- */

enum { EXAMPLE_HEADS = 12 };

static const char *count_text(arena *a, const operation_count *c) {
  const struct {
    int count;
    const char *what;
  } kinds[] = {{c->arithmetic, "additions and multiplications"},
               {c->divisions, "divisions and roots"},
               {c->sines, "sines and cosines"},
               {c->exponentials, "exponentials and logarithms"}};
  const char *text = NULL;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (kinds[i].count)
      text = text ? arena_printf(a, "%s, %d %s", text, kinds[i].count, kinds[i].what)
                  : arena_printf(a, "%d %s", kinds[i].count, kinds[i].what);
  return text ? text : "nothing";
}

static void line(const char *label, const char *text) { printf("  %-12s %s\n", label, text); }

/* What a number counts, where that is anything but numbers. */
static const char *units_text(arena *a, const char *units) {
  return strcmp(units, "1") ? arena_printf(a, " (%s)", units) : "";
}

static const char *leftover_text(arena *a, const explanation *e) {
  if (!e->leftover) return "";
  return arena_printf(a, "; %d channel%s through", e->leftover, e->leftover > 1 ? "s pass" : " passes");
}

static const char *const PRODUCTS[] = {
    [PRODUCTS_FLOAT32] = "rounded to float32, then added",
    [PRODUCTS_ROUNDED] = "rounded to the rows' type, as are the matrix's entries, then added",
};

/* What turns, or what is in place of it. */
static void print_blocks(arena *a, const spec *s, const explanation *e) {
  const char *rest = leftover_text(a, e);
  if (e->n_blocks)
    line("block", arena_printf(a, "%d of %d channels: %s%s", e->n_blocks, e->block_size, e->block, rest));
  else line(e->n_parts ? "blocks" : "block", e->n_parts ? arena_printf(a, "%s%s", e->block, rest) : e->block);
  for (int i = 0; i < s->n_axes && e->generator[0]; i++)
    line(i ? "" : "generators", arena_printf(a, "%-8s %s", s->axis[i], e->generator[i]));
  for (int i = 0; i < s->n_axes && e->phase[0]; i++)
    line(i ? "" : "phases", arena_printf(a, "%-8s %s", s->axis[i], e->phase[i]));
  if (e->combine) line("combine", e->combine);
  if (e->gain) line("amplitude", e->gain);
  if (s->pre)
    line("map", arena_printf(a, "x -> %s, of every channel of a block, before it turns", explain_map_text(a, s)));
  if (s->products) line("products", PRODUCTS[s->products]);
  if (s->dual_axes) line("sides", "dual: rows of k take R, those of q take R^-T, its boosts turned back");
}

static void print_group(const explanation *e) {
  line("group", e->group);
  line("normal form", e->normal_form);
}

static void print_parts(arena *a, const spec *s, const explanation *e) {
  for (int i = 0; i < e->n_parts; i++) {
    const spec_part *part = &s->part[i];
    printf("\n");
    line(arena_printf(a, "part %d", i + 1),
         arena_printf(a, "channels %d to %d", part->first, part->first + part->count - 1));
    print_blocks(a, part->of, &e->part[i]);
    print_group(&e->part[i]);
  }
}

/* A description that states no scale has 1/sqrt(head_dim). */
static bool states_scale(const spec *s) { return s->pairwise && s->pairwise->scale > 0; }

static void print_description(arena *a, const spec *s, const explanation *e) {
  printf("%s%s%s\n\n", s->name, *s->doc ? ": " : "", s->doc);
  const char *axes = "";
  for (int i = 0; i < s->n_axes; i++) axes = arena_printf(a, "%s%s%s", axes, i ? ", " : "", s->axis[i]);
  line("axes", axes);
  const char *heads = s->heads > 1 ? arena_printf(a, "%d heads that differ", s->heads) : "all heads alike";
  line("head", arena_printf(a, "%d channels, %s", s->head_dim, heads));
  print_blocks(a, s, e);
  if (e->score) line("score", e->score);
  if (e->bias) line("bias", e->bias);
  if (states_scale(s)) line("scale", arena_printf(a, "%.9g, in a call that gives none", s->pairwise->scale));
  for (int i = 0; i < s->n_operands; i++) {
    const spec_operand *o = &s->operand[i];
    const char *shape = "";
    for (int d = 0; d < o->rank; d++) {
      bool named = o->dimension[d] && (*o->dimension[d] < '0' || *o->dimension[d] > '9');
      shape = arena_printf(a, "%s%s%s%s%" PRId64, shape, d ? ", " : "", named ? o->dimension[d] : "", named ? "=" : "",
                           o->shape[d]);
    }
    line(i ? "" : "operands", arena_printf(a, "%s [%s]: %s%s", o->name, shape, o->doc, units_text(a, o->units)));
  }
  for (int i = 0; i < s->n_inputs; i++) {
    const char *size = s->input[i].size > 0 ? arena_printf(a, " [%" PRId64 "]", s->input[i].size) : "";
    line(i ? "" : "inputs", arena_printf(a, "%s%s of each %s and head: %s%s", s->input[i].name, size,
                                         spec_input_is_pair(&s->input[i]) ? "pair of a query and a key"
                                         : spec_turns_rows(s)             ? "token"
                                         : s->input[i].of_keys            ? "key's token"
                                                                          : "query token",
                                         s->input[i].doc, units_text(a, s->input[i].units)));
  }
  if (s->grid[0]) {
    const char *grid = "";
    for (int i = 0; i < s->n_axes; i++) grid = arena_printf(a, "%s%s%" PRId64, grid, i ? " x " : "", s->grid[i]);
    line("grid", grid);
  }
  if (s->skip_tokens)
    line("skipped", s->skip_tokens > 1 ? arena_printf(a, "the first %d tokens", s->skip_tokens) : "the first token");
  if (s->inverse) line("inverse", "turns back");
  if (!e->n_parts) print_group(e);
  print_parts(a, s, e);
}

static void print_properties(const explanation *e) {
  printf("\n  %-24s %-15s %-9s %s\n", "property", "holds", "known", "how");
  for (int i = 0; i < PROPERTY_COUNT; i++) {
    const property *p = &e->property[i];
    printf("  %-24s %-15s %-9s %s", property_label((property_name)i), verdict_text(p->holds),
           p->proved ? "proved" : "measured", p->reason);
    if (p->has_deviation && i != PROPERTY_DECAY)
      printf(p->proved ? " (measured: off by %.1Le)" : ": off by %.1Le", p->deviation);
    putchar('\n');
  }
}

static void print_cost(arena *a, const spec *s, const explanation *e) {
  const explain_cost *c = &e->cost;
  int heads = s->heads > 1 ? s->heads : EXAMPLE_HEADS, rows = c->per_row ? 1 : c->per_head ? 2 : 2 * heads;
  const char *shared = c->per_row    ? ", for each row of q and of k"
                       : c->per_head ? ", for each head; q and k share it"
                                     : "; q, k and all heads share it";
  putchar('\n');
  if (operation_count_all(&c->prepared)) line("once a call", count_text(a, &c->prepared));
  if (operation_count_all(&c->token)) line("a token", arena_printf(a, "%s%s", count_text(a, &c->token), shared));
  if (c->row_operations) {
    double share = (double)operation_count_all(&c->token) / rows;
    line("a row", arena_printf(a, "%d operations on channels; its share of the token's, with %d heads, is %.1f",
                               c->row_operations, heads, share));
  }
  if (c->pair_operations) line("a pair", arena_printf(a, "%d operations a head", c->pair_operations));
  int columns = s->head_dim + e->columns_added;
  line(c->row_operations ? "" : "a row",
       arena_printf(a, "%d bytes read and %d written in float32, half of that in bfloat16 and float16", 4 * s->head_dim,
                    4 * columns));
  const char *zeros = e->columns_of_zeros ? arena_printf(a, ", %d of zeros among them", e->columns_of_zeros) : "";
  line("columns", e->columns_added ? arena_printf(a, "%d added to each row%s", e->columns_added, zeros) : "none added");
  if (e->entries_precision) line("precision", arena_printf(a, "rotor entries %s", e->entries_precision));
  line(e->entries_precision ? "" : "precision", e->rows_precision);
}

static void print_column_gradients(arena *a, const explain_gradient *g) {
  const char *what = g->of_inputs     ? g->of_operands ? "inputs, operands and positions" : "inputs and positions"
                     : g->of_operands ? "operands and positions"
                                      : "positions";
  line("gradients", "of rows: the channels that were there, moved back; nothing of the call is kept");
  if (g->missing) line("", g->missing);
  line("", arena_printf(a, "of %s, too: %d operations on columns a row of q, for %d weight%s", what,
                        g->torque_operations, g->weights, g->weights > 1 ? "s" : ""));
  if (operation_count_all(&g->token)) line("", arena_printf(a, "%s a row of q", count_text(a, &g->token)));
  if (g->chunk_bytes)
    line("", arena_printf(a, "%" PRId64 " bytes of workspace for each chunk of tokens", g->chunk_bytes));
}

static void print_gradients(arena *a, const spec *s, const explanation *e) {
  const explain_gradient *g = &e->gradient;
  if (!g->has_rows) {
    line("gradients", "this kind of kernel has no entries for them");
    return;
  }
  if (g->weights) {
    print_column_gradients(a, g);
    return;
  }
  if (g->pair_operations) {
    const char *also = g->of_inputs     ? g->of_operands ? ", v, inputs and operands" : ", v and inputs"
                       : g->of_operands ? ", v and operands"
                                        : " and v";
    line("gradients", arena_printf(a, "of q, k%s: %d operations a pair and head; out and its log-sum-exp are kept",
                                   also, g->pair_operations));
    line("", arena_printf(a, "%d bytes of workspace for each key and head of k", g->key_bytes));
    if (g->missing) line("", g->missing);
    if (g->of_positions)
      line("", arena_printf(a, "of positions, too, on processors: %d bytes for each token and head of q and of k",
                            8 * s->n_axes));
    return;
  }
  const char *keeps = spec_maps_channels(s) ? "rows as read are kept, by whose channels the map varies"
                      : spec_needs_input(s) ? "rows as read are kept, by which entries of matrices gain"
                                            : "nothing of the call is kept";
  line("gradients", g->row_operations
                        ? arena_printf(a, "of rows: %d operations on channels; %s", g->row_operations, keeps)
                        : "of rows: as they come in; nothing of the call is kept");
  if (g->missing) line("", g->missing);
  if (!g->torques) return;
  const char *operands = s->n_operands && g->chunk_bytes ? "operands and positions" : "positions";
  if (spec_turns_rows(s)) operands = arena_printf(a, "inputs, %s", operands);
  line("", arena_printf(a, "of %s: %d operations more a row, for %s of %s%s", operands, g->torque_operations,
                        g->keeps_rows ? (g->torques > 1 ? arena_printf(a, "%d torques", g->torques) : "one torque")
                                      : "one sum",
                        !g->keeps_rows ? "each channel"
                        : e->n_parts   ? "a block of each kind"
                                       : "each block",
                        g->keeps_rows && !spec_needs_input(s) ? "; rows as written, or as read, are kept" : ""));
  const char *token = e->cost.per_head ? "token and head" : "token";
  line("", arena_printf(a, "%s a %s", count_text(a, &g->token), token));
  if (g->chunk_bytes)
    line("", arena_printf(a, "%" PRId64 " bytes of workspace for each chunk of tokens", g->chunk_bytes));
  if (g->table_bytes)
    line("", arena_printf(a, "by a table: %" PRId64 " bytes for each %s, whose operations are done once for all calls",
                          g->table_bytes, token));
}

static void print_text(arena *a, const spec *s, const explanation *e) {
  print_description(a, s, e);
  print_properties(e);
  print_cost(a, s, e);
  print_gradients(a, s, e);
}

/* ---- JSON for programs ---- */

static void json_counts(json_writer *w, const char *key, const operation_count *c) {
  json_begin(w, key, '{');
  json_integer(w, "arithmetic", c->arithmetic);
  json_integer(w, "divisions", c->divisions);
  json_integer(w, "sines", c->sines);
  json_integer(w, "exponentials", c->exponentials);
  json_end(w, '}');
}

static void json_block(json_writer *w, const explanation *e) {
  json_begin(w, "block", '{');
  json_text(w, "what", e->block);
  json_integer(w, "size", e->block_size);
  json_integer(w, "count", e->n_blocks);
  json_integer(w, "leftover_channels", e->leftover);
  json_end(w, '}');
}

/* Marks the grades of a description's own channels; tells whether there are any. */
static bool mark_grades(const spec *s, double *grades) {
  if (s->dense || s->entries[0]) return false;
  for (int i = 0; i < s->n_components * s->n_blocks; i++)
    grades[s->channel[i]] = clifford_grade(s->component[i / s->n_blocks].blade);
  return s->n_components > 0;
}

/* The grade of each channel, null where it has none, by which programs tell apart what scores are sums of. */
static void json_grades(arena *a, json_writer *w, const spec *s) {
  double *grades = arena_array(a, double, s->head_dim);
  for (int c = 0; c < s->head_dim; c++) grades[c] = NAN;
  bool found = !s->n_parts && mark_grades(s, grades);
  for (int i = 0; i < s->n_parts; i++) found |= mark_grades(s->part[i].of, grades);
  if (found) json_numbers(w, "grades", grades, s->head_dim);
}

static void json_axes(arena *a, json_writer *w, const spec *s, const explanation *e) {
  json_begin(w, "axes", '[');
  for (int i = 0; i < s->n_axes; i++) {
    json_begin(w, NULL, '{');
    json_text(w, "name", s->axis[i]);
    if (e->generator[i]) json_text(w, "generator", e->generator[i]);
    if (e->phase[i]) json_text(w, "phase", e->phase[i]);
    if (s->grid[0]) json_integer(w, "grid", s->grid[i]);
    json_end(w, '}');
  }
  json_end(w, ']');
  if (e->combine) json_text(w, "combine", e->combine);
  if (s->products) json_text(w, "products", PRODUCTS[s->products]);
  if (s->dual_axes) json_text(w, "sides", "dual");
  if (s->pre) json_text(w, "map", explain_map_text(a, s));
}

static void json_group(json_writer *w, const explanation *e) {
  json_text(w, "group", e->group);
  json_text(w, "normal_form", e->normal_form);
}

static void json_parts(arena *a, json_writer *w, const spec *s, const explanation *e) {
  if (!e->n_parts) return;
  json_begin(w, "parts", '[');
  for (int i = 0; i < e->n_parts; i++) {
    json_begin(w, NULL, '{');
    json_integer(w, "first_channel", s->part[i].first);
    json_integer(w, "channels", s->part[i].count);
    json_block(w, &e->part[i]);
    json_axes(a, w, s->part[i].of, &e->part[i]);
    json_group(w, &e->part[i]);
    json_end(w, '}');
  }
  json_end(w, ']');
}

/* What a control of it needs. */
static void json_option(json_writer *w, const spec_option *o) {
  static const char *const kinds[OPTION_KIND_COUNT] = {
#define X(name, text) text,
      OPTION_KINDS(X)
#undef X
  };
  json_begin(w, NULL, '{');
  json_text(w, "name", o->name);
  json_text(w, "kind", kinds[o->kind]);
  json_text(w, "default", o->otherwise);
  json_text(w, "doc", o->doc);
  if (o->n_choices) {
    json_begin(w, "choices", '[');
    for (int i = 0; i < o->n_choices; i++) json_text(w, NULL, o->choice[i]);
    json_end(w, ']');
  }
  if (o->range[0] < o->range[1]) json_numbers(w, "range", o->range, 2);
  json_end(w, '}');
}

static void json_description(arena *a, json_writer *w, const spec *s, const explanation *e) {
  json_text(w, "name", s->name);
  json_text(w, "doc", s->doc);
  json_begin(w, "options", '{');
  for (int i = 0; i < s->n_options; i++) json_text(w, s->option[i].name, s->option[i].value);
  json_end(w, '}');
  json_begin(w, "settings", '[');
  for (int i = 0; i < s->n_options; i++) json_option(w, &s->option[i]);
  json_end(w, ']');
  json_text(w, "form", e->form);
  json_text(w, "role", e->role);
  json_integer(w, "head_dim", s->head_dim);
  json_integer(w, "heads", s->heads);
  json_block(w, e);
  json_grades(a, w, s);
  json_axes(a, w, s, e);
  if (e->score) json_text(w, "score", e->score);
  if (e->bias) json_text(w, "bias", e->bias);
  if (states_scale(s)) json_number(w, "scale", s->pairwise->scale);
  json_integer(w, "skip_tokens", s->skip_tokens);
  json_bool(w, "inverse", s->inverse);
  json_group(w, e);
  json_parts(a, w, s, e);
}

/* First values, for programs that train: what is drawn, times factors, which are broadcast over the operand. */
static void json_initial(json_writer *w, const spec_operand *o) {
  static const char *const kinds[INITIAL_KIND_COUNT] = {
#define X(name, text) text,
      INITIAL_KINDS(X)
#undef X
  };
  const spec_initial *first = o->initial;
  if (!first) return;
  json_begin(w, "initial", '{');
  json_text(w, "distribution", kinds[first->kind]);
  if (first->kind == INITIAL_NORMAL) json_number(w, "deviation", first->deviation);
  if (first->kind == INITIAL_UNIFORM || first->truncated) {
    json_number(w, "low", first->low);
    json_number(w, "high", first->high);
  }
  if (first->direction >= 0) json_integer(w, "dimension", first->direction);
  json_begin(w, "same", '[');
  for (int d = 0; d < o->rank; d++)
    if (first->same >> d & 1) json_integer(w, NULL, d);
  json_end(w, ']');
  int64_t count = 1;
  json_begin(w, "factor_shape", '[');
  for (int d = 0; d < o->rank; d++) {
    json_integer(w, NULL, first->sizes[d]);
    count *= first->sizes[d];
  }
  json_end(w, ']');
  json_begin(w, "factor", '[');
  for (int64_t k = 0; k < count; k++) json_number(w, NULL, first->factor[k]);
  json_end(w, ']');
  json_end(w, '}');
}

static void json_operands(json_writer *w, const spec *s) {
  json_begin(w, "operands", '[');
  for (int i = 0; i < s->n_operands; i++) {
    const spec_operand *o = &s->operand[i];
    json_begin(w, NULL, '{');
    json_text(w, "name", o->name);
    json_text(w, "doc", o->doc);
    json_text(w, "units", o->units);
    json_text(w, "source", o->source);
    json_text(w, "init", o->initializer);
    json_initial(w, o);
    json_begin(w, "shape", '[');
    for (int d = 0; d < o->rank; d++) json_integer(w, NULL, o->shape[d]);
    json_end(w, ']');
    json_begin(w, "dimensions", '[');
    for (int d = 0; d < o->rank; d++) json_text(w, NULL, o->dimension[d] ? o->dimension[d] : "");
    json_end(w, ']');
    json_end(w, '}');
  }
  json_end(w, ']');
}

static void json_inputs(json_writer *w, const spec *s) {
  json_begin(w, "inputs", '[');
  for (int i = 0; i < s->n_inputs; i++) {
    json_begin(w, NULL, '{');
    json_text(w, "name", s->input[i].name);
    json_text(w, "doc", s->input[i].doc);
    json_text(w, "units", s->input[i].units);
    json_integer(w, "size", s->input[i].size);
    if (s->input[i].of_keys) json_text(w, "of", "key");
    if (spec_input_is_pair(&s->input[i])) json_text(w, "of", "pair");
    json_end(w, '}');
  }
  json_end(w, ']');
}

static void json_properties(json_writer *w, const explanation *e) {
  json_begin(w, "properties", '{');
  for (int i = 0; i < PROPERTY_COUNT; i++) {
    const property *p = &e->property[i];
    json_begin(w, property_key((property_name)i), '{');
    json_text(w, "meaning", property_meaning((property_name)i));
    json_text(w, "holds", verdict_text(p->holds));
    json_text(w, "known", p->proved ? "proved" : "measured");
    json_text(w, "how", p->reason);
    if (p->has_deviation) json_number(w, i == PROPERTY_DECAY ? "far_score" : "deviation", (double)p->deviation);
    json_end(w, '}');
  }
  json_end(w, '}');
}

static void json_cost(json_writer *w, const spec *s, const explanation *e) {
  json_begin(w, "cost", '{');
  json_counts(w, "per_call", &e->cost.prepared);
  json_counts(w, e->cost.per_head ? "per_token_and_head" : "per_token", &e->cost.token);
  json_integer(w, "per_row_operations", e->cost.row_operations);
  json_integer(w, "per_pair_operations", e->cost.pair_operations);
  json_integer(w, "per_row_bytes_float32", 4 * (2 * s->head_dim + e->columns_added));
  json_integer(w, "per_row_bytes_float16", 2 * (2 * s->head_dim + e->columns_added));
  json_end(w, '}');
  json_integer(w, "columns_added", e->columns_added);
  json_begin(w, "precision", '{');
  if (e->entries_precision) json_text(w, "entries", e->entries_precision);
  json_text(w, "rows", e->rows_precision);
  json_end(w, '}');
}

static void json_gradients(json_writer *w, const explanation *e) {
  const explain_gradient *g = &e->gradient;
  json_begin(w, "gradients", '{');
  json_bool(w, "entries", g->has_rows);
  json_integer(w, "per_row_operations", g->row_operations);
  json_integer(w, "torques", g->torques);
  json_integer(w, "weights", g->weights);
  json_integer(w, "per_row_torque_operations", g->torque_operations);
  json_counts(w, e->cost.per_head ? "per_token_and_head" : "per_token", &g->token);
  json_bool(w, "keeps_rows", g->keeps_rows);
  if (g->missing) json_text(w, "missing", g->missing);
  json_integer(w, "workspace_bytes_per_chunk", g->chunk_bytes);
  json_integer(w, "table_bytes", g->table_bytes);
  json_integer(w, "per_pair_operations", g->pair_operations);
  json_bool(w, "of_operands_in_attention", !g->weights && g->of_operands);
  json_bool(w, "of_inputs_in_attention", !g->weights && g->of_inputs);
  json_bool(w, "of_positions_in_attention", g->of_positions);
  json_integer(w, "workspace_bytes_per_key", g->key_bytes);
  json_end(w, '}');
}

static void print_json(arena *a, const spec *s, const explanation *e, const explain_request *request,
                       const explain_numbers *numbers) {
  json_writer w = {.out = stdout};
  json_begin(&w, NULL, '{');
  json_text(&w, "pegen", PEGEN_VERSION);
  json_description(a, &w, s, e);
  json_operands(&w, s);
  json_inputs(&w, s);
  json_properties(&w, e);
  json_cost(&w, s, e);
  json_gradients(&w, e);
  numbers_print(&w, a, s, request, numbers);
  json_end(&w, '}');
}

static explain_function *const explain_form[FORM_COUNT] = {
    [FORM_ATTENTION] = explain_attention, [FORM_POLYNOMIAL] = explain_polynomial,
    [FORM_ADDITIVE] = explain_additive,   [FORM_PARTS] = explain_parts,
    [FORM_BLADES] = explain_blades,       [FORM_ROW_BLADES] = explain_blades,
    [FORM_DENSE_FOUR] = explain_dense,    [FORM_SCHUR] = explain_dense,
    [FORM_DENSE] = explain_dense,         [FORM_CHANGE_OF_BASIS] = explain_change_of_basis,
};

int explain_spec(arena *a, const spec *s, const explain_request *request) {
  explain_numbers numbers;
  const form *f = form_of(s);
  if (!f) return 1;
  if (!numbers_measure(a, s, request, &numbers)) return 1;
  explanation e = {.form = f->name,
                   .grid = request->n_grid ? request->grid : NULL,
                   .operands = request->n_files || request->is_seeded ? numbers.operands.values : NULL};
  if (!explain_form[f->kind](a, s, &e)) return 1;
  if (!explain_gradients(a, f, s, e.cost.row_operations, &e.gradient)) return 1;
  if (request->format == EXPLAIN_JSON) print_json(a, s, &e, request, &numbers);
  else print_text(a, s, &e);
  return 0;
}
