# swarmline_library(): a static library, with three checks that hold the architecture up. Its layer is
# that of its folder (layers.txt).
#
#   swarmline_library(NAME net
#     SOURCES tcp.cc HEADERS network.h      # HEADERS: what other folders may include
#     DEPS base runtime                     # libraries of this project, of lower layers or this one
#     EXTERNAL boost xxhash                 # third parties: swarmline::<name> of Dependencies.cmake
#     CUDA_SOURCES reduce.cu                # what goes into libswarmline_cuda.so; .cu files are C++20
#     SELDOM_RUN                            # nobody waits for its code: optimized little, and so built sooner
#     OWN_FLAGS)                            # its files are compiled with flags of their own
#
# Targets: swarmline_<name>, alias swarmline::<name>. Includes are written from the repository's root.
# EXTERNAL is handed on to users, except torch, whose headers stay inside: a test that needs them
# says EXTERNAL torch itself.
#
# Checks: (a) configure refuses a DEP of a higher layer; (b) <name>_link_test, target
# layer_checks; (c) every header compiled alone, target header_checks.

include(Layers)
define_property(TARGET PROPERTY SWARMLINE_LAYER BRIEF_DOCS "Layer of a library of this project")
define_property(TARGET PROPERTY SWARMLINE_NEEDS_TORCH BRIEF_DOCS "It links libtorch, itself or by what it depends on")
set_property(DIRECTORY ${CMAKE_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${SWARMLINE_LAYERS_FILE})
add_custom_target(layer_checks)
add_custom_target(header_checks)

# What every target of this project compiles with.
add_library(swarmline_common INTERFACE)
target_include_directories(swarmline_common INTERFACE ${CMAKE_SOURCE_DIR})

# Links third parties; torch stays private.
function(swarmline_link_external target scope)
  foreach(name IN LISTS ARGN)
    if(NOT TARGET swarmline::${name})
      message(FATAL_ERROR "${target}: EXTERNAL ${name} is not a target swarmline::${name}; "
        "cmake/Dependencies.cmake and cmake/Torch.cmake list them.")
    endif()
    if(name STREQUAL "torch")
      target_link_libraries(${target} PRIVATE swarmline::torch)
    else()
      target_link_libraries(${target} ${scope} swarmline::${name})
    endif()
  endforeach()
endfunction()

# Links libraries of this project by name.
function(swarmline_link_deps target scope)
  foreach(dep IN LISTS ARGN)
    target_link_libraries(${target} ${scope} swarmline::${dep})
  endforeach()
endfunction()

# swarmline_complete(<result> <target> DEPS ... FILES ...): whether all DEPS and FILES are there. A gap is
# an error where warnings are errors; elsewhere the target is left out with a warning, so that one
# unfinished folder stops nobody else.
function(swarmline_complete result target)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "DEPS;FILES")
  set(gaps)
  foreach(dep IN LISTS arg_DEPS)
    if(NOT TARGET swarmline::${dep})
      list(APPEND gaps "DEPS ${dep} (no library of this project, or one of a later folder)")
    endif()
  endforeach()
  foreach(file IN LISTS arg_FILES)
    cmake_path(ABSOLUTE_PATH file)
    get_source_file_property(is_generated ${file} GENERATED)
    if(NOT is_generated AND NOT EXISTS ${file})
      list(APPEND gaps "file ${file}")
    endif()
  endforeach()
  set(${result} ON PARENT_SCOPE)
  if(gaps)
    list(JOIN gaps ", " gaps)
    if(SWARMLINE_WERROR)
      message(FATAL_ERROR "${target}: missing ${gaps}.")
    endif()
    message(WARNING "${target} is left out: missing ${gaps}.")
    set(${result} OFF PARENT_SCOPE)
  endif()
endfunction()

# Whether something made of these links libtorch.
function(swarmline_needs_torch result)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "DEPS;EXTERNAL")
  set(needs OFF)
  if("torch" IN_LIST arg_EXTERNAL)
    set(needs ON)
  endif()
  foreach(dep IN LISTS arg_DEPS)
    if(TARGET swarmline_${dep})
      get_target_property(dep_needs swarmline_${dep} SWARMLINE_NEEDS_TORCH)
      if(dep_needs)
        set(needs ON)
      endif()
    endif()
  endforeach()
  set(${result} ${needs} PARENT_SCOPE)
endfunction()

function(swarmline_check_layer name layer)
  foreach(dep IN LISTS ARGN)
    if(TARGET swarmline_${dep})
      get_target_property(dep_layer swarmline_${dep} SWARMLINE_LAYER)
      swarmline_check_layers(${name} ${layer} ${dep} ${dep_layer})
    endif()
  endforeach()
endfunction()

function(swarmline_add_link_test name)
  set(test ${name}_link_test)
  add_executable(${test} EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/cmake/link_test_main.cc)
  target_link_libraries(${test} PRIVATE
    swarmline_common "$<LINK_LIBRARY:WHOLE_ARCHIVE,swarmline_${name}>" Threads::Threads)
  add_dependencies(layer_checks ${test})
endfunction()

