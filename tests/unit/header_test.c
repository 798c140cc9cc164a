/* Text in a header stays text: whatever a description says of itself, which need not have come through the vocabulary,
 * the code around its comments is the same. */
#include "hand_spec.h"
#include "object/header.h"
#include "scoped.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

/* The header without its comments; fails where one does not end. */
static char *code_of(arena *a, const char *text) {
  char *out = arena_alloc(a, strlen(text) + 1), *o = out;
  while (*text) {
    if (text[0] == '/' && text[1] == '*') {
      const char *end = strstr(text + 2, "*/");
      assert_non_null(end);
      text = end + 2;
    } else {
      *o++ = *text++;
    }
  }
  return out;
}

static spec *described(arena *a, const char *text) {
  uint64_t random = 3;
  hand_request request = {{3, 0, 0}, COMBINE_SUM, 2, 2, 2, 2, 0, true, false, false, 1};
  spec *s = hand_spec(a, &request, &random);
  spec_operand *o = arena_new(a, spec_operand);
  *o = s->operand[0];
  o->doc = o->units = o->initializer = o->source = text;
  spec_input *in = arena_new(a, spec_input);
  *in = (spec_input){.name = "x", .doc = text, .units = text, .source = text};
  spec_option *option = arena_new(a, spec_option);
  *option = s->n_options ? s->option[0] : (spec_option){.name = "note"};
  option->value = text;
  s->doc = text;
  s->operand = o;
  s->input = in;
  s->option = option;
  s->n_operands = s->n_inputs = s->n_options = 1;
  return s;
}

TEST(texts_stay_in_their_comments) {
  static const char *const texts[] = {"*/ int evil; /*",
                                      "/*",
                                      "/*/",
                                      "**/",
                                      "*//*",
                                      "/**/",
                                      "*",
                                      "/",
                                      "\\",
                                      "a\\\n*/",
                                      "*\n/",
                                      "*\x01/",
                                      "*\u202e/",
                                      "*\xff/",
                                      "?\?/",
                                      "*?\?/\n/",
                                      "\n#error\n",
                                      "\xe2\x80",
                                      "*\xe2\x80",
                                      "\xf4\x90\x80\x80*/",
                                      "*/*/*/"};
  SCOPED arena *a = arena_create();
  const char *wanted = code_of(a, header_text(a, described(a, "plain"), NULL, 0, true));
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
    assert_string_equal(code_of(a, header_text(a, described(a, texts[i]), NULL, 0, true)), wanted);
}

/* What turns the line around, or is no UTF-8, is a question mark; letters stay. */
TEST(what_is_read_is_there) {
  static const struct {
    const char *text, *shown;
  } cases[] = {{"[a\u202e"
                "b]",
                "[a?b]"},
               {"[\u2066\u2069]", "[??]"},
               {"[\u2028]", "[?]"},
               {"[\xc2\x85]", "[?]"},
               {"[\xff]", "[?]"},
               {"[\xc0\xaf]", "[??]"},
               {"[\xed\xa0\x80]", "[?]"},
               {"[\xe0\x80\xaf]", "[???]"},
               {"[\xf4\x90\x80\x80]", "[?]"},
               {"[\xe2\x80", "[??"},
               {"[\\]", "[?]"},
               {"[\x7f\n]", "[  ]"},
               {"[\U000e0041]", "[?]"},
               {"[\xef\xbf\xbf]", "[?]"},
               {"[\u03bb\u2192\u00bd]", "[\u03bb\u2192\u00bd]"},
               {"[\U0001d4b3]", "[\U0001d4b3]"},
               {"[?\?/]", "[?\? /]"},
               {"[\\\xff/]", "[?\? /]"}};
  SCOPED arena *a = arena_create();
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const char *text = header_text(a, described(a, cases[i].text), NULL, 0, true);
    int found = 0;
    for (const char *at = text; (at = strstr(at, cases[i].shown)) != NULL; at++) found++;
    if (found != 9) /* doc; option; four of the operand; three of the input */
      fail_msg("%s is %d times in %s", cases[i].shown, found, text);
  }
}

int main(void) { return run_listed(); }
