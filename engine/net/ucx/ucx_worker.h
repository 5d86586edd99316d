// UCX on our loop: one context and one worker, driven by the control thread when the worker's
// descriptor wakes it. For the files of this folder.
//   Ownership: links hold it; the runtime outlives it.
//   Thread:    control thread.
//   Errors:    of make(): kIo with a sentence, e.g. because no such hardware is there.
//   Bounds:    kUcxProgressMax calls of UCX in one callback.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include <boost/asio/posix/stream_descriptor.hpp>

#include "base/bytes.h"
#include "engine/net/ucx/ucx_library.h"
#include "engine/runtime/asio_runtime.h"

namespace swarmline {

inline constexpr unsigned kUcxProgressMax = 256;
inline constexpr std::size_t kUcxTokenBytes = 16;

// What every message of ours begins with.
struct UcxHead {
  char token[kUcxTokenBytes];  // of its link: who does not know it is not heard
  std::uint32_t kind;
  std::uint32_t reserved;
  std::uint64_t payload;  // the number of one
  std::uint64_t offset;   // within it
};
inline constexpr std::uint32_t kUcxHere = 1, kUcxPiece = 2;
inline constexpr unsigned kUcxMessageId = 1;  // of UCX, for all of ours

// A message that has come. Its bytes are here, or are fetched where they are wanted.
struct UcxArrival {
  UcxHead head;
  void* data = nullptr;  // UCX's
  std::size_t bytes = 0;
  bool may_be_kept = false;  // else it is over when the callback returns
  bool is_promised = false;  // the bytes are still at the sender
};

class UcxWorker : public std::enable_shared_from_this<UcxWorker> {
 public:
  // True: it was kept, and release() or a request takes it.
  using Hear = std::function<bool(const UcxArrival&)>;

  // `transports` and `devices` in UCX's words (UCX_TLS, UCX_NET_DEVICES).
  static Result<std::shared_ptr<UcxWorker>> make(AsioRuntime& runtime,
                                                 const std::string& transports,
                                                 const std::string& devices);
  ~UcxWorker();
  UcxWorker(const UcxWorker&) = delete;
  UcxWorker& operator=(const UcxWorker&) = delete;

  const UcxLibrary& ucx() const { return ucx_; }
  ucp_worker_h worker() const { return worker_; }
  AsioRuntime& runtime() const { return runtime_; }
  // Says the version of UCX, then what that reads: others can't be told from garbage, and UCX ends
  // a process over them.
  const std::string& address() const { return address_; }
  static bool is_address(std::string_view address);                   // of this version of UCX
  static std::string_view without_version(std::string_view address);  // of one that is_address()
  void listen(const std::string& token, Hear hear) { ears_[token] = std::move(hear); }
  void forget(const std::string& token) { ears_.erase(token); }
  // Something was asked of UCX: it goes on with it soon.
  void kick();
  // Lets UCX end what is under way, at once: nobody drives it after this.
  void wind_up();
  std::string say(ucs_status_t status) const { return ucx_.status_string(status); }

 private:
  UcxWorker(AsioRuntime& runtime, const UcxLibrary& ucx);
  Result<void> open(const std::string& transports, const std::string& devices);
  void progress();
  void wait();
  static ucs_status_t heard(void* self, const void* header, size_t header_bytes, void* data,
                            size_t bytes, const ucp_am_recv_param_t* param);

  AsioRuntime& runtime_;
  const UcxLibrary& ucx_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  std::string address_;
  std::map<std::string, Hear, std::less<>> ears_;
  boost::asio::posix::stream_descriptor descriptor_;
  bool kicked_ = false, waits_ = false;
};

}  // namespace swarmline
