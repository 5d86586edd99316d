# cmake --install BUILD --prefix X: a tree that can be moved and needs no checkout. Included after all folders.
#
#   X/bin/swarmline             finds its libraries by $ORIGIN, its share folder by where it lies
#   X/lib/swarmline/            libswarmline_cuda.so where it was built; libtorch's CPU side (component libtorch)
#   X/share/swarmline/          README.md, LICENSE, docs/, configs/, and text/, what examples train on by default
#   X/share/{bash-completion,zsh,fish}/...
#
# Components: swarmline, share and libtorch are installed by default. By name only: system_libraries puts the
# distribution's libraries beside libtorch, for machines of other distributions; wheel is the program of a Python wheel
# (pyproject.toml), which finds libtorch in the PyTorch beside it.

if(NOT TARGET swarmline)
  return()
endif()

set(swarmline_install_libraries lib/swarmline)
set(rpath "$ORIGIN/../${swarmline_install_libraries}")
if(SWARMLINE_WITH_CUDA AND EXISTS ${torch_lib}/libtorch_cuda.so)
  list(APPEND rpath ${torch_lib})  # two gigabytes of CUDA libraries are not copied, but used where they are
endif()
set_target_properties(swarmline PROPERTIES INSTALL_RPATH "${rpath}")
install(TARGETS swarmline RUNTIME DESTINATION bin COMPONENT swarmline)

# site-packages/swarmline/bin/swarmline, site-packages/torch/lib. The same objects, linked a second time.
add_executable(swarmline_wheel EXCLUDE_FROM_ALL $<TARGET_OBJECTS:swarmline>)
target_link_libraries(swarmline_wheel PRIVATE swarmline_common swarmline::cli)
set_target_properties(swarmline_wheel PROPERTIES OUTPUT_NAME swarmline
  RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/wheel INSTALL_RPATH "$ORIGIN;$ORIGIN/../../torch/lib")
add_dependencies(swarmline_wheel swarmline)  # which prints the completions
if(SWARMLINE_WITH_CUDA)
  add_dependencies(swarmline_wheel swarmline_cuda)
endif()
install(TARGETS swarmline_wheel RUNTIME DESTINATION bin COMPONENT wheel EXCLUDE_FROM_ALL)
if(SWARMLINE_WITH_CUDA)  # OPTIONAL: a program that was built alone is installed alone
  install(TARGETS swarmline_cuda LIBRARY DESTINATION ${swarmline_install_libraries} COMPONENT swarmline OPTIONAL)
  install(TARGETS swarmline_cuda LIBRARY DESTINATION bin COMPONENT wheel EXCLUDE_FROM_ALL OPTIONAL)
endif()

install(FILES README.md LICENSE CHANGELOG.md ARCHITECTURE.md DESTINATION share/swarmline COMPONENT share)
install(DIRECTORY docs configs DESTINATION share/swarmline COMPONENT share)

# What the scripts below are told.
set(swarmline_install_settings "
  set(swarmline_source_dir \"${CMAKE_SOURCE_DIR}\")
  set(swarmline_folders \"${swarmline_folders}\")
  set(swarmline_program \"$<TARGET_FILE:swarmline>\")
  set(swarmline_libraries \"${swarmline_install_libraries}\")
  get_filename_component(swarmline_torch_root \"${swarmline_torch_dir}/..\" REALPATH)")
install(CODE "${swarmline_install_settings}" COMPONENT share)
install(SCRIPT cmake/InstallText.cmake COMPONENT share)
install(SCRIPT cmake/InstallCompletions.cmake COMPONENT share)

install(CODE "${swarmline_install_settings}\nset(swarmline_which torch)" COMPONENT libtorch)
install(SCRIPT cmake/InstallLibraries.cmake COMPONENT libtorch)
install(CODE "${swarmline_install_settings}\nset(swarmline_which system)"
  COMPONENT system_libraries EXCLUDE_FROM_ALL)
install(SCRIPT cmake/InstallLibraries.cmake COMPONENT system_libraries EXCLUDE_FROM_ALL)
