# The shells' completions, as the program itself prints them.

foreach(shell_file bash:bash-completion/completions/swarmline zsh:zsh/site-functions/_swarmline
    fish:fish/vendor_completions.d/swarmline.fish)
  string(REGEX MATCH "^([a-z]+):(.*)$" matched ${shell_file})
  set(shell ${CMAKE_MATCH_1})
  set(file $ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/share/${CMAKE_MATCH_2})
  cmake_path(GET file PARENT_PATH folder)
  file(MAKE_DIRECTORY ${folder})
  message(STATUS "Writing: ${file}")
  execute_process(COMMAND ${swarmline_program} completion ${shell} OUTPUT_FILE ${file}
    COMMAND_ERROR_IS_FATAL ANY)
endforeach()
