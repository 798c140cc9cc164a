/* fuzz_gradient_kernels: the kernels whose gradients are asked for: by hand, whose every access the sanitizer sees, and
 * emitted ones of each form. */
#include "fuzz_gradient_call.h"
#include "fuzz_gradient_twins.h"

/* Emitted for this test, see CMakeLists.txt. */
extern const pegen_kernel fuzz_dense_kernel, fuzz_g_mixed_kernel, fuzz_g_quatro_kernel, fuzz_g_sums_kernel,
    fuzz_g_basis_kernel, fuzz_g_slopes_kernel, fuzz_g_numbers_kernel, fuzz_g_plain_kernel, fuzz_columns_kernel;

enum { ALL = 15 }; /* operands */

static const pegen_attention slopes = {.value_dim = 8, .paired = 1, .placed = 1},
                             numbers = {.value_dim = 8, .paired = 1, .placed = 1, .indexed = 1},
                             plain = {.value_dim = 8};

static const fuzz_gradient_kernel own[] = {
    {{&fuzz_turned_kernel, PEGEN_PER_HEAD_ALL, NULL}, ALL, true, false, true},
    {{&fuzz_shared_kernel, PEGEN_PER_HEAD_NONE, NULL}, ALL, true, false, true},
    {{&fuzz_widened_kernel, PEGEN_PER_HEAD_QUERIES, NULL}, ALL, true, true, true},
    {{&fuzz_attended_kernel, PEGEN_PER_HEAD_ALL, &fuzz_attended_form}, ALL, false, false, true},
    {{&fuzz_dense_kernel, PEGEN_PER_HEAD_ALL, NULL}, ALL, true, false, false},
    {{&fuzz_g_mixed_kernel, PEGEN_PER_HEAD_ALL, NULL}, ALL, true, false, false},
    {{&fuzz_g_quatro_kernel, PEGEN_PER_HEAD_ALL, NULL}, ALL, true, false, false},
    {{&fuzz_g_sums_kernel, PEGEN_PER_HEAD_NONE, NULL}, 0, true, true, false},
    {{&fuzz_g_basis_kernel, PEGEN_PER_HEAD_ALL, NULL}, 0, false, false, false},
    {{&fuzz_g_slopes_kernel, PEGEN_PER_HEAD_ALL, &slopes}, ALL, false, false, false},
    {{&fuzz_g_numbers_kernel, PEGEN_PER_HEAD_ALL, &numbers}, ALL, false, false, false},
    {{&fuzz_columns_kernel, PEGEN_PER_HEAD_QUERIES, NULL}, ALL, true, true, false},
    {{&fuzz_g_plain_kernel, PEGEN_PER_HEAD_NONE, &plain}, 0, false, false, false},
};

unsigned fuzz_gradient_kernels(void) { return sizeof own / sizeof *own; }

fuzz_gradient_kernel fuzz_gradient_kernel_at(unsigned index) { return own[index]; }

/* fuzz_call.c's own, which this program does not draw from. */
fuzz_kernel fuzz_kernel_at(unsigned index) { return own[index % fuzz_gradient_kernels()].of; }
