// Data that a peer lacks and fetches in pieces: the run ends as one does whose peers all have it.
// whose peers all have the data.
#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "engine/checkpoint/sha256.h"
#include "engine/data/data_pieces.h"
#include "engine/data/sequence_order.h"
#include "pipeline/protocol/knobs.h"
#include "sim/cluster/fake_stage_model.h"
#include "tests/harness/mark_expected.h"
#include "tests/pipeline/swarm_harness.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kVocab = kByteVocab;

// Two files of bytes, of some pieces each.
class Corpus {
 public:
  explicit Corpus(std::uint64_t seed) {
    for (const std::uint64_t bytes : {5 * kDataPieceBytes + 100, 3 * kDataPieceBytes - 7}) {
      Rng rng(seed + bytes);
      std::vector<std::byte>& file = files_.emplace_back(bytes);
      for (std::byte& byte : file) byte = static_cast<std::byte>(rng.below(256));
      DataFile& listed = manifest_.files.emplace_back();
      listed.name = "file-" + std::to_string(files_.size());
      listed.bytes = listed.used = bytes;
      listed.sha256 = sha256_hex(file);
      for (std::uint64_t at = 0; at < bytes; at += kDataPieceBytes)
        listed.pieces +=
            sha256_hex(BytesView(file).subspan(at, std::min(kDataPieceBytes, bytes - at)));
    }
    pieces_ = std::make_shared<const DataPieces>(manifest_);
  }
  const DataManifest& manifest() const { return manifest_; }
  const DataPieces& pieces() const { return *pieces_; }
  BytesView piece(std::uint32_t number) const {
    const DataPieces::Place place = pieces_->place(number);
    return BytesView(files_[place.file]).subspan(place.offset, place.bytes);
  }
  BytesView range(const ByteRange& range) const {
    return BytesView(files_[range.file]).subspan(range.offset, range.bytes);
  }

 private:
  std::vector<std::vector<std::byte>> files_;
  DataManifest manifest_;
  std::shared_ptr<const DataPieces> pieces_;
};

// A peer's disk, in memory.
class MemoryFolder final : public DataFolder {
 public:
  MemoryFolder(Runtime& runtime, const Corpus& corpus, std::uint64_t pieces_max)
      : runtime_(runtime), corpus_(corpus), pieces_max_(pieces_max) {}

  void read(std::uint32_t piece, Read done) override {
    Buffer bytes = Buffer::copy_of(corpus_.piece(piece));
    if (damages) damages(bytes.bytes());
    later([done, bytes = SharedBytes(std::move(bytes))] { done(bytes); });
  }
  void find(const Piece& piece, Kept done) override {
    later([this, piece, done] {
      const auto kept = kept_.find(piece.number);
      if (kept != kept_.end()) in_use_[piece.number] = kept->second;
      done(kept != kept_.end());
    });
  }
  void keep(const Piece& piece, SharedBytes bytes, Kept done) override {
    later([this, piece, bytes = std::move(bytes), done] {
      const bool right = sha256_hex(bytes.view()) == piece.sha256;
      if (right) kept_[piece.number] = in_use_[piece.number] = bytes;
      if (kept_.size() > pieces_max_) kept_.erase(kept_.begin());
      done(right);
    });
  }
  void use_only(const std::set<std::uint32_t>& pieces) override {
    std::erase_if(in_use_, [&](const auto& entry) { return !pieces.contains(entry.first); });
  }
  std::uint64_t bytes_max() const override { return pieces_max_ * kDataPieceBytes; }

