# swarmline::torch: libtorch's c10 and torch_cpu. Their CUDA sides are opened at run time (engine/model/find_device.cc).
#
# Not find_package(Torch): that insists on a CUDA tool kit for a CUDA build of libtorch, and puts
# libtorch's own fmt and protobuf headers before everybody's. Here they come last (-idirafter).
# SWARMLINE_TORCH names another libtorch or a Python torch package folder (>= 2.4).

if(NOT SWARMLINE_MODEL)
  return()
endif()

set(SWARMLINE_TORCH "" CACHE PATH
  "libtorch folder with include/ and lib/; empty: the environment's, or the pinned one under .deps")
set(swarmline_torch_version_min 2.4)
set(swarmline_torch_dir ${SWARMLINE_TORCH})
if(NOT swarmline_torch_dir)
  set(swarmline_torch_dir "$ENV{SWARMLINE_TORCH}")
endif()
if(NOT swarmline_torch_dir)
  set(swarmline_torch_dir ${CMAKE_SOURCE_DIR}/.deps/torch-2.11.0/torch)
endif()

if(NOT EXISTS ${swarmline_torch_dir}/lib/libtorch_cpu.so)
  message(FATAL_ERROR "No libtorch in ${swarmline_torch_dir}: run scripts/bootstrap, or set "
    "SWARMLINE_TORCH to a folder with include/ and lib/libtorch_cpu.so, or configure with "
    "-DSWARMLINE_MODEL=OFF to build what needs none.")
endif()

# The macros moved to torch/headeronly in 2.9.
set(swarmline_torch_version "")
foreach(header torch/headeronly/version.h torch/csrc/api/include/torch/version.h)
  if(NOT swarmline_torch_version AND EXISTS ${swarmline_torch_dir}/include/${header})
    file(STRINGS ${swarmline_torch_dir}/include/${header} lines REGEX "define TORCH_VERSION_M[A-Z]+ [0-9]+")
    if(lines MATCHES "MAJOR ([0-9]+)")
      set(swarmline_torch_version ${CMAKE_MATCH_1})
      if(lines MATCHES "MINOR ([0-9]+)")
        string(APPEND swarmline_torch_version ".${CMAKE_MATCH_1}")
      endif()
    endif()
  endif()
endforeach()
if(NOT swarmline_torch_version VERSION_GREATER_EQUAL swarmline_torch_version_min)
  message(FATAL_ERROR "The libtorch in ${swarmline_torch_dir} is version "
    "\"${swarmline_torch_version}\"; Swarmline needs >= ${swarmline_torch_version_min}: unset "
    "SWARMLINE_TORCH to use the pinned one (scripts/bootstrap fetches it), or name a newer one.")
endif()
message(STATUS "libtorch ${swarmline_torch_version} in ${swarmline_torch_dir}")

set(torch_lib ${swarmline_torch_dir}/lib)
set(torch_libraries ${torch_lib}/libtorch_cpu.so ${torch_lib}/libc10.so)
set(torch_definitions _GLIBCXX_USE_CXX11_ABI=1)
add_library(swarmline_external_torch INTERFACE)
add_library(swarmline::torch ALIAS swarmline_external_torch)
target_compile_options(swarmline_external_torch INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:SHELL:-idirafter ${swarmline_torch_dir}/include>"
  "$<$<COMPILE_LANGUAGE:CXX>:SHELL:-idirafter ${swarmline_torch_dir}/include/torch/csrc/api/include>")
target_compile_definitions(swarmline_external_torch INTERFACE ${torch_definitions})
# libtorch_cpu names CUDA libraries whose symbols a CPU program never calls.
target_link_libraries(swarmline_external_torch INTERFACE
  -Wl,--no-as-needed ${torch_libraries} -Wl,--as-needed -Wl,--allow-shlib-undefined Threads::Threads)
# swarmline_torch_pch(<target>): compiles the target with the one precompiled header of libtorch.h
# that all its users share (10 s a file without it). The target must use the default flags.
add_library(swarmline_torch_pch OBJECT ${CMAKE_SOURCE_DIR}/cmake/empty.cc)
set_target_properties(swarmline_torch_pch PROPERTIES EXCLUDE_FROM_ALL ON)
target_link_libraries(swarmline_torch_pch PRIVATE swarmline_warnings swarmline_common swarmline::torch)
target_precompile_headers(swarmline_torch_pch PRIVATE ${CMAKE_SOURCE_DIR}/engine/model/libtorch.h)
function(swarmline_torch_pch target)
  if(TARGET ${target})  # an unfinished folder's target may have been left out
    target_precompile_headers(${target} REUSE_FROM swarmline_torch_pch)
  endif()
endfunction()
