/* strerror.c: error numbers in words, from the one table in pegen.h. */
#include "pegen/pegen.h"

const char *pegen_strerror(int error) {
  switch (error) {
#define TEXT(name, value, text) \
  case value: return text;
    PEGEN_ERRORS(TEXT)
#undef TEXT
  }
  return "unknown error";
}

const char *pegen_error_name(int error) {
  switch (error) {
#define NAME(name, value, text) \
  case value: return "PEGEN_ERROR_" #name;
    PEGEN_ERRORS(NAME)
#undef NAME
  }
  return "PEGEN_ERROR_UNKNOWN";
}
