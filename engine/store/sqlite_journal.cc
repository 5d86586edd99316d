#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <iterator>
#include <limits>
#include <sqlite3.h>
#include <string_view>
#include <sys/stat.h>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/hash.h"
#include "engine/store/files.h"
#include "engine/store/journal.h"

namespace swarmline {

namespace {

constexpr int kApplicationId = 0x53574C4A;  // "SWLJ" in the file's header
constexpr int kBusyMilliseconds = 2000;     // a user's query may hold the file that long
constexpr std::uint64_t kCommitsKept = 4'000'000;
constexpr std::uint64_t kEventsKept = 400'000;  // a hundred bytes each
constexpr const char* kSchema = R"sql(
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE seats(peer INTEGER NOT NULL, incarnation INTEGER NOT NULL, stage INTEGER NOT NULL,
                   address TEXT NOT NULL, state TEXT NOT NULL, key TEXT NOT NULL DEFAULT '',
                   reach TEXT NOT NULL DEFAULT '', name TEXT NOT NULL DEFAULT '',
                   PRIMARY KEY(peer, incarnation));
CREATE TABLE commits(number INTEGER PRIMARY KEY AUTOINCREMENT, step INTEGER NOT NULL,
                     version INTEGER NOT NULL, loss REAL, tokens INTEGER NOT NULL,
                     gradient_norm REAL, clip_scale REAL, learning_rate REAL,
                     skipped INTEGER NOT NULL, group_digests TEXT NOT NULL, wall_seconds REAL,
                     era INTEGER NOT NULL DEFAULT 0, updates INTEGER NOT NULL DEFAULT 0);
CREATE TABLE events(number INTEGER PRIMARY KEY AUTOINCREMENT, wall_seconds REAL, kind TEXT NOT NULL,
                    detail TEXT NOT NULL, level TEXT NOT NULL DEFAULT 'info');
)sql";
// What the tables of each earlier format lack; the first is that of format 1.
constexpr const char* kMissing[] = {
    "ALTER TABLE commits ADD COLUMN era INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE commits ADD COLUMN updates INTEGER NOT NULL DEFAULT 0;",
    "ALTER TABLE seats ADD COLUMN key TEXT NOT NULL DEFAULT '';",
    "ALTER TABLE seats ADD COLUMN reach TEXT NOT NULL DEFAULT '';",
    "ALTER TABLE seats ADD COLUMN name TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE events ADD COLUMN level TEXT NOT NULL DEFAULT 'info';",
    "",  // no column: segments are rows of meta
};
static_assert(std::size(kMissing) == kJournalFormat - 1);

struct CloseDatabase {
  void operator()(sqlite3* database) const { sqlite3_close_v2(database); }
};
using Database = std::unique_ptr<sqlite3, CloseDatabase>;

std::string join_hex(const std::vector<std::uint64_t>& words) {
  std::string text;
  for (const std::uint64_t word : words) {
    if (!text.empty()) text.push_back(' ');
    text += hex64(word);
  }
  return text;
}

Result<std::vector<std::uint64_t>> split_hex(std::string_view text) {
  std::vector<std::uint64_t> words;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value, 16);
    if (error != std::errc() || end != word.data() + word.size()) {
      return fail(ErrorCode::kCorrupt, fmt::format("the journal holds the digest \"{}\"", word));
    }
    words.push_back(value);
    text.remove_prefix(std::min(text.size(), word.size() + 1));
  }
  return words;
}

// One run of one prepared statement; parameters are bound in order.
class Statement {
 public:
  Statement(sqlite3* database, const std::string& path, const char* sql)
      : database_(database), path_(path) {
    status_ = sqlite3_prepare_v2(database, sql, -1, &statement_, nullptr);
  }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  Statement& bind(std::uint64_t value) {
    return bound(sqlite3_bind_int64(statement_, ++bound_, static_cast<sqlite3_int64>(value)));
  }
  Statement& bind(double value) {  // SQLite stores NaN as NULL
    return bound(sqlite3_bind_double(statement_, ++bound_, value));
  }
  Statement& bind(const std::string& value) {
    return bound(sqlite3_bind_text64(statement_, ++bound_, value.data(), value.size(),
                                     SQLITE_TRANSIENT, SQLITE_UTF8));
  }

