/* object/lld_static: what keeps LLVM's linker small where it is linked from archives.
 *
 * It also links bitcode, for any machine, and so refers to link-time optimisation and to every code generator that LLVM
 * has. pegen gives it objects of processors only. What would be needed for bitcode is defined here and never called, so
 * that the archives' members that define it stay out of the program: 40 MB. */
#include <llvm/LTO/LTO.h>
#include <stdio.h>
#include <stdlib.h>

[[noreturn]] static void unused(const char *what) {
  fprintf(stderr, "pegen: internal error in link: %s was called, though the input is an object\n", what);
  abort();
}

/* ---- link-time optimisation ---------------------------------------------------------- */

namespace llvm::lto {
Expected<std::unique_ptr<InputFile>> InputFile::create(MemoryBufferRef) { unused("lto::InputFile::create"); }
InputFile::~InputFile() = default;
StringRef InputFile::getName() const { unused("lto::InputFile::getName"); }
SmallVector<const char *> LTO::getRuntimeLibcallSymbols(const Triple &) { unused("lto::getRuntimeLibcallSymbols"); }
} // namespace llvm::lto

/* The linker's own class, which is in no header. It is made for every link, and asked for the objects that became of no
 * bitcode: an empty vector of pointers. */
namespace lld::elf {
struct Ctx;
class BitcodeFile;
class BitcodeCompiler {
public:
  BitcodeCompiler(Ctx &);
  ~BitcodeCompiler();
  void add(BitcodeFile &);
  llvm::SmallVector<void *, 0> compile();
};
BitcodeCompiler::BitcodeCompiler(Ctx &) {}
BitcodeCompiler::~BitcodeCompiler() = default;
void BitcodeCompiler::add(BitcodeFile &) { unused("BitcodeCompiler::add"); }
llvm::SmallVector<void *, 0> BitcodeCompiler::compile() { return {}; }
} // namespace lld::elf

/* ---- machines ------------------------------------------------------------------------ */

/* The linker initialises all that LLVM was built with; those of other machines than pegen's have nothing to do. A row
 * for each that pegen uses: KEEP_... is ", ignore", and takes the place of "define". */
#define KEEP_X86 , ignore
#define KEEP_AArch64 , ignore
#define KEEP_NVPTX , ignore
#define KEEP_AMDGPU , ignore
#define KEEP_PARSER_X86 , ignore
#define KEEP_PARSER_AArch64 , ignore
#define SECOND(first, second, ...) second
#define SELECT(...) SECOND(__VA_ARGS__)
#define ignore(name)
#define define(name) \
  void name(void); \
  void name(void) {}
#define UNLESS_KEPT(keep, name) SELECT(keep, define, )(name)

extern "C" {
#define LLVM_TARGET(machine) \
  UNLESS_KEPT(KEEP_##machine, LLVMInitialize##machine##Target) \
  UNLESS_KEPT(KEEP_##machine, LLVMInitialize##machine##TargetInfo) \
  UNLESS_KEPT(KEEP_##machine, LLVMInitialize##machine##TargetMC)
#include <llvm/Config/Targets.def>
#define LLVM_ASM_PRINTER(machine) UNLESS_KEPT(KEEP_##machine, LLVMInitialize##machine##AsmPrinter)
#include <llvm/Config/AsmPrinters.def>
#define LLVM_ASM_PARSER(machine) UNLESS_KEPT(KEEP_PARSER_##machine, LLVMInitialize##machine##AsmParser)
#include <llvm/Config/AsmParsers.def>
}
