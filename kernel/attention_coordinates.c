/* attention_coordinates.c: coordinates and numbers of tokens, one by one or by rows, and displacements that float32
 * coordinates do not give; see attention_walk.h.
 *
 * Integers are subtracted as integers: a float64 does not hold an int64.
 */
#include "attention_walk.h"

static int are_whole(const pegen_attention_places *p) { return p->positions && p->type == PEGEN_POSITION_I64; }

static int64_t whole_at(const pegen_attention_places *p, int64_t token, int64_t axis) {
  return *(const int64_t *)(const void *)(p->positions + token * p->token + axis * p->axis);
}

/* What is further apart than an int64 counts is far apart as float64, too. */
static double difference(int64_t x, int64_t y) {
  int64_t result;
  return __builtin_sub_overflow(x, y, &result) ? (double)x - (double)y : (double)result;
}

/* Coordinates of `count` tokens from `first` on along an axis, less the origin. */
static void read_axis(const pegen_attention_places *p, int64_t first, int64_t count, int64_t axis, double *out) {
  const char *at = p->positions + first * p->token + axis * p->axis;
  double origin = p->origin[axis];
  int is_counted = are_whole(p) && origin >= -0x1p63 && origin < 0x1p63 && (double)(int64_t)origin == origin;
  if (is_counted) {
    for (int64_t i = 0; i < count; i++) out[i] = difference(whole_at(p, first + i, axis), (int64_t)origin);
    return;
  }
  pegen_coordinates(at, p->type, p->token, count, out);
  for (int64_t i = 0; i < count; i++) out[i] -= origin;
}

/* A token's number of an input, and of as many tokens more as follow it in memory, `count` in all at most. */
static int64_t read_input(const pegen_attention_places *p, const pegen_attention_number *n, int64_t token,
                          int64_t count, double *out) {
  const pegen_attention_pages *pages = p->pages;
  int64_t input = n->input, step = p->input_token[input],
          end = pages ? pegen_page_end(pages, token, token + count) : token + count;
  const char *row = pages ? (const char *)pegen_paged_row(pages, p->input[input], pages->input_page[input], step, token)
                          : p->input[input] + token * step;
  for (int64_t i = 0; i < end - token; i++)
    out[i] = n->kind == PEGEN_READS_ELEMENT ? ((const float *)(const void *)(row + i * step))[n->element]
                                            : (double)((intptr_t)row + i * step - (intptr_t)p->data[input]);
  return end - token;
}

/* Writes `count` numbers of a type as float32, each `pitch` behind the one before. */
static void read_numbers(int64_t type, const char *from, int64_t count, int64_t pitch, float *to) {
  const uint16_t *narrow = (const uint16_t *)(const void *)from;
  if (type == PEGEN_NUMBER_F32)
    for (int64_t i = 0; i < count; i++) to[i * pitch] = ((const float *)(const void *)from)[i];
  else if (type == PEGEN_NUMBER_BF16)
    for (int64_t i = 0; i < count; i++) to[i * pitch] = pegen_bf16_load(narrow[i]);
  else
    for (int64_t i = 0; i < count; i++) to[i * pitch] = pegen_f16_load(narrow[i]);
}

void pegen_attention_read_pairs(const pegen_attention_tile *tile, int64_t input, int64_t place, int64_t lane,
                                int64_t lanes, int64_t first, int64_t count, int64_t room, int64_t pitch, float *out) {
  int64_t type = tile->places->number[input], bytes = pegen_number_at(type)->bits / 8;
  for (int64_t i = 0; i < lanes; i++) {
    const char *row = tile->places->data[input] + (int64_t)tile->positions[place][lane + i];
    read_numbers(type, row + first * bytes, count, pitch, out + i);
    for (int64_t key = count; key < room; key++) out[key * pitch + i] = 0;
  }
}

void pegen_attention_gain_pairs(const pegen_attention_gradient_tile *tile, int64_t input, int64_t lane, int64_t lanes,
                                int64_t first, int64_t count, int64_t pitch, const float *gains) {
  for (int64_t i = 0; i < lanes; i++) {
    int64_t token = tile->tile.tokens[lane + i];
    if (token < 0) continue;
    float *to = (float *)(void *)(tile->pair_gains[input] + token * tile->pair_gains_token[input]) + first;
    for (int64_t key = 0; key < count; key++) to[key] += gains[i * pitch + key];
  }
}

/* A token's index is one of its numbers: of the last query and the last key the same. Others are of its inputs. */
static void token_numbers(const pegen_attention_places *p, int64_t number, int64_t first, int64_t count, double *out) {
  const pegen_attention_number *n = &p->numbers[number];
  int is_own = n->of_key == p->of_keys;
  if (is_own && n->input >= 0) {
    for (int64_t i = 0; i < count;) i += read_input(p, n, first + i, count - i, out + i);
    return;
  }
  for (int64_t i = 0; i < count; i++) out[i] = is_own ? (double)(first + i + p->ahead) : 0;
}