  // True: a row is there to be read.
  Result<bool> step() {
    if (status_ == SQLITE_OK) status_ = sqlite3_step(statement_);
    if (status_ == SQLITE_ROW) {
      status_ = SQLITE_OK;
      return true;
    }
    if (status_ == SQLITE_DONE) return false;
    return fail(ErrorCode::kIo, fmt::format("journal {}: {}", path_, sqlite3_errmsg(database_)));
  }
  Result<void> run() {
    const Result<bool> row = step();
    if (!row) return std::unexpected(row.error());
    return {};
  }

  std::uint64_t integer(int column) const {
    return static_cast<std::uint64_t>(sqlite3_column_int64(statement_, column));
  }
  double real(int column) const {
    if (sqlite3_column_type(statement_, column) == SQLITE_NULL) {
      return std::numeric_limits<double>::quiet_NaN();
    }
    return sqlite3_column_double(statement_, column);
  }
  std::string text(int column) const {
    const auto* start = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
    if (start == nullptr) return {};
    return {start, static_cast<std::size_t>(sqlite3_column_bytes(statement_, column))};
  }

 private:
  Statement& bound(int status) {
    if (status_ == SQLITE_OK) status_ = status;
    return *this;
  }

  sqlite3* database_;
  const std::string& path_;
  sqlite3_stmt* statement_ = nullptr;
  int status_ = SQLITE_OK;
  int bound_ = 0;
};

class SqliteJournal final : public Journal {
 public:
  SqliteJournal(Database database, std::string path)
      : database_(std::move(database)), path_(std::move(path)) {}

  Result<void> prepare() {
    sqlite3_busy_timeout(database_.get(), kBusyMilliseconds);
    SWARMLINE_TRY(query("PRAGMA journal_mode = WAL").run());
    SWARMLINE_TRY(query("PRAGMA synchronous = FULL").run());
    return in_transaction([this] { return check_or_create(); });
  }

  Result<void> write(std::span<const JournalRecord> records) override {
    return in_transaction([this, records]() -> Result<void> {
      for (const JournalRecord& record : records)
        SWARMLINE_TRY(std::visit([this](const auto& one) { return put(one); }, record));
      return {};
    });
  }

  Result<std::optional<std::string>> get_meta(const std::string& key) override {
    Statement statement = query("SELECT value FROM meta WHERE key = ?");
    const Result<bool> row = statement.bind(key).step();
    if (!row) return std::unexpected(row.error());
    if (!*row) return std::nullopt;
    return statement.text(0);
  }

  Result<std::vector<SeatRecord>> seats() override {
    Statement statement = query(
        "SELECT peer, incarnation, stage, address, state, key, reach, name FROM seats "
        "ORDER BY peer, incarnation");
    std::vector<SeatRecord> all;
    for (;;) {
      const Result<bool> row = statement.step();
      if (!row) return std::unexpected(row.error());
      if (!*row) return all;
      SeatRecord record;
      record.seat.peer = PeerId(static_cast<std::uint32_t>(statement.integer(0)));
      record.seat.incarnation = Incarnation(static_cast<std::uint32_t>(statement.integer(1)));
      record.seat.stage = StageId(static_cast<std::uint16_t>(statement.integer(2)));
      record.address = statement.text(3);
      record.state = statement.text(4);
      record.key = statement.text(5);
      record.reach = statement.text(6);
      record.name = statement.text(7);
      all.push_back(std::move(record));
    }
  }

