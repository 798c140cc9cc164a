# Where the program finds its vocabulary, and what `cmake --install` puts in place besides the
# runtime (which installs itself): the program, the vocabulary, the descriptions.
# The installed program looks beside itself, so the tree can be moved.

file(RELATIVE_PATH pegen_installed_dsl /${CMAKE_INSTALL_BINDIR} /${CMAKE_INSTALL_DATADIR}/pegen/dsl)
target_compile_definitions(pegen PRIVATE
  PEGEN_INSTALLED_DSL="${pegen_installed_dsl}"
  PEGEN_SOURCE_DSL="${PROJECT_SOURCE_DIR}/dsl")

# LLVM's libraries are not on the loader's path.
set_target_properties(pegen PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
install(TARGETS pegen RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY dsl/ DESTINATION ${CMAKE_INSTALL_DATADIR}/pegen/dsl FILES_MATCHING PATTERN "*.lua")
install(DIRECTORY specs/ DESTINATION ${CMAKE_INSTALL_DATADIR}/pegen/specs FILES_MATCHING PATTERN "*.lua")
install(FILES LICENSE README.md DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/pegen)
