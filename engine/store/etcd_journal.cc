#include "engine/store/etcd_journal.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "base/hash.h"
#include "engine/store/json_writer.h"
#include "engine/store/strict_json.h"

namespace swarmline {

namespace {

namespace json = boost::json;

constexpr std::size_t kPageEntries = 1000;  // of one answer
constexpr int kOldestFormat = 2;            // that can be gone on with

void write_number(JsonWriter& writer, std::string_view name, double number) {
  writer.key(name);
  if (std::isfinite(number)) {
    writer.value(number);
  } else {  // JSON has no word for them
    writer.value(fmt::format("{}", number));
  }
}

std::string to_json(const SeatRecord& seat) {
  JsonWriter writer;
  writer.begin_object()
      .member("stage", seat.seat.stage.value)
      .member("address", seat.address)
      .member("state", seat.state)
      .member("key", seat.key)
      .member("reach", seat.reach)
      .member("name", seat.name)
      .end_object();
  return writer.take();
}

std::string to_json(const CommitRecord& commit) {
  JsonWriter writer;
  writer.begin_object().member("step", commit.step).member("version", commit.version);
  write_number(writer, "loss", commit.loss);
  writer.member("tokens", commit.tokens);
  write_number(writer, "gradient_norm", commit.gradient_norm);
  write_number(writer, "clip_scale", commit.clip_scale);
  write_number(writer, "learning_rate", commit.learning_rate);
  writer.member("skipped", commit.skipped).key("group_digests").begin_array();
  for (const std::uint64_t digest : commit.group_digests) writer.value(hex64(digest));
  writer.end_array();
  write_number(writer, "wall_seconds", commit.wall_seconds);
  writer.member("era", commit.era).member("updates", commit.updates);
  return writer.end_object().take();
}

std::string to_json(const EventRecord& event) {
  JsonWriter writer;
  writer.begin_object();
  write_number(writer, "wall_seconds", event.wall_seconds);
  writer.member("kind", event.kind).member("detail", event.detail);
  return writer.member("level", to_string(event.level)).end_object().take();
}

// Reads the members of one entry; the first that is not as written here is remembered.
class EntryReader {
 public:
  explicit EntryReader(const EtcdEntry& entry) : key_(entry.key) {
    auto root = parse_strict_json(entry.value, "etcd's " + entry.key);
    if (root && root->is_object()) object_ = std::move(root->get_object());
  }

  std::string text(std::string_view name) {
    const json::string* found = find(name, &json::value::if_string);
    return found != nullptr ? std::string(found->data(), found->size()) : std::string();
  }
  double real(std::string_view name) {
    const json::value* found = object_.if_contains(name);
    if (found != nullptr && found->is_string()) {
      double number = std::numeric_limits<double>::quiet_NaN();
      const json::string& text = found->get_string();
      const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
      fits_ = fits_ && read.ec == std::errc() && read.ptr == text.data() + text.size();
      return number;
    }
    if (found != nullptr && found->is_number()) return found->to_number<double>();
    fits_ = false;
    return 0;
  }
  std::uint64_t integer(std::string_view name) {
    const json::value* found = object_.if_contains(name);
    json::error_code error;
    const auto number = found != nullptr ? found->to_number<std::uint64_t>(error) : 0;
    fits_ = fits_ && found != nullptr && !error;
    return number;
  }
  bool has(std::string_view name) const { return object_.contains(name); }
  bool truth(std::string_view name) {
    const bool* found = find(name, &json::value::if_bool);
    return found != nullptr && *found;
  }
  std::vector<std::uint64_t> digests(std::string_view name) {
    std::vector<std::uint64_t> all;
    const json::array* found = find(name, &json::value::if_array);
    for (std::size_t i = 0; found != nullptr && i < found->size(); ++i) {
      const json::string* text = (*found)[i].if_string();
      std::uint64_t digest = 0;
      const auto read = text != nullptr
                            ? std::from_chars(text->data(), text->data() + text->size(), digest, 16)
                            : std::from_chars_result{nullptr, std::errc::invalid_argument};
      fits_ = fits_ && read.ec == std::errc();
      all.push_back(digest);
    }
    return all;
  }
  Result<void> check() const {
    if (fits_) return {};
    return fail(ErrorCode::kCorrupt, fmt::format("etcd's {} is not what a journal holds", key_));
  }

