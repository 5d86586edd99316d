// Makes connections of which payloads may go another way, over what the run's config allows and
// both ends have. A connection is the same to who uses it; only faster.
//   Ownership: the runtime outlives it. Connections that outlive it are over without a word, as
//              those of a network that ends.
//   Thread:    control thread.
//   Errors:    a way that can't be had is said once to the log, where it is the only one that the
//              run allows; frames carry their payloads then.
//   Bounds:    BulkDoorOptions; kBulkMeetTime to make a link; a way that broke towards a host is
//              not taken to it again for kBulkBrokenPause, of kBulkBrokenHostsMax hosts. What was
//              measured of a way to a host holds for connections of the next kBulkMeasuredLife, of
//              kBulkMeasuredHostsMax; of others each connection measures it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/ip_range.h"
#include "base/limits.h"
#include "base/units.h"
#include "engine/net/bulk/bulk_backend.h"
#include "engine/net/bulk/bulk_trial.h"
#include "engine/net/network.h"
#include "engine/runtime/runtime.h"

namespace swarmline {

class BulkConnection;

inline constexpr Duration kBulkMeetTime = std::chrono::seconds(5);
inline constexpr Duration kBulkBrokenPause = std::chrono::seconds(60);
inline constexpr std::size_t kBulkBrokenHostsMax = 256;
inline constexpr std::size_t kBulkMeasuredHostsMax = 256;
inline constexpr Duration kBulkMeasuredLife = std::chrono::hours(1);

struct BulkDoorOptions {
  // Smaller payloads stay in their frames: the wake-ups of another way would cost more. Above
  // kBulkTicketBytes.
  std::uint64_t payload_bytes_min = 64 * kKiB;
  std::uint64_t queue_bytes_max = Limits::connection_queue_bytes_max;  // unsent, of a connection
  std::uint64_t arrival_bytes_min = Limits::arrival_bytes_min;
  Duration stalled_max = std::chrono::seconds(60);  // nothing of an announced payload has come
};

// What a run allows.
struct BulkPolicy {
  std::vector<std::string> ways;  // names of backends, the best first; the default: none
  std::vector<IpRange> trusted;   // addresses between which payloads may travel unprotected
  std::uint32_t streams = 4;      // of several connections in the place of one: so many
  // Each end tries which way is faster to the other one, the link or their frames (bulk_trial.h).
  bool measures = false;
};

class BulkDoor {
 public:
  struct Counters {
    std::uint64_t links_made = 0;     // by either end
    std::uint64_t links_broken = 0;   // while their connections lived
    std::uint64_t payloads_sent = 0;  // over them
    std::uint64_t bytes_sent = 0;
    std::uint64_t trials_sent = 0;     // either way
    std::uint64_t links_measured = 0;  // all of whose trials were answered
    std::uint64_t links_slower = 0;    // of those
    std::uint64_t bad_tickets = 0;     // connections ended for what their other end announced
    std::uint64_t streams_taken = 0;   // connections that became streams of links
  };
  // What is known of a way to a host. Connections to it look at one of them.
  struct Measured {
    bool is_under_way = false;           // one of them measures it
    std::optional<PayloadWay> way = {};  // what was faster
    Instant until = {};                  // connections that are made then measure anew
  };
  // What a door and its connections share.
  struct Shared {
    Runtime& runtime;
    BulkDoorOptions options;
    std::vector<std::unique_ptr<BulkBackend>> backends;
    BulkPolicy policy = {};
    std::map<std::pair<std::string, std::string>, Instant> broken = {};  // way and host
    std::map<std::pair<std::string, std::string>, std::shared_ptr<Measured>> measured = {};  // same
    std::set<std::string> said = {};  // of ways that this process does not have
    std::set<BulkConnection*> open = {};
    Counters counters = {};

    BulkBackend* find(std::string_view name) const;
    // Those that may be taken on that path now, the best first.
    std::vector<BulkBackend*> ways_for(const BulkPath& path);
    // That a connection belongs to a link which is being made: it is that one's now.
    bool take_stream(std::string_view secret, const std::shared_ptr<Connection>& stream) const;
    void note_broken(std::string_view way, const BulkPath& path);
    std::shared_ptr<Measured> measured_on(const std::string& way, const BulkPath& path);
  };

  BulkDoor(Runtime& runtime, BulkDoorOptions options,
           std::vector<std::unique_ptr<BulkBackend>> backends);
  ~BulkDoor();
  BulkDoor(const BulkDoor&) = delete;
  BulkDoor& operator=(const BulkDoor&) = delete;
  void allow(BulkPolicy policy);  // of links that are made from now on
  std::shared_ptr<BulkConnection> over(std::shared_ptr<Connection> connection);
  const Counters& counters() const { return shared_->counters; }

 private:
  std::shared_ptr<Shared> shared_;
};

}  // namespace swarmline