  Result<void> read_in_use(const ByteRange& range, std::span<std::byte> out) const {
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::uint64_t offset = range.offset + i;
      const auto piece = in_use_.find(corpus_.pieces().at(range.file, offset));
      if (piece == in_use_.end()) return fail(ErrorCode::kNotFound, "a piece is not here");
      out[i] = piece->second.view()[offset % kDataPieceBytes];
    }
    return {};
  }
  std::function<void(MutableBytes)> damages;

 private:
  template <typename Then>
  void later(Then then) {
    runtime_.call_after(1ms, std::move(then));
  }
  Runtime& runtime_;
  const Corpus& corpus_;
  std::uint64_t pieces_max_;
  std::map<std::uint32_t, SharedBytes> kept_, in_use_;
};

class CorpusSource final : public MicrobatchSource {
 public:
  CorpusSource(const RunConfig& config, TokenDataset dataset, const DataPieces* fetched)
      : dataset_(std::move(dataset)),
        order_(dataset_, {.batch = config.batch, .seed = config.run.seed}),
        fetched_(fetched) {}
  Result<void> read(const MicrobatchId& id, std::span<std::int32_t> tokens,
                    std::span<std::int32_t> targets) override {
    return order_.read(id, tokens, targets);
  }
  std::vector<std::uint32_t> pieces_of(const MicrobatchId& id) const override {
    std::vector<std::uint32_t> pieces;
    for (std::uint32_t row = 0; fetched_ != nullptr && row < order_.rows(id); ++row)
      for (const ByteRange& range : dataset_.ranges(order_.sequence(id, row)))
        fetched_->list(range, pieces);
    return pieces;
  }

 private:
  TokenDataset dataset_;
  MicrobatchOrder order_;
  const DataPieces* fetched_;
};

enum class Has : std::uint8_t { kAll, kNothing, kFetches };

// What each peer has of the data, in joining order; whoever comes later has what the last one has.
struct World {
  explicit World(std::vector<Has> has, std::uint64_t seed = 5)
      : corpus(seed), has(std::move(has)) {}

  SimClusterOptions options(const RunConfig& config, MakeModel make_model = make_fake_model) {
    SimClusterOptions options = swarm_of(config, std::move(make_model));
    options.vocab = kVocab;
    options.data = std::make_shared<const DataManifest>(corpus.manifest());
    options.outfit = [this](std::size_t peer, Runtime& runtime, StagePeerOptions& made) {
      outfit(peer, runtime, made);
    };
    return options;
  }

  void outfit(std::size_t peer, Runtime& runtime, StagePeerOptions& made) {
    const Has what = has[std::min(peer, has.size() - 1)];
    folders.push_back(std::make_unique<MemoryFolder>(runtime, corpus, pieces_max));
    if (damages.contains(peer)) folders.back()->damages = damages.at(peer);
    MemoryFolder* const folder = folders.back().get();
    made.data_folder = folder;
    made.compare_data = [what](const DataManifest& manifest) {
      return HeldData{.fingerprint = manifest.fingerprint(),
                      .lacks = what == Has::kAll ? "" : "there is no such file",
                      .differs = {},
                      .fetches = what == Has::kFetches,
                      .serves = what == Has::kAll,
                      .paths = {}};
    };
    made.make_source = [this, what, folder](const RunConfig& config) {
      return source(config, what == Has::kFetches, *folder);
    };
  }

  Result<std::unique_ptr<MicrobatchSource>> source(const RunConfig& config, bool fetches,
                                                   MemoryFolder& folder) {
    FetchedFiles files;
    for (const DataFile& file : corpus.manifest().files)
      files.files.push_back({.name = file.name, .used = file.used});
    files.read = [this, fetches, &folder](const ByteRange& range, std::span<std::byte> out) {
      if (fetches) return folder.read_in_use(range, out);
      std::memcpy(out.data(), corpus.range(range).data(), out.size());
      return Result<void>();
    };
    auto dataset = TokenDataset::open({.data = config.data,
                                       .sequence = config.batch.sequence,
                                       .seed = config.run.seed,
                                       .vocab = kVocab,
                                       .root = {},
                                       .fetched = std::move(files)});
    if (!dataset) return std::unexpected(dataset.error());
    return std::make_unique<CorpusSource>(config, std::move(*dataset),
                                          fetches ? &corpus.pieces() : nullptr);
  }