 private:
  template <typename T>
  const T* find(std::string_view name, const T* (json::value::*as)() const noexcept) {
    const json::value* found = object_.if_contains(name);
    const T* value = found != nullptr ? (found->*as)() : nullptr;
    fits_ = fits_ && value != nullptr;
    return value;
  }

  std::string key_;
  json::object object_;
  bool fits_ = true;
};

// The numbers that a key ends with, from its `count` last parts.
Result<std::vector<std::uint64_t>> numbers_of(std::string_view key, std::size_t count) {
  std::vector<std::uint64_t> numbers(count);
  std::string_view rest = key;
  for (std::size_t i = count; i-- > 0;) {
    const std::size_t slash = rest.rfind('/');
    const std::string_view part = rest.substr(slash + 1);
    const auto read = std::from_chars(part.data(), part.data() + part.size(), numbers[i]);
    if (slash == std::string_view::npos || read.ec != std::errc() ||
        read.ptr != part.data() + part.size())
      return fail(ErrorCode::kCorrupt, fmt::format("etcd has the key {}", key));
    rest = rest.substr(0, slash);
  }
  return numbers;
}

bool is_known_format(std::string_view text) {
  int format = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), format);
  return error == std::errc() && end == text.data() + text.size() && format >= kOldestFormat &&
         format <= kJournalFormat;
}

// What stands under a prefix, whoever leads. Base: JournalReader or Journal.
template <typename Base>
class EtcdRecords : public Base {
 public:
  EtcdRecords(EtcdClient& client, std::string prefix)
      : client_(client), prefix_(std::move(prefix)) {}

  // False: no journal is there.
  Result<bool> check_format() {
    auto format = get_meta("format");
    if (!format) return std::unexpected(format.error());
    if (*format && !is_known_format(**format))
      return fail(ErrorCode::kIncompatible,
                  fmt::format("the journal at {} in etcd has format {}, and this swarmline knows "
                              "formats up to {}: use the newer swarmline, or another run name",
                              prefix_, **format, kJournalFormat));
    return format->has_value();
  }

  Result<std::optional<std::string>> get_meta(const std::string& key) override {
    auto found = client_.range(prefix_ + "meta/" + key, "", 1);
    if (!found) return std::unexpected(found.error());
    if (found->entries.empty()) return std::nullopt;
    return std::move(found->entries.front().value);
  }

  Result<std::vector<SeatRecord>> seats() override {
    std::vector<SeatRecord> all;
    std::string from = prefix_ + "seats/";
    const std::string end = etcd_prefix_end(from);
    for (;;) {
      auto page = client_.range(from, end, kPageEntries);
      if (!page) return std::unexpected(page.error());
      for (const EtcdEntry& entry : page->entries) {
        auto ids = numbers_of(entry.key, 2);
        if (!ids) return std::unexpected(ids.error());
        EntryReader reader(entry);
        SeatRecord record;
        record.seat.peer = PeerId(static_cast<std::uint32_t>(ids->at(0)));
        record.seat.incarnation = Incarnation(static_cast<std::uint32_t>(ids->at(1)));
        record.seat.stage = StageId(static_cast<std::uint16_t>(reader.integer("stage")));
        record.address = reader.text("address");
        record.state = reader.text("state");
        if (reader.has("key")) record.key = reader.text("key");        // format 2 has none
        if (reader.has("reach")) record.reach = reader.text("reach");  // nor format 3 this
        if (reader.has("name")) record.name = reader.text("name");     // nor format 4 this
        SWARMLINE_TRY(reader.check());
        all.push_back(std::move(record));
      }
      if (!page->more || page->entries.empty()) return all;
      from = page->entries.back().key + '\0';
    }
  }

