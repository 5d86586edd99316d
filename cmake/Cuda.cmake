# Decides whether the CUDA side (libswarmline_cuda.so) is built. SWARMLINE_CUDA: AUTO builds it where nvcc and its
# libraries are, with or without a GPU; ON insists, OFF never. Result: SWARMLINE_WITH_CUDA.

set(SWARMLINE_CUDA AUTO CACHE STRING "Build the CUDA side: AUTO (with nvcc), ON, OFF")
set_property(CACHE SWARMLINE_CUDA PROPERTY STRINGS AUTO ON OFF)
# Machine code for Turing, Ampere and Ada, Hopper; what comes after them compiles the newest one's PTX when it starts.
set(SWARMLINE_CUDA_ARCHITECTURES "75-real;80-real;90" CACHE STRING "CUDA architectures, as CMAKE_CUDA_ARCHITECTURES has them")

set(SWARMLINE_WITH_CUDA OFF)
# Nothing opens it where there is no model; and nvcc sanitizes nothing.
if(SWARMLINE_CUDA AND SWARMLINE_MODEL)
  find_program(SWARMLINE_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH /usr/local/cuda PATH_SUFFIXES bin)
  if(SWARMLINE_NVCC)
    set(CMAKE_CUDA_COMPILER ${SWARMLINE_NVCC})
    find_package(CUDAToolkit 12.4 QUIET)
  endif()
  if(SWARMLINE_NVCC AND TARGET CUDA::cudart AND TARGET CUDA::cublasLt)
    set(SWARMLINE_WITH_CUDA ON)
  elseif(NOT SWARMLINE_CUDA STREQUAL "AUTO")
    message(FATAL_ERROR "SWARMLINE_CUDA=${SWARMLINE_CUDA} needs nvcc >= 12.4 with libcudart and libcublasLt, and not all "
      "of it is on PATH or under /usr/local/cuda: install the CUDA tool kit or set CUDA_HOME.")
  endif()
endif()

if(SWARMLINE_WITH_CUDA)
  set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
  set(CMAKE_CUDA_ARCHITECTURES ${SWARMLINE_CUDA_ARCHITECTURES})
  # libtorch brings the shared one: a second runtime would have errors of its own.
  set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
  enable_language(CUDA)
  # Line tables for compute-sanitizer and profilers; they change no code.
  set(CMAKE_CUDA_FLAGS_RELWITHDEBINFO "-O2 -lineinfo")
  set(CMAKE_CUDA_FLAGS_RELEASE "-O3 -DNDEBUG -lineinfo")
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
  # CMake 3.25.1 does not know that nvcc has C++20.
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  set(CMAKE_CUDA_EXTENSIONS OFF)
  # Same bits as the CPU twins: no fused multiply-add, IEEE division and square root, denormals kept.
  add_compile_options($<$<COMPILE_LANGUAGE:CUDA>:--fmad=false>)
  if(SWARMLINE_WERROR)
    add_compile_options($<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>)
  endif()
endif()

# A program that is built alone brings the CUDA side along only where there is a GPU: nvcc takes minutes.
set(SWARMLINE_HAS_GPU OFF)
find_program(swarmline_nvidia_smi nvidia-smi)
if(swarmline_nvidia_smi)
  execute_process(COMMAND ${swarmline_nvidia_smi} -L RESULT_VARIABLE gpu_status
    OUTPUT_VARIABLE gpu_list ERROR_QUIET)
  if(gpu_status EQUAL 0 AND gpu_list MATCHES "GPU 0")
    set(SWARMLINE_HAS_GPU ON)
  endif()
endif()
message(STATUS "CUDA side: ${SWARMLINE_WITH_CUDA} (SWARMLINE_CUDA=${SWARMLINE_CUDA}, nvcc: ${SWARMLINE_NVCC})")