  Corpus corpus;
  std::vector<Has> has;
  std::uint64_t pieces_max = 64;
  std::map<std::size_t, std::function<void(MutableBytes)>> damages;
  std::vector<std::unique_ptr<MemoryFolder>> folders;
};

RunConfig run_of(std::vector<std::uint32_t> peers) {
  RunConfig config = small_run(std::move(peers), 0);
  config.data.kind = DataKind::kBytes;
  config.data.held_out = 0;
  return config;
}

Tensors reference(RunConfig config, std::uint64_t seed = 5) {
  config.pipeline.peers.assign(config.pipeline.stages, 1);
  World world({Has::kAll}, seed);
  Swarm swarm(world.options(config));
  swarm.finish();
  return swarm.cluster().parameters();
}

std::uint64_t asked_by(const Swarm& swarm, std::size_t peer) {
  return swarm.delivered(MessageKind::kPieceRequest, SimCluster::node_of_peer(peer));
}

TEST(DataSwarm, TheDataDecidesWhatARunEndsWith) {
  const RunConfig config = run_of({1, 1});
  EXPECT_NE(reference(config), reference(config, 6));
}

TEST(DataSwarm, WhoLacksTheDataFetchesItAndTheRunEndsAsIfItHadIt) {
  RunConfig config = run_of({2, 1});
  config.run.steps = 24;
  World world({Has::kAll, Has::kAll, Has::kFetches});
  Swarm swarm(world.options(config));
  const MarkExpected held("leases.held_for_data");
  EXPECT_TRUE(swarm.until([&] {
    const std::string status = swarm.cluster().coordinator().status_json();
    return status.find("fetches its data from sim-") != std::string::npos;
  })) << history(swarm);
  swarm.finish();
  EXPECT_EQ(swarm.cluster().seat_of(2).stage, StageId{0});
  EXPECT_GT(asked_by(swarm, 2), 0U);
  EXPECT_LE(asked_by(swarm, 2), world.corpus.pieces().count()) << "each is fetched once";
  EXPECT_EQ(asked_by(swarm, 0) + asked_by(swarm, 1), 0U);
  expect_equal(swarm.cluster().parameters(), reference(config));
}

// It keeps two pieces, and asks again for what it let go.
TEST(DataSwarm, ACacheOfTwoPiecesIsEnough) {
  const RunConfig config = run_of({1, 1});
  World world({Has::kNothing, Has::kFetches, Has::kAll});
  world.pieces_max = 2;
  Swarm swarm(world.options(config));
  swarm.cluster().add_peer({});
  swarm.finish();
  EXPECT_EQ(swarm.cluster().seat_of(1).stage, StageId{0});
  EXPECT_GT(asked_by(swarm, 1), world.corpus.pieces().count());
  expect_equal(swarm.cluster().parameters(), reference(config));
}

TEST(DataSwarm, AJoinerWithoutTheDataFetchesIt) {
  RunConfig config = run_of({1, 1});
  config.run.steps = 24;
  World world({Has::kAll, Has::kNothing, Has::kFetches});
  Swarm swarm(world.options(config));
  swarm.until_committed(1);
  swarm.cluster().add_peer({});
  ASSERT_TRUE(swarm.until([&] { return swarm.cluster().serves(2); })) << history(swarm);
  EXPECT_EQ(swarm.cluster().seat_of(2).stage, StageId{0});
  swarm.finish();
  EXPECT_GT(asked_by(swarm, 2), 0U);
  expect_equal(swarm.cluster().parameters(), reference(config));
}

