/* base/json_read: what RFC 8259 allows is read, all else is refused with its place; bytes of strangers do no harm. */
#include "base/json_read.h"
#include "base/number.h"

#include "scoped.h"
#include "test.h"

#include <string.h>

/* In memory of its own that ends where the text does, so that sanitizers see one byte too many. */
static const json_value *read_bytes(arena *a, const char *text, size_t length, const char **wrong) {
  char *own = arena_must(malloc(length + !length));
  memcpy(own, text, length);
  const json_value *v = json_read(a, own, length, wrong);
  free(own);
  assert_true((v != NULL) == (*wrong == NULL));
  return v;
}

static const json_value *read_text(arena *a, const char *text) {
  const char *wrong;
  const json_value *v = read_bytes(a, text, strlen(text), &wrong);
  if (!v) fail_msg("%s: %s", text, wrong);
  return v;
}

TEST(test_values) {
  SCOPED arena *a = arena_create();
  const json_value *v =
      read_text(a, " {\"a\": [1, -2.5e1, true, null], \"b\": {}, \"\\u00e9\\ud83d\\ude00\\n\": \"x\"}\t\n");
  assert_int_equal(v->kind, JSON_OBJECT);
  assert_int_equal(v->count, 3);
  const json_value *list = json_member(v, "a");
  assert_int_equal(list->count, 4);
  assert_true(list->first->is_whole && list->first->whole == 1);
  assert_true(!list->first->next->is_whole && list->first->next->number == -25);
  assert_true(list->first->next->next->kind == JSON_BOOL && list->first->next->next->whole == 1);
  assert_string_equal(json_member(v, "\xc3\xa9\xf0\x9f\x98\x80\n")->text, "x");
  assert_null(json_member(v, "c"));
  assert_null(json_member(list, "a"));
  assert_null(json_member(read_text(a, "{\"a\": 1, \"b\": 2, \"a\": 3}"), "a"));
  assert_true(read_text(a, "9223372036854775807")->is_whole);
  assert_false(read_text(a, "9223372036854775808")->is_whole);
  assert_int_equal(read_text(a, "\"\xf4\x8f\xbf\xbf\"")->kind, JSON_TEXT);
}

TEST(test_refusals) {
  static const char *const wrong_texts[] = {
      "",
      " ",
      "{",
      "}",
      "[1,]",
      "[1 2]",
      "{\"a\":1,}",
      "{\"a\" 1}",
      "{a:1}",
      "{1:1}",
      "[",
      "01",
      "-",
      "+1",
      "1.",
      ".5",
      "1e",
      "1e+",
      "nul",
      "True",
      "\"",
      "\"\\\"",
      "\"\\x\"",
      "\"\\u12\"",
      "\"\\ud800\"",
      "\"\\ud800\\u0041\"",
      "\"\\udc00\"",
      "\"\\u0000\"",
      "\"\n\"",
      "\"\xff\"",
      "\"\xc0\x80\"",
      "\"\xed\xa0\x80\"",
      "\"\xf4\x90\x80\x80\"",
      "\"\xe2\x82\"",
      "1 2",
      "[] x",
      "NaN",
      "'a'",
      "// a\n1",
      "[1]]",
      "\f1",
  };
  SCOPED arena *a = arena_create();
  const char *wrong;
  for (size_t i = 0; i < sizeof wrong_texts / sizeof *wrong_texts; i++)
    if (read_bytes(a, wrong_texts[i], strlen(wrong_texts[i]), &wrong)) fail_msg("'%s' was read", wrong_texts[i]);
  assert_null(read_bytes(a, "[1, \0]", 6, &wrong));
  assert_string_equal(wrong, "byte 4: expected a value");
  char deep[2 * JSON_DEPTH + 4] = "";
  for (int more = 0; more < 2; more++) {
    int depth = JSON_DEPTH + more;
    memset(deep, '[', (size_t)depth);
    memset(deep + depth, ']', (size_t)depth);
    assert_int_equal(read_bytes(a, deep, 2 * (size_t)depth, &wrong) != NULL, !more);
  }
}

/* Every cut and 20000 changed copies of a header: nothing but a value or a refusal comes of any. */
TEST(test_changed) {
  static const char text[] = "{\"__metadata__\":{\"format\":\"pt\"},\"b.0.axis\":{\"dtype\":\"F32\",\"shape\":[2,3],"
                             "\"data_offsets\":[0,24]},\"\\u00e9\\ud83d\\ude00\":[-1.5e-3,true,null,\"\xc3\xa9\"]}   ";
  static const char likely[] = "{}[]\",:\\u0-+.eE19tfn \x01\x7f\xc3\xed\xf0\xff";
  const char *wrong;
  uint64_t random = 7;
  size_t read = 0, length = sizeof text - 1;
  for (size_t cut = 0; cut < length - 3; cut++) {
    SCOPED arena *a = arena_create();
    assert_null(read_bytes(a, text, cut, &wrong));
  }
  for (int i = 0; i < 20000; i++) {
    SCOPED arena *a = arena_create();
    char copy[sizeof text];
    memcpy(copy, text, sizeof text);
    for (int n = 1 + random_below(&random, 3); n > 0; n--)
      copy[random_below(&random, (int)length)] = likely[random_below(&random, (int)sizeof likely - 1)];
    read += read_bytes(a, copy, length, &wrong) != NULL;
  }
  assert_true(read > 500 && read < 19000);
}

int main(void) { return run_listed(); }
