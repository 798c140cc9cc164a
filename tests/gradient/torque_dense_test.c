/* The series of commutators by which dense blocks gain of torques.
 */
#include "algebra/exponential.h"
#include "algebra/torque_dense.h"
#include "test.h"

#include <complex.h>

/* (e^z - 1) / z up to the reach that exponentials are scaled to. */
TEST(series_reach) {
  enum { POINTS = 400, MOST_KERNEL = 18 };
  for (int is_f64 = 0; is_f64 < 2; is_f64++) {
    double c[TORQUE_MOST_TERMS], reach = 2 * (is_f64 ? EXPONENTIAL_REACH_F64 : EXPONENTIAL_REACH_F32);
    int count = torque_series(reach, is_f64, c);
    assert_true(count > 1 && count < MOST_KERNEL);
    for (int i = -POINTS; i <= POINTS; i++) {
      double complex z = I * reach * i / POINTS, w = z / reach, last = 1, term = w, sum = c[0];
      for (int k = 1; k < count; k++) {
        sum += c[k] * term;
        double complex next = 2 * w * term + last;
        last = term;
        term = next;
      }
      double complex exact = i ? (cexp(z) - 1) / z : 1;
      assert_true(cabs(sum - exact) < (is_f64 ? 0x1p-28 : 0x1p-21));
    }
  }
}

int main(void) { return run_listed(); }
