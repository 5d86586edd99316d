# cuda_compile_check: compiles every CUDA source to an object wherever nvcc is found, so that a machine
# without a GPU still notices a broken kernel. Included after all folders.

get_property(cuda_sources GLOBAL PROPERTY SWARMLINE_CUDA_SOURCES)
if(NOT cuda_sources OR SWARMLINE_SANITIZE)  # once is enough: nvcc sanitizes nothing
  return()
endif()

if(NOT SWARMLINE_NVCC)
  add_test(NAME cuda_compile_check
    COMMAND ${CMAKE_COMMAND} -E echo "skipped: nvcc is neither on PATH nor under /usr/local/cuda")
  set_tests_properties(cuda_compile_check PROPERTIES LABELS fast SKIP_REGULAR_EXPRESSION "skipped:")
  return()
endif()

# The oldest and the newest: between them the sources ask for nothing but __CUDA_ARCH__ >= 800, and each architecture
# costs as much as the first.
list(GET SWARMLINE_CUDA_ARCHITECTURES 0 oldest)
list(GET SWARMLINE_CUDA_ARCHITECTURES -1 newest)
set(checked ${oldest} ${newest})
list(REMOVE_DUPLICATES checked)
set(gencode)
foreach(architecture IN LISTS checked)
  list(APPEND gencode -gencode=arch=compute_${architecture},code=sm_${architecture})
endforeach()
set(werror)
if(SWARMLINE_WERROR)
  set(werror -Werror=all-warnings)
endif()

set(objects)
foreach(source IN LISTS cuda_sources)
  cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${CMAKE_SOURCE_DIR} OUTPUT_VARIABLE relative)
  string(MAKE_C_IDENTIFIER ${relative} stem)
  set(object ${CMAKE_BINARY_DIR}/cuda_compile_check/${stem}.o)
  add_custom_command(
    OUTPUT ${object}
    COMMAND ${CMAKE_CXX_COMPILER_LAUNCHER} ${SWARMLINE_NVCC} -std=c++20 -O2 --fmad=false ${werror}
      -ccbin ${CMAKE_CXX_COMPILER} ${gencode} -DSWARMLINE_WITH_CUDA=1 -I${CMAKE_SOURCE_DIR}
      -MD -MF ${object}.d -c ${source} -o ${object}
    DEPENDS ${source}
    DEPFILE ${object}.d
    COMMENT "Checking CUDA source ${relative}"
    VERBATIM)
  list(APPEND objects ${object})
endforeach()
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/cuda_compile_check)
add_custom_target(cuda_compile_check DEPENDS ${objects})
swarmline_build_test(cuda_compile_check fast)
