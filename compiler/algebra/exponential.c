/* algebra/exponential: see algebra/exponential.h. */
#include "algebra/exponential.h"

#include <math.h>

const double exponential_even[8] = {1,           1.0 / 2,       1.0 / 24,        1.0 / 720,
                                    1.0 / 40320, 1.0 / 3628800, 1.0 / 479001600, 1.0 / 87178291200};
const double exponential_odd[8] = {
    1, 1.0 / 6, 1.0 / 120, 1.0 / 5040, 1.0 / 362880, 1.0 / 39916800, 1.0 / 6227020800, 1.0 / 1307674368000};

double exponential_products(double norm, bool is_f64) {
  double reach = is_f64 ? EXPONENTIAL_REACH_F64 : EXPONENTIAL_REACH_F32;
  return 3.5 + (norm > reach ? ceil(log2(norm / reach)) : 0);
}
