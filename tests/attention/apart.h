/* apart: descriptions of which calls that hold many sequences, in pages or one behind the other, are compared with a
 * call of each. Whoever includes it says how. */
#ifndef PEGEN_TESTS_ATTENTION_APART_H
#define PEGEN_TESTS_ATTENTION_APART_H

#include "fixture.h"

static void as_apart(const char *what);

TEST(plain) { as_apart("attention"); }

/* Prefix tokens, so that tiles of keys begin between pages' ends. */
TEST(biased) { as_apart("alibi heads=4 skip_tokens=2"); }

TEST(hiding) { as_apart("lookhere heads=12"); }

/* Inputs of queries. */
TEST(polynomial) { as_apart("pape role=pairwise heads=4"); }

/* Rows that are turned, a panel of keys at a time. */
TEST(turned) {
  as_apart("./rows_turned heads=4 value_dim=64");
  as_apart("./values heads=4");
}

#endif