// [One holder gives other bytes, with a checksum that is right for them.]
TEST(DataSwarm, APieceThatIsAnotherIsAskedElsewhereAndItsSenderNoMoreAfterThree) {
  const RunConfig config = run_of({2, 1});
  World world({Has::kAll, Has::kAll, Has::kFetches});
  world.damages[1] = [](MutableBytes bytes) { bytes[bytes.size() / 2] ^= std::byte{1}; };
  Swarm swarm(world.options(config));
  const MarkExpected wrong("data_fetch.wrong_piece");
  swarm.finish();
  const std::uint64_t asked_of_liar = swarm.delivered(
      MessageKind::kPieceRequest, SimCluster::node_of_peer(2), SimCluster::node_of_peer(1));
  EXPECT_GE(asked_of_liar, 3U);
  EXPECT_LE(asked_of_liar, 4U) << "one more may be under way";
  expect_equal(swarm.cluster().parameters(), reference(config));
}

// One that could have it sits elsewhere: whoever fetches serves the stage that reads nothing.
TEST(DataSwarm, WhoHasTheDataIsPreferredForTheStageThatReadsIt) {
  const RunConfig config = run_of({1, 1});
  World world({Has::kFetches, Has::kAll});
  Swarm swarm(world.options(config));
  swarm.finish();
  EXPECT_EQ(swarm.cluster().seat_of(0).stage, StageId{1});
  EXPECT_EQ(swarm.cluster().seat_of(1).stage, StageId{0});
  EXPECT_EQ(asked_by(swarm, 0), 0U);
}

TEST(DataSwarm, NoRunStartsOnDataThatNobodyHas) {
  const RunConfig config = run_of({1, 1});
  World world({Has::kFetches, Has::kFetches, Has::kAll});
  Swarm swarm(world.options(config));
  const MarkExpected nobody("data_holders.nobody");
  swarm.cluster().runtime().run_for(60s);
  EXPECT_EQ(events(swarm, "start"), 0U) << history(swarm);
  EXPECT_EQ(events(swarm, "waiting", "nobody in the run has its data"), 1U) << history(swarm);
  swarm.cluster().add_peer({});
  swarm.finish();
  expect_equal(swarm.cluster().parameters(), reference(config));
}

// [Only the fetching peer is left at the stage that reads, and keeps two pieces.]
TEST(DataSwarm, WhenTheLastHolderIsLostTheRunWaitsForAnother) {
  RunConfig config = run_of({2, 2});
  config.run.steps = 40;
  World world({Has::kAll, Has::kAll, Has::kNothing, Has::kFetches, Has::kAll});
  world.pieces_max = 2;
  Swarm swarm(world.options(config));
  swarm.until_committed(1);
  ASSERT_EQ(swarm.cluster().seat_of(3).stage, StageId{0}) << history(swarm);
  for (const std::size_t holder : {0U, 1U}) swarm.kill(SimCluster::node_of_peer(holder));
  ASSERT_TRUE(swarm.until([&] { return events(swarm, "waiting", "has its data") == 1; }))
      << history(swarm);
  swarm.cluster().runtime().run_for(100s);
  EXPECT_FALSE(swarm.cluster().outcome().has_value()) << history(swarm);
  EXPECT_EQ(events(swarm, "waiting", "has its data"), 1U) << "it is said once";
  swarm.cluster().add_peer({});
  swarm.finish();
  EXPECT_EQ(events(swarm, "data_here"), 1U) << history(swarm);
  expect_equal(swarm.cluster().parameters(), reference(config));
}

TEST(DataSwarm, ARestartedCoordinatorGoesOnGivingHashesAndHolders) {
  RunConfig config = run_of({2, 1});
  config.run.steps = 12;
  World world({Has::kAll, Has::kAll, Has::kFetches});
  world.pieces_max = 2;
  Swarm swarm(world.options(config));
  swarm.until_committed(2);
  swarm.cluster().kill_coordinator();
  swarm.cluster().runtime().run_for(1s);
  swarm.cluster().restart_coordinator();
  swarm.finish();
  expect_equal(swarm.cluster().parameters(), reference(config));
}

}  // namespace
}  // namespace swarmline
