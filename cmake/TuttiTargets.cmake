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
    # An empty buffer may be NULL, and NULL plus 0 is NULL with all compilers (C23's successor says so, too).
    target_compile_options(${target} PRIVATE $<$<C_COMPILER_ID:Clang>:-fno-sanitize=pointer-overflow>)
    # Compiles in two thirds of the time; reports name lines all the same. gcc guesses more about formats at -O1.
    target_compile_options(${target} PRIVATE -O1 -g1 $<$<C_COMPILER_ID:GNU>:-Wno-format-truncation>)
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
  # The address sanitizer looks for C++'s functions when a program starts, not when a plug-in brings them.
  if(TT_SANITIZE MATCHES "address" AND CMAKE_C_COMPILER_ID STREQUAL "Clang" AND type STREQUAL "EXECUTABLE")
    target_link_options(${target} PRIVATE LINKER:--no-as-needed)
    target_link_libraries(${target} PRIVATE stdc++)
  endif()
  # Instrumentation keeps loops from being vectorised, also those that ask for it: no news here.
  if(TT_SANITIZE AND CMAKE_C_COMPILER_ID STREQUAL "Clang")
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
# Files named *_kernels.c are compiled once per instruction-set level (src/base/machine/cpu.h), files named each_type.c
# once per element type.
function(tt_layers out)
  set(objects)
  set(small_frames)
  if(NOT TT_SANITIZE) # a rank may have a stack of 64 KiB (unit/test_comm_groups)
    set(small_frames -Wframe-larger-than=28672)
  endif()
  foreach(layer ${ARGN})
    file(GLOB_RECURSE sources CONFIGURE_DEPENDS src/${layer}/*.c)
    list(FILTER sources EXCLUDE REGEX "/tensor/cuda/") # a shared object of its own (TuttiCuda.cmake)
    set(kernels ${sources})
    set(typed ${sources})
    list(FILTER sources EXCLUDE REGEX "(_kernels|/each_type)\\.c$")
    list(FILTER kernels INCLUDE REGEX "_kernels\\.c$")
    list(FILTER typed INCLUDE REGEX "/each_type\\.c$")
    if(sources)
      tt_objects(layer_${layer} ${sources})
      target_compile_options(layer_${layer} PRIVATE ${small_frames})
      list(APPEND objects $<TARGET_OBJECTS:layer_${layer}>)
    endif()
    if(typed)
      foreach(type f32 f64 f16 bf16 i8 i16 i32 i64 u8 bool)
        tt_objects(layer_${layer}_${type} ${typed})
        target_compile_options(layer_${layer}_${type} PRIVATE ${small_frames})
        target_compile_definitions(layer_${layer}_${type} PRIVATE TT__TYPE_${type} TABLE=tt__reference_${type})
        list(APPEND objects $<TARGET_OBJECTS:layer_${layer}_${type}>)
      endforeach()
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

# tt_test_folder(label timeout [EXCEPT script...] [ALONE program...]): what lies in the current tests/ folder and its
# rooms, which the names of tests leave out.
#   test_*.c           a test program (cmocka), linked with the static library so that it can reach internals
#   test_*.sh test_*.py  a test script; exit code 77 = skipped
#   any other *.c      a program for the scripts
# All programs of a folder are one, LABEL_programs, since each would be linked with the same libraries: links of their
# names, build/tests/LABEL/NAME, lead to it, and it runs the one that it is called by. One that replaces functions of
# others stands ALONE, as the target LABEL_NAME; those that count or fail allocations are LABEL_counted.
# `timeout` (seconds, for an ordinary build) is for tests that hang, not for busy machines: ten times what a quiet one
# takes. Tests find things through the environment: TUTTI (the command), TT_BUILD, TT_SOURCE, TT_PROGRAMS (that folder),
# TT_TIMEOUT (seconds until they are ended), TT_SANITIZED (set under a sanitizer: what only takes long there is left to
# the ordinary build).
function(tt_test_folder label timeout)
  cmake_parse_arguments(ARG "" "" "EXCEPT;ALONE" ${ARGN})
  set(folder ${CMAKE_BINARY_DIR}/tests/${label})
  file(GLOB_RECURSE programs CONFIGURE_DEPENDS *.c)
  list(FILTER programs EXCLUDE REGEX "/install/programs/") # which a test compiles against an installed tree
  set(together)
  set(counted)
  foreach(source ${programs})
    get_filename_component(name ${source} NAME_WE)
    if(name IN_LIST ARG_ALONE)
      if(IS_SYMLINK ${folder}/${name}) # it was no such program when this build folder was made
        file(REMOVE ${folder}/${name})
      endif()
      add_executable(${label}_${name} ${source})
      set_target_properties(${label}_${name} PROPERTIES OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY ${folder})
      tt_test_options(${label}_${name})
      target_link_libraries(${label}_${name} PRIVATE tutti-static PkgConfig::CMOCKA)
    else()
      file(STRINGS ${source} counts REGEX "^#include \"(unit/)?alloc_(count|fail)\\.h\"")
      if(counts)
        list(APPEND counted ${source})
      else()
        list(APPEND together ${source})
      endif()
    endif()
    if(name MATCHES "^test_")
      tt_test(${label}/${name} ${timeout} ${folder}/${name})
    endif()
  endforeach()
  if(together)
    tt_programs(${label} programs ${together})
  endif()
  if(counted)
    tt_programs(${label} counted ${counted})
    target_sources(${label}_counted PRIVATE ${CMAKE_SOURCE_DIR}/tests/support/alloc_count.c)
  endif()
  file(GLOB_RECURSE scripts CONFIGURE_DEPENDS test_*.sh test_*.py)
  foreach(script ${scripts})
    get_filename_component(name ${script} NAME_WE)
    if(name IN_LIST ARG_EXCEPT)
      continue()
    endif()
    if(script MATCHES "\\.py$")
      tt_python_test(${label}/${name} ${timeout} ${script})
    else()
      tt_test(${label}/${name} ${timeout} sh ${script})
    endif()
  endforeach()
endfunction()

# tt_programs(label name source...): the target LABEL_NAME, build/tests/LABEL/NAME, of which every source is a program.
function(tt_programs label name)
  set(target ${label}_${name})
  set(folder ${CMAKE_BINARY_DIR}/tests/${label})
  set(written ${CMAKE_CURRENT_BINARY_DIR}/written/${name})
  list(JOIN ARGN " " sources)
  add_custom_command(OUTPUT ${written}/programs.c ${written}/programs.h VERBATIM
                     COMMAND ${CMAKE_COMMAND} -DLABEL=${label} -DOUT=${written} -DSOURCES=${sources}
                             -P ${CMAKE_SOURCE_DIR}/cmake/programs.cmake
                     DEPENDS ${ARGN} ${CMAKE_SOURCE_DIR}/cmake/programs.cmake)
  add_executable(${target} ${ARGN} ${written}/programs.c)
  set_target_properties(${target} PROPERTIES OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY ${folder})
  tt_test_options(${target})
  target_compile_options(${target} PRIVATE "SHELL:-include ${written}/programs.h")
  target_link_libraries(${target} PRIVATE tutti-static PkgConfig::CMOCKA)
  file(MAKE_DIRECTORY ${folder} ${written})
  foreach(source ${ARGN})
    get_filename_component(program ${source} NAME_WE)
    set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "-Dmain=${program}_main"
                                OBJECT_DEPENDS ${written}/programs.h)
    file(CREATE_LINK ${name} ${folder}/${program} SYMBOLIC)
  endforeach()
endfunction()

# What only tests run is compiled in half the time, with lines for those who look for a failure.
function(tt_test_options target)
  tt_options(${target})
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_compile_options(${target} PRIVATE -O1 -g1 $<$<C_COMPILER_ID:GNU>:-Wno-format-truncation>)
endfunction()

# Debian's own Python, for Debian's own PyTorch; where there is none the test is skipped.
function(tt_python_test test timeout script)
  if(EXISTS /usr/bin/python3)
    tt_test(${test} ${timeout} /usr/bin/python3 ${script})
  else()
    tt_test(${test} ${timeout} sh ${CMAKE_SOURCE_DIR}/tests/support/skip.sh "there is no /usr/bin/python3")
  endif()
endfunction()

# The same beside PyPI's current PyTorch, which ./dev setup --torch fetches.
function(tt_current_torch_test test timeout script)
  tt_test(${test}_current ${timeout} sh ${CMAKE_SOURCE_DIR}/tests/support/skip.sh "./dev setup --torch fetches it"
          ${CMAKE_SOURCE_DIR}/build/peers/torch/bin/python3 ${script})
endfunction()

# tt_test(LABEL/NAME timeout command...): one test. ctest's configurations are its forms (tests/forms.cmake): those of
# TT_ONLY_GATE run in "gate" and "long"; those of TT_ONLY_LONG, and those beside the current PyTorch, in "long" alone.
function(tt_test test timeout)
  string(REGEX REPLACE "/.*" "" label ${test})
  set(command ${ARGN})
  if(TT_TEST_TIMES)
    list(PREPEND command /usr/bin/python3 ${CMAKE_SOURCE_DIR}/tools/timed.py ${CMAKE_BINARY_DIR}/test_times.tsv ${test})
  endif()
  set(configurations)
  if(test IN_LIST TT_ONLY_LONG OR test MATCHES "_current$")
    set(configurations CONFIGURATIONS long)
  elseif(test MATCHES "${TT_ONLY_GATE}")
    set(configurations CONFIGURATIONS gate long)
  endif()
  add_test(NAME ${test} COMMAND ${command} ${configurations})
  tt_test_properties(${test} ${label} ${timeout})
  if(configurations STREQUAL "CONFIGURATIONS;long")
    set_property(TEST ${test} APPEND PROPERTY ENVIRONMENT TT_LONG=1)
  endif()
  set_property(GLOBAL PROPERTY TT_COMMAND_${test} "${command}")
endfunction()

# tt_long(LABEL/NAME timeout NAME=VALUE...): the long form of a test, which its variables ask for.
function(tt_long test timeout)
  get_property(command GLOBAL PROPERTY TT_COMMAND_${test})
  if(command)
    string(REGEX REPLACE "/.*" "" label ${test})
    list(TRANSFORM command REPLACE "^${test}$" "long/${test}")
    add_test(NAME long/${test} COMMAND ${command} CONFIGURATIONS long)
    tt_test_properties(long/${test} ${label} ${timeout})
    set_property(TEST long/${test} APPEND PROPERTY ENVIRONMENT ${ARGN})
  endif()
endfunction()

# What a test took on two quiet CPUs (tests/costs.tsv, which ./dev test --times writes): the longest begin first, and
# one that computes takes the places of a CPU, eight, one that waits fewer, so that those run beside these.
function(tt_test_cost test)
  get_property(read GLOBAL PROPERTY TT_COSTS_READ)
  if(NOT read)
    set(costs ${CMAKE_SOURCE_DIR}/tests/costs.tsv)
    set_property(DIRECTORY ${CMAKE_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${costs})
    file(STRINGS ${costs} lines)
    foreach(line ${lines})
      if(line MATCHES "^([^#\t]+)\t([0-9.]+)\t([0-9]+)$")
        set_property(GLOBAL PROPERTY TT_COST_${CMAKE_MATCH_1} ${CMAKE_MATCH_2} ${CMAKE_MATCH_3})
      endif()
    endforeach()
    set_property(GLOBAL PROPERTY TT_COSTS_READ TRUE)
  endif()
  get_property(cost GLOBAL PROPERTY TT_COST_${test})
  if(NOT cost)
    set(cost 1 4) # a new one
  endif()
  list(GET cost 0 seconds)
  list(GET cost 1 places)
  set_tests_properties(${test} PROPERTIES COST ${seconds} PROCESSORS ${places})
endfunction()

function(tt_test_properties test label timeout)
  if(TT_SANITIZE) # which make a program several times slower
    math(EXPR timeout "${timeout} * 5")
  endif()
  set(environment TUTTI=${CMAKE_BINARY_DIR}/bin/tutti TT_BUILD=${CMAKE_BINARY_DIR} TT_SOURCE=${CMAKE_SOURCE_DIR}
      TT_PROGRAMS=${CMAKE_BINARY_DIR}/tests/${label} TT_TIMEOUT=${timeout}
      # Open MPI's launcher fails where another one makes or removes the folder that both keep their notes in.
      OMPI_MCA_orte_tmpdir_base=${CMAKE_BINARY_DIR}/Testing/mpi/${test})
  # ASan's leak check dies of what it notes of OpenMP's threads in libraries that are loaded late. TSan refuses threads
  # in a fork of a process that has several, which all processes of tt_spawn() are to be; and each process of several
  # threads would sleep a second before it ends.
  if(TT_SANITIZE)
    list(APPEND environment ASAN_OPTIONS=intercept_tls_get_addr=0 TT_SANITIZED=1
         TSAN_OPTIONS=suppressions=${CMAKE_SOURCE_DIR}/tests/tsan.supp:die_after_fork=0:atexit_sleep_ms=20)
  endif()
  set_tests_properties(${test} PROPERTIES LABELS ${label} TIMEOUT ${timeout} SKIP_RETURN_CODE 77
                       ENVIRONMENT "${environment}")
  tt_test_cost(${test})
endfunction()
