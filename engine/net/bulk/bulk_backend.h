// One way for payloads between two processes: what each backend of the bulk-link door gives it.
// The end that dialled the Connection says where it is (address()); the end that was dialled takes
// one of the ways, answers with its own address and a secret, and awaits the first; that one then
// meets it there. Both texts travel over the Connection, as safe as it is.
//   Ownership: a BulkDoor holds it; it outlives the links that it makes.
//   Thread:    control thread.
//   Errors:    of a link that can't be made: one sentence, kDeadline or another. Frames then carry
//              their payloads, as before.
//   Bounds:    kBulkAddressBytesMax; `timeout` for await() and meet().
//   Hostile:   an address is what the other end says. A backend takes it for no more than a place
//              to ask, and believes only who knows the secret of that link.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/units.h"
#include "engine/net/bulk/bulk_link.h"
#include "engine/net/bulk/bulk_offer.h"
#include "engine/net/network.h"

namespace swarmline {

// The two ends of a Connection, as this end's system has them: IP literals.
struct BulkPath {
  std::string own_host, other_host;
  bool is_trusted = false;  // nobody else sees or sends anything between them, says the run
  // The other end is who it seems to be: it has shown a key, or is of this machine; and, where it
  // has said what it takes the addresses for, nobody translates them or passes bytes on.
  bool is_straight = false;
  std::optional<KeyHash> other_key = {};  // that it has shown
  Address other = {};                     // for the end that dialled: where it has come to
  std::uint32_t streams = 0;        // connections in the place of one, where there are several
  std::uint16_t stranger_kind = 0;  // of a first frame that this end takes of anybody; 0: none
};

class BulkBackend {
 public:
  using Made = std::function<void(Result<std::shared_ptr<BulkLink>>)>;  // called exactly once

  virtual ~BulkBackend() = default;
  virtual std::string_view name() const = 0;  // as in a BulkWay
  // Its bytes go where the Connection's own go, as safe as they are: it asks for no path that is
  // trusted, or straight; and it is worth its while only where it is the faster one.
  virtual bool goes_as_connection() const { return false; }
  // Somebody has connected and knows that secret, of a link that is awaited: the connection is its
  // from now on, and it starts it. False: there is no such link.
  virtual bool take_stream(std::string_view, const std::shared_ptr<Connection>&) { return false; }
  // Whether this process can have such links at all, as far as is known without one.
  virtual Result<void> is_viable() = 0;
  // Where this process is, for the other end of that path; empty: it is not for that path.
  virtual std::string address(const BulkPath& path) = 0;
  // Whether the other end, by its address, can be reached that way.
  virtual bool reaches(const BulkPath& path, std::string_view address) = 0;
  // The end that was dialled: what it answers.
  virtual Result<BulkWay> await(const BulkPath& path, const BulkWay& offered, Duration timeout,
                                Made on_made) = 0;
  // The end that dialled, with that answer.
  virtual void meet(const BulkPath& path, const BulkWay& answered, Duration timeout,
                    Made on_made) = 0;
};

}  // namespace swarmline
