/* attention_coordinates.c: coordinates and numbers of tokens, one by one or by rows; see attention_walk.h. */
#include "attention_walk.h"

/* A token's number `element` of an input, and of as many tokens more as follow it in memory, `count` in all at most. */
static int64_t read_input(const pegen_attention_places *p, int64_t input, int64_t element, int64_t token, int64_t count,
                          double *out) {
  const pegen_attention_pages *pages = p->pages;
  int64_t step = p->input_token[input], end = pages ? pegen_page_end(pages, token, token + count) : token + count;
  const char *row = pages ? (const char *)pegen_paged_row(pages, p->input[input], pages->input_page[input], step, token)
                          : p->input[input] + token * step;
  for (int64_t i = 0; i < end - token; i++) out[i] = ((const float *)(const void *)(row + i * step))[element];
  return end - token;
}

/* A token's index is one of its numbers: of the last query and the last key the same. Others are of its inputs. */
static void numbers(const pegen_attention_places *p, int64_t number, int64_t first, int64_t count, double *out) {
  const pegen_attention_number *n = &p->numbers[number];
  int is_own = n->of_key == p->of_keys;
  if (is_own && n->input >= 0) {
    for (int64_t i = 0; i < count;) i += read_input(p, n->input, n->element, first + i, count - i, out + i);
    return;
  }
  for (int64_t i = 0; i < count; i++) out[i] = is_own ? (double)(first + i + p->ahead) : 0;
}

void pegen_attention_place(const pegen_attention_places *p, int64_t token, double *out) {
  if (p->positions) pegen_coordinates(p->positions + token * p->token, p->type, p->axis, p->axes, out);
  else if (p->axes) pegen_cell(p->grid, p->axes, token - p->skip, out);
  for (int64_t axis = 0; axis < p->axes; axis++) out[axis] -= p->origin[axis];
  for (int64_t i = 0; i < p->n_numbers; i++) numbers(p, i, token, 1, out + p->axes + i);
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

void pegen_attention_rows(const pegen_attention_places *places, int64_t first, int64_t count, int64_t stride,
                          double *out) {
  if (!places->positions && places->axes) cells(places, first, count, stride, out);
  for (int64_t axis = 0; axis < places->axes; axis++) {
    double *row = out + axis * stride, origin = places->origin[axis];
    if (places->positions) {
      pegen_coordinates(places->positions + first * places->token + axis * places->axis, places->type, places->token,
                        count, row);
      for (int64_t i = 0; i < count; i++) row[i] -= origin;
    }
    for (int64_t i = count; i < stride; i++) row[i] = 0;
  }
  for (int64_t number = 0; number < places->n_numbers; number++) {
    double *row = out + (places->axes + number) * stride;
    numbers(places, number, first, count, row);
    for (int64_t i = count; i < stride; i++) row[i] = 0;
  }
}
