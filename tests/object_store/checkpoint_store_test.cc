// Checkpoints in object storage and their mirror, over a stand-in for pyarrow that keeps them in a
// folder: the program for Python is the real one (object_storage.py has the real pyarrow, too).
#include <cstdlib>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/runtime/asio_runtime.h"
#include "node/object_store/checkpoint_mirror.h"
#include "tests/checkpoint/small_stages.h"
#include "tests/store/temp_folder.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
namespace fs = std::filesystem;

class CheckpointStoreTest : public testing::Test {
 protected:
  CheckpointStoreTest() {
    ::setenv("PYTHONPATH", SWARMLINE_SOURCE_DIR "/tests/object_store/stand_in", 1);
    ::setenv("SWARMLINE_STORE_ROOT", there_.path().c_str(), 1);
    fs::create_directories(there_.at("bucket"));
  }

  // With numbers from `first` on.
  std::string write(std::uint64_t step, float first = 1) const {
    const Buffer arena = counted_arena(layout_, first);
    const StageFileImage image({{.layout = layout_, .arena = arena.bytes()}});
    return write_checkpoint(here_.path(), step, {image});
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    const auto stored = store_.list();
    EXPECT_TRUE(stored) << stored.error().what;
    for (const StoredCheckpoint& one : *stored) names.push_back(one.entry.path);
    return names;
  }
  std::string file_there(std::string_view name) const {
    return there_.at("bucket/runs/tiny/" + std::string(name));
  }

  const TempFolder here_, there_;
  const ParameterLayout layout_ = small_layout({{"w", {4}}});
  const CheckpointStore::Options options_ =
      CheckpointStore::of_run("s3://bucket/runs", "tiny", "python3");
  const CheckpointStore store_{options_};
};

constexpr const char* kPart = "stage-0.safetensors";

TEST_F(CheckpointStoreTest, WhatIsPushedIsListedAndComesBack) {
  EXPECT_THAT(names(), ElementsAre());
  for (const std::uint64_t step : {10, 9, 100}) {
    const auto pushed = store_.push(write(step));
    ASSERT_TRUE(pushed) << pushed.error().what;
  }
  EXPECT_THAT(names(), ElementsAre("step-9", "step-10", "step-100"));
  const StoredCheckpoint newest = store_.list()->back();
  EXPECT_EQ(newest.damage, "");
  EXPECT_EQ(newest.manifest.step, 100U);
  EXPECT_EQ(*store_.find_damage(newest), "");
  const TempFolder elsewhere;
  const auto pulled = store_.pull(newest, elsewhere.path());
  ASSERT_TRUE(pulled) << pulled.error().what;
  for (const char* file : {"manifest.json", kPart})
    EXPECT_EQ(slurp(*pulled + "/" + file), slurp(here_.at("step-100/") + file));
  ASSERT_TRUE(store_.remove(newest));
  EXPECT_THAT(names(), ElementsAre("step-9", "step-10"));
}

TEST_F(CheckpointStoreTest, DamageIsFoundAndNotFetched) {
  for (const std::uint64_t step : {1, 2, 3}) ASSERT_TRUE(store_.push(write(step)));
  fs::resize_file(file_there("step-1/stage-0.safetensors"), 5);
  fs::remove(file_there("step-2/manifest.json"));
  std::string bytes = slurp(file_there("step-3/stage-0.safetensors"));
  bytes.back() ^= 1;
  there_.write("bucket/runs/tiny/step-3/stage-0.safetensors", bytes);

  const auto stored = store_.list();
  ASSERT_TRUE(stored && stored->size() == 3);
  const auto of = [&](const std::string& name) {
    return *std::ranges::find_if(*stored, [&](const auto& one) { return one.entry.path == name; });
  };
  EXPECT_THAT(of("step-1").damage, HasSubstr("has 5 bytes"));
  EXPECT_TRUE(of("step-2").unfinished);
  EXPECT_EQ(of("step-3").damage, "") << "its size is right";
  EXPECT_THAT(*store_.find_damage(of("step-3")), HasSubstr("SHA-256"));
  const TempFolder elsewhere;
  const auto pulled = store_.pull(of("step-3"), elsewhere.path());
  ASSERT_FALSE(pulled);
  EXPECT_TRUE(is_damage(pulled.error())) << pulled.error().what;
  EXPECT_TRUE(fs::is_empty(elsewhere.path()));
}

