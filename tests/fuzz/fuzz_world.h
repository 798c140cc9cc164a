/* fuzz_world: the memory that all tensors of a fuzzed call lie in, element by element and without the driver's
 * arithmetic: whose each byte is, poison for the address sanitizer where it is nobody's, and contiguous copies. */
#ifndef PEGEN_TESTS_FUZZ_WORLD_H
#define PEGEN_TESTS_FUZZ_WORLD_H

#include "fuzz_call.h"

/* Whether the tensor's elements lie in the world, and are few enough to be walked; that they lie in the address space
 * is expected. */
bool world_holds(const DLTensor *t);

/* Makes all bytes nobody's. */
void world_clear(void);
void world_read(const DLTensor *t);
/* False where an element is another tensor's, or another element of this one. */
bool world_write(const DLTensor *t);
/* Whether both name the same elements by the same indices. */
bool world_same_elements(const DLTensor *a, const DLTensor *b);
/* Between the two any access to what is nobody's is an error, as far as the sanitizer's grain of 8 bytes allows. */
void world_poison(void);
void world_unpoison(void);
/* Whether the bytes [at, at + bytes) are a tensor's: `written` or read. */
bool world_owned(const void *at, size_t bytes, bool written);

/* What the world is, for world_expect_unchanged: but_written: bytes of world_write may have changed. */
void world_remember(void);
void world_expect_unchanged(bool but_written);
void world_restore(void);

/* A contiguous copy, elsewhere; its owner frees it by world_copy_free. */
DLTensor *world_copy(const DLTensor *t);
void world_copy_free(DLTensor *copy);
/* Expects the same bits in both, or NaN in both where elements are numbers. */
void world_expect_same(const DLTensor *t, const DLTensor *copy);

#endif