  Result<std::optional<CommitRecord>> last_commit() override {
    Statement statement = query(
        "SELECT step, version, loss, tokens, gradient_norm, clip_scale, learning_rate, skipped, "
        "group_digests, wall_seconds, era, updates FROM commits ORDER BY number DESC LIMIT 1");
    const Result<bool> row = statement.step();
    if (!row) return std::unexpected(row.error());
    if (!*row) return std::nullopt;
    Result<std::vector<std::uint64_t>> digests = split_hex(statement.text(8));
    if (!digests) return std::unexpected(digests.error());
    return CommitRecord{.step = statement.integer(0),
                        .version = statement.integer(1),
                        .loss = statement.real(2),
                        .tokens = statement.integer(3),
                        .gradient_norm = statement.real(4),
                        .clip_scale = statement.real(5),
                        .learning_rate = statement.real(6),
                        .skipped = statement.integer(7) != 0,
                        .group_digests = std::move(*digests),
                        .wall_seconds = statement.real(9),
                        .era = static_cast<std::uint32_t>(statement.integer(10)),
                        .updates = statement.integer(11)};
  }

  Result<std::vector<EventRecord>> events(std::size_t count_max) override {
    Statement statement = query(
        "SELECT wall_seconds, kind, detail, level FROM (SELECT * FROM events ORDER BY number DESC "
        "LIMIT "
        "?) ORDER BY number");
    statement.bind(std::uint64_t{count_max});
    std::vector<EventRecord> newest;
    for (;;) {
      const Result<bool> row = statement.step();
      if (!row) return std::unexpected(row.error());
      if (!*row) return newest;
      newest.push_back(
          EventRecord{.wall_seconds = statement.real(0),
                      .kind = statement.text(1),
                      .detail = statement.text(2),
                      .level = parse_log_level(statement.text(3)).value_or(LogLevel::kInfo)});
    }
  }

 private:
  // All of what `body` writes, or nothing.
  template <typename Body>
  Result<void> in_transaction(Body body) {
    SWARMLINE_TRY(query("BEGIN IMMEDIATE").run());
    Result<void> written = body();
    if (written) written = query("COMMIT").run();
    // Some errors have rolled it back already.
    if (!written && sqlite3_get_autocommit(database_.get()) == 0)
      static_cast<void>(query("ROLLBACK").run());
    return written;
  }

  Result<void> put(const MetaRecord& meta) {
    return query("INSERT OR REPLACE INTO meta VALUES(?, ?)").bind(meta.key).bind(meta.value).run();
  }

  Result<void> put(const SeatRecord& seat) {
    return query(
               "INSERT OR REPLACE INTO seats(peer, incarnation, stage, address, state, key, reach, "
               "name) VALUES(?, ?, ?, ?, ?, ?, ?, ?)")
        .bind(std::uint64_t{seat.seat.peer.value})
        .bind(std::uint64_t{seat.seat.incarnation.value})
        .bind(std::uint64_t{seat.seat.stage.value})
        .bind(seat.address)
        .bind(seat.state)
        .bind(seat.key)
        .bind(seat.reach)
        .bind(seat.name)
        .run();
  }

  Result<void> put(const CommitRecord& commit) {
    SWARMLINE_TRY(
        query("INSERT INTO commits(step, version, loss, tokens, gradient_norm, clip_scale, "
              "learning_rate, skipped, group_digests, wall_seconds, era, updates) "
              "VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")
            .bind(commit.step)
            .bind(commit.version)
            .bind(commit.loss)
            .bind(commit.tokens)
            .bind(commit.gradient_norm)
            .bind(commit.clip_scale)
            .bind(commit.learning_rate)
            .bind(std::uint64_t{commit.skipped})
            .bind(join_hex(commit.group_digests))
            .bind(commit.wall_seconds)
            .bind(std::uint64_t{commit.era})
            .bind(commit.updates)
            .run());
    return keep_newest("DELETE FROM commits WHERE number <= ?", kCommitsKept);
  }

  Result<void> put(const EventRecord& event) {
    SWARMLINE_TRY(query("INSERT INTO events(wall_seconds, kind, detail, level) VALUES(?, ?, ?, ?)")
                      .bind(event.wall_seconds)
                      .bind(event.kind)
                      .bind(event.detail)
                      .bind(std::string(to_string(event.level)))
                      .run());
    return keep_newest("DELETE FROM events WHERE number <= ?", kEventsKept);
  }

