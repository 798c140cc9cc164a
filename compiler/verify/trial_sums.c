/* verify/trial_sums: rows that something is added to; see verify/trial_sums.h. */
#include "verify/trial_sums.h"

#include "verify/reference.h"

#include <math.h>

void trial_compare_sums(const spec *s, const double *values, bool by_batch, const trial_operands *operands,
                        const DLTensor *in, const DLTensor *out, trial_error *worst) {
  number_type type = number_type_of(out->dtype), in_type = number_type_of(in->dtype);
  EACH_NUMBER(in, b, h, n, channel) {
    double grid[SPEC_MAX_AXES], x = tensor_get(in, b, h, n, channel), got = tensor_get(out, b, h, n, channel);
    bool is_skipped = n < s->skip_tokens;
    const double *of_batch = values && by_batch ? values + b * in->shape[2] * s->n_axes : values,
                 *at = is_skipped ? NULL : reference_place(s, of_batch, n, grid);
    long double sum = is_skipped ? 0 : reference_sum(s, at, operands->values, (int)(s->heads > 1 ? h : 0), channel);
    long double error = fabsl(got - (x + sum));
    if (type != NUMBER_F32) error = fmaxl(0, error - number_half_ulp(type, x + sum));
    error /= fmaxl(1, in_type == type ? fabsl(sum) : fmaxl(fabs(x), fabsl(sum)));
    bool spoilt = !isfinite(error) || (in_type == type && is_skipped && got != x);
    trial_note(worst, (trial_error){error, spoilt, b, h, n, channel, got, x + sum});
  }
}