void pegen_attention_place(const pegen_attention_places *p, int64_t token, double *out) {
  for (int64_t axis = 0; axis < p->axes && p->positions; axis++) read_axis(p, token, 1, axis, out + axis);
  if (!p->positions && p->axes) pegen_cell(p->grid, p->axes, token - p->skip, out);
  for (int64_t axis = 0; axis < p->axes && !p->positions; axis++) out[axis] -= p->origin[axis];
  for (int64_t i = 0; i < p->n_numbers; i++) token_numbers(p, i, token, 1, out + p->axes + i);
}

/* The grid's points in their order: no division but the first. */
static void cells(const pegen_attention_places *p, int64_t first, int64_t count, int64_t stride, double *out) {
  double cell[PEGEN_MAX_ROTOR_AXES];
  pegen_cell(p->grid, p->axes, first - p->skip, cell);
  for (int64_t i = 0; i < count; i++) {
    for (int64_t axis = 0; axis < p->axes; axis++) out[axis * stride + i] = cell[axis] - p->origin[axis];
    int64_t axis = p->axes - 1;
    for (cell[axis]++; axis > 0 && cell[axis] == (double)p->grid[axis]; cell[axis]++) cell[axis--] = 0;
  }
}

void pegen_attention_rows_of(const pegen_attention_places *places, int64_t wanted, int64_t first, int64_t count,
                             int64_t stride, double *out) {
  if (!places->positions && places->axes) cells(places, first, count, stride, out);
  for (int64_t axis = 0; axis < places->axes; axis++) {
    double *row = out + axis * stride;
    if (places->positions) read_axis(places, first, count, axis, row);
    for (int64_t i = count; i < stride; i++) row[i] = 0;
  }
  for (int64_t number = 0; number < places->n_numbers; number++) {
    double *row = out + (places->axes + number) * stride;
    if (!(wanted >> (places->axes + number) & 1)) continue;
    token_numbers(places, number, first, count, row);
    for (int64_t i = count; i < stride; i++) row[i] = 0;
  }
}

void pegen_attention_rows(const pegen_attention_places *places, int64_t first, int64_t count, int64_t stride,
                          double *out) {
  pegen_attention_rows_of(places, -1, first, count, stride, out);
}

/* ---- displacements ---- */

static int64_t token_of_lane(const pegen_attention_tile *tile, int64_t lane) {
  return tile->tokens[lane] < 0 ? tile->tokens[0] : tile->tokens[lane];
}

/* Whether a tile's positions are all int64. */
static int counts(const pegen_attention_tile *tile) { return are_whole(tile->keys) && are_whole(tile->places); }

static void displace_whole(const pegen_attention_tile *tile, int64_t key, int64_t axis, int64_t queries, float *out) {
  int64_t place = whole_at(tile->keys, key, axis);
  for (int64_t lane = 0; lane < queries; lane++)
    out[lane] = (float)difference(whole_at(tile->places, token_of_lane(tile, lane), axis), place);
}

void pegen_attention_displace(const pegen_attention_tile *tile, int64_t first, int64_t count, int64_t room,
                              const double *wide, float *narrow, int64_t queries, float *out) {
  int64_t axes = tile->keys->axes;
  int is_whole = counts(tile);
  for (int64_t key = 0; key < count; key++)
    for (int64_t axis = 0; axis < axes; axis++, out += queries) {
      double place = wide[axis * room + key];
      if (is_whole) displace_whole(tile, first + key, axis, queries, out);
      else
        for (int64_t lane = 0; lane < queries; lane++) out[lane] = (float)(tile->positions[axis][lane] - place);
    }
  for (int64_t i = 0; i < axes * room; i++) narrow[i] = 0;
}

void pegen_attention_displace_row(const pegen_attention_tile *tile, int64_t lane, int64_t first, int64_t count,
                                  int64_t room, const double *wide, float *out) {
  int is_whole = counts(tile);
  for (int64_t axis = 0; axis < tile->keys->axes; axis++, out += room) {
    double place = tile->positions[axis][lane];
    int64_t whole = is_whole ? whole_at(tile->places, tile->tokens[lane], axis) : 0;
    for (int64_t key = 0; key < count; key++)
      out[key] = is_whole ? (float)difference(whole_at(tile->keys, first + key, axis), whole)
                          : (float)(wide[axis * room + key] - place);
    for (int64_t key = count; key < room; key++) out[key] = 0;
  }
}
