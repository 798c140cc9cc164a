# The driver's assembly made fit to stand inside any kernel's: its functions local to the object, its
# labels in a name space of their own, and nothing that a file can have only once.
file(READ ${IN} text)
string(REGEX REPLACE "\n[ \t]*\\.(globl|hidden|file|ident|addrsig|addrsig_sym)[ \t]*[^\n]*" "" text "${text}")
string(REGEX REPLACE "\n[ \t]*\\.section[ \t]+\"?\\.note[^\n]*" "" text "${text}")
# A section for each function and object becomes a directive for each: objects have few sections.
foreach(kind text data bss)
  string(REGEX REPLACE "\t\\.section\t\\.${kind}\\.[^,\n]+,\"[awx]+\",@[a-z]+\n" "\t.${kind}\n" text "${text}")
endforeach()
string(REGEX REPLACE "(\t\\.section\t\\.(rodata|data\\.rel\\.ro))\\.[^,\n]+,(\"aw?\",)" "\\1,\\3" text "${text}")
string(REPLACE ".L" ".L${LABELS}_" text "${text}")
file(WRITE ${OUT} "${text}")
