# pegen_mlir: LLVM and MLIR as a program links them, and pegen_lua. Shared libraries, but for programs with the property
# PEGEN_STATIC: those take LLVM, MLIR, Lua and what these need from archives, drop every section that nothing refers to,
# and need glibc alone (PegenGlibc.cmake).

# MLIR's C API is archives over the shared library in any case; naming their CMake targets as libraries would drag in
# hundreds of archives, so only the files are named. C objects, linked by the C++ driver.
set(capi_archives)
foreach(dialect_or_part Arith ControlFlow GPU LLVM Math SCF Vector Conversion Transforms Target IR)
  if(TARGET MLIRCAPI${dialect_or_part}) # 19 has some of them inside libMLIR
    list(APPEND capi_archives $<TARGET_FILE:MLIRCAPI${dialect_or_part}>)
  endif()
endforeach()
# LLVM's linker is archives, too.
set(lld_archives)
foreach(part ELF Common)
  set(archive ${LLVM_LIBRARY_DIR}/liblld${part}.a)
  if(NOT EXISTS ${archive})
    message(FATAL_ERROR "there is no ${archive}; scripts/setup installs it")
  endif()
  list(APPEND lld_archives ${archive})
endforeach()
add_library(pegen_mlir_shared INTERFACE)
target_link_libraries(pegen_mlir_shared INTERFACE
  -Wl,--start-group ${lld_archives} ${capi_archives} -Wl,--end-group MLIR LLVM PkgConfig::LUA
  z zstd) # the linker reads compressed sections

# The linker takes what is needed of all archives, in any order; one that nothing needs costs the reading of its index.
file(GLOB archives ${LLVM_LIBRARY_DIR}/libMLIR*.a ${LLVM_LIBRARY_DIR}/libLLVM*.a)
list(APPEND archives ${lld_archives})
set(PEGEN_STATIC_LACKS)
foreach(library lua5.4 z zstd) # LLVM compresses debug information
  find_library(PEGEN_ARCHIVE_${library} NAMES lib${library}.a)
  list(APPEND archives ${PEGEN_ARCHIVE_${library}})
  if(NOT PEGEN_ARCHIVE_${library})
    list(APPEND PEGEN_STATIC_LACKS lib${library}.a)
  endif()
endforeach()
if(PEGEN_STATIC AND PEGEN_STATIC_LACKS)
  message(FATAL_ERROR "PEGEN_STATIC: there is no ${PEGEN_STATIC_LACKS}; scripts/setup installs it")
endif()
add_library(pegen_mlir_static INTERFACE)
target_link_libraries(pegen_mlir_static INTERFACE -Wl,--start-group ${archives} -Wl,--end-group ${CMAKE_DL_LIBS} m)
target_link_options(pegen_mlir_static INTERFACE -static-libstdc++ -static-libgcc
  LINKER:--gc-sections,--as-needed,--strip-all)

# pegen_make_static(PROGRAM): what only such a program has. LLVM's linker, where it is installed, folds functions
# that are the same. Nothing catches exceptions, so the tables for them are dropped.
find_program(PEGEN_LLD NAMES ld.lld HINTS ${LLVM_TOOLS_BINARY_DIR} NO_DEFAULT_PATH)
function(pegen_make_static program)
  target_sources(${program} PRIVATE ${PROJECT_SOURCE_DIR}/compiler/object/lld_static.cpp)
  if(PEGEN_LLD)
    get_filename_component(folder ${PEGEN_LLD} DIRECTORY)
    target_link_options(${program} PRIVATE -B${folder} -fuse-ld=lld LINKER:--icf=all,-O2)
  endif()
  target_link_options(${program} PRIVATE LINKER:--build-id=none,--no-eh-frame-hdr)
  add_custom_command(TARGET ${program} POST_BUILD COMMAND ${CMAKE_OBJCOPY} --remove-section .eh_frame
    $<TARGET_FILE:${program}> VERBATIM)
  pegen_for_old_glibc(${program})
endfunction()

set(way $<IF:$<BOOL:$<TARGET_PROPERTY:PEGEN_STATIC>>,pegen_mlir_static,pegen_mlir_shared>)
add_library(pegen_mlir INTERFACE)
target_link_libraries(pegen_mlir INTERFACE ${way})
add_library(pegen_lua INTERFACE)
target_link_libraries(pegen_lua INTERFACE ${way})
target_include_directories(pegen_lua INTERFACE ${LUA_INCLUDE_DIRS})
