# Flags that everything is built with, and functions for layers, libraries and tests.

# What makes a slip of memory end the process instead of serving who provoked it (tests/install/test_hardening.py).
# Sanitizers watch the same places, and better.
function(tt_harden target)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  if(TT_SANITIZE)
    return()
  endif()
  target_compile_options(${target} PRIVATE -fstack-protector-strong)
  if(NOT CMAKE_BUILD_TYPE STREQUAL "Debug") # it checks nothing unless the compiler optimises
    target_compile_options(${target} PRIVATE -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
  endif()
  get_target_property(type ${target} TYPE)
  if(type MATCHES "SHARED|MODULE|EXECUTABLE")
    target_link_options(${target} PRIVATE LINKER:-z,relro,-z,now,-z,noexecstack)
  endif()
endfunction()

function(tt_options target)
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR}/src)
  target_compile_definitions(${target} PRIVATE _GNU_SOURCE)
  # -ffp-contract=off: results must not depend on what the compiler fuses.
  target_compile_options(${target} PRIVATE -Wall -Wextra -Werror -ffp-contract=off -fno-math-errno -fvisibility=hidden
                         $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes -Wmissing-prototypes>)
  if(TT_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${TT_SANITIZE} -fno-omit-frame-pointer
                           -fno-sanitize-recover=all)
    if(NOT TT_FUZZ) # compiles in two thirds of the time; reports name lines all the same
      target_compile_options(${target} PRIVATE -O1 -g1 -Wno-format-truncation) # which guesses more at -O1
    endif()
    target_link_options(${target} PRIVATE -fsanitize=${TT_SANITIZE})
  endif()
  if(TT_FUZZ)
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
  # gcc's thread sanitizer doesn't know fences, and says so. Ours order memory between processes, which it can't see
  # either.
  if(TT_SANITIZE MATCHES "thread" AND CMAKE_C_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE -Wno-tsan)
  endif()
  get_target_property(type ${target} TYPE)
  if(TT_SANITIZE MATCHES "thread" AND type STREQUAL "EXECUTABLE")
    target_sources(${target} PRIVATE ${CMAKE_SOURCE_DIR}/tests/support/tsan_close.c)
  endif()
  # Instrumentation keeps loops from being vectorised, also those that ask for it: no news here.
  if((TT_SANITIZE OR TT_FUZZ) AND CMAKE_C_COMPILER_ID STREQUAL "Clang")
    target_compile_options(${target} PRIVATE -Wno-pass-failed)
  endif()
  tt_harden(${target})
endfunction()

# One object library for a set of sources.
function(tt_objects target)
  add_library(${target} OBJECT ${ARGN})
  tt_options(${target})
  target_include_directories(${target} PRIVATE ${UV_INCLUDE_DIRS} ${OPENSSL_INCLUDE_DIRS} ${JANSSON_INCLUDE_DIRS}
                             ${DNNL_INCLUDE_DIR} ${HWLOC_INCLUDE_DIR} ${ZIP_INCLUDE_DIR} ${JPEG_INCLUDE_DIR}
                             ${PNG_INCLUDE_DIR} ${CURL_INCLUDE_DIR})
endfunction()

