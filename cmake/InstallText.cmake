# share/swarmline/text/swarmline.txt: the engine's own sources and pages, one after another. Examples train on it
# where a machine lacks the text that they name. The same bytes wherever the same version is installed.

set(text ${swarmline_source_dir}/README.md ${swarmline_source_dir}/ARCHITECTURE.md ${swarmline_source_dir}/CONTRIBUTING.md)
file(GLOB_RECURSE pages ${swarmline_source_dir}/docs/*.md)
list(APPEND text ${pages})
foreach(folder IN LISTS swarmline_folders)
  if(NOT folder MATCHES "^(tests|bench)$")
    file(GLOB_RECURSE sources ${swarmline_source_dir}/${folder}/*.h ${swarmline_source_dir}/${folder}/*.cc
      ${swarmline_source_dir}/${folder}/*.cu ${swarmline_source_dir}/${folder}/*.cuh)
    list(APPEND text ${sources})
  endif()
endforeach()
list(REMOVE_DUPLICATES text)
list(SORT text)

set(folder $ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/share/swarmline/text)
file(MAKE_DIRECTORY ${folder})
message(STATUS "Writing: ${folder}/swarmline.txt")
execute_process(COMMAND ${CMAKE_COMMAND} -E cat ${text} OUTPUT_FILE ${folder}/swarmline.txt
  COMMAND_ERROR_IS_FATAL ANY)
