# The shared libraries that the program loads, into lib/swarmline. swarmline_which: torch, what comes with libtorch;
# system, what the distribution brings and another one may lack. Every Linux has those of glibc and GCC.

set(every_linux_has
  "^(ld-linux-x86-64|libc|libm|libdl|librt|libpthread|libresolv|libutil|libgcc_s|libstdc\\+\\+)\\.so\\.")
file(GET_RUNTIME_DEPENDENCIES
  EXECUTABLES ${swarmline_program}
  RESOLVED_DEPENDENCIES_VAR resolved
  UNRESOLVED_DEPENDENCIES_VAR unresolved
  PRE_EXCLUDE_REGEXES ${every_linux_has})
if(unresolved)
  message(FATAL_ERROR "${swarmline_program} needs ${unresolved}, which this machine lacks: run scripts/bootstrap.")
endif()

set(folder $ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/${swarmline_libraries})
set(licences $ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/share/swarmline/licenses)
file(MAKE_DIRECTORY ${folder})

# Whoever loads one of these must find those that it needs beside it. libtorch's own look there already.
function(look_beside library)
  find_program(patchelf patchelf)
  if(NOT patchelf)
    message(FATAL_ERROR "system_libraries needs patchelf, which is not installed: apt-get install patchelf.")
  endif()
  execute_process(COMMAND ${patchelf} --set-rpath "$ORIGIN" ${library} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

# What Debian says about the licence of the package that `library` is from.
function(add_licence library)
  execute_process(COMMAND dpkg-query --search ${library}
    OUTPUT_VARIABLE owner RESULT_VARIABLE status ERROR_QUIET)
  string(REGEX MATCH "^[^:, ]+" package "${owner}")
  if(status EQUAL 0 AND EXISTS /usr/share/doc/${package}/copyright)
    file(COPY_FILE /usr/share/doc/${package}/copyright ${licences}/${package}.txt)
  endif()
endfunction()

file(MAKE_DIRECTORY ${licences})
foreach(library IN LISTS resolved)
  get_filename_component(real ${library} REALPATH)
  cmake_path(GET library FILENAME name)
  cmake_path(IS_PREFIX swarmline_torch_root ${real} is_torch)
  if(is_torch AND swarmline_which STREQUAL "torch")
    message(STATUS "Installing: ${folder}/${name}")
    file(COPY_FILE ${real} ${folder}/${name} ONLY_IF_DIFFERENT)
  elseif(NOT is_torch AND swarmline_which STREQUAL "system")
    message(STATUS "Installing: ${folder}/${name}")
    file(COPY_FILE ${real} ${folder}/${name})
    look_beside(${folder}/${name})
    add_licence(${real})
  endif()
endforeach()
if(swarmline_which STREQUAL "torch")
  file(GLOB torch_licences ${swarmline_torch_root}/*.dist-info)
  foreach(info IN LISTS torch_licences)
    if(EXISTS ${info}/licenses)
      cmake_path(GET info STEM LAST_ONLY package)
      file(COPY ${info}/licenses/ DESTINATION ${licences}/${package})
    endif()
  endforeach()
endif()