# tt_layers(out layer...): object libraries of src/<layer>; `out` receives their $<TARGET_OBJECTS>.
# Files named *_kernels.c are compiled once per instruction-set level (src/base/cpu.h).
function(tt_layers out)
  set(objects)
  foreach(layer ${ARGN})
    file(GLOB_RECURSE sources CONFIGURE_DEPENDS src/${layer}/*.c)
    set(kernels ${sources})
    list(FILTER sources EXCLUDE REGEX "_kernels\\.c$")
    list(FILTER kernels INCLUDE REGEX "_kernels\\.c$")
    if(sources)
      tt_objects(layer_${layer} ${sources})
      list(APPEND objects $<TARGET_OBJECTS:layer_${layer}>)
    endif()
    if(kernels)
      tt_kernels(layer_${layer} base "" ${kernels})
      list(APPEND objects $<TARGET_OBJECTS:layer_${layer}_base>)
      if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
        tt_kernels(layer_${layer} avx2 "-mavx2;-mfma;-mf16c" ${kernels})
        tt_kernels(layer_${layer} avx512
                   "-mavx512f;-mavx512vl;-mavx512dq;-mavx512bw;-mavx2;-mfma;-mprefer-vector-width=512" ${kernels})
        list(APPEND objects $<TARGET_OBJECTS:layer_${layer}_avx2> $<TARGET_OBJECTS:layer_${layer}_avx512>)
      endif()
    endif()
  endforeach()
  set(${out} ${objects} PARENT_SCOPE)
endfunction()

function(tt_kernels prefix level flags)
  tt_objects(${prefix}_${level} ${ARGN})
  target_compile_definitions(${prefix}_${level} PRIVATE TT__LEVEL=${level})
  # Short loops whose speed would else hang on where the linker puts them.
  target_compile_options(${prefix}_${level} PRIVATE -falign-functions=64 -falign-loops=64)
  # Nobody looks at floating-point exceptions, so both arms of a condition may be computed, as vector code does.
  target_compile_options(${prefix}_${level} PRIVATE -O3 -fno-trapping-math ${flags})
endfunction()

# tt_library(name ALIAS alias OBJECTS ... LINK ... [OURS library]): the shared library Tutti::alias (soname, nothing
# undefined, exports by cmake/library.map.in) and Tutti::alias-static. OURS is a library of Tutti's, made before, that
# programs then link as well.
function(tt_library name)
  cmake_parse_arguments(ARG "" "ALIAS;OURS" "OBJECTS;LINK" ${ARGN})
  configure_file(${CMAKE_SOURCE_DIR}/cmake/library.map.in ${CMAKE_BINARY_DIR}/library.map @ONLY)
  foreach(kind SHARED STATIC)
    set(suffix "")
    if(kind STREQUAL STATIC)
      set(suffix -static)
    endif()
    set(target ${name}${suffix})
    add_library(${target} ${kind} ${ARG_OBJECTS})
    add_library(Tutti::${ARG_ALIAS}${suffix} ALIAS ${target})
    tt_harden(${target})
    set_target_properties(${target} PROPERTIES OUTPUT_NAME ${name} VERSION ${PROJECT_VERSION}
                          SOVERSION ${PROJECT_VERSION_MAJOR} LINKER_LANGUAGE C EXPORT_NAME ${ARG_ALIAS}${suffix}
                          LINK_DEPENDS ${CMAKE_BINARY_DIR}/library.map)
    target_link_libraries(${target} PRIVATE ${ARG_LINK})
    if(ARG_OURS)
      target_link_libraries(${target} PUBLIC ${ARG_OURS}${suffix})
      # In the build tree, too: CMake would end a path of its own with a colon, which stands for the current folder.
      set_target_properties(${target} PROPERTIES INSTALL_RPATH $ORIGIN BUILD_WITH_INSTALL_RPATH ON)
    endif()
    target_include_directories(${target} INTERFACE $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include>
                               $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
    if(kind STREQUAL SHARED)
      target_link_options(${target} PRIVATE -Wl,--version-script=${CMAKE_BINARY_DIR}/library.map)
    endif()
    if(TT_SANITIZE)
      target_link_options(${target} PRIVATE -fsanitize=${TT_SANITIZE})
    elseif(kind STREQUAL SHARED)
      target_link_options(${target} PRIVATE -Wl,--no-undefined)
    endif()
  endforeach()
endfunction()

# tt_test_folder(label timeout [EXCEPT script...]): what lies in the current tests/ folder.
#   test_*.c           a test program (cmocka), linked with the static library so that it can reach internals
#   test_*.sh test_*.py  a test script; exit code 77 = skipped
#   any other *.c      a program for the scripts, built beside them as build/tests/LABEL/NAME
# `timeout` (seconds, for an ordinary build) is for tests that hang, not for busy machines: ten times what a quiet one
# takes. Tests find things through the environment: TUTTI (the command), TT_BUILD, TT_SOURCE, TT_PROGRAMS (that folder),
# TT_TIMEOUT (seconds until they are ended), TT_SANITIZED (set under a sanitizer: what only takes long there is left to
# the ordinary build).
function(tt_test_folder label timeout)
  cmake_parse_arguments(ARG "" "" "EXCEPT" ${ARGN})
  file(GLOB programs CONFIGURE_DEPENDS *.c)
  foreach(source ${programs})
    get_filename_component(name ${source} NAME_WE)
    add_executable(${label}_${name} ${source})
    set_target_properties(${label}_${name} PROPERTIES OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY
                          ${CMAKE_BINARY_DIR}/tests/${label})
    tt_options(${label}_${name})
    target_include_directories(${label}_${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
    target_link_libraries(${label}_${name} PRIVATE tutti-static PkgConfig::CMOCKA)
    if(name MATCHES "^test_")
      add_test(NAME ${label}/${name} COMMAND ${label}_${name})
      tt_test_properties(${label}/${name} ${label} ${timeout})
    endif()
  endforeach()
  file(GLOB scripts CONFIGURE_DEPENDS test_*.sh test_*.py)
  foreach(script ${scripts})
    get_filename_component(name ${script} NAME_WE)
    if(name IN_LIST ARG_EXCEPT)
      continue()
    endif()
    if(script MATCHES "\\.py$")
      tt_python_test(${label}/${name} ${script})
    else()
      add_test(NAME ${label}/${name} COMMAND sh ${script})
    endif()
    tt_test_properties(${label}/${name} ${label} ${timeout})
  endforeach()
endfunction()

# Debian's own Python, for Debian's own PyTorch; where there is none the test is skipped.
function(tt_python_test test script)
  if(EXISTS /usr/bin/python3)
    add_test(NAME ${test} COMMAND /usr/bin/python3 ${script})
  else()
    add_test(NAME ${test} COMMAND sh -c "echo skipped: there is no /usr/bin/python3; exit 77")
  endif()
endfunction()

function(tt_test_properties test label timeout)
  if(TT_SANITIZE) # which make a program several times slower
    math(EXPR timeout "${timeout} * 5")
  endif()
  set(environment TUTTI=${CMAKE_BINARY_DIR}/bin/tutti TT_BUILD=${CMAKE_BINARY_DIR} TT_SOURCE=${CMAKE_SOURCE_DIR}
      TT_PROGRAMS=${CMAKE_BINARY_DIR}/tests/${label} TT_TIMEOUT=${timeout})
  # ASan's leak check dies of what it notes of OpenMP's threads in libraries that are loaded late. TSan refuses threads
  # in a fork of a process that has several, which all processes of tt_spawn() are to be.
  if(TT_SANITIZE)
    list(APPEND environment ASAN_OPTIONS=intercept_tls_get_addr=0 TT_SANITIZED=1
         TSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/tests/tsan.supp:die_after_fork=0)
  endif()
  set_tests_properties(${test} PROPERTIES LABELS ${label} TIMEOUT ${timeout} SKIP_RETURN_CODE 77
                       ENVIRONMENT "${environment}")
endfunction()
