// A peer writes its part of a checkpoint into the coordinator's folder, where it really is that.
#include "node/part_folder.h"

#include <functional>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/checkpoint/checkpoint_reader.h"
#include "engine/checkpoint/sha256.h"
#include "engine/runtime/asio_runtime.h"
#include "node/folder_sink.h"
#include "node/folder_source.h"
#include "tests/checkpoint/small_stages.h"
#include "tests/store/temp_folder.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;

class PartFolderTest : public testing::Test {
 protected:
  PartFolder::Place place(std::uint32_t part, std::uint32_t parts) const {
    return {.folder = sink_.shared()->path,
            .token = sink_.shared()->token,
            .version = 7,
            .attempt = 3,
            .stage = StageId{0},
            .part = part,
            .parts = parts};
  }
  // How what is asked for by `ask` went.
  Result<void> wait(const std::function<void(std::function<void(Result<void>)>)>& ask) {
    std::optional<Result<void>> said;
    ask([&](const Result<void>& went) { said = went; });
    EXPECT_FALSE(said) << "not inside the call";
    EXPECT_TRUE(runtime_.run_until([&] { return said.has_value(); }, 60s));
    return *said;
  }
  Result<void> in_folder(std::function<Result<void>()> body) {
    return wait([&](auto done) { folder_.run(std::move(body), std::move(done)); });
  }
  Result<void> begin(std::vector<std::uint32_t> parts) {
    CheckpointSink::Description description{.name = "step-7", .version = 7, .era = Era{1}};
    description.stages.resize(parts.size());
    description.stages[0].last_layer = 1;
    description.attempt = 3;
    description.parts = std::move(parts);
    description.optimizer_state = true;
    return wait([&](auto done) { sink_.begin(description, std::move(done)); });
  }

  const TempFolder temp_;
  AsioRuntime runtime_;
  CpuDevice device_{runtime_, {.queue_jobs_max = FolderSink::kJobsMax}};
  FolderSink sink_{temp_.at("checkpoints"), one_layer(), [] { return Retention{.newest = 3}; },
                   device_, "a token"};
  SharedPartFolder folder_{runtime_};

  static Manifest one_layer() {
    Manifest manifest = small_manifest({1});
    manifest.stages.clear();
    return manifest;
  }
};

TEST_F(PartFolderTest, OnlyTheCoordinatorsFolderIsBelievedIn) {
  ASSERT_TRUE(begin({1}));  // after the token
  EXPECT_TRUE(in_folder([&] { return folder_.prove(place(0, 1)); }));
  const auto refused = [&](const std::function<void(PartFolder::Place&)>& change) {
    PartFolder::Place other = place(0, 1);
    change(other);
    const auto proved = in_folder([&] { return folder_.prove(other); });
    return !proved && proved.error().code == ErrorCode::kNotFound;
  };
  EXPECT_TRUE(refused([](auto& other) { other.token = "another"; }));
  EXPECT_TRUE(refused([](auto& other) { other.token.clear(); }));
  EXPECT_TRUE(refused([](auto& other) { other.folder += "/../checkpoints"; }));
  EXPECT_TRUE(refused([](auto& other) { other.folder += "/.."; }));
  EXPECT_TRUE(refused([](auto& other) { other.folder = "checkpoints"; }));
  EXPECT_TRUE(refused([](auto& other) { other.folder = "/nowhere"; }));
}

// One part comes over the network, one is written there: both are gone on with.
TEST_F(PartFolderTest, PartsAreReadBack) {
  const ParameterLayout one = small_layout({{.name = "one", .shape = {300}}});
  const ParameterLayout two = small_layout({{.name = "two", .shape = {5}}});
  const Buffer first = counted_arena(one, 1), second = counted_arena(two, 9);
  const StageFileImage here({{.layout = one, .arena = first.bytes()}});
  const StageFileImage there({{.layout = two, .arena = second.bytes()}});
  ASSERT_TRUE(begin({2}));
  const CheckpointPart sent{StageId{0}, 0}, written{StageId{0}, 1};
  ASSERT_TRUE(wait([&](auto done) {
    sink_.write_piece(sent, 0, SharedBytes(here.piece(0, UINT64_MAX)), std::move(done));
  }));
  ASSERT_TRUE(wait([&](auto done) {
    sink_.finish_part(sent, here.size_bytes(), here.sha256(), std::move(done));
  }));
  const auto went = in_folder([&]() -> Result<void> {
    auto file = folder_.create(place(1, 2));
    if (!file) return std::unexpected(file.error());
    SWARMLINE_TRY((*file)->append(there.piece(0, 64).bytes()));
    SWARMLINE_TRY((*file)->append(there.piece(64, UINT64_MAX).bytes()));
    return (*file)->finish();
  });
  ASSERT_TRUE(went) << went.error().what;
  EXPECT_FALSE(wait([&](auto done) { sink_.adopt_part(written, 3, "", std::move(done)); }));
  ASSERT_TRUE(wait([&](auto done) {
    sink_.adopt_part(written, there.size_bytes(), there.sha256(), std::move(done));
  }));
  const auto committed = wait([&](auto done) {
    sink_.commit([done](const Result<std::string>& path) {
      done(path ? Result<void>() : std::unexpected(path.error()));
    });
  });
  ASSERT_TRUE(committed) << committed.error().what;
  EXPECT_THAT(*list_folder(temp_.at("checkpoints")), ElementsAre(kSharedToken, "step-7"));

  CpuDevice reader(runtime_, {});
  FolderSource source(temp_.at("checkpoints"), reader);
  std::optional<Result<std::optional<CheckpointSource::Saved>>> saved;
  source.open_newest([&](auto found) { saved = std::move(found); });
  ASSERT_TRUE(runtime_.run_until([&] { return saved.has_value(); }, 60s));
  ASSERT_TRUE(*saved && **saved);
  EXPECT_EQ((**saved)->version, 7U);
  EXPECT_TRUE(as_text(*source.tensor("one")) == as_text(first.bytes().first(300 * 4)));
  EXPECT_TRUE(as_text(*source.tensor("two")) == as_text(second.bytes().first(5 * 4)));
}

// What was given up is gone, and who still writes into it hears so.
TEST_F(PartFolderTest, WhoWritesIntoWhatWasGivenUpFails) {
  ASSERT_TRUE(begin({1}));
  std::unique_ptr<PartWriter> file;
  ASSERT_TRUE(in_folder([&]() -> Result<void> {
    auto made = folder_.create(place(0, 1));
    if (!made) return std::unexpected(made.error());
    file = std::move(*made);
    return file->append(as_bytes("some"));
  }));
  sink_.abandon();
  EXPECT_FALSE(wait([&](auto done) { sink_.adopt_part({StageId{0}, 0}, 4, "", std::move(done)); }));
  EXPECT_FALSE(in_folder([&] { return file->finish(); }));
  file.reset();
  EXPECT_THAT(*list_folder(temp_.at("checkpoints")), ElementsAre(kSharedToken));
}

}  // namespace
}  // namespace swarmline
