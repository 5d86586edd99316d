# Takes Clang 19 when nobody named a compiler (-DCMAKE_CXX_COMPILER, CXX or a toolchain file).
# scikit-build-core (pyproject.toml) sets CXX to what Python was built with. Included before project().

if(NOT CMAKE_CXX_COMPILER AND (SKBUILD OR NOT DEFINED ENV{CXX}) AND NOT CMAKE_TOOLCHAIN_FILE)
  find_program(SWARMLINE_CLANGXX NAMES clang++-19 clang++-20 clang++-21 clang++)
  find_program(SWARMLINE_CLANG NAMES clang-19 clang-20 clang-21 clang)
  if(SWARMLINE_CLANGXX AND SWARMLINE_CLANG)
    set(CMAKE_CXX_COMPILER ${SWARMLINE_CLANGXX})
    set(CMAKE_C_COMPILER ${SWARMLINE_CLANG})
  endif()
endif()