function(swarmline_add_header_check name externals)
  set(sources)
  foreach(header IN LISTS ARGN)
    cmake_path(ABSOLUTE_PATH header NORMALIZE)
    cmake_path(RELATIVE_PATH header BASE_DIRECTORY ${CMAKE_SOURCE_DIR} OUTPUT_VARIABLE relative)
    string(MAKE_C_IDENTIFIER ${relative} stem)
    set(source ${CMAKE_BINARY_DIR}/header_checks/${stem}.cc)
    # Twice: a missing include guard is an error too.
    file(CONFIGURE OUTPUT ${source} CONTENT "#include \"${relative}\"\n#include \"${relative}\"\n" @ONLY)
    list(APPEND sources ${source})
  endforeach()
  if(sources)
    add_library(${name}_header_check OBJECT EXCLUDE_FROM_ALL ${sources})
    target_link_libraries(${name}_header_check PRIVATE
      swarmline_warnings swarmline_common swarmline_${name})
    swarmline_link_external(${name}_header_check PRIVATE ${externals})
    add_dependencies(header_checks ${name}_header_check)
  endif()
endfunction()

# swarmline_<name>_cuda, of a library's CUDA sources: a part of libswarmline_cuda.so. Tests and benchmarks of single
# kernels link it themselves.
function(swarmline_add_cuda_sources name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;DEPS")
  if(NOT SWARMLINE_WITH_CUDA OR NOT arg_SOURCES)
    return()
  endif()
  set(target swarmline_${name}_cuda)
  add_library(${target} STATIC ${arg_SOURCES})
  add_library(swarmline::${name}_cuda ALIAS ${target})
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_link_libraries(${target} PUBLIC swarmline_${name} CUDA::cudart PRIVATE $<BUILD_INTERFACE:swarmline_warnings>)
  foreach(dep IN LISTS arg_DEPS)
    if(TARGET swarmline_${dep}_cuda)
      target_link_libraries(${target} PUBLIC swarmline_${dep}_cuda)
    endif()
  endforeach()
  target_sources(swarmline_cuda PRIVATE $<TARGET_OBJECTS:${target}>)
  target_link_libraries(swarmline_cuda PRIVATE swarmline_${name} CUDA::cudart CUDA::cublasLt)
endfunction()

# Compiles the files of a target together, where that is wanted.
function(swarmline_unity target)
  set_target_properties(${target} PROPERTIES
    UNITY_BUILD ${SWARMLINE_UNITY} UNITY_BUILD_BATCH_SIZE ${SWARMLINE_UNITY_FILES})
endfunction()

function(swarmline_library)
  cmake_parse_arguments(PARSE_ARGV 0 arg "OWN_FLAGS;SELDOM_RUN" "NAME"
    "SOURCES;HEADERS;DEPS;EXTERNAL;CUDA_SOURCES")
  if(NOT arg_NAME OR arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "swarmline_library(NAME SOURCES HEADERS DEPS EXTERNAL CUDA_SOURCES): NAME "
      "\"${arg_NAME}\", not understood: \"${arg_UNPARSED_ARGUMENTS}\".")
  endif()
  swarmline_complete(buildable ${arg_NAME} DEPS ${arg_DEPS}
    FILES ${arg_SOURCES} ${arg_HEADERS} ${arg_CUDA_SOURCES})
  if(NOT buildable)
    return()
  endif()
  set(target swarmline_${arg_NAME})
  cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR BASE_DIRECTORY ${CMAKE_SOURCE_DIR} OUTPUT_VARIABLE folder)
  swarmline_layer_of(layer ${folder})
  swarmline_check_layer(${arg_NAME} ${layer} ${arg_DEPS})
  if(NOT arg_SOURCES)  # headers only: an archive needs one object
    set(arg_SOURCES ${CMAKE_BINARY_DIR}/header_checks/${arg_NAME}_empty.cc)
    file(CONFIGURE OUTPUT ${arg_SOURCES} CONTENT "// Headers only.\n" @ONLY)
  endif()
  add_library(${target} STATIC ${arg_SOURCES} ${arg_HEADERS})
  add_library(swarmline::${arg_NAME} ALIAS ${target})
  swarmline_needs_torch(needs_torch DEPS ${arg_DEPS} EXTERNAL ${arg_EXTERNAL})
  set_target_properties(${target} PROPERTIES SWARMLINE_LAYER ${layer} SWARMLINE_NEEDS_TORCH ${needs_torch})
  target_link_libraries(${target} PUBLIC swarmline_common PRIVATE $<BUILD_INTERFACE:swarmline_warnings>)
  swarmline_link_deps(${target} PUBLIC ${arg_DEPS})
  swarmline_link_external(${target} PUBLIC ${arg_EXTERNAL})
  swarmline_add_cuda_sources(${arg_NAME} SOURCES ${arg_CUDA_SOURCES} DEPS ${arg_DEPS})
  if(arg_SELDOM_RUN)
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
  if(NOT arg_OWN_FLAGS AND NOT "torch" IN_LIST arg_EXTERNAL)
    swarmline_pch(${target} DEPS ${arg_DEPS})
  endif()
  if(NOT arg_OWN_FLAGS)
    swarmline_unity(${target})
  endif()
  swarmline_add_link_test(${arg_NAME})
  swarmline_add_header_check(${arg_NAME} "${arg_EXTERNAL}" ${arg_HEADERS})
endfunction()