  Result<std::optional<CommitRecord>> last_commit() override {
    auto newest = newest_of("commits", 1);
    if (!newest) return std::unexpected(newest.error());
    if (newest->empty()) return std::nullopt;
    EntryReader reader(newest->front());
    CommitRecord commit{.step = reader.integer("step"),
                        .version = reader.integer("version"),
                        .loss = reader.real("loss"),
                        .tokens = reader.integer("tokens"),
                        .gradient_norm = reader.real("gradient_norm"),
                        .clip_scale = reader.real("clip_scale"),
                        .learning_rate = reader.real("learning_rate"),
                        .skipped = reader.truth("skipped"),
                        .group_digests = reader.digests("group_digests"),
                        .wall_seconds = reader.real("wall_seconds"),
                        .era = static_cast<std::uint32_t>(reader.integer("era")),
                        .updates = reader.integer("updates")};
    SWARMLINE_TRY(reader.check());
    return commit;
  }

  Result<std::vector<EventRecord>> events(std::size_t count_max) override {
    auto newest = newest_of("events", count_max);
    if (!newest) return std::unexpected(newest.error());
    std::vector<EventRecord> all;
    for (auto entry = newest->rbegin(); entry != newest->rend(); ++entry) {
      EntryReader reader(*entry);
      all.push_back({.wall_seconds = reader.real("wall_seconds"),
                     .kind = reader.text("kind"),
                     .detail = reader.text("detail")});
      if (reader.has("level"))  // format 4 has none
        all.back().level = parse_log_level(reader.text("level")).value_or(LogLevel::kInfo);
      SWARMLINE_TRY(reader.check());
    }
    return all;
  }

 protected:
  // The number of the newest record of a table; as it was where there is none.
  Result<void> find_last(const std::string& table, std::uint64_t& number) {
    auto newest = newest_of(table, 1);
    if (!newest) return std::unexpected(newest.error());
    if (newest->empty()) return {};
    auto last = numbers_of(newest->front().key, 1);
    if (!last) return std::unexpected(last.error());
    number = last->front();
    return {};
  }

 private:
  Result<std::vector<EtcdEntry>> newest_of(const std::string& table, std::size_t count_max) {
    const std::string first = prefix_ + table + "/";
    auto found = client_.range(first, etcd_prefix_end(first), count_max, true);
    if (!found) return std::unexpected(found.error());
    return std::move(found->entries);
  }

 protected:
  EtcdClient& client_;
  const std::string prefix_;
};

// With a connection of its own.
class EtcdReader final : public EtcdRecords<JournalReader> {
 public:
  EtcdReader(std::unique_ptr<EtcdClient> client, std::string prefix)
      : EtcdRecords(*client, std::move(prefix)), owned_(std::move(client)) {}

 private:
  std::unique_ptr<EtcdClient> owned_;
};

class EtcdJournal final : public EtcdRecords<Journal> {
 public:
  EtcdJournal(EtcdClient& client, std::string prefix, std::string leader_key,
              std::int64_t leader_revision)
      : EtcdRecords(client, std::move(prefix)),
        leader_key_(std::move(leader_key)),
        leader_revision_(leader_revision) {}

  Result<void> prepare() {
    if (const auto known = check_format(); !known) return std::unexpected(known.error());
    SWARMLINE_TRY(put_meta("format", std::to_string(kJournalFormat)));
    SWARMLINE_TRY(find_last("commits", commits_));
    return find_last("events", events_);
  }

