/* An engine in C for `pegen conform --c ./engine.so:rotate`, built by `cc -shared -fPIC conform.c -lm -o engine.so`.
 *
 * It is given a case's arrays, whole and row by row, and what is asked for: `pegen conform --write` shows their names.
 * Results go into the arrays found_q and found_k, or found_out. 0: done; 1: it has no such case; others: an error.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

struct array { /* type: "float32", or what --dtype says; "int64" of positions, "int32" of other whole numbers */
  const char *name, *type;
  int64_t rank, shape[4];
  void *data;
};
struct option { /* number: NaN where the value is a word or a list, as "16,24,24"; 1 and 0 of True and False */
  const char *name, *text;
  double number;
};

static const struct array *find(int arrays, const struct array *array, const char *name) {
  for (int i = 0; i < arrays; i++)
    if (!strcmp(array[i].name, name)) return &array[i];
  return 0;
}

int rotate(int arrays, const struct array *array, int options, const struct option *asked) {
  static const char *names[] = {"q", "k"}, *found[] = {"found_q", "found_k"};
  const struct array *at = find(arrays, array, "positions");
  double base = 1e4, sign = 1;
  int halves = 0;
  for (int i = 0; i < options; i++) {
    if (!strcmp(asked[i].name, "layout")) halves = !strcmp(asked[i].text, "split");
    else if (!strcmp(asked[i].name, "base")) base = asked[i].number;
    else if (!strcmp(asked[i].name, "inverse")) sign = asked[i].number ? -1 : 1;
    else if (!strstr("name kind encoding head_dim positions", asked[i].name)) return 1;
  }
  if (!at || at->rank != 1 || strcmp(at->type, "int64")) return 1;
  for (int which = 0; which < 2; which++) {
    const struct array *rows = find(arrays, array, names[which]);
    const float *x = rows->data;
    float *y = find(arrays, array, found[which])->data;
    int64_t n = rows->shape[2], d = rows->shape[3], count = rows->shape[0] * rows->shape[1] * n;
    for (int64_t row = 0; row < count; row++, x += d, y += d)
      for (int64_t j = 0; j < d / 2; j++) {
        double angle = sign * (double)((int64_t *)at->data)[row % n] * pow(base, -2.0 * (double)j / (double)d);
        int64_t a = halves ? j : 2 * j, b = halves ? j + d / 2 : 2 * j + 1;
        y[a] = (float)(cos(angle) * x[a] - sin(angle) * x[b]);
        y[b] = (float)(sin(angle) * x[a] + cos(angle) * x[b]);
      }
  }
  return 0;
}
