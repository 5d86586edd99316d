// Pieces of a run's data, given and fetched, and what hostile askers and holders meet.
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/hash.h"
#include "engine/checkpoint/sha256.h"
#include "pipeline/protocol/data_messages.h"
#include "pipeline/protocol/knobs.h"
#include "pipeline/stage/data/data_fetch.h"
#include "pipeline/stage/data/data_serve.h"
#include "pipeline/stage/phases/phase_runner.h"
#include "pipeline/wiring/wiring.h"
#include "tests/harness/mark_expected.h"
#include "tests/pipeline/stage_bench.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kPieces = 4;
constexpr std::uint64_t kLastBytes = 10;

Buffer bytes_of(std::uint32_t piece) {
  Buffer bytes = Buffer::zeroed(piece + 1 == kPieces ? kLastBytes : kDataPieceBytes);
  bytes.data()[0] = static_cast<std::byte>(piece + 1);
  return bytes;
}

DataManifest some_manifest() {
  DataManifest manifest;
  DataFile& file = manifest.files.emplace_back();
  file.name = "a";
  file.bytes = file.used = (kPieces - 1) * kDataPieceBytes + kLastBytes;
  for (std::uint32_t piece = 0; piece < kPieces; ++piece)
    file.pieces += sha256_hex(bytes_of(piece).bytes());
  return manifest;
}

// What is asked of it waits until the test answers.
class SlowFolder final : public DataFolder {
 public:
  void read(std::uint32_t piece, Read done) override { reads.emplace_back(piece, done); }
  void find(const Piece& piece, Kept done) override {
    if (holds_finds) return finds.push_back([this, piece, done] { answer(piece, done); });
    answer(piece, done);
  }
  void keep(const Piece& piece, SharedBytes bytes, Kept done) override {
    if (holds_keeps)
      return keeps.push_back([this, piece, bytes, done] { judge(piece, bytes, done); });
    judge(piece, bytes, done);
  }
  void use_only(const std::set<std::uint32_t>& pieces) override { in_use = pieces; }
  std::uint64_t bytes_max() const override { return pieces_max * kDataPieceBytes; }

  void answer(const Piece& piece, const Kept& done) { done(kept.contains(piece.number)); }
  void judge(const Piece& piece, const SharedBytes& bytes, const Kept& done) {
    const bool right = sha256_hex(bytes.view()) == piece.sha256;
    if (right) kept.insert(piece.number);
    done(right);
  }

  bool holds_finds = false, holds_keeps = false;
  std::vector<std::function<void()>> finds, keeps;
  std::vector<std::pair<std::uint32_t, Read>> reads;
  std::set<std::uint32_t> kept, in_use;
  std::uint64_t pieces_max = 2;
};

// ---- Giving -------------------------------------------------------------------------------------

class DataServeTest : public testing::Test {
 protected:
  wire::PieceRequest request(std::uint32_t piece) {
    wire::PieceRequest request;
    request.mutable_blob()->set_data(true);
    request.set_piece(piece);
    *request.mutable_seat() = to_wire(bench_.other());
    return request;
  }
  StageBench bench_{1, 0, 0};
  SlowFolder folder_;
  DataServe serve_{bench_.context(), &folder_, kPieces};
};

TEST_F(DataServeTest, APieceIsReadAndSent) {
  ASSERT_TRUE(serve_.on_request(bench_.other(), request(3)));
  ASSERT_EQ(folder_.reads.size(), 1U);
  EXPECT_TRUE(bench_.sent<wire::Piece>(MessageKind::kPiece).empty()) << "not before it is read";
  folder_.reads[0].second(SharedBytes(bytes_of(3)));
  const auto pieces = bench_.sent<wire::Piece>(MessageKind::kPiece);
  ASSERT_EQ(pieces.size(), 1U);
  EXPECT_EQ(pieces[0].piece(), 3U);
  EXPECT_EQ(pieces[0].checksum(), xxh3(bytes_of(3).bytes()));
  serve_.check_invariants();
}

TEST_F(DataServeTest, WhatCanNotBeReadIsNotHeld) {
  const MarkExpected cannot("data_serve.cannot_read");
  ASSERT_TRUE(serve_.on_request(bench_.other(), request(0)));
  folder_.reads.at(0).second(fail(ErrorCode::kIo, "the disk is gone"));
  const auto pieces = bench_.sent<wire::Piece>(MessageKind::kPiece);
  ASSERT_EQ(pieces.size(), 1U);
  EXPECT_TRUE(pieces[0].missing());
}

