# Reads cmake/layers.txt: which layer a folder is in, and whether a library may depend on another.
# Also runs in script mode (tests/tidy/lint_test.py).

if(NOT SWARMLINE_LAYERS_FILE)
  set(SWARMLINE_LAYERS_FILE ${CMAKE_CURRENT_LIST_DIR}/layers.txt)
endif()

# Global properties: SWARMLINE_LAYERS, the names from the lowest on; SWARMLINE_LAYER_OF_<folder>, one name.
function(swarmline_read_layers)
  file(STRINGS ${SWARMLINE_LAYERS_FILE} lines)
  set(layers)
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "#.*" "" line "${line}")
    string(STRIP "${line}" line)
    if(line MATCHES "^layer +([a-z_]+)$")
      list(APPEND layers ${CMAKE_MATCH_1})
    elseif(line MATCHES "^([a-z0-9_/]+)( +parts)?$" AND layers)
      set(folder ${CMAKE_MATCH_1})
      list(GET layers -1 layer)
      set_property(GLOBAL PROPERTY SWARMLINE_LAYER_OF_${folder} ${layer})
    elseif(line)
      message(FATAL_ERROR "${SWARMLINE_LAYERS_FILE}: \"${line}\": expected \"layer NAME\" or a folder below one.")
    endif()
  endforeach()
  set_property(GLOBAL PROPERTY SWARMLINE_LAYERS ${layers})
endfunction()

# swarmline_layer_of(<variable> <folder>): the layer of a folder, named from the repository's root. An
# error when neither it nor a folder around it is in the table.
function(swarmline_layer_of variable folder)
  set(at ${folder})
  while(at)
    get_property(layer GLOBAL PROPERTY SWARMLINE_LAYER_OF_${at})
    if(layer)
      set(${variable} ${layer} PARENT_SCOPE)
      return()
    endif()
    cmake_path(GET at PARENT_PATH at)
  endwhile()
  message(FATAL_ERROR "Layering: ${folder} is in no layer; add a row to cmake/layers.txt.")
endfunction()

# swarmline_check_layers(<name> <layer> <dep> <layer of dep>): an error when the dependency goes up.
# Inside one layer it may go to any library that is there already, so that none is its own.
function(swarmline_check_layers name layer dep dep_layer)
  get_property(layers GLOBAL PROPERTY SWARMLINE_LAYERS)
  list(FIND layers ${layer} own)
  list(FIND layers ${dep_layer} other)
  if(other GREATER own)
    message(FATAL_ERROR "Layering: ${name} (${layer}) depends on ${dep} (${dep_layer}); a library may "
      "depend on lower layers and on its own.")
  endif()
endfunction()

swarmline_read_layers()
