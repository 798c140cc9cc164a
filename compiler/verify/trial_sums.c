/* verify/trial_sums: rows that something is added to; see verify/trial_sums.h. */
#include "verify/trial_sums.h"

#include "verify/reference.h"

#include <math.h>
#include <string.h>

void trial_compare_sums(const spec *s, const double *values, bool by_batch, const trial_operands *operands,
                        const DLTensor *in, const DLTensor *out, trial_error *worst) {
  number_type type = number_type_of(out->dtype), in_type = number_type_of(in->dtype);
  for (int64_t b = 0; b < in->shape[0]; b++)
    for (int64_t h = 0; h < in->shape[1]; h++)
      for (int64_t n = 0; n < in->shape[2]; n++) {
        double at[SPEC_MAX_AXES];
        int64_t row = (by_batch ? b * in->shape[2] : 0) + n;
        if (!values && n >= s->skip_tokens) reference_grid(s, n, at);
        if (values) memcpy(at, values + row * s->n_axes, sizeof *at * (size_t)s->n_axes);
        for (int channel = 0; channel < in->shape[3]; channel++) {
          double x = number_load(in_type, tensor_at(in, b, h, n, channel)),
                 got = number_load(type, tensor_at(out, b, h, n, channel));
          long double sum =
              n < s->skip_tokens ? 0 : reference_sum(s, at, operands->values, (int)(s->heads > 1 ? h : 0), channel);
          long double error = fabsl(got - (x + sum));
          if (type != NUMBER_F32) error = fmaxl(0, error - number_half_ulp(type, x + sum));
          error /= fmaxl(1, in_type == type ? fabsl(sum) : fmaxl(fabs(x), fabsl(sum)));
          bool spoilt = !isfinite(error) || (in_type == type && n < s->skip_tokens && got != x);
          if (worst->spoilt || (!spoilt && error <= worst->error)) continue;
          *worst = (trial_error){.error = error,
                                 .spoilt = spoilt,
                                 .batch = b,
                                 .head = h,
                                 .token = n,
                                 .channel = channel,
                                 .got = got,
                                 .exact = x + sum};
        }
      }
}
