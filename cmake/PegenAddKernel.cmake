# pegen_add_kernel: descriptions of position encodings as libraries of a CMake project.
#
#     find_package(pegen REQUIRED)
#     pegen_add_kernel(TARGET SPEC spec [PREFIX name] [TARGETS target...] [DTYPES dtype...] [DEFINES name=value...]
#       [TANGENTS])
#     target_link_libraries(engine PRIVATE TARGET)
#
# SPEC is a file, or the name of a description that comes with pegen, one in PEGEN_SPECS_DIR: geope3d, more/gta.
# TARGET becomes a static library with the kernel, whose header (PREFIX.h) is on the include path of what
# links it. PREFIX, the target's own name where it is not given, is what symbols and files begin
# with, so that all names are known before pegen runs: PREFIX_kernel, PREFIX_encode, PREFIX.h. TARGETS, DTYPES,
# DEFINES and TANGENTS are --target, --dtype, -D and --tangents of the program, lists with blanks in place of commas.
#
# Compiled again when the description, a file it requires, the vocabulary or pegen itself changes.
# Properties of TARGET: PEGEN_OBJECT, PEGEN_HEADER, PEGEN_PREFIX.
include_guard(GLOBAL)

# pegen_kernel_command(FOLDER PREFIX SPEC name TARGETS... DTYPES... DEFINES... [TANGENTS]): the rule that writes
# FOLDER/PREFIX.o and FOLDER/PREFIX.h, without a target around it. SPEC is an absolute path.
function(pegen_kernel_command folder prefix)
  cmake_parse_arguments(PARSE_ARGV 2 kernel "TANGENTS" "SPEC" "TARGETS;DTYPES;DEFINES")
  set(options --name ${prefix})
  if(kernel_TANGENTS)
    list(APPEND options --tangents)
  endif()
  foreach(list TARGETS DTYPES)
    string(REPLACE ";" "," joined "${kernel_${list}}")
    string(TOLOWER ${list} option)
    string(REGEX REPLACE "s$" "" option ${option})
    if(joined)
      list(APPEND options --${option} ${joined})
    endif()
  endforeach()
  foreach(define ${kernel_DEFINES})
    list(APPEND options -D ${define})
  endforeach()
  file(MAKE_DIRECTORY ${folder})
  set(output ${folder}/${prefix})
  add_custom_command(OUTPUT ${output}.o ${output}.h
    COMMAND pegen::pegen ${kernel_SPEC} -o ${output}.o --header ${output}.h -MF ${output}.d ${options}
    DEPENDS ${kernel_SPEC} $<TARGET_FILE:pegen::pegen>
    DEPFILE ${output}.d
    COMMENT "Kernel ${prefix}" VERBATIM)
  set_source_files_properties(${output}.o PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
endfunction()

function(pegen_add_kernel target)
  cmake_parse_arguments(PARSE_ARGV 1 kernel "TANGENTS" "SPEC;PREFIX" "TARGETS;DTYPES;DEFINES")
  if(kernel_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR
      "pegen_add_kernel(${target}): unknown argument '${kernel_UNPARSED_ARGUMENTS}', "
      "expected SPEC, PREFIX, TARGETS, DTYPES, DEFINES or TANGENTS")
  endif()
  if(NOT kernel_SPEC)
    message(FATAL_ERROR "pegen_add_kernel(${target}): no description, expected SPEC with a file or a stock name")
  endif()
  get_filename_component(spec ${kernel_SPEC} ABSOLUTE)
  if(NOT EXISTS ${spec})
    find_file(stock NAMES ${kernel_SPEC}.lua PATHS ${PEGEN_SPECS_DIR} ${PEGEN_SPECS_DIR}/more NO_DEFAULT_PATH NO_CACHE)
    if(NOT stock)
      message(FATAL_ERROR "pegen_add_kernel(${target}): there is no file '${spec}', and no description "
        "'${kernel_SPEC}' "
        "in ${PEGEN_SPECS_DIR}")
    endif()
    set(spec ${stock})
  endif()
  if(NOT kernel_PREFIX)
    set(kernel_PREFIX ${target})
  endif()
  if(NOT kernel_PREFIX MATCHES "^[A-Za-z_][A-Za-z0-9_]*$")
    message(FATAL_ERROR
      "pegen_add_kernel(${target}): '${kernel_PREFIX}' cannot begin C names, "
      "expected PREFIX with letters, digits and _")
  endif()
  foreach(define ${kernel_DEFINES})
    if(NOT define MATCHES "^[^=]+=")
      message(FATAL_ERROR "pegen_add_kernel(${target}): DEFINES ${define}, expected name=value")
    endif()
  endforeach()
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/${target}.pegen)
  set(tangents)
  if(kernel_TANGENTS)
    set(tangents TANGENTS)
  endif()
  pegen_kernel_command(${folder} ${kernel_PREFIX} SPEC ${spec}
    TARGETS ${kernel_TARGETS} DTYPES ${kernel_DTYPES} DEFINES ${kernel_DEFINES} ${tangents})
  add_library(${target} STATIC ${folder}/${kernel_PREFIX}.o ${folder}/${kernel_PREFIX}.h)
  get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES)
  set(language CXX)
  if("C" IN_LIST languages)
    set(language C)
  endif()
  set_target_properties(${target} PROPERTIES LINKER_LANGUAGE ${language} PEGEN_PREFIX ${kernel_PREFIX}
    PEGEN_OBJECT ${folder}/${kernel_PREFIX}.o PEGEN_HEADER ${folder}/${kernel_PREFIX}.h)
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${folder}>)
  target_link_libraries(${target} PUBLIC pegen::headers)
endfunction()
