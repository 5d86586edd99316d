# Decides whether CUDA parts are built. SWARMLINE_CUDA: AUTO builds them where there is a GPU and
# nvcc, ON insists, OFF never. Result: SWARMLINE_WITH_CUDA; SWARMLINE_NVCC names nvcc where it is
# found, even when CUDA parts are not built (the sources are then still compiled as a check).

set(SWARMLINE_CUDA AUTO CACHE STRING "Build CUDA parts: AUTO (with a GPU), ON, OFF")
set_property(CACHE SWARMLINE_CUDA PROPERTY STRINGS AUTO ON OFF)
set(SWARMLINE_CUDA_ARCHITECTURES "75;80;90" CACHE STRING "CUDA architectures, as sm numbers")

find_program(SWARMLINE_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH /usr/local/cuda PATH_SUFFIXES bin)

set(SWARMLINE_WITH_CUDA OFF)
if(SWARMLINE_CUDA STREQUAL "AUTO")
  find_program(swarmline_nvidia_smi nvidia-smi)
  if(SWARMLINE_NVCC AND swarmline_nvidia_smi)
    execute_process(COMMAND ${swarmline_nvidia_smi} -L RESULT_VARIABLE gpu_status
      OUTPUT_VARIABLE gpu_list ERROR_QUIET)
    if(gpu_status EQUAL 0 AND gpu_list MATCHES "GPU 0")
      set(SWARMLINE_WITH_CUDA ON)
    endif()
  endif()
elseif(SWARMLINE_CUDA)
  if(NOT SWARMLINE_NVCC)
    message(FATAL_ERROR "SWARMLINE_CUDA=ON needs nvcc >= 12.4, and none is on PATH or under "
      "/usr/local/cuda: install the CUDA tool kit or set CUDA_HOME.")
  endif()
  set(SWARMLINE_WITH_CUDA ON)
endif()

if(SWARMLINE_WITH_CUDA)
  set(CMAKE_CUDA_COMPILER ${SWARMLINE_NVCC})
  set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
  set(CMAKE_CUDA_ARCHITECTURES ${SWARMLINE_CUDA_ARCHITECTURES})
  enable_language(CUDA)
  set(CMAKE_CUDA_FLAGS_RELWITHDEBINFO "-O2 -lineinfo")
  find_package(CUDAToolkit REQUIRED)
  # CMake 3.25.1 does not know that nvcc has C++20.
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  set(CMAKE_CUDA_EXTENSIONS OFF)
  # Same bits as the CPU twins: no fused multiply-add, IEEE division and square root, denormals kept.
  add_compile_options($<$<COMPILE_LANGUAGE:CUDA>:--fmad=false>)
endif()
message(STATUS "CUDA parts: ${SWARMLINE_WITH_CUDA} (SWARMLINE_CUDA=${SWARMLINE_CUDA}, nvcc: ${SWARMLINE_NVCC})")
