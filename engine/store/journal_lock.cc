#include "engine/store/journal_lock.h"

#include <sqlite3.h>

#include <fmt/format.h>

namespace swarmline {

Result<JournalLock> JournalLock::take(const std::string& journal) {
  sqlite3* database = nullptr;
  const bool opened =
      sqlite3_open_v2(journal.c_str(), &database, SQLITE_OPEN_READWRITE, nullptr) == SQLITE_OK;
  JournalLock lock(database);
  const auto wait = std::chrono::duration_cast<std::chrono::milliseconds>(kJournalLockWait);
  if (opened) sqlite3_busy_timeout(database, static_cast<int>(wait.count()));
  if (opened && sqlite3_exec(database, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr) == SQLITE_OK)
    return lock;
  return fail(ErrorCode::kIo, fmt::format("can't lock {}: {}", journal, sqlite3_errmsg(database)));
}

void JournalLock::Close::operator()(sqlite3* database) const {
  sqlite3_close(database);
}

}  // namespace swarmline
