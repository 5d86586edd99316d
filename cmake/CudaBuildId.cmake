# Writes the header with what a program and its libswarmline_cuda.so must agree in: the version, the compiler, the
# kind of build, and all headers that both may include.
#   cmake -DOUT=FILE -DSOURCE_DIR=... -DFOLDERS=a,b -DSETTINGS=... -P CudaBuildId.cmake
string(REPLACE "," ";" folders "${FOLDERS}")
set(text "${SETTINGS}")
foreach(folder IN LISTS folders)
  file(GLOB_RECURSE headers RELATIVE ${SOURCE_DIR} ${SOURCE_DIR}/${folder}/*.h ${SOURCE_DIR}/${folder}/*.cuh)
  list(SORT headers)
  foreach(header IN LISTS headers)
    file(SHA256 ${SOURCE_DIR}/${header} hash)
    string(APPEND text "\n${header} ${hash}")
  endforeach()
endforeach()
string(SHA256 id "${text}")
string(SUBSTRING ${id} 0 16 id)
file(CONFIGURE OUTPUT ${OUT} CONTENT [[// Written by cmake/CudaBuildId.cmake.
#pragma once

#define SWARMLINE_CUDA_BUILD_ID "@id@"

namespace swarmline {
inline constexpr const char* kCudaBuildId = SWARMLINE_CUDA_BUILD_ID;
}
]] @ONLY)
