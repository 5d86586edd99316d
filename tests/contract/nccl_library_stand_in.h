// NCCL without a GPU: what engine/fabric/cuda_nccl.cc finds in libnccl.so.2, as a library of that
// name (nccl_library_stand_in.cc). It moves nothing: it writes down what it was asked, and answers
// what it was told to.
//   Thread: one at a time.
#pragma once

#include <nccl.h>
#include <string>
#include <vector>

struct NcclLibraryStandIn {
  ncclResult_t answer = ncclSuccess;
  ncclResult_t state = ncclSuccess;  // of communicators
  const char* last_error = "";
  std::vector<std::string> asked = {};
};

extern "C" NcclLibraryStandIn nccl_library_stand_in;
