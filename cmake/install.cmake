# Where the program finds its vocabulary, and what `cmake --install` puts in place: the program, the vocabulary, the
# descriptions, the libraries with their headers, and what find_package(pegen) and pkg-config read.
# The installed program looks beside itself, so the tree can be moved.
include(CMakePackageConfigHelpers)

file(RELATIVE_PATH pegen_installed_dsl /${CMAKE_INSTALL_BINDIR} /${CMAKE_INSTALL_DATADIR}/pegen/dsl)
foreach(program pegen pegen_static)
  target_compile_definitions(${program} PRIVATE
    PEGEN_INSTALLED_DSL="${pegen_installed_dsl}"
    PEGEN_SOURCE_DSL="${PROJECT_SOURCE_DIR}/dsl")
endforeach()

# LLVM's libraries are not on the loader's path.
set_target_properties(pegen PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
install(DIRECTORY dsl/ DESTINATION ${CMAKE_INSTALL_DATADIR}/pegen/dsl FILES_MATCHING PATTERN "*.lua")
install(DIRECTORY specs/ DESTINATION ${CMAKE_INSTALL_DATADIR}/pegen/specs FILES_MATCHING PATTERN "*.lua")
install(DIRECTORY runtime/include/pegen DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
# As a system's header, which compilers let have what C89 and C++98 have not; in our folder it is not one by its place.
file(READ ${DLPACK_INCLUDE_DIR}/dlpack/dlpack.h dlpack_header)
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/dlpack.h CONTENT "#pragma GCC system_header\n${dlpack_header}" @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/dlpack.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/pegen/dlpack)
install(FILES LICENSE README.md DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/pegen)

# Targets of find_package(pegen): pegen::pegen, pegen::headers, pegen::runtime, pegen::kernels, both also _shared.
set(pegen_installed pegen pegen_headers pegen_runtime_static pegen_runtime_shared)
set_target_properties(pegen_headers PROPERTIES EXPORT_NAME headers)
set_target_properties(pegen_runtime_static PROPERTIES EXPORT_NAME runtime)
set_target_properties(pegen_runtime_shared PROPERTIES EXPORT_NAME runtime_shared)
if(PEGEN_STOCK_KERNELS)
  list(APPEND pegen_installed pegen_kernels_static pegen_kernels_shared)
  set_target_properties(pegen_kernels_static PROPERTIES EXPORT_NAME kernels)
  set_target_properties(pegen_kernels_shared PROPERTIES EXPORT_NAME kernels_shared)
  install(DIRECTORY generated/ptx DESTINATION ${CMAKE_INSTALL_DATADIR}/pegen)
endif()
install(TARGETS ${pegen_installed} EXPORT pegen
  RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR}
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})

set(pegen_package ${CMAKE_INSTALL_LIBDIR}/cmake/pegen)
install(EXPORT pegen NAMESPACE pegen:: FILE pegenTargets.cmake DESTINATION ${pegen_package})
configure_package_config_file(cmake/pegenConfig.cmake.in ${CMAKE_BINARY_DIR}/pegenConfig.cmake INSTALL_DESTINATION
  ${pegen_package})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/pegenConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/pegenConfig.cmake ${CMAKE_BINARY_DIR}/pegenConfigVersion.cmake
  cmake/PegenAddKernel.cmake
  DESTINATION ${pegen_package})

# pkg-config: paths from the file's own folder, so that these can be moved, too.
set(pegen_pkgconfig ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH pegen_prefix_from_pkgconfig /${pegen_pkgconfig} /)
foreach(module pegen pegen-kernels)
  configure_file(cmake/${module}.pc.in ${CMAKE_BINARY_DIR}/${module}.pc @ONLY)
endforeach()
install(FILES ${CMAKE_BINARY_DIR}/pegen.pc DESTINATION ${pegen_pkgconfig})
if(PEGEN_STOCK_KERNELS)
  install(FILES ${CMAKE_BINARY_DIR}/pegen-kernels.pc DESTINATION ${pegen_pkgconfig})
endif()

# The manual page and the completion scripts, as the option table has them.
function(pegen_prints file destination)
  set(output ${CMAKE_BINARY_DIR}/share/${file})
  add_custom_command(OUTPUT ${output} COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/share
    COMMAND pegen ${ARGN} > ${output} DEPENDS pegen VERBATIM)
  add_custom_target(share_${file} ALL DEPENDS ${output})
  install(FILES ${output} DESTINATION ${destination} RENAME ${file})
endfunction()
pegen_prints(pegen.1 ${CMAKE_INSTALL_MANDIR}/man1 --man)
pegen_prints(_pegen ${CMAKE_INSTALL_DATADIR}/zsh/site-functions --completion zsh)
pegen_prints(pegen ${CMAKE_INSTALL_DATADIR}/bash-completion/completions --completion bash)
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/pegen FILES_MATCHING PATTERN "*.md")

# What the Python package has in its folder (pyproject.toml): the program in one file, the library, the descriptions,
# laid out as above so that each finds the other.
set(python_component COMPONENT python EXCLUDE_FROM_ALL)
install(PROGRAMS $<TARGET_FILE:pegen_static> DESTINATION bin RENAME pegen ${python_component})
install(PROGRAMS $<TARGET_FILE:pegen_runtime_shared> DESTINATION lib RENAME libpegen.so ${python_component})
install(PROGRAMS $<TARGET_FILE:pegen_torch> DESTINATION lib ${python_component})
install(FILES docs/spec-language.md DESTINATION share/pegen ${python_component})
install(DIRECTORY dsl/ DESTINATION share/pegen/dsl ${python_component} FILES_MATCHING PATTERN "*.lua")
install(DIRECTORY specs/ DESTINATION share/pegen/specs ${python_component} FILES_MATCHING PATTERN "*.lua")
# What is linked into the program, by the words of the system that it came from.
foreach(package llvm-${PEGEN_LLVM_VERSION}-dev libmlir-${PEGEN_LLVM_VERSION}-dev liblld-${PEGEN_LLVM_VERSION}-dev
    liblua5.4-dev zlib1g-dev libzstd-dev libxxhash-dev libgcc-12-dev)
  set(licence ${CMAKE_SYSROOT}/usr/share/doc/${package}/copyright)
  if(EXISTS ${licence})
    install(FILES ${licence} DESTINATION licenses RENAME ${package}.txt ${python_component})
  endif()
endforeach()
if(EXISTS /usr/share/common-licenses/Apache-2.0)
  install(FILES /usr/share/common-licenses/Apache-2.0 DESTINATION licenses ${python_component})
endif()
