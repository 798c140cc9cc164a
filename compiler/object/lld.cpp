/* object/lld: see object/lld.h. */
#include "object/lld.h"

#include <lld/Common/CommonLinkerContext.h>
#include <lld/Common/Driver.h>
#include <llvm/ADT/ArrayRef.h>
#include <llvm/Support/raw_ostream.h>
#include <string.h>
#include <string>

LLD_HAS_DRIVER(elf)

bool lld_link_elf(int count, const char *const *arguments, char **message) {
  std::string said;
  llvm::raw_string_ostream stream(said);
  bool ok = lld::elf::link(llvm::ArrayRef<const char *>(arguments, count), stream, stream, false, false);
  lld::CommonLinkerContext::destroy();
  *message = said.empty() ? nullptr : strdup(said.c_str());
  return ok;
}
