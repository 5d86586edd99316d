// What this folder uses of libtorch: tensors and their operations, autograd, and which CUDA devices
// there are. All of <torch/torch.h> takes twice as long to compile.
#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/autograd.h>
#include <torch/cuda.h>
