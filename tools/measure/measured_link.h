// One of the two ends of a link that is measured: it sends what the other one asks for, and asks.
//   Check:     each payload's length, and of a payload that is asked for alone every byte.
//   Ownership: shares the connection, which its owner has started; what comes over it, hear() is
//              told. The runtime outlives it.
//   Thread:    control thread; receive(), send(), round_trip() and take_way() wait on it.
//   Errors:    kPeerGone: the connection has ended, which its owner says by lost(); kDeadline:
//              nothing for kMeasuredLinkPatience; kCorrupt: other bytes, or words that are none.
//   Bounds:    kLinkBenchBytesMax a payload, kLinkPayloadsMax of them at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "base/units.h"
#include "engine/net/bulk/bulk_connection.h"
#include "engine/runtime/asio_runtime.h"

namespace swarmline {

inline constexpr std::uint64_t kLinkBenchBytesMax = 1 * kGiB;
inline constexpr std::uint64_t kLinkPayloadsMax = 1024;
inline constexpr std::uint64_t kLinkBenchMessageBytes = 64;  // of a round trip
inline constexpr Duration kMeasuredLinkPatience = std::chrono::minutes(5);

class MeasuredLink {
 public:
  MeasuredLink(AsioRuntime& runtime, std::shared_ptr<BulkConnection> connection)
      : runtime_(runtime), connection_(std::move(connection)) {}

  void hear(Frame frame);
  void lost(const Error& error);

  // Of the end that dialled: it offers what its door allows; false: nothing. way() says what came
  // of it, for which take_way() waits.
  bool offer();
  std::string way() const { return connection_->way(); }
  Result<bool> take_way(const std::string& way);  // whether payloads go that way from now on
  Result<void> receive(std::uint64_t count, std::uint64_t bytes);  // of the other end
  Result<void> send(std::uint64_t count, std::uint64_t bytes);     // until that has it all
  Result<void> round_trip();

 private:
  void serve(const Frame& frame);
  void take_payload(const Frame& frame);
  Result<void> wait_for(const std::function<bool()>& done);
  void fail_with(std::string what);
  void send_payloads(std::uint64_t count, std::uint64_t bytes);

  AsioRuntime& runtime_;
  std::shared_ptr<BulkConnection> connection_;
  SharedBytes payload_;                    // that is sent
  std::uint64_t left_ = 0, expected_ = 0;  // payloads that are to come, of so many bytes
  bool checks_bytes_ = false;              // of the one that is to come
  bool is_asked_ = false;                  // the other end wants to know when all are here
  bool echoed_ = false, taken_ = false;
  std::optional<Error> failed_;
};

}  // namespace swarmline
