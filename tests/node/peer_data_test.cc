// A run's data on a peer's machine: what it may give, and when it fetches.
#include "node/peer_data.h"

#include <filesystem>
#include <memory>

#include <gtest/gtest.h>

#include "engine/checkpoint/sha256.h"
#include "node/run_data.h"
#include "tests/store/temp_folder.h"

namespace swarmline {
namespace {

class PeerDataTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* folder : {"run", "same", "other", "empty"})
      std::filesystem::create_directories(temp_.at(folder));
    temp_.write("run/a.txt", text_);
    temp_.write("same/a.txt", text_);
    temp_.write("other/a.txt", std::string(text_.size(), 'x'));
    config_.data.files = {temp_.at("run/a.txt")};
    config_.data.held_out = 0;
    config_.batch = {.batch = 2, .microbatch = 2, .sequence = 8};
    config_.model.vocab = kByteVocab;
    auto dataset = open_dataset(config_);
    ASSERT_TRUE(dataset) << dataset.error().what;
    manifest_ = *manifest_of(*dataset, FileHashes(""));
  }
  PeerConfig machine(const std::string& data, bool fetches) {
    PeerConfig machine;
    machine.data = temp_.at(data);
    machine.fetch_data = fetches;
    machine.fetch_data_folder = temp_.at("pieces");
    return machine;
  }

  TempFolder temp_;
  std::string text_ = std::string(kDataPieceBytes, 'a') + "the end";
  RunConfig config_;
  DataManifest manifest_;
  std::shared_ptr<FetchedPieces> fetched_ = std::make_shared<FetchedPieces>();
};

TEST_F(PeerDataTest, WhoHasTheSameGivesAndFetchesNothing) {
  PeerData data(machine("same", true), "", fetched_);
  const HeldData held = data.compare(manifest_);
  EXPECT_TRUE(held.serves);
  EXPECT_FALSE(held.fetches);
  const auto last = data.source_of(1);
  ASSERT_TRUE(last) << last.error().what;
  const auto bytes = last->read();
  ASSERT_TRUE(bytes) << bytes.error().what;
  EXPECT_EQ(sha256_hex(bytes->bytes()), manifest_.files[0].pieces.substr(64));
  EXPECT_FALSE(data.source_of(2));
}

TEST_F(PeerDataTest, WhoLacksItOrHasOtherFetchesWhereItIsAskedTo) {
  for (const char* folder : {"empty", "other"}) {
    PeerData fetches(machine(folder, true), "", fetched_);
    const HeldData held = fetches.compare(manifest_);
    EXPECT_TRUE(held.fetches) << folder;
    EXPECT_FALSE(held.serves);
    EXPECT_NE(held.lacks, "") << folder;
    EXPECT_EQ(held.differs, "") << "it is not refused for that";
    EXPECT_FALSE(fetches.source_of(0));
    PeerData stays(machine(folder, false), "", fetched_);
    EXPECT_FALSE(stays.compare(manifest_).fetches) << folder;
  }
}

TEST_F(PeerDataTest, NothingOutsideOfTheRootIsGivenAlsoWhenANameLeadsThereLater) {
  PeerData data(machine("same", false), "", fetched_);
  ASSERT_TRUE(data.compare(manifest_).serves);
  std::filesystem::remove(temp_.at("same/a.txt"));
  std::filesystem::create_symlink(temp_.at("run/a.txt"), temp_.at("same/a.txt"));
  EXPECT_FALSE(data.source_of(0)->read());
  std::filesystem::remove(temp_.at("same/a.txt"));
  temp_.write("same/a.txt", "short");
  EXPECT_FALSE(data.source_of(0)->read()) << "it was shortened";
}

// What it fetched is read as the files are.
TEST_F(PeerDataTest, FetchedPiecesAreTheData) {
  PeerData has(machine("same", false), "", fetched_), lacks(machine("empty", true), "", fetched_);
  has.compare(manifest_);
  lacks.compare(manifest_);
  auto whole = has.open(config_);
  auto fetched = lacks.open(config_);
  ASSERT_TRUE(whole && fetched);
  PieceCache cache(temp_.at("pieces"), 2 * kDataPieceBytes);
  ASSERT_TRUE(cache.open());
  const MicrobatchId id{{PhaseKind::kTrain, 3}, 0};
  std::vector<std::int32_t> tokens(16), targets(16), expected(16), expected_targets(16);
  ASSERT_TRUE((*whole)->read(id, expected, expected_targets));
  EXPECT_TRUE((*whole)->pieces_of(id).empty());
  const auto pieces = (*fetched)->pieces_of(id);
  ASSERT_FALSE(pieces.empty());
  EXPECT_FALSE((*fetched)->read(id, tokens, targets)) << "nothing is here yet";
  for (const std::uint32_t piece : pieces) {
    const auto bytes = cache.put(
        manifest_.files[0].pieces.substr(64 * piece, 64),
        as_bytes(text_)
            .subspan(piece * kDataPieceBytes)
            .first(std::min<std::size_t>(kDataPieceBytes, text_.size() - piece * kDataPieceBytes)));
    ASSERT_TRUE(bytes && *bytes);
    fetched_->add(piece, *bytes);
  }
  ASSERT_TRUE((*fetched)->read(id, tokens, targets));
  EXPECT_EQ(tokens, expected);
  EXPECT_EQ(targets, expected_targets);
  fetched_->use_only({});
  EXPECT_FALSE((*fetched)->read(id, tokens, targets));
}

}  // namespace
}  // namespace swarmline
