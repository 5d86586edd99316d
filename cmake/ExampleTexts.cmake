# Writes configs/*.toml as string literals: what cli/examples.cc builds into the program.
#   swarmline_example_texts(<header>)
function(swarmline_example_texts header)
  file(GLOB files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/configs/*.toml)
  list(SORT files)
  set(entries "")
  foreach(file IN LISTS files)
    cmake_path(GET file STEM name)
    file(READ ${file} text)
    string(APPEND entries "    {\"${name}\", R\"toml(${text})toml\"},\n")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  endforeach()
  file(CONFIGURE OUTPUT ${header} CONTENT [[// Written by cmake/ExampleTexts.cmake.
#pragma once

#include "cli/examples.h"

namespace swarmline {

inline constexpr Example kExampleTexts[] = {
@entries@};

}  // namespace swarmline
]] @ONLY)
endfunction()
