# What `cmake --install` gives: headers, shared and static libraries, pkg-config files, a CMake package, the command,
# manual pages, completions; in share/doc/tutti README, LICENSE, CHANGELOG, the reference of the C interface, and the
# examples.
# Everything finds its neighbours from its own place, so an installed tree can be moved.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Tutti)

install(DIRECTORY include/tutti DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS tutti-comm tutti EXPORT TuttiTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS tutti-comm-static tutti-static EXPORT TuttiStaticTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS tutti_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
file(GLOB man_pages CONFIGURE_DEPENDS docs/man/*.1)
install(FILES ${man_pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)

set(doc_dir ${CMAKE_INSTALL_DATAROOTDIR}/doc/tutti)
install(FILES README.md LICENSE CHANGELOG.md ARCHITECTURE.md CONTRIBUTING.md DESTINATION ${doc_dir})
# README's links and pictures, and those of docs/README.md, lead to these.
install(DIRECTORY docs DESTINATION ${doc_dir} FILES_MATCHING PATTERN "*.md" PATTERN "*.svg" PATTERN man EXCLUDE)
install(DIRECTORY examples DESTINATION ${doc_dir})

# The reference, from the comments of the public headers.
set(reference ${CMAKE_BINARY_DIR}/docs)
find_package(Python3 QUIET COMPONENTS Interpreter)
if(Python3_Interpreter_FOUND)
  file(GLOB public_headers CONFIGURE_DEPENDS include/tutti/*.h include/tutti/*.hpp
       include/tutti/cpp/*.hpp)
  add_custom_command(OUTPUT ${reference}/html/index.html COMMAND Python3::Interpreter tools/reference.py ${reference}
                     DEPENDS ${public_headers} tools/reference.py WORKING_DIRECTORY ${CMAKE_SOURCE_DIR} VERBATIM
                     COMMENT "Making the reference of the C interface")
  add_custom_target(reference ALL DEPENDS ${reference}/html/index.html)
else()
  message(STATUS "reference of the C interface: left out, there is no python3; ./dev docs makes it")
endif()
# Also what ./dev docs made after this.
install(DIRECTORY ${reference}/man3 DESTINATION ${CMAKE_INSTALL_MANDIR} OPTIONAL)
install(DIRECTORY ${reference}/html DESTINATION ${doc_dir} OPTIONAL)

# The command prints what shells need; where each looks for it.
set(completions ${CMAKE_BINARY_DIR}/completions)
file(MAKE_DIRECTORY ${completions})
foreach(shell bash zsh fish)
  add_custom_command(TARGET tutti_command POST_BUILD VERBATIM
                     COMMAND sh -c "\"$0\" completion ${shell} >\"$1\"" $<TARGET_FILE:tutti_command>
                             ${completions}/${shell})
endforeach()
install(FILES ${completions}/bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME tutti)
install(FILES ${completions}/zsh DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions RENAME _tutti)
install(FILES ${completions}/fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d RENAME tutti.fish)

# The static targets are a set of their own: they alone need the development files of what Tutti links.
install(EXPORT TuttiTargets NAMESPACE Tutti:: DESTINATION ${package_dir})
install(EXPORT TuttiStaticTargets NAMESPACE Tutti:: DESTINATION ${package_dir})
configure_package_config_file(cmake/TuttiConfig.cmake.in ${CMAKE_BINARY_DIR}/TuttiConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/TuttiConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/TuttiConfig.cmake ${CMAKE_BINARY_DIR}/TuttiConfigVersion.cmake
        DESTINATION ${package_dir})

# From LIBDIR/pkgconfig up to the prefix: one ".." for each part of the path.
string(REGEX REPLACE "[^/]+" ".." pkgconfig_up ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
foreach(name tutti-comm tutti)
  configure_file(cmake/${name}.pc.in ${CMAKE_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${CMAKE_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()
