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

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/units.h"
#include "engine/net/bulk/bulk_link.h"
#include "engine/net/bulk/bulk_offer.h"

namespace swarmline {

// The two ends of a Connection that goes straight from one to the other: IP literals.
struct BulkPath {
  std::string own_host, other_host;
  bool is_trusted = false;  // nobody else sees or sends anything between them, says the run
};

class BulkBackend {
 public:
  using Made = std::function<void(Result<std::shared_ptr<BulkLink>>)>;  // called exactly once

  virtual ~BulkBackend() = default;
  virtual std::string_view name() const = 0;  // as in a BulkWay
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