TEST_F(DataServeTest, WhoHasNoneSaysSo) {
  DataServe none(bench_.context(), nullptr, kPieces);
  ASSERT_TRUE(none.on_request(bench_.other(), request(0)));
  const auto pieces = bench_.sent<wire::Piece>(MessageKind::kPiece);
  ASSERT_EQ(pieces.size(), 1U);
  EXPECT_TRUE(pieces[0].missing());
}

TEST_F(DataServeTest, APieceThatTheDataDoesNotHaveIsBadBytes) {
  const MarkExpected none("data_serve.no_such_piece");
  EXPECT_FALSE(serve_.on_request(bench_.other(), request(kPieces)));
  EXPECT_FALSE(serve_.on_request(bench_.other(), request(UINT32_MAX)));
  EXPECT_TRUE(folder_.reads.empty());
}

TEST_F(DataServeTest, AskingInAnothersNameIsBadBytes) {
  const MarkExpected another("data_serve.asked_in_anothers_name");
  wire::PieceRequest lie = request(0);
  lie.mutable_seat()->set_peer(7);
  EXPECT_FALSE(serve_.on_request(bench_.other(), lie));
  EXPECT_TRUE(folder_.reads.empty());
}

TEST_F(DataServeTest, AnAskerHasAFewReadsUnderWayAndNoMore) {
  const MarkExpected more("data_serve.asked_for_more_than_it_takes");
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(serve_.on_request(bench_.other(), request(0)));
  EXPECT_EQ(folder_.reads.size(), DataServe::kReadsOfOneMax);
  serve_.check_invariants();
  folder_.reads[0].second(SharedBytes(bytes_of(0)));
  ASSERT_TRUE(serve_.on_request(bench_.other(), request(1)));
  EXPECT_EQ(folder_.reads.size(), DataServe::kReadsOfOneMax + 1);
}

// ---- Fetching -----------------------------------------------------------------------------------

class DataFetchTest : public testing::Test {
 protected:
  void SetUp() override {
    fetch_.emplace(bench_.context(), &folder_, std::make_shared<const DataPieces>(manifest_),
                   [this] { ++here_; });
  }
  void say_holder() {
    wire::DataHolders holders;
    wire::GroupMember* holder = holders.add_holders();
    *holder->mutable_seat() = to_wire(bench_.other());
    holder->set_address("sim:2");
    fetch_->on_holders(holders);
  }
  void say_hashes() {
    wire::DataHashes hashes;
    hashes.set_hashes(manifest_.files[0].pieces);
    ASSERT_TRUE(fetch_->on_hashes(hashes));
  }
  std::vector<std::uint32_t> asked() {
    std::vector<std::uint32_t> pieces;
    for (const auto& request : bench_.sent<wire::PieceRequest>(MessageKind::kPieceRequest)) {
      EXPECT_TRUE(request.blob().data());
      pieces.push_back(request.piece());
    }
    return pieces;
  }
  Result<void> give(std::uint32_t piece, BytesView bytes) {
    wire::Piece reply;
    reply.mutable_blob()->set_data(true);
    reply.set_piece(piece);
    reply.set_checksum(xxh3(bytes));
    auto taken = fetch_->on_piece(bench_.other(), reply, bytes);
    fetch_->check_invariants();
    return taken;
  }
  Result<void> give(std::uint32_t piece) { return give(piece, bytes_of(piece).bytes()); }

  StageBench bench_{1, 0, 0};
  DataManifest manifest_ = some_manifest();
  SlowFolder folder_;
  int here_ = 0;
  std::optional<DataFetch> fetch_;
};

TEST_F(DataFetchTest, HashesComeFirstThenPiecesFromAHolder) {
  fetch_->need({{0, 3}}, {});
  EXPECT_EQ(bench_.told<wire::WantHashes>(MessageKind::kWantHashes).size(), 1U);
  say_holder();
  EXPECT_TRUE(asked().empty()) << "nobody knows what they should be";
  say_hashes();
  EXPECT_EQ(asked(), (std::vector<std::uint32_t>{0, 3}));
  ASSERT_TRUE(give(0));
  EXPECT_FALSE(fetch_->here({0, 3}));
  ASSERT_TRUE(give(3));
  EXPECT_TRUE(fetch_->here({0, 3}));
  EXPECT_EQ(here_, 2);
  EXPECT_EQ(fetch_->progress()->pieces(), 2U);
  EXPECT_EQ(fetch_->progress()->of(), kPieces);
  EXPECT_EQ(fetch_->progress()->from(), bench_.other().peer.value);
}

