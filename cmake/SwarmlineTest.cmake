# Tests, benchmarks and fuzzers. One ctest entry a binary: a process that loads libtorch takes a second
# to start, and a binary that was not built fails alone.

set(SWARMLINE_TEST_TIMEOUT_S 120)
if(SWARMLINE_SANITIZE)
  set(SWARMLINE_TEST_TIMEOUT_S 300)  # several times as slow, on a loaded machine too
endif()
set(SWARMLINE_BUILD_TEST_TIMEOUT_S 600)
# PROCESSORS counts half cores: make test runs twice as many at a time as there are cores. A test computes on a whole
# one, unless it WAITS most of its time, as swarms of emulated devices do; those take longest and begin first.
set(SWARMLINE_COMPUTES PROCESSORS 2)
set(SWARMLINE_WAITS PROCESSORS 1 COST 100)

# swarmline_build_test(<target> <label>): a ctest entry that builds a target which is not part of "all". Such
# entries take turns: two Ninjas must not work in one build folder.
function(swarmline_build_test target label)
  add_test(NAME ${target} COMMAND ${CMAKE_COMMAND} --build ${CMAKE_BINARY_DIR} --target ${target})
  set_tests_properties(${target} PROPERTIES LABELS ${label} RESOURCE_LOCK build_folder
    TIMEOUT ${SWARMLINE_BUILD_TEST_TIMEOUT_S} ${SWARMLINE_COMPUTES})
endfunction()

# swarmline_test_name(<variable> <name>): the name of a ctest entry; a sanitizer build's end in .asan or
# .tsan, so that several builds can be run and read as one list.
function(swarmline_test_name variable name)
  if(SWARMLINE_SANITIZE STREQUAL "address")
    string(APPEND name .asan)
  elseif(SWARMLINE_SANITIZE STREQUAL "thread")
    string(APPEND name .tsan)
  endif()
  set(${variable} ${name} PARENT_SCOPE)
endfunction()

# swarmline_test(NAME <n> SOURCES ... DEPS base net [EXTERNAL torch] [LABELS fast] [TIMEOUT s] [WAITS]
#                [ARGS ...])
#                [ALWAYS] [COMPUTES]
# COMPUTES: what its own files compute takes longer than compiling them; others are not optimized.
# ALWAYS: also where SWARMLINE_TORCH_FREE_TESTS is off, for it runs a program that needs libtorch. A GoogleTest binary. SWARMLINE_SOURCE_DIR and SWARMLINE_BINARY_DIR are defined as strings: fixtures
# are found by the first, programs built here by the second.
if(SWARMLINE_RELOCATABLE)
  set(swarmline_test_source_dir .)
  set(swarmline_test_binary_dir bin)
else()
  set(swarmline_test_source_dir ${CMAKE_SOURCE_DIR})
  set(swarmline_test_binary_dir ${CMAKE_BINARY_DIR})
endif()
function(swarmline_test)
  cmake_parse_arguments(PARSE_ARGV 0 arg "WAITS;ALWAYS;COMPUTES" "NAME;TIMEOUT"
    "SOURCES;DEPS;EXTERNAL;LABELS;ARGS")
  swarmline_needs_torch(needs_torch DEPS ${arg_DEPS} EXTERNAL ${arg_EXTERNAL})
  if(NOT SWARMLINE_TORCH_FREE_TESTS AND NOT needs_torch AND NOT arg_ALWAYS)
    return()
  endif()
  if(NOT arg_LABELS)
    set(arg_LABELS fast)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT ${SWARMLINE_TEST_TIMEOUT_S})
  endif()
  if(SWARMLINE_SANITIZE AND arg_TIMEOUT LESS 900)
    set(arg_TIMEOUT 900)  # only what hangs is to be ended
  endif()
  swarmline_complete(buildable ${arg_NAME} DEPS ${arg_DEPS} FILES ${arg_SOURCES})
  if(NOT buildable)
    return()
  endif()
  add_executable(${arg_NAME} ${arg_SOURCES})
  target_link_libraries(${arg_NAME} PRIVATE swarmline_warnings swarmline_common swarmline::gtest_main)
  target_compile_definitions(${arg_NAME} PRIVATE
    SWARMLINE_SOURCE_DIR="${swarmline_test_source_dir}"
    SWARMLINE_BINARY_DIR="${swarmline_test_binary_dir}")
  swarmline_link_deps(${arg_NAME} PRIVATE ${arg_DEPS})
  swarmline_link_external(${arg_NAME} PRIVATE ${arg_EXTERNAL})
  if(arg_COMPUTES)
    swarmline_pch(${arg_NAME} DEPS ${arg_DEPS})
  elseif(NOT "torch" IN_LIST arg_EXTERNAL)
    target_compile_options(${arg_NAME} PRIVATE ${SWARMLINE_TEST_CODE})
    swarmline_pch(${arg_NAME} TESTS DEPS ${arg_DEPS})
  endif()
  swarmline_test_name(test ${arg_NAME})
  add_test(NAME ${test} COMMAND ${arg_NAME} ${arg_ARGS})
  set(load ${SWARMLINE_COMPUTES})
  if(arg_WAITS)
    set(load ${SWARMLINE_WAITS})
  endif()
  set_tests_properties(${test} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT} ${load}
    ENVIRONMENT GTEST_BRIEF=1)  # what failed is all that anybody reads of a long list
