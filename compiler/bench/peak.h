/* bench/peak: multiplications and additions of float32 a second that one thread of this processor does at most. */
#ifndef PEGEN_BENCH_PEAK_H
#define PEGEN_BENCH_PEAK_H

double bench_peak_flops(void);

#endif