TEST_F(DataFetchTest, WhatWasKeptIsNotFetched) {
  folder_.kept = {1};
  fetch_->need({{1}}, {});
  say_holder();
  say_hashes();
  EXPECT_TRUE(asked().empty());
  EXPECT_TRUE(fetch_->here({1}));
}

TEST_F(DataFetchTest, TheFirstMicrobatchHasItsPiecesWhateverTheBoundTheOthersWait) {
  say_holder();
  fetch_->need({{0, 1, 2}, {3}}, {});
  say_hashes();
  EXPECT_EQ(folder_.in_use, (std::set<std::uint32_t>{0, 1, 2}));
  fetch_->need({{3}}, {0});
  EXPECT_EQ(folder_.in_use, (std::set<std::uint32_t>{0, 3})) << "what is under way goes on";
  fetch_->need({{3}}, {});
  EXPECT_EQ(folder_.in_use, (std::set<std::uint32_t>{3}));
}

TEST_F(DataFetchTest, WhatIsHereStaysWhileThereIsRoom) {
  say_holder();
  fetch_->need({{0}}, {});
  say_hashes();
  ASSERT_EQ(asked().size(), 1U);
  ASSERT_TRUE(give(0));
  fetch_->need({{1}}, {});
  EXPECT_EQ(folder_.in_use, (std::set<std::uint32_t>{0, 1}));
  fetch_->need({{1, 2}}, {});
  EXPECT_EQ(folder_.in_use, (std::set<std::uint32_t>{1, 2}));
}

// A microbatch of many sequences, each of which reads another piece.
TEST_F(DataFetchTest, AFewHundredPiecesAreLookedForAtOnceTheOthersInTheirTurn) {
  constexpr std::uint32_t kMany = kDataHashesOfBlock;
  DataManifest manifest;
  DataFile& file = manifest.files.emplace_back();
  file.bytes = file.used = kMany * kDataPieceBytes;
  DataFetch fetch(bench_.context(), &folder_, std::make_shared<const DataPieces>(manifest),
                  [this] { ++here_; });
  folder_.holds_finds = true;
  DataFetch::Pieces all;
  for (std::uint32_t piece = 0; piece < kMany; ++piece) {
    all.push_back(piece);
    folder_.kept.insert(piece);
  }
  fetch.need({all}, {});
  wire::DataHashes hashes;
  hashes.set_hashes(std::string(kMany * kHashDigits, '0'));
  ASSERT_TRUE(fetch.on_hashes(hashes));
  EXPECT_EQ(folder_.finds.size(), DataFetch::kLooksMax);
  for (std::size_t i = 0; i < folder_.finds.size(); ++i) {
    const auto find = folder_.finds[i];
    find();
    fetch.check_invariants();
  }
  EXPECT_EQ(folder_.finds.size(), kMany);
  EXPECT_TRUE(fetch.here(all));
}

// Its disk's queue has room for no more than it asks for, however many could give it something.
TEST_F(DataFetchTest, OfHundredsOfHoldersAFewHundredPiecesAreAskedForAtOnce) {
  constexpr std::uint32_t kMany = 2 * DataFetch::kAskedMax;
  DataManifest manifest;
  DataFile& file = manifest.files.emplace_back();
  file.bytes = file.used = kMany * kDataPieceBytes;
  DataFetch fetch(bench_.context(), &folder_, std::make_shared<const DataPieces>(manifest),
                  [this] { ++here_; });
  folder_.holds_finds = folder_.holds_keeps = true;
  DataFetch::Pieces all;
  for (std::uint32_t piece = 0; piece < kMany; ++piece) all.push_back(piece);
  fetch.need({all}, {});
  const Buffer bytes = Buffer::zeroed(kDataPieceBytes);
  wire::DataHashes hashes;
  for (std::uint32_t piece = 0; piece < kMany; ++piece)
    hashes.mutable_hashes()->append(sha256_hex(bytes.bytes()));
  ASSERT_TRUE(fetch.on_hashes(hashes));
  const auto holder = [](std::uint32_t number) {
    return Seat{PeerId{100 + number}, StageId{0}, Incarnation{1}};
  };
  wire::DataHolders holders;
  for (std::uint32_t number = 0; number < kMany; ++number) {
    wire::GroupMember* member = holders.add_holders();
    *member->mutable_seat() = to_wire(holder(number));
    member->set_address("sim:" + std::to_string(100 + number));
  }
  fetch.on_holders(holders);
  for (std::size_t i = 0; i < folder_.finds.size(); ++i) {
    const auto find = folder_.finds[i];
    find();
  }
  // A holder is asked for PieceAsks::kWindow; what was not asked for is refused.
  const auto takes = [&](std::uint32_t from, std::uint32_t number) {
    wire::Piece piece;
    piece.mutable_blob()->set_data(true);
    piece.set_piece(number);
    piece.set_checksum(xxh3(bytes.bytes()));
    const bool taken = fetch.on_piece(holder(from), piece, bytes.bytes()).has_value();
    fetch.check_invariants();
    return taken;
  };
  for (std::uint32_t number = 0; number < kMany; ++number)
    EXPECT_EQ(takes(number / PieceAsks::kWindow, number), number < DataFetch::kAskedMax) << number;
  EXPECT_EQ(folder_.keeps.size(), DataFetch::kAskedMax);
  folder_.keeps.at(0)();
  // One is judged, and another is asked for: of the next holder that has room.
  EXPECT_TRUE(takes(DataFetch::kAskedMax / PieceAsks::kWindow, DataFetch::kAskedMax));
  EXPECT_FALSE(takes(DataFetch::kAskedMax / PieceAsks::kWindow, DataFetch::kAskedMax + 1));
}

