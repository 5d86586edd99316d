// Holds the journal file of a run, so that its own process can't write it: for tools that disturb
// runs, and tests.
//   Ownership: let go when it is destroyed. Thread: any, one at a time.
//   Errors:    kIo with the store's reason; somebody else holds it.
//   Bounds:    kJournalLockWait at most until it is held.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "base/units.h"

struct sqlite3;

namespace swarmline {

inline constexpr Duration kJournalLockWait = std::chrono::milliseconds(100);

class JournalLock {
 public:
  static Result<JournalLock> take(const std::string& journal);

 private:
  struct Close {
    void operator()(sqlite3* database) const;
  };
  explicit JournalLock(sqlite3* database) : database_(database) {}
  std::unique_ptr<sqlite3, Close> database_;
};

}  // namespace swarmline
