#include "tests/contract/nccl_library_stand_in.h"

#include <cstring>

namespace {

ncclResult_t asked(std::string what) {
  nccl_library_stand_in.asked.push_back(std::move(what));
  return nccl_library_stand_in.answer;
}
std::string moved(const char* what, const void* memory, size_t count, ncclDataType_t type, int peer,
                  ncclComm_t communicator, cudaStream_t stream) {
  const auto number = [](const void* at) {
    return std::to_string(reinterpret_cast<std::uintptr_t>(at));
  };
  return what + (" " + std::to_string(count)) + " of type " + std::to_string(type) + " at " +
         number(memory) + ", rank " + std::to_string(peer) + " in " + number(communicator) +
         ", stream " + number(stream);
}

}  // namespace

extern "C" {

NcclLibraryStandIn nccl_library_stand_in;

ncclResult_t ncclGetVersion(int* version) {
  *version = 22809;
  return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::memset(id, 7, sizeof *id);
  return asked("id");
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* made, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  *made = reinterpret_cast<ncclComm_t>(std::uintptr_t{4096});
  return asked("init " + std::to_string(rank) + " of " + std::to_string(ranks) + ", id " +
               std::to_string(id.internal[127]) + ", blocking " + std::to_string(config->blocking));
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* state) {
  *state = nccl_library_stand_in.state;
  return asked("state");
}
ncclResult_t ncclGroupStart() {
  return asked("start");
}
ncclResult_t ncclGroupEnd() {
  return asked("end");
}
ncclResult_t ncclSend(const void* memory, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t communicator, cudaStream_t stream) {
  return asked(moved("send", memory, count, type, peer, communicator, stream));
}
ncclResult_t ncclRecv(void* memory, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t communicator, cudaStream_t stream) {
  return asked(moved("receive", memory, count, type, peer, communicator, stream));
}
ncclResult_t ncclCommFinalize(ncclComm_t) {
  return asked("finalize");
}
ncclResult_t ncclCommDestroy(ncclComm_t) {
  return asked("destroy");
}
ncclResult_t ncclCommAbort(ncclComm_t) {
  return asked("abort");
}
const char* ncclGetErrorString(ncclResult_t) {
  return "remote process exited";
}
const char* ncclGetLastError(ncclComm_t) {
  return nccl_library_stand_in.last_error;
}

}  // extern "C"