TEST_F(DataFetchTest, WhatIsAheadIsBegunWhenNothingElseIsMissing) {
  say_holder();
  fetch_->need({{0}}, {1});
  say_hashes();
  EXPECT_EQ(asked(), std::vector<std::uint32_t>{0});
  ASSERT_TRUE(give(0));
  fetch_->need({{0}}, {1});
  EXPECT_EQ(asked(), std::vector<std::uint32_t>{1});
}

TEST_F(DataFetchTest, AWrongPieceIsNotUsedAndAfterThreeItsSenderIsAskedNoMore) {
  const MarkExpected wrong("data_fetch.wrong_piece");
  say_holder();
  fetch_->need({{0}}, {});
  say_hashes();
  for (std::uint32_t i = 0; i < DataFetch::kWrongMax; ++i) {
    ASSERT_EQ(asked(), std::vector<std::uint32_t>{0}) << "nobody else has it";
    ASSERT_TRUE(give(0, bytes_of(1).bytes()));
    EXPECT_FALSE(fetch_->here({0}));
  }
  bench_.run(60s);
  EXPECT_TRUE(asked().empty());
  say_holder();
  EXPECT_TRUE(asked().empty());
  EXPECT_EQ(fetch_->progress()->wrong(), DataFetch::kWrongMax);
}

TEST_F(DataFetchTest, APieceThatCameDamagedIsAskedForAgain) {
  say_holder();
  fetch_->need({{0}}, {});
  say_hashes();
  ASSERT_EQ(asked().size(), 1U);
  wire::Piece damaged;
  damaged.mutable_blob()->set_data(true);
  ASSERT_TRUE(fetch_->on_piece(bench_.other(), damaged, bytes_of(0).bytes()));
  EXPECT_EQ(asked().size(), 1U);
}

TEST_F(DataFetchTest, OneThatDoesNotHaveItIsAskedAgainAfterAPause) {
  const MarkExpected again("data_fetch.asked_again");
  say_holder();
  fetch_->need({{0}}, {});
  say_hashes();
  for (std::uint32_t i = 0; i < knobs().damaged_in_a_row; ++i) {
    ASSERT_EQ(asked().size(), 1U);
    wire::Piece missing;
    missing.mutable_blob()->set_data(true);
    missing.set_missing(true);
    ASSERT_TRUE(fetch_->on_piece(bench_.other(), missing, {}));
  }
  EXPECT_TRUE(asked().empty());
  bench_.run(2 * knobs().state_retry);
  EXPECT_EQ(asked().size(), 1U);
}

TEST_F(DataFetchTest, APieceNobodyAskedForIsBadBytes) {
  const MarkExpected not_asked("data_fetch.not_asked_for");
  EXPECT_FALSE(give(0));
  say_holder();
  fetch_->need({{0}}, {});
  say_hashes();
  ASSERT_EQ(asked().size(), 1U);
  EXPECT_FALSE(give(1));
  EXPECT_FALSE(give(kPieces));
  ASSERT_TRUE(give(0));
  EXPECT_FALSE(give(0)) << "once";
}

