/* apart: descriptions of which calls that hold many sequences, in pages or one behind the other, are compared with a
 * call of each. Whoever includes it says how. */
#ifndef PEGEN_TESTS_ATTENTION_APART_H
#define PEGEN_TESTS_ATTENTION_APART_H

#include "fixture.h"

static void as_apart(const char *folder, const char *name, int n_defines, const loader_define *defines);

TEST(plain) { as_apart(SPECS_DIR, "attention", 0, NULL); }

/* Prefix tokens, so that tiles of keys begin between pages' ends. */
TEST(biased) { as_apart(SPECS_DIR, "alibi", 2, (loader_define[]){{"heads", "4"}, {"skip_tokens", "2"}}); }

TEST(hiding) { as_apart(SPECS_DIR, "lookhere", 1, (loader_define[]){{"heads", "12"}}); }

/* Inputs of queries. */
TEST(polynomial) { as_apart(SPECS_DIR, "pape", 2, (loader_define[]){{"role", "pairwise"}, {"heads", "4"}}); }

/* Rows that are turned, a panel of keys at a time. */
TEST(turned) {
  as_apart(LOCAL_DIR, "rows_turned", 1, (loader_define[]){{"heads", "4"}});
  as_apart(LOCAL_DIR, "values", 1, (loader_define[]){{"heads", "4"}});
}

#endif
