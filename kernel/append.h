/* append.h: rows that are not encoded: v, and, of calls with norms, of tokens that are skipped. */
#pragma once

#include "driver.h"

/* What converts a stream's rows; NULL: not compiled in. */
PEGEN_INTERNAL pegen_plain_function *pegen_converter(const pegen_target_code *target, const pegen_stream *stream);
/* Whether there is code for the norms that a stream of append has, or for tokens that are skipped. */
PEGEN_INTERNAL int pegen_can_normalise(const pegen_driver *driver, const pegen_target_code *target,
                                       const pegen_stream *stream);
/* Tokens [begin, end) of a batch, normalised and then copied or converted to where `rows` say. */
PEGEN_INTERNAL void pegen_normalise_tokens(const pegen_target_code *target, const pegen_stream *stream,
                                           const pegen_rows *rows, int64_t batch, int64_t begin, int64_t end);
