# What `swarmline version` says that it was built from. Run at every build, as a script: the commit changes without
# CMake being asked. Written only where something has changed.
#   cmake -DSOURCE_DIR=... -DOUT=FILE -DCOMPILER=... -DBUILD_TYPE=... -DTORCH=... -DCUDA=... -P BuildInfo.cmake
set(commit "")
set(date "")
find_program(git git)
if(git)
  execute_process(COMMAND ${git} -C ${SOURCE_DIR} describe --always --dirty --abbrev=12 --exclude=*
    OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  execute_process(COMMAND ${git} -C ${SOURCE_DIR} log -1 --format=%cs
    OUTPUT_VARIABLE date OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
file(CONFIGURE OUTPUT ${OUT} CONTENT [[// Written by cmake/BuildInfo.cmake.
#pragma once

namespace swarmline::built_from {

inline constexpr const char* kCommit = "@commit@";  // empty: the sources are no git checkout
inline constexpr const char* kDate = "@date@";
inline constexpr const char* kCompiler = "@COMPILER@";
inline constexpr const char* kBuildType = "@BUILD_TYPE@";
inline constexpr const char* kLibtorch = "@TORCH@";
inline constexpr const char* kCuda = "@CUDA@";

}  // namespace swarmline::built_from
]] @ONLY)
