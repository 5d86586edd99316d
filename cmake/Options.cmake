# Options of the build and the flags that every target of this project gets.

option(SWARMLINE_WERROR "Warnings are errors (CI)" OFF)
set(SWARMLINE_SANITIZE "" CACHE STRING "address (with UBSan and libFuzzer), thread, or empty")
set_property(CACHE SWARMLINE_SANITIZE PROPERTY STRINGS "" address thread)
if(NOT SWARMLINE_SANITIZE MATCHES "^(address|thread|)$")
  message(FATAL_ERROR "SWARMLINE_SANITIZE is \"${SWARMLINE_SANITIZE}\": use address, thread or nothing.")
endif()

# libtorch is not instrumented: sanitizers would report its allocations and miss its races.
set(swarmline_model_default ON)
if(SWARMLINE_SANITIZE)
  set(swarmline_model_default OFF)
endif()
option(SWARMLINE_MODEL "Build what needs libtorch" ${swarmline_model_default})

# Sanitizers build what needs no libtorch, and run its tests: once is enough.
option(SWARMLINE_TORCH_FREE_TESTS "Build the tests that need no libtorch, too" ON)

set(SWARMLINE_FUZZ_SECONDS 10 CACHE STRING "Seconds that ctest runs each fuzzer (asan preset)")
# The same inputs each time, so that a change is judged by what it changed. Other seeds look for more.
set(SWARMLINE_FUZZ_SEED 1 CACHE STRING "What ctest's fuzzers draw from; 0: the clock (asan preset)")

# Two thirds of the time to compile a file is reading what it includes. The ci preset compiles each file alone all the
# same, so that none leans on what its neighbour includes.
option(SWARMLINE_UNITY "Compile the files of a library together, SWARMLINE_UNITY_FILES at a time" OFF)
set(SWARMLINE_UNITY_FILES 40)

option(SWARMLINE_RELOCATABLE
  "Programs and tests that can be moved: libraries beside them, files from the folder they start in" OFF)

set(CMAKE_CXX_STANDARD 23)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_SCAN_FOR_MODULES OFF)
# Not CMAKE_POSITION_INDEPENDENT_CODE: it gives programs -fPIE and libraries -fPIC, and a precompiled
# header serves only one of the two.
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fPIC>)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()
# No NDEBUG: asserts of third-party headers stay on outside Release.
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1")
set(CMAKE_CXX_FLAGS_RELEASE "-O3 -DNDEBUG")
# Generating code is two thirds of a test's compile time, and a test's own code runs for moments.
set(SWARMLINE_TEST_CODE $<$<NOT:$<CONFIG:Release>>:-O0>)

find_program(SWARMLINE_CCACHE ccache)
if(SWARMLINE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Sloppiness is what precompiled headers need; base folder and no directory hash share results
  # between build folders of one checkout.
  set(CMAKE_CXX_COMPILER_LAUNCHER
    ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
    CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${SWARMLINE_CCACHE})
endif()

find_program(SWARMLINE_LLD NAMES ld.lld-19 ld.lld)
if(SWARMLINE_LLD)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    add_link_options(--ld-path=${SWARMLINE_LLD})
  else()
    add_link_options(-fuse-ld=lld)
  endif()
endif()

# "Same bits everywhere": the compiler must not fuse a*b+c.
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # ccache can only re-use a precompiled header without its time stamp.
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:SHELL:-Xclang -fno-pch-timestamp>")
endif()

if(SWARMLINE_SANITIZE STREQUAL "address")
  # AddressSanitizer sees what object-size and null look for, and no class here is cast down its
  # hierarchy unchecked (vptr): together they are two fifths of the time to compile.
  set(swarmline_sanitize_flags -fsanitize=address,undefined -fno-sanitize=object-size,null,vptr
    -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_compile_options(${swarmline_sanitize_flags})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    add_compile_options(-fsanitize=fuzzer-no-link)
  endif()
  add_link_options(-fsanitize=address,undefined)
elseif(SWARMLINE_SANITIZE STREQUAL "thread")
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer)
  add_link_options(-fsanitize=thread)
endif()

# Warnings for this project's targets only.
add_library(swarmline_warnings INTERFACE)
target_compile_options(swarmline_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wnon-virtual-dtor;-Woverloaded-virtual;-Wconversion;-Wno-sign-conversion;-Wno-missing-field-initializers>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  target_compile_options(swarmline_warnings INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Wimplicit-fallthrough;-Wno-missing-designated-field-initializers>)
endif()
if(SWARMLINE_WERROR)
  target_compile_options(swarmline_warnings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
