// What every journal does.

#include <cmath>
#include <functional>
#include <limits>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/runtime/asio_runtime.h"
#include "engine/store/control_store.h"
#include "sim/doors/sim_journal.h"
#include "tests/store/etcd_process.h"
#include "tests/store/temp_folder.h"

namespace swarmline {
namespace {

// A journal and what it stands on, once for each test.
class Opened {
 public:
  virtual ~Opened() = default;
  virtual Journal* journal() = 0;
};

class OpenedMemory final : public Opened {
 public:
  Journal* journal() override { return journal_.get(); }

 private:
  std::unique_ptr<Journal> journal_ = make_memory_journal();
};

class OpenedSim final : public Opened {
 public:
  Journal* journal() override { return &journal_; }

 private:
  SimRuntime runtime_{1};
  SimJournal journal_{runtime_};
};

// Led by this process; `again()` is what its next leader sees.
class OpenedStore : public Opened {
 public:
  explicit OpenedStore(ControlStoreOptions options) : options_(std::move(options)) { open(); }
  Journal* journal() override { return &(*store_->journal())->at_once(); }
  void again() {
    store_.reset();
    open();
  }

 private:
  void open() {
    store_ = *open_control_store(runtime_, options_);
    const auto leads = store_->try_lead("the test");
    ASSERT_TRUE(leads) << leads.error().what;
    ASSERT_TRUE(*leads);
  }
  AsioRuntime runtime_;
  ControlStoreOptions options_;
  std::unique_ptr<ControlStore> store_;
};

struct Store {
  std::string name;
  std::function<ControlStoreOptions(const TempFolder&)> options;
  std::string missing;  // why there is none here; empty: there is
};

Store sqlite() {
  return {"Sqlite",
          [](const TempFolder& folder) {
            return ControlStoreOptions{.etcd = {}, .run_folder = folder.path(), .run = {}};
          },
          ""};
}

// One etcd serves all tests of this process; every test has a run of its own in it.
Store etcd() {
  return {"Etcd",
          [](const TempFolder& folder) {
            static EtcdProcess process;
            return ControlStoreOptions{
                .etcd = {process.endpoint()}, .run_folder = {}, .run = folder.path()};
          },
          EtcdProcess::missing()};
}

struct Backend {
  std::string name;
  std::function<std::unique_ptr<Opened>(const TempFolder&)> open;
  std::string missing;
};

template <typename T>
Backend in_memory(const char* name) {
  return {name, [](const TempFolder&) { return std::make_unique<T>(); }, ""};
}
Backend in_store(const Store& store) {
  return {store.name,
          [options = store.options](const TempFolder& folder) {
            return std::make_unique<OpenedStore>(options(folder));
          },
          store.missing};
}

class JournalContract : public testing::TestWithParam<Backend> {
 protected:
  void SetUp() override {
    if (!GetParam().missing.empty()) GTEST_SKIP() << GetParam().missing;
    opened_ = GetParam().open(folder_);
    journal_ = opened_->journal();
  }
  TempFolder folder_;
  std::unique_ptr<Opened> opened_;
  Journal* journal_ = nullptr;
};

// What is in memory goes with its process; this does not.
class JournalOfStore : public testing::TestWithParam<Store> {
 protected:
  void SetUp() override {
    if (!GetParam().missing.empty()) GTEST_SKIP() << GetParam().missing;
    store_.emplace(GetParam().options(folder_));
  }
  TempFolder folder_;
  std::optional<OpenedStore> store_;
};

SeatRecord seat(std::uint32_t peer, std::uint32_t incarnation, std::uint16_t stage,
                const char* state) {
  return {.seat = {PeerId(peer), StageId(stage), Incarnation(incarnation)},
          .address = "127.0.0.1:" + std::to_string(1000 + peer),
          .state = state};
}

// Beside whoever leads, and when nobody does any more.
TEST_P(JournalOfStore, OneWhoDoesNotLeadReadsIt) {
  const ControlStoreOptions options = GetParam().options(folder_);
  ASSERT_TRUE(store_->journal()->put_meta("run_id", "a"));
  const auto read = open_journal_to_read(options);
  ASSERT_TRUE(read) << read.error().what;
  ASSERT_NE(*read, nullptr);
  EXPECT_EQ(*(*read)->get_meta("run_id"), "a");
  ASSERT_TRUE(store_->journal()->record_seat(seat(3, 1, 2, "active")));
  ASSERT_TRUE(store_->journal()->record_commit({.step = 4, .version = 5}));
  ASSERT_TRUE(store_->journal()->record_event(1, "kind", "detail"));
  store_.reset();
  EXPECT_EQ((*read)->seats()->size(), 1U);
  EXPECT_EQ((*(*read)->last_commit())->version, 5U);
  EXPECT_EQ((*read)->events(10)->size(), 1U);
}

TEST_P(JournalOfStore, ARunThatHasNotBegunHasNothingToRead) {
  const TempFolder other;
  const auto read = open_journal_to_read(GetParam().options(other));
  ASSERT_TRUE(read) << read.error().what;
  EXPECT_EQ(*read, nullptr);
}

TEST_P(JournalContract, MetaIsKeptAndReplaced) {
  EXPECT_EQ(*journal_->get_meta("run_id"), std::nullopt);
  ASSERT_TRUE(journal_->put_meta("run_id", "a"));
  ASSERT_TRUE(journal_->put_meta("run_id", "b"));
  ASSERT_TRUE(journal_->put_meta("odd", std::string("it's\0 \"text\"", 13)));
  EXPECT_EQ(*journal_->get_meta("run_id"), "b");
  EXPECT_EQ(*journal_->get_meta("odd"), std::string("it's\0 \"text\"", 13));
}

TEST_P(JournalContract, SeatsAreOneRowPerIncarnation) {
  ASSERT_TRUE(journal_->record_seat(seat(10, 1, 3, "active")));
  ASSERT_TRUE(journal_->record_seat(seat(2, 1, 0, "active")));
  ASSERT_TRUE(journal_->record_seat(seat(10, 1, 3, "fenced")));
  ASSERT_TRUE(journal_->record_seat(seat(10, 2, 1, "shadow")));
  const auto seats = journal_->seats();
  ASSERT_TRUE(seats) << seats.error().what;
  ASSERT_EQ(seats->size(), 3U);
  EXPECT_EQ((*seats)[0].seat, seat(2, 1, 0, "").seat);
  EXPECT_EQ((*seats)[0].address, "127.0.0.1:1002");
  EXPECT_EQ((*seats)[1].seat, seat(10, 1, 3, "").seat);
  EXPECT_EQ((*seats)[1].state, "fenced");
  EXPECT_EQ((*seats)[2].seat, seat(10, 2, 1, "").seat);
  EXPECT_EQ((*seats)[2].state, "shadow");
}

TEST_P(JournalContract, ASeatHasEveryField) {
  SeatRecord record = seat(4, 2, 1, "active");
  record.key = "abcd";
  record.reach = "no";
  record.name = "gpu-box";
  ASSERT_TRUE(journal_->record_seat(record));
  const auto seats = journal_->seats();
  ASSERT_TRUE(seats) << seats.error().what;
  ASSERT_EQ(seats->size(), 1U);
  EXPECT_EQ(seats->at(0), record);
}

TEST_P(JournalContract, ForgottenSeatsAreGone) {
  for (std::uint32_t incarnation = 1; incarnation <= 3; ++incarnation)
    ASSERT_TRUE(journal_->record_seat(seat(10, incarnation, 3, "fenced")));
  ASSERT_TRUE(journal_->record_seat(seat(2, 1, 0, "active")));
  ASSERT_TRUE(journal_->record_seat(seat(100, 1, 0, "active")));
  ASSERT_TRUE(journal_->forget_seats({.peer = PeerId{10}, .below = Incarnation{3}}));
  auto seats = journal_->seats();
  ASSERT_TRUE(seats) << seats.error().what;
  ASSERT_EQ(seats->size(), 3U);
  EXPECT_EQ((*seats)[1].seat, seat(10, 3, 3, "").seat);
  ASSERT_TRUE(journal_->forget_seats({.peer = PeerId{10}, .below = std::nullopt}));
  seats = journal_->seats();
  ASSERT_EQ(seats->size(), 2U);
  EXPECT_EQ((*seats)[0].seat.peer, PeerId{2});
  EXPECT_EQ((*seats)[1].seat.peer, PeerId{100}) << "its number begins alike";
}

// Of one transaction the last that is said of a seat counts.
TEST_P(JournalContract, ASeatCanBeRecordedAndForgottenAtOnce) {
  ASSERT_TRUE(journal_->record_seat(seat(5, 1, 0, "fenced")));
  const std::vector<JournalRecord> records = {
      seat(5, 2, 0, "active"), ForgottenSeats{.peer = PeerId{5}, .below = Incarnation{2}},
      seat(6, 1, 0, "active"), seat(6, 1, 0, "fenced"),
      ForgottenSeats{.peer = PeerId{6}, .below = std::nullopt}};
  const auto written = journal_->write(records);
  ASSERT_TRUE(written) << written.error().what;
  const auto seats = journal_->seats();
  ASSERT_TRUE(seats) << seats.error().what;
  ASSERT_EQ(seats->size(), 1U);
  EXPECT_EQ((*seats)[0].seat, seat(5, 2, 0, "").seat);
}

TEST_P(JournalContract, LastCommitHasEveryField) {
  EXPECT_EQ(*journal_->last_commit(), std::nullopt);
  const CommitRecord commit{.step = 41,
                            .version = 42,
                            .loss = 0.1 + 0.2,
                            .tokens = 4096,
                            .gradient_norm = 1e-300,
                            .clip_scale = 0.5,
                            .learning_rate = 3e-4,
                            .skipped = true,
                            .group_digests = {0, 0xFFFFFFFFFFFFFFFFULL, 7},
                            .wall_seconds = 1.75e9,
                            .era = 3,
                            .updates = 39};
  ASSERT_TRUE(journal_->record_commit({.step = 40, .version = 41}));
  ASSERT_TRUE(journal_->record_commit(commit));
  const auto last = journal_->last_commit();
  ASSERT_TRUE(last && *last);
  EXPECT_EQ((*last)->step, 41U);
  EXPECT_EQ((*last)->version, 42U);
  EXPECT_EQ((*last)->loss, 0.1 + 0.2);
  EXPECT_EQ((*last)->tokens, 4096U);
  EXPECT_EQ((*last)->era, 3U);
  EXPECT_EQ((*last)->updates, 39U);
  EXPECT_EQ((*last)->gradient_norm, 1e-300);
  EXPECT_EQ((*last)->clip_scale, 0.5);
  EXPECT_EQ((*last)->learning_rate, 3e-4);
  EXPECT_TRUE((*last)->skipped);
  EXPECT_EQ((*last)->group_digests, commit.group_digests);
  EXPECT_EQ((*last)->wall_seconds, 1.75e9);
}

TEST_P(JournalContract, NonFiniteNumbersComeBack) {
  const double infinity = std::numeric_limits<double>::infinity();
  ASSERT_TRUE(journal_->record_commit(
      {.step = 1, .loss = std::nan(""), .gradient_norm = infinity, .skipped = true}));
  const auto last = journal_->last_commit();
  ASSERT_TRUE(last && *last);
  EXPECT_TRUE(std::isnan((*last)->loss));
  EXPECT_EQ((*last)->gradient_norm, infinity);
}

TEST_P(JournalContract, StepDoneAgainAfterACheckpointIsTheLast) {
  ASSERT_TRUE(journal_->record_commit({.step = 9, .version = 10, .loss = 3}));
  ASSERT_TRUE(journal_->record_commit({.step = 5, .version = 6, .loss = 4}));
  EXPECT_EQ((*journal_->last_commit())->step, 5U);
}

TEST_P(JournalContract, EventsKeepTheirLevel) {
  const JournalRecord lost =
      EventRecord{.wall_seconds = 1, .kind = "lost", .detail = "it's", .level = LogLevel::kWarn};
  ASSERT_TRUE(journal_->write({&lost, 1}));
  ASSERT_TRUE(journal_->record_event(2, "start", ""));
  const auto events = journal_->events(2);
  ASSERT_TRUE(events) << events.error().what;
  EXPECT_EQ(events->at(0), std::get<EventRecord>(lost));
  EXPECT_EQ(events->at(1).level, LogLevel::kInfo);
}

TEST_P(JournalContract, EventsNewestCountInOrder) {
  EXPECT_TRUE(journal_->events(10)->empty());
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(journal_->record_event(100.5 + i, "kind" + std::to_string(i), "it's"));
  }
  const auto events = journal_->events(2);
  ASSERT_TRUE(events) << events.error().what;
  ASSERT_EQ(events->size(), 2U);
  EXPECT_EQ((*events)[0].kind, "kind3");
  EXPECT_EQ((*events)[0].wall_seconds, 103.5);
  EXPECT_EQ((*events)[1].kind, "kind4");
  EXPECT_EQ((*events)[1].detail, "it's");
  EXPECT_EQ(journal_->events(100)->size(), 5U);
}

TEST_P(JournalOfStore, TheNextLeaderFindsEverything) {
  Journal* journal = store_->journal();
  ASSERT_TRUE(journal->put_meta("term", "3"));
  ASSERT_TRUE(journal->record_seat(seat(1, 1, 0, "active")));
  ASSERT_TRUE(journal->record_commit({.step = 9, .version = 10}));
  ASSERT_TRUE(journal->record_event(1, "start", ""));
  store_->again();
  Journal* next = store_->journal();
  EXPECT_EQ(*next->get_meta("term"), "3");
  EXPECT_EQ(next->seats()->size(), 1U);
  ASSERT_TRUE(next->record_commit({.step = 10, .version = 11}));
  ASSERT_TRUE(next->record_event(2, "resume", ""));
  EXPECT_EQ((*next->last_commit())->step, 10U);
  EXPECT_EQ(next->events(10)->size(), 2U);
}

INSTANTIATE_TEST_SUITE_P(All, JournalContract,
                         testing::Values(in_memory<OpenedMemory>("Memory"),
                                         in_memory<OpenedSim>("Sim"), in_store(sqlite()),
                                         in_store(etcd())),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(All, JournalOfStore, testing::Values(sqlite(), etcd()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace swarmline
