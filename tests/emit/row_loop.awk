# The last basic block of a function in which vectors of channels are multiplied: the row loop. In the
# encode functions rotors are built by a call, so nothing else multiplies there but the loop before it, of rows
# that append normalises.
#   awk -v function_name=encode_v4_f32_cached -f row_loop.awk FILE.s
function flush() {
  if (multiplies) row = block
  block = ""
  multiplies = 0
}
$1 == function_name ":" { inside = 1 }
inside && /^\.Lfunc_end/ { flush(); inside = 0 }
inside {
  if (/^\.LBB/) flush()
  block = block $0 "\n"
  if ($1 ~ /^v?(mul|fn?m(add|sub)[0-9]*)ps$/) multiplies = 1
}
END { printf "%s", row }
