# libswarmline_cuda.so, which the program opens when a device is asked for (kernels/cuda_library.h), and the build id that
# both must have. The library holds the CUDA_SOURCES of all libraries and what they use; it exports its entries alone.

# Lower layers first; includes of CUDA_SOURCES stay inside them.
set(swarmline_cuda_headers base kernels compression engine/config engine/fabric engine/model engine/optimizer)
set(swarmline_cuda_build_id ${CMAKE_BINARY_DIR}/generated/cuda/kernels/cuda_build_id.h)

# swarmline_knows_cuda_build(<target>): it may include "kernels/cuda_build_id.h".
function(swarmline_knows_cuda_build target)
  add_dependencies(${target} cuda_build_id)
  target_include_directories(${target} PRIVATE ${CMAKE_BINARY_DIR}/generated/cuda)
endfunction()

# swarmline_opens_cuda(<target>): a program that may be asked for a device. It finds the library in the build tree.
function(swarmline_opens_cuda target)
  set_property(TARGET ${target} APPEND PROPERTY BUILD_RPATH ${CMAKE_BINARY_DIR})
  if(SWARMLINE_WITH_CUDA AND SWARMLINE_HAS_GPU)
    add_dependencies(${target} swarmline_cuda)
  endif()
endfunction()

set(swarmline_cuda_listed)
foreach(folder IN LISTS swarmline_cuda_headers)
  file(GLOB_RECURSE headers ${CMAKE_SOURCE_DIR}/${folder}/*.h ${CMAKE_SOURCE_DIR}/${folder}/*.cuh)
  list(APPEND swarmline_cuda_listed ${headers})
endforeach()
list(JOIN swarmline_cuda_headers "," swarmline_cuda_folders)
add_custom_command(OUTPUT ${swarmline_cuda_build_id}
  COMMAND ${CMAKE_COMMAND} -DOUT=${swarmline_cuda_build_id} -DSOURCE_DIR=${CMAKE_SOURCE_DIR} -DFOLDERS=${swarmline_cuda_folders}
    "-DSETTINGS=${PROJECT_VERSION} ${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION} ${CMAKE_BUILD_TYPE}"
    -P ${CMAKE_SOURCE_DIR}/cmake/CudaBuildId.cmake
  DEPENDS ${swarmline_cuda_listed} ${CMAKE_SOURCE_DIR}/cmake/CudaBuildId.cmake VERBATIM)
add_custom_target(cuda_build_id DEPENDS ${swarmline_cuda_build_id})

if(SWARMLINE_WITH_CUDA)
  # Libraries with CUDA_SOURCES add themselves to it.
  add_library(swarmline_cuda MODULE ${CMAKE_SOURCE_DIR}/kernels/cuda/build_id.cc)
  swarmline_knows_cuda_build(swarmline_cuda)
  target_link_options(swarmline_cuda PRIVATE
    -Wl,--as-needed -Wl,-z,defs -Wl,--version-script=${CMAKE_SOURCE_DIR}/cmake/cuda_entries.map)
  set_target_properties(swarmline_cuda PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}
    LINK_DEPENDS ${CMAKE_SOURCE_DIR}/cmake/cuda_entries.map INSTALL_RPATH "$ORIGIN")
endif()
