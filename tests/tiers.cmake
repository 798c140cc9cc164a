# Which tests run in which tier of scripts/test, by their names: one regular expression a line. Labels follow from it:
# quick; full, which the default tier leaves out; long, which the quick preset of the sanitizers leaves out; soak, which
# all other tiers leave out.

# The newest processor that this machine is.
set(native x86-64-v2)
if(EXISTS /proc/cpuinfo)
  file(STRINGS /proc/cpuinfo flags REGEX "^(flags|Features)" LIMIT_COUNT 1)
  if(flags MATCHES " avx512vl")
    set(native x86-64-v4)
  elseif(flags MATCHES " avx2")
    set(native x86-64-v3)
  endif()
endif()

# A minute together.
set(QUICK
  "^(unit|tile)_" "^(rooms|order|options|wire|growth|tiers|mutation_table|docs_(gallery|words)|sass_code)$"
  "^(reference_test|golden_test_${native}|spec_(good|bad|dump|shipped))$"
  "^(program_check|interface.(twin|refusals|rope)|bench_harness)$")

# They run in the default tier although the sanitizers' quick preset leaves them out: one of each kind.
set(DEFAULT_THOUGH_LONG
  "^golden_(attention|widen|test_(${native}|aarch64)|aarch64_.*)$"
  "^(table|precision|operations)_(${native}|sm_80)$" "^operations$"
  "^ptx_threads_(rope|care|attention|geope3d|sincos|staged)$" "^ptx_(plan|gradient)$"
  "^(ptxas_float8_sm_90|ptx_text|sass_measured)$" "^amd_(gfx90a|threads_rope)$"
  "^properties_(geope2d|rope_mixed)$" "^random_widen_1$" "^gradient_reference$"
  "^(backward|append|slots|stack|shapes|denormals|attention_(asked|backward|fused|rows|pages|parts|sequences|split))$"
  "^(growth|interface)" "^explain(_numbers)?$" "^attention_(far|few|prefix|score_inputs|values)_sm_80$"
  "^compatibility" "^float_state_${native}$" "^bench_json$"
  "^python_(formulas.*|papers|torch.*|jax|explore|packed|conform)$" "^(docs_.*|examples|specs_options)$"
  "^check_(basis_dense3|floor_55)_x86-64-v3$" "^check_(append_to_.*|at_end_0_sm_90|learned_liere_8|bivectors_five)$")

# The default tier leaves them out although the sanitizers' quick preset runs them.
set(FULL_THOUGH_SHORT "^oom_pegen_(obj|ptx)$" "^attention_check_.*pape.*_sm_80$"
  "^check_learned_liere_inverse$")

# The soak tier alone runs them: minutes of what others that stay show by fewer descriptions or chips. Sanitizers watch
# the compiler's memory, too; valgrind, which stays for one description, knows values that are not set.
set(SOAK
  "^(ptxas|random)_every" "^ptxas(_dense)?_sm_(86|89|100)$"
  "^valgrind_(care|geope3d)$" "^amd_gfx942_all$")

# Tests that the quick preset of the sanitizers (asan) leaves out, by names: they take minutes there and run code of
# pegen's own that others which stay run, too, or code that was generated, which sanitizers do not see into. asan-all
# runs them. One expression a line: a single one of all is beyond what ctest takes, and it then runs every test.
set(LONG_UNDER_SANITIZERS
  # other processors' and GPUs' twins of what stays
  "^(attention_(check|backward|few|fused|prefix|rows|sizes|asked)|check_|specs_check).*_(sm_80|x86-64-v[34])$"
  "^(operations|golden_|precision|table).*_(sm_80|x86-64-v[34])$"
  "^golden_(test_)?aarch64"
  "^amd_(gfx|threads_[ar])"
  "^maps_check_.*_x86-64-v[34]$"
  "^maps_check_[bcd-hj-oq-z].*_sm_80$"
  "^inputs_check_(phase|amplitude|sides|boost|alike|grid|chordal)_sm_80$"
  "^maps_check_parts_sm_80$"
  "^linear_check_.*_x86-64-v4$"
  "^inputs_check_.*_(heads|grid)$"
  "^attention_(aarch64|(far|refuse|score_inputs|sparse|values)_sm)"
  # GPUs' threads, run here
  "^ptxas_"
  "^ptx_threads_(alibi|attention|care|comrope|geope|liere|lingeope|lookhere|pape_ri|polynomial|quatro|relative)"
  "^ptx_threads_(rope_|sincos|spherical|string|grid|split|skip|staged|partial|dense(_[^o]|$)|schur|basis_back)"
  "^ptx_(gradient|plan|gpu_test_(dense|matrix|widen|fused))$"
  # descriptions like ones that stay
  "random"
  "^properties_"
  "^attention_check_(lookhere|relative|alibi__D|lingeope__D|pape_ri|polynomial__D_role_pairwise__D_degree)"
  "^attention_check_(mirrors|turning_mean|rows_turned_|values_|slopes_|attention$|pape__D_role_pairwise__D)"
  "^attention_check_inputs_(forgetting|documents|padded|mixed|values)"
  "^attention_check_score_(prefix|document|squared|nested|guarded|learned|table|turned|types)"
  "^check_basis_(back_)?(plane|vector|dense3|boost|shear|screw|near)"
  "^check_(floor|long|at_end|converted_(heads|sums)|polynomial_|sincos_(volumes|grid)|pape_(axes|heads))"
  "^check_learned_(liere_([2-478]|11|16|27|32|64|.*float64)|comrope_(ap|ld|grid|folded|schur_)|string)"
  "^check_bivectors_(minus|mixed|mostly|boosts|screws|five|conjugate|.*_(product|held))"
  "^check_append_(of_a_grid|left_over|sums|to_)"
  "^maps_check_(wave|root|kink)"
  "^parts_check_(head|inverse|skip)"
  # sizes and calls of many kinds
  "^attention_(rows|sizes|few|split|sequences|pages|parts|sparse|score_inputs|asked|backward(_polynomial)?)$"
  "^(attention_fused|append|slots|stack|effort|denormals|backward(_calls|_more)?|gradient_reference)$"
  "^(bench_json|operations|ptx_bench_(attention|calls)|program_stock|golden_attention)$"
  "^interface.(float8|care|spherical|rope_mixed|geope3d|twin)$"
  "^(table|precision|shapes|float_state|compatibility)"
  # other programs
  "^python_(formulas|papers|conform|explore|workbench|lab|torch|attention|distributed|jax|models|checkpoints|config)"
  "^python_(vit|packed|cuda)"
  "^(valgrind|growth|package|static|stock|mutation|docs|examples)"
  # listings of machine code and text of other tools: sass_code and the checks run the same code of pegen
  "^(sass_measured|emit|ptx_text|explain(_numbers)?)$"
  # many starts of the compiler, whose options other tests read
  "^(specs_options|golden_widen|ptx_bench_json|ptx_gpu_test_attention)$")