endfunction()

# swarmline_slow_run(NAME <n> OF <test> ARGS ... TIMEOUT s): the program of a test again, with other arguments.
function(swarmline_slow_run)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME;OF;TIMEOUT" "ARGS")
  if(NOT TARGET ${arg_OF})
    return()
  endif()
  swarmline_test_name(test ${arg_NAME})
  add_test(NAME ${test} COMMAND ${arg_OF} ${arg_ARGS})
  set_tests_properties(${test} PROPERTIES LABELS slow TIMEOUT ${arg_TIMEOUT} ${SWARMLINE_COMPUTES})
endfunction()

# swarmline_benchmark(NAME <n> SOURCES ... DEPS ... [EXTERNAL ...] [ARGS ...])
# A Google Benchmark binary, and a ctest entry that runs every benchmark in it for a moment, with ARGS.
function(swarmline_benchmark)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME" "SOURCES;DEPS;EXTERNAL;ARGS")
  swarmline_complete(buildable ${arg_NAME} DEPS ${arg_DEPS} FILES ${arg_SOURCES})
  if(NOT buildable)
    return()
  endif()
  add_executable(${arg_NAME} ${arg_SOURCES})
  target_link_libraries(${arg_NAME} PRIVATE swarmline_warnings swarmline_common swarmline::benchmark)
  swarmline_link_deps(${arg_NAME} PRIVATE ${arg_DEPS})
  swarmline_link_external(${arg_NAME} PRIVATE ${arg_EXTERNAL})
  if(NOT TARGET benchmarks)
    add_custom_target(benchmarks)  # all of them, for make bench
  endif()
  add_dependencies(benchmarks ${arg_NAME})
  swarmline_test_name(test ${arg_NAME}_smoke)
  add_test(NAME ${test} COMMAND ${arg_NAME} ${arg_ARGS} --benchmark_min_time=0.001)
  set_tests_properties(${test} PROPERTIES LABELS fast TIMEOUT ${SWARMLINE_TEST_TIMEOUT_S}
    ${SWARMLINE_COMPUTES})
endfunction()

# swarmline_fuzzer(NAME <n> SOURCES ... DEPS ... CORPUS <folder>)
# SOURCES define LLVMFuzzerTestOneInput. In the asan preset it is a libFuzzer binary that ctest runs for
# SWARMLINE_FUZZ_SECONDS, starting from CORPUS; elsewhere it replays CORPUS, so that what was once
# found stays fixed in every build.
function(swarmline_fuzzer)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "NAME;CORPUS" "SOURCES;DEPS;EXTERNAL")
  swarmline_needs_torch(needs_torch DEPS ${arg_DEPS} EXTERNAL ${arg_EXTERNAL})
  if(NOT SWARMLINE_TORCH_FREE_TESTS AND NOT needs_torch)
    return()
  endif()
  cmake_path(ABSOLUTE_PATH arg_CORPUS NORMALIZE)
  swarmline_complete(buildable ${arg_NAME} DEPS ${arg_DEPS} FILES ${arg_SOURCES})
  if(NOT buildable)
    return()
  endif()
  add_executable(${arg_NAME} ${arg_SOURCES})
  target_link_libraries(${arg_NAME} PRIVATE swarmline_warnings swarmline_common)
  swarmline_link_deps(${arg_NAME} PRIVATE ${arg_DEPS})
  swarmline_link_external(${arg_NAME} PRIVATE ${arg_EXTERNAL})
  swarmline_test_name(test ${arg_NAME})
  if(SWARMLINE_SANITIZE STREQUAL "address" AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    target_link_options(${arg_NAME} PRIVATE -fsanitize=fuzzer)
    set(grown ${CMAKE_CURRENT_BINARY_DIR}/${arg_NAME}_corpus)  # finds go here, not into the sources
    file(MAKE_DIRECTORY ${grown})
    add_test(NAME ${test} COMMAND ${arg_NAME} -max_total_time=${SWARMLINE_FUZZ_SECONDS}
      -seed=${SWARMLINE_FUZZ_SEED} -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 ${grown} ${arg_CORPUS})
  else()
    target_sources(${arg_NAME} PRIVATE ${CMAKE_SOURCE_DIR}/cmake/fuzz_replay_main.cc)
    add_test(NAME ${test} COMMAND ${arg_NAME} ${arg_CORPUS})
  endif()
  math(EXPR timeout "${SWARMLINE_FUZZ_SECONDS} + 60")
  set_tests_properties(${test} PROPERTIES LABELS "fast;fuzz" TIMEOUT ${timeout} ${SWARMLINE_COMPUTES})
endfunction()
