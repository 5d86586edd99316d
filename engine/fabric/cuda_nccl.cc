// NCCL, opened at run time: libtorch's CUDA side has its own, which the loader finds once that is
// open, or by LD_LIBRARY_PATH.
#include <algorithm>
#include <cstring>
#include <dlfcn.h>
#include <nccl.h>
#include <string>

#include "engine/fabric/cuda_calls.h"

namespace swarmline::cuda {
namespace {

constexpr const char* kLibrary = "libnccl.so.2";
constexpr int kVersionMin = NCCL_VERSION(2, 14, 0);  // the first with non-blocking communicators
static_assert(sizeof(ncclUniqueId) == sizeof(NcclId));

// The functions of libnccl that this program calls, by their names there.
struct Nccl {
  decltype(&::ncclGetVersion) get_version;
  decltype(&::ncclGetUniqueId) get_unique_id;
  decltype(&::ncclCommInitRankConfig) comm_init;
  decltype(&::ncclCommGetAsyncError) comm_state;
  decltype(&::ncclGroupStart) group_start;
  decltype(&::ncclGroupEnd) group_end;
  decltype(&::ncclSend) send;
  decltype(&::ncclRecv) receive;
  decltype(&::ncclCommFinalize) finalize;
  decltype(&::ncclCommDestroy) destroy;
  decltype(&::ncclCommAbort) abort;
  decltype(&::ncclGetErrorString) error_string;
  decltype(&::ncclGetLastError) last_error;

  static Result<const Nccl*> open();
};

template <typename Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

bool find_all(void* library, Nccl& nccl) {
  return find(library, "ncclGetVersion", nccl.get_version) &&
         find(library, "ncclGetUniqueId", nccl.get_unique_id) &&
         find(library, "ncclCommInitRankConfig", nccl.comm_init) &&
         find(library, "ncclCommGetAsyncError", nccl.comm_state) &&
         find(library, "ncclGroupStart", nccl.group_start) &&
         find(library, "ncclGroupEnd", nccl.group_end) && find(library, "ncclSend", nccl.send) &&
         find(library, "ncclRecv", nccl.receive) &&
         find(library, "ncclCommFinalize", nccl.finalize) &&
         find(library, "ncclCommDestroy", nccl.destroy) &&
         find(library, "ncclCommAbort", nccl.abort) &&
         find(library, "ncclGetErrorString", nccl.error_string) &&
         find(library, "ncclGetLastError", nccl.last_error);
}

Result<const Nccl*> Nccl::open() {
  static const Result<Nccl> opened = []() -> Result<Nccl> {
    void* const library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr)
      return fail(ErrorCode::kDevice,
                  std::string("this machine lacks NCCL (") + ::dlerror() +
                      "); install PyTorch 2.11 with its CUDA side, or set LD_LIBRARY_PATH to the "
                      "folder of " +
                      kLibrary);
    Nccl nccl{};
    int version = 0;
    const bool is_whole = find_all(library, nccl) && nccl.get_version(&version) == ncclSuccess;
    if (!is_whole || version < kVersionMin)
      return fail(ErrorCode::kDevice, std::string(kLibrary) + " is version " +
                                          std::to_string(version) + ", at least " +
                                          std::to_string(kVersionMin) + " is needed");
    return nccl;
  }();
  if (!opened) return std::unexpected(opened.error());
  return &*opened;
}

class CudaNccl final : public NcclApi {
 public:
  CudaNccl(int device, const Nccl& nccl) : device_(device), nccl_(nccl) {
    nccl_.get_version(&version_);
  }

  int version() const override { return version_; }
  Result<void> choose_device() override { return use_device(device_); }
  Result<std::unique_ptr<DeviceStream>> make_stream() override { return make_fabric_stream(); }

  Result<NcclId> make_id() override {
    ncclUniqueId made;
    SWARMLINE_TRY(done(nccl_.get_unique_id(&made), "making an id", nullptr));
    NcclId id;
    std::memcpy(id.data(), &made, sizeof made);
    return id;
  }

  Result<NcclState> init(NcclCommunicator& made, const NcclId& id, std::uint32_t rank,
                         std::uint32_t ranks) override {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclUniqueId unique;
    std::memcpy(&unique, id.data(), sizeof unique);
    ncclComm_t communicator = nullptr;
    const ncclResult_t status = nccl_.comm_init(&communicator, static_cast<int>(ranks), unique,
                                                static_cast<int>(rank), &config);
    made = communicator;
    return state_of(status, "making a communicator", communicator);
  }

  Result<NcclState> state(NcclCommunicator of) override {
    ncclResult_t status = ncclSuccess;
    SWARMLINE_TRY(done(nccl_.comm_state(in(of), &status), "asking a communicator", in(of)));
    return state_of(status, "in a communicator", in(of));
  }

  Result<void> group_start() override { return done(nccl_.group_start(), "a group", nullptr); }
  Result<void> send(NcclCommunicator of, DeviceStream& stream, std::uint32_t to,
                    DeviceAddress memory, std::uint64_t bytes) override {
    return done(nccl_.send(memory, bytes, ncclInt8, static_cast<int>(to), in(of),
                           static_cast<cudaStream_t>(stream.native())),
                "sending", in(of));
  }
  Result<void> receive(NcclCommunicator of, DeviceStream& stream, std::uint32_t from,
                       DeviceAddress memory, std::uint64_t bytes) override {
    return done(nccl_.receive(memory, bytes, ncclInt8, static_cast<int>(from), in(of),
                              static_cast<cudaStream_t>(stream.native())),
                "receiving", in(of));
  }
  Result<NcclState> group_end(NcclCommunicator of) override {
    return state_of(nccl_.group_end(), "an exchange", in(of));
  }
  Result<NcclState> finalize(NcclCommunicator of) override {
    return state_of(nccl_.finalize(in(of)), "closing a communicator", in(of));
  }
  Result<void> destroy(NcclCommunicator of) override {
    return done(nccl_.destroy(in(of)), "closing a communicator", nullptr);
  }
  Result<void> abort(NcclCommunicator of) override {
    return done(nccl_.abort(in(of)), "aborting a communicator", nullptr);
  }

 private:
  static ncclComm_t in(NcclCommunicator of) { return static_cast<ncclComm_t>(of); }

  // `communicator`: one that still is, or null.
  Result<NcclState> state_of(ncclResult_t status, const char* what, ncclComm_t communicator) {
    if (status == ncclSuccess) return NcclState::kDone;
    if (status == ncclInProgress) return NcclState::kUnderWay;
    std::string sentence = std::string("NCCL: ") + what + ": " + nccl_.error_string(status);
    const char* const last = nccl_.last_error(communicator);
    if (last != nullptr && *last != '\0') sentence += std::string(" (") + last + ")";
    while (sentence.ends_with('\n')) sentence.pop_back();
    std::ranges::replace(sentence, '\n', ' ');
    return fail(ErrorCode::kDevice, std::move(sentence));
  }
  // What goes on by itself is seen in the communicator's state later.
  Result<void> done(ncclResult_t status, const char* what, ncclComm_t communicator) {
    const auto state = state_of(status, what, communicator);
    return state ? Result<void>() : std::unexpected(state.error());
  }

  const int device_;
  const Nccl& nccl_;
  int version_ = 0;
};

}  // namespace

Result<std::unique_ptr<NcclApi>> make_nccl(int device) {
  const auto nccl = Nccl::open();
  if (!nccl) return std::unexpected(nccl.error());
  return std::make_unique<CudaNccl>(device, **nccl);
}

}  // namespace swarmline::cuda