  Result<void> write(std::span<const JournalRecord> records) override {
    Batch batch{
        .puts = {}, .removals = {}, .removed_ranges = {}, .commits = commits_, .events = events_};
    for (const JournalRecord& record : records)
      std::visit([&](const auto& one) { add(batch, one); }, record);
    EtcdWrites writes;
    for (const auto& [key, value] : batch.puts) writes.put(key, value);
    for (const std::string& key : batch.removals) writes.remove(key);
    for (const auto& [first, end] : batch.removed_ranges) writes.remove_range(first, end);
    auto written = client_.write_if(leader_key_, leader_revision_, std::move(writes));
    if (!written) return std::unexpected(written.error());
    if (!written->succeeded)
      return fail(ErrorCode::kRefused,
                  "this coordinator's lease is over: another one may lead now");
    commits_ = batch.commits;
    events_ = batch.events;
    compact_now_and_then(written->revision);
    return {};
  }

 private:
  // etcd takes a key once in a transaction: of several values the last one counts.
  struct Batch {
    std::map<std::string, std::string> puts;
    std::vector<std::string> removals;
    std::map<std::string, std::string> removed_ranges;  // [first, end)
    std::uint64_t commits, events;                      // the newest one's number, with it
  };
  void add(Batch& batch, const MetaRecord& meta) const {
    batch.puts[prefix_ + "meta/" + meta.key] = meta.value;
  }
  void add(Batch& batch, const SeatRecord& seat) const {
    batch.puts[seat_key(seat.seat.peer, seat.seat.incarnation)] = to_json(seat);
  }
  std::string seat_key(PeerId peer, Incarnation incarnation) const {
    return fmt::format("{}seats/{:010}/{:010}", prefix_, peer.value, incarnation.value);
  }
  void add(Batch& batch, const ForgottenSeats& seats) const {
    const std::string first = seat_key(seats.peer, Incarnation{0});
    const std::string end =
        seats.below ? seat_key(seats.peer, *seats.below)
                    : etcd_prefix_end(fmt::format("{}seats/{:010}/", prefix_, seats.peer.value));
    batch.puts.erase(batch.puts.lower_bound(first), batch.puts.lower_bound(end));
    std::string& wanted = batch.removed_ranges[first];
    wanted = std::max(wanted, end);
  }
  void add(Batch& batch, const CommitRecord& commit) const {
    append(batch, "commits", batch.commits, kCommitsKept, to_json(commit));
  }
  void add(Batch& batch, const EventRecord& event) const {
    append(batch, "events", batch.events, kEventsKept, to_json(event));
  }
  // Numbers count up for ever; those kept are (number - kept, number].
  void append(Batch& batch, std::string_view table, std::uint64_t& number, std::uint64_t kept,
              std::string value) const {
    const auto key = [&](std::uint64_t n) { return fmt::format("{}{}/{:020}", prefix_, table, n); };
    batch.puts[key(++number)] = std::move(value);
    if (number > kept) batch.removals.push_back(key(number - kept));
  }

  // etcd keeps what was overwritten until it is told that nobody wants it, and takes no more when
  // its quota is full. What comes of it is not heard: the next time does it, too.
  void compact_now_and_then(std::int64_t revision) {
    if (++writes_ % kWritesPerCompaction != 0 || revision <= kRevisionsKept) return;
    static_cast<void>(client_.compact(revision - kRevisionsKept));
  }

  std::string leader_key_;
  std::int64_t leader_revision_;
  std::uint64_t commits_ = 0;  // the newest one's number
  std::uint64_t events_ = 0;
  std::uint64_t writes_ = 0;
};

}  // namespace

Result<std::unique_ptr<Journal>> open_etcd_journal(EtcdClient& client, std::string prefix,
                                                   std::string leader_key,
                                                   std::int64_t leader_revision) {
  auto journal = std::make_unique<EtcdJournal>(client, std::move(prefix), std::move(leader_key),
                                               leader_revision);
  SWARMLINE_TRY(journal->prepare());
  return journal;
}

Result<std::unique_ptr<JournalReader>> open_etcd_journal_to_read(std::unique_ptr<EtcdClient> client,
                                                                 std::string prefix) {
  auto records = std::make_unique<EtcdReader>(std::move(client), std::move(prefix));
  const auto found = records->check_format();
  if (!found) return std::unexpected(found.error());
  if (!*found) return nullptr;
  return records;
}

}  // namespace swarmline
