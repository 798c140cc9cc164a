/* difference.h: the derivative of a loss along a direction, by differences of fourth order. For the tests of the
 * references of gradients, whose numbers are sums of few powers of two: they move without rounding.
 */
#ifndef PEGEN_TESTS_GRADIENT_DIFFERENCE_H
#define PEGEN_TESTS_GRADIENT_DIFFERENCE_H

#include "base/arena.h"

#include <stdint.h>
#include <string.h>

typedef long double loss_function(void *call);

/* d loss(call) along direction[count] of numbers[count], which loss reads and which are given back as they were. */
static inline long double difference_along(arena *memory, loss_function *loss, void *call, double *numbers,
                                           const double *direction, int64_t count) {
  static const double weight[4] = {1, -8, 8, -1}, place[4] = {-2, -1, 1, 2};
  const double step = 0x1p-15;
  long double sum = 0;
  double *here = arena_array(memory, double, count + 1);
  memcpy(here, numbers, sizeof *here * (size_t)count);
  for (int i = 0; i < 4; i++) {
    for (int64_t k = 0; k < count; k++) numbers[k] = here[k] + place[i] * step * direction[k];
    sum += weight[i] * loss(call);
  }
  memcpy(numbers, here, sizeof *here * (size_t)count);
  return sum / (12 * (long double)step);
}

#endif