TEST_F(CheckpointStoreTest, AUsersMistakeIsToldFromWhatMayPass) {
  const auto error_of = [](const CheckpointStore::Options& options) {
    const auto listed = CheckpointStore(options).list();
    return listed ? Error{} : listed.error();
  };
  const Error no_program = error_of({.url = options_.url, .python = "no-such-python"});
  EXPECT_EQ(no_program.code, ErrorCode::kUserMistake);
  EXPECT_THAT(no_program.what, HasSubstr("found no program no-such-python"));
  const Error no_bucket = error_of({.url = "s3://KEY:SECRET@elsewhere/tiny"});
  EXPECT_EQ(no_bucket.code, ErrorCode::kUserMistake);
  EXPECT_THAT(no_bucket.what, testing::Not(HasSubstr("SECRET")));
  there_.write("failing", "PermissionError ACCESS_DENIED");
  EXPECT_EQ(error_of(options_).code, ErrorCode::kUserMistake);
  there_.write("failing", "FileNotFoundError it was there a moment ago");
  EXPECT_EQ(error_of(options_).code, ErrorCode::kIo);
}

class CheckpointMirrorTest : public CheckpointStoreTest {
 protected:
  bool until(const std::function<bool()>& done) { return runtime_.run_until(done, 60s); }
  bool finish() {
    bool finished = false;
    mirror_.finish([&] { finished = true; });
    return until([&] { return finished; });
  }

  AsioRuntime runtime_;
  CheckpointMirror mirror_{runtime_, options_, here_.at("outbox"),
                           [] { return Retention{.newest = 2}; }};
};

TEST_F(CheckpointMirrorTest, TheNewestAreThereWhenTheRunIsOver) {
  for (const std::uint64_t step : {1, 2, 3, 4}) {
    mirror_.copy(write(step));
    if (step < 3) ASSERT_TRUE(until([&] { return names().size() == step; }));
  }
  ASSERT_TRUE(finish());
  EXPECT_EQ(names().size(), 2U);
  EXPECT_EQ(names().back(), "step-4");
  EXPECT_FALSE(fs::exists(here_.at("outbox")));
}

// A step that was gone back to is another checkpoint, whatever waits under its name.
TEST_F(CheckpointMirrorTest, WhatWaitsGivesWayToTheSameStepOfANewEra) {
  there_.write("failing", "FileNotFoundError it was there a moment ago");
  mirror_.copy(write(5));
  ASSERT_TRUE(until([&] { return fs::exists(there_.at("failures")); }));
  fs::remove_all(here_.at("step-5"));
  const std::string again = write(5, 50);
  mirror_.copy(again);
  fs::remove(there_.at("failing"));
  ASSERT_TRUE(finish());
  EXPECT_THAT(names(), ElementsAre("step-5"));
  EXPECT_EQ(slurp(file_there("step-5/stage-0.safetensors")), slurp(again + "/" + kPart));
}

TEST_F(CheckpointMirrorTest, WhatTheRunKeepsNoMoreIsStillCopied) {
  there_.write("failing", "FileNotFoundError it was there a moment ago");
  mirror_.copy(write(6));
  ASSERT_TRUE(until([&] { return fs::exists(there_.at("failures")); }));
  fs::remove_all(here_.at("step-6"));
  fs::remove(there_.at("failing"));
  ASSERT_TRUE(finish());
  EXPECT_THAT(names(), ElementsAre("step-6"));
}

}  // namespace
}  // namespace swarmline
