// Bulk links of shared memory (shm_link.h), between two processes of one user on one machine, in
// one network namespace.
//   Address:   an offer's says which machine, namespace and user that is (a hash); an answer's is
//              the name of an abstract Unix socket, on which this process listens from its first
//              answer on.
//   Who comes: who has another user id is closed at once, who does not say a secret that is awaited
//              likewise, and who says nothing after kShmGreetingTime. Both ends look at the other's
//              user id; no other name than one of ours is ever dialled.
//   Errors:    as engine/net/bulk/bulk_backend.h.
//   Bounds:    kShmGreetingsMax that have not said their secret, of which the oldest gives way.
#pragma once

#include <memory>

#include "engine/net/bulk/bulk_backend.h"
#include "engine/runtime/asio_runtime.h"

namespace swarmline {

inline constexpr std::size_t kShmGreetingsMax = 64;
inline constexpr Duration kShmGreetingTime = std::chrono::seconds(5);

class ShmBackend final : public BulkBackend {
 public:
  struct Counters {
    std::uint64_t accepted = 0;  // on the socket
    std::uint64_t refused = 0;   // of these: another user, no secret that is awaited, too slow
  };

  // The same 32 bytes for all processes that can have such links with each other, and for no
  // others; empty: the system does not say.
  static std::string machine();

  explicit ShmBackend(AsioRuntime& runtime);
  ~ShmBackend() override;

  std::string_view name() const override { return "shm"; }
  Result<void> is_viable() override;
  std::string address(const BulkPath& path) override;
  bool reaches(const BulkPath& path, std::string_view address) override;
  Result<BulkWay> await(const BulkPath& path, const BulkWay& offered, Duration timeout,
                        Made on_made) override;
  void meet(const BulkPath& path, const BulkWay& answered, Duration timeout, Made on_made) override;
  Counters counters() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace swarmline