  // Of the table that has just got a row.
  Result<void> keep_newest(const char* remove, std::uint64_t kept) {
    const auto newest = static_cast<std::uint64_t>(sqlite3_last_insert_rowid(database_.get()));
    if (newest <= kept) return {};
    return query(remove).bind(newest - kept).run();
  }

  Result<void> put(const ForgottenSeats& seats) {
    constexpr std::uint64_t kEvery = UINT64_C(1) << 32;
    return query("DELETE FROM seats WHERE peer = ? AND incarnation < ?")
        .bind(std::uint64_t{seats.peer.value})
        .bind(seats.below ? std::uint64_t{seats.below->value} : kEvery)
        .run();
  }

  Statement query(const char* sql) { return {database_.get(), path_, sql}; }

  Result<std::uint64_t> number(const char* sql) {
    Statement statement = query(sql);
    const Result<bool> row = statement.step();
    if (!row) return std::unexpected(row.error());
    return *row ? statement.integer(0) : 0;
  }

  Result<void> check_or_create() {
    const Result<std::uint64_t> tables = number("SELECT count(*) FROM sqlite_master");
    if (!tables) return std::unexpected(tables.error());
    const Result<std::uint64_t> application = number("PRAGMA application_id");
    if (!application) return std::unexpected(application.error());
    const Result<std::uint64_t> format = number("PRAGMA user_version");
    if (!format) return std::unexpected(format.error());

    if (*tables == 0) return create();
    if (*application != std::uint64_t{kApplicationId}) {
      return fail(ErrorCode::kIncompatible,
                  fmt::format("{} is an SQLite database of another program, not a journal", path_));
    }
    if (*format > std::uint64_t{kJournalFormat}) {
      return fail(
          ErrorCode::kIncompatible,
          fmt::format("the journal {} has format {}, and this swarmline knows formats up to {}: "
                      "use the newer swarmline that wrote it, or another run name",
                      path_, *format, kJournalFormat));
    }
    if (*format == std::uint64_t{kJournalFormat}) return {};
    std::string missing;
    for (std::size_t had = std::max<std::size_t>(*format, 1); had < kJournalFormat; ++had)
      missing += kMissing[had - 1];
    return define(missing);
  }

  Result<void> create() {
    return define(fmt::format("{}PRAGMA application_id = {};", kSchema, kApplicationId));
  }

  // Makes the tables what this format has.
  Result<void> define(std::string_view tables) {
    const std::string sql = fmt::format(
        "{}PRAGMA user_version = {}; INSERT OR REPLACE INTO meta VALUES('format', '{}');", tables,
        kJournalFormat, kJournalFormat);
    if (sqlite3_exec(database_.get(), sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK) {
      return fail(ErrorCode::kIo,
                  fmt::format("journal {}: {}", path_, sqlite3_errmsg(database_.get())));
    }
    return {};
  }

  Database database_;
  std::string path_;
};

}  // namespace

Result<std::unique_ptr<Journal>> open_sqlite_journal(const std::string& path) {
  sqlite3* raw = nullptr;
  const int status =
      sqlite3_open_v2(path.c_str(), &raw, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, nullptr);
  Database database(raw);
  if (status != SQLITE_OK) {
    return fail(ErrorCode::kIo, fmt::format("cannot open the journal {}: {}", path,
                                            raw ? sqlite3_errmsg(raw) : "no memory"));
  }
  // It holds the run's key. SQLite makes the files beside it like this one.
  if (::chmod(path.c_str(), S_IRUSR | S_IWUSR) != 0)
    return fail(ErrorCode::kIo, fmt::format("cannot keep {} from other users: {}", path,
                                            std::generic_category().message(errno)));
  auto journal = std::make_unique<SqliteJournal>(std::move(database), path);
  SWARMLINE_TRY(journal->prepare());
  return journal;
}

}  // namespace swarmline
