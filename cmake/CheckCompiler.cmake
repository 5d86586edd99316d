# Refuses compilers the engine is known not to build with, and says what to install instead.

set(swarmline_compiler "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}")
if(NOT ((CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 19)
        OR (CMAKE_CXX_COMPILER_ID STREQUAL "GNU"
            AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)))
  message(FATAL_ERROR
    "Swarmline needs Clang >= 19 or GCC >= 13, and this is ${swarmline_compiler} "
    "(${CMAKE_CXX_COMPILER}): run scripts/bootstrap (Debian 12: apt-get install clang-19 lld-19), "
    "remove this build folder and configure again.")
endif()

if(NOT CMAKE_SYSTEM_NAME STREQUAL "Linux")
  message(FATAL_ERROR "Swarmline runs on Linux; this is ${CMAKE_SYSTEM_NAME}.")
endif()
