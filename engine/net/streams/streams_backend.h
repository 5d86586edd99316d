// Bulk links that are several connections like the first one, between the same two ends: made by
// the end that dialled, to where it had dialled, as safe as the first one is. The other end knows
// them by a secret that their first frame says.
//   Address:   of an offer: how many the run wants; of an answer: how many are taken, and the kind
//              of the first frame. Both in decimal.
//   First frame: of that kind with kFrameFlagBulkStream; meta is the secret.
//   Ownership: the runtime outlives it. The network does, or is over before.
//   Thread:    control thread. Deterministic over a simulated network.
//   Errors:    kDeadline: not all came in time. Others: of a connection that could not be made.
//   Bounds:    2 to kBulkStreamsMax connections a link; kStreamsAwaitedMax links being made.
#pragma once

#include <memory>

#include "engine/net/bulk/bulk_backend.h"
#include "engine/net/network.h"
#include "engine/runtime/runtime.h"

namespace swarmline {

inline constexpr std::size_t kStreamsAwaitedMax = 256;

class StreamsBackend final : public BulkBackend {
 public:
  StreamsBackend(Runtime& runtime, Network& network);
  ~StreamsBackend() override;

  std::string_view name() const override { return "streams"; }
  Result<void> is_viable() override { return {}; }
  bool goes_as_connection() const override { return true; }
  std::string address(const BulkPath& path) override;
  bool reaches(const BulkPath& path, std::string_view address) override;
  Result<BulkWay> await(const BulkPath& path, const BulkWay& offered, Duration timeout,
                        Made on_made) override;
  void meet(const BulkPath& path, const BulkWay& answered, Duration timeout, Made on_made) override;
  bool take_stream(std::string_view secret, const std::shared_ptr<Connection>& stream) override;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace swarmline