TEST_F(DataFetchTest, APieceThatIsTooLongIsBadBytes) {
  const MarkExpected longer("data_fetch.longer_than_it_is");
  say_holder();
  fetch_->need({{3}}, {});
  say_hashes();
  ASSERT_EQ(asked().size(), 1U);
  EXPECT_FALSE(give(3, bytes_of(0).bytes()));
}

TEST_F(DataFetchTest, HashesOfAnotherNumberOfPiecesAreNotTaken) {
  fetch_->need({{0}}, {});
  wire::DataHashes few;
  few.set_hashes(std::string(64, '0'));
  EXPECT_FALSE(fetch_->on_hashes(few));
}

TEST_F(DataFetchTest, AnotherCoordinatorIsAskedForTheHashesToo) {
  fetch_->need({{0}}, {});
  EXPECT_EQ(bench_.told<wire::WantHashes>(MessageKind::kWantHashes).size(), 1U);
  fetch_->on_coordinator_back();
  EXPECT_EQ(bench_.told<wire::WantHashes>(MessageKind::kWantHashes).size(), 1U);
  say_hashes();
  fetch_->on_coordinator_back();
  EXPECT_TRUE(bench_.told<wire::WantHashes>(MessageKind::kWantHashes).empty());
}

// ---- Leases that wait for data ------------------------------------------------------------------

class OnePieceSource final : public MicrobatchSource {
 public:
  Result<void> read(const MicrobatchId&, std::span<std::int32_t> tokens,
                    std::span<std::int32_t> targets) override {
    std::ranges::fill(tokens, 0);
    std::ranges::fill(targets, 0);
    return {};
  }
  std::vector<std::uint32_t> pieces_of(const MicrobatchId& id) const override {
    return {id.index % kPieces};
  }
};

class HeldLeases : public DataFetchTest {
 protected:
  void begin() {
    leases_.want();
    wire::OpenPhase open;
    *open.mutable_phase() = to_wire(phase_);
    open.set_microbatches(bench_.config().microbatches_per_step());
    open.set_opening(1);
    ASSERT_TRUE(runner_.on_open(open, Version{0}));
    bench_.run();
    wire::Leases leases;
    wire::Lease* lease = leases.add_leases();
    *lease->mutable_phase() = to_wire(phase_);
    lease->set_opening(1);
    ASSERT_TRUE(runner_.on_leases(leases));
    EXPECT_EQ(leases_.held().size(), 1U);
    EXPECT_EQ(flow_.in_flight(), 0U);
  }

  Phase phase_{PhaseKind::kTrain, 0};
  PhaseBook phases_;
  DataFetch data_{bench_.context(), &folder_, std::make_shared<const DataPieces>(manifest_),
                  [this] { runner_.start_held(); }};
  LeaseIntake leases_{bench_.context(), std::make_unique<OnePieceSource>(), data_};
  Contributions contributions_{bench_.context(),
                               Contributions::subtract_on_device(bench_.context())};
  MicrobatchFlow flow_{bench_.context(), phases_,
                       contributions_,   make_wiring(bench_.config(), bench_.self()),
                       1 << 20,          [] {}};
  GradientExchange gradients_{bench_.context(),
                              bench_.jobs(),
                              {.account = [](const Phase&, wire::Reduced&) {}, .on_here = [] {}}};
  SumHandOver hand_over_{bench_.context(), bench_.jobs(), phases_, contributions_};
  PhaseRunner runner_{bench_.context(), bench_.jobs(), phases_,    contributions_, flow_,
                      gradients_,       leases_,       hand_over_, [] {}};
};

TEST_F(HeldLeases, BeginWhenTheirPiecesAreHere) {
  folder_.kept = {0};
  begin();
  wire::DataHashes hashes;
  hashes.set_hashes(manifest_.files[0].pieces);
  ASSERT_TRUE(data_.on_hashes(hashes));
  EXPECT_TRUE(leases_.held().empty());
  EXPECT_EQ(flow_.in_flight(), 1U);
}

TEST_F(HeldLeases, GoWithTheirPhase) {
  const MarkExpected dropped("phases.held_leases_dropped");
  begin();
  const auto before = bench_.told<wire::WantLeases>(MessageKind::kWantLeases).back().total();
  runner_.end(phase_);
  EXPECT_TRUE(leases_.held().empty());
  const auto after = bench_.told<wire::WantLeases>(MessageKind::kWantLeases);
  ASSERT_EQ(after.size(), 1U);
  EXPECT_EQ(after[0].total(), before + 1) << "another one is wanted in its place";
}

}  // namespace
}  // namespace swarmline
