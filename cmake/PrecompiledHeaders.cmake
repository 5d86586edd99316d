# Precompiled headers that all libraries and tests share: two thirds of a file's compile time is reading the same
# headers again. There are four: the standard library and fmt, with the protocol's messages where a target can use
# them, each without and with GoogleTest.
#
# Files include what they use all the same: every header is checked alone, without these, and -DSWARMLINE_PCH=OFF
# builds without them.

option(SWARMLINE_PCH "Share precompiled headers" ON)
define_property(TARGET PROPERTY SWARMLINE_HAS_MESSAGES BRIEF_DOCS "Its headers may include the protocol's messages")

set(swarmline_pch_headers <algorithm> <array> <atomic> <chrono> <cstdint> <deque> <expected> <functional> <map> <memory>
  <optional> <set> <span> <string> <string_view> <utility> <vector> <fmt/format.h>)

# swarmline_pch(<target> [TESTS] [DEPS ...]): not for a target that uses torch, which has its own, or whose files have
# flags of their own. DEPS: libraries of this project that the target links.
function(swarmline_pch target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "TESTS" "" "DEPS")
  set(pch swarmline)
  foreach(dep IN LISTS arg_DEPS)
    get_target_property(has_messages swarmline_${dep} SWARMLINE_HAS_MESSAGES)
    if(dep STREQUAL "messages" OR has_messages)
      set(pch swarmline_messages)
      set_target_properties(${target} PROPERTIES SWARMLINE_HAS_MESSAGES ON)
    endif()
  endforeach()
  if(NOT SWARMLINE_PCH)
    return()
  endif()
  set(headers ${swarmline_pch_headers})
  set(libraries swarmline_warnings swarmline_common swarmline::fmt)
  if(pch STREQUAL "swarmline_messages")
    list(APPEND headers <pipeline/protocol/messages.pb.h>)
    list(APPEND libraries swarmline::messages)
  endif()
  if(arg_TESTS)
    string(APPEND pch _tests)
    list(APPEND headers <gtest/gtest.h>)
    list(APPEND libraries swarmline::gtest)
  endif()
  string(APPEND pch _pch)
  if(NOT TARGET ${pch})
    add_library(${pch} OBJECT ${CMAKE_SOURCE_DIR}/cmake/empty.cc)
    set_target_properties(${pch} PROPERTIES EXCLUDE_FROM_ALL ON)
    target_link_libraries(${pch} PRIVATE ${libraries})
    target_precompile_headers(${pch} PRIVATE ${headers})
    if(arg_TESTS)
      target_compile_options(${pch} PRIVATE ${SWARMLINE_TEST_CODE})
    endif()
  endif()
  target_precompile_headers(${target} REUSE_FROM ${pch})
endfunction()
