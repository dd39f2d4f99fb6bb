# libtutti-cuda.so: the CUDA device, a shared object of its own that the library loads when a program first asks for
# one. Built where nvcc is found; tests build the same sources for the host (tests/support/fake_cuda).
file(GLOB_RECURSE TT_CUDA_SOURCES CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/tensor/cuda/*.c)
list(APPEND TT_CUDA_SOURCES ${CMAKE_SOURCE_DIR}/src/base/files/nvidia_library.c
                            ${CMAKE_SOURCE_DIR}/src/base/files/trusted.c)
file(GLOB_RECURSE TT_CUDA_KERNELS CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/tensor/cuda/*.cu)

option(TT_CUDA "build libtutti-cuda.so where nvcc is found" ON)
if(NOT TT_CUDA OR TT_SANITIZE)
  return()
endif()
find_program(TT_NVCC nvcc PATHS $ENV{CUDA_HOME}/bin /usr/local/cuda/bin
                                ${CMAKE_SOURCE_DIR}/build/peers/cuda/toolkit/bin) # ./dev setup --cuda
mark_as_advanced(TT_NVCC)
if(NOT TT_NVCC)
  message(STATUS "CUDA: nvcc was not found, libtutti-cuda.so is left out")
  return()
endif()

# nvcc itself, not CMake's language: that one would have to be enabled where there is no nvcc, too. Machine code for
# Ampere, Hopper and Blackwell, and PTX for what comes.
get_filename_component(cuda_bin ${TT_NVCC} REALPATH)
get_filename_component(cuda_home ${cuda_bin}/../.. ABSOLUTE)
set(TT_CUDA_ARCHITECTURES 80 90 100 CACHE STRING "what libtutti-cuda.so has machine code for")
mark_as_advanced(TT_CUDA_ARCHITECTURES)
set(architectures -gencode=arch=compute_80,code=compute_80)
foreach(number ${TT_CUDA_ARCHITECTURES})
  list(APPEND architectures -gencode=arch=compute_${number},code=sm_${number})
endforeach()
set(objects)
foreach(kernel ${TT_CUDA_KERNELS})
  get_filename_component(name ${kernel} NAME_WE)
  set(object ${CMAKE_BINARY_DIR}/cuda/${name}.o)
  add_custom_command(
    OUTPUT ${object}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/cuda
    COMMAND ${TT_NVCC} -O3 -std=c++17 ${architectures} --threads 0 --compress-mode=size -fmad=true
            -Xcompiler=-fPIC,-fvisibility=hidden,-Wall -MD -MF ${object}.d
            -I${CMAKE_SOURCE_DIR}/include -I${CMAKE_SOURCE_DIR}/src -c ${kernel} -o ${object}
    DEPENDS ${kernel}
    DEPFILE ${object}.d
    COMMENT "nvcc ${name}.cu" VERBATIM)
  list(APPEND objects ${object})
endforeach()
set_source_files_properties(${objects} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
# nvcc takes a minute: ./dev build makes it, tests don't need it.
add_library(tutti_cuda MODULE EXCLUDE_FROM_ALL ${TT_CUDA_SOURCES} ${objects})
tt_options(tutti_cuda)
set_target_properties(tutti_cuda PROPERTIES OUTPUT_NAME tutti-cuda LINKER_LANGUAGE C
                      LIBRARY_OUTPUT_DIRECTORY ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/tutti)
target_include_directories(tutti_cuda SYSTEM PRIVATE ${cuda_home}/include)
# The runtime is linked in, and its symbols are nobody else's.
target_link_libraries(tutti_cuda PRIVATE ${cuda_home}/lib64/libcudart_static.a stdc++ Threads::Threads
                      ${CMAKE_DL_LIBS} rt)
target_link_options(tutti_cuda PRIVATE LINKER:--exclude-libs,ALL)
install(FILES $<TARGET_FILE:tutti_cuda> DESTINATION ${CMAKE_INSTALL_LIBDIR}/tutti OPTIONAL)
