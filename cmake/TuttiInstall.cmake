# What `cmake --install` gives: headers, shared and static libraries, pkg-config files, a CMake package, the command,
# man pages. Everything finds its neighbours from its own place, so an installed tree can be moved.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Tutti)

install(DIRECTORY include/tutti DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS tutti-comm tutti EXPORT TuttiTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS tutti-comm-static tutti-static EXPORT TuttiStaticTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS tutti_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
file(GLOB man_pages CONFIGURE_DEPENDS docs/man/*.1)
install(FILES ${man_pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)

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
