// Models out of the program and into it: export, initial parameters, evaluation, text.
#include <filesystem>

#include <gtest/gtest.h>

#include "engine/checkpoint/checkpoint_diff.h"
#include "engine/store/json_value.h"
#include "tests/cli/program.h"

namespace swarmline {
namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class Models : public ::testing::Test {
 protected:
  Models() { folder_.write_small_run(); }

  Ran run(const std::vector<std::string>& arguments) const {
    Ran ran = folder_.run(arguments);
    EXPECT_EQ(ran.exit_code, 0) << ran.out << ran.err;
    return ran;
  }
  // The small run without a swarm: runs/small-reference.
  void train() const { run({"launch", "run.toml", "--reference"}); }
  double loss_of(const std::string& model) const {
    const Ran ran = run({"eval", model, "--data", "text.txt", "--json"});
    const auto json = parse_json(ran.out);
    EXPECT_TRUE(json) << ran.out;
    return (*json)["text"]["loss"].number_or(0);
  }
  // Every parameter of the two runs is the same, but for sums in another order.
  void expect_same(const std::string& a, const std::string& b) const {
    const auto diff =
        diff_checkpoints(folder_.path() + "/runs/" + a, folder_.path() + "/runs/" + b);
    ASSERT_TRUE(diff) << diff.error().what;
    EXPECT_TRUE(diff->same_tensors());
    for (const TensorDiff& tensor : diff->tensors) EXPECT_LT(tensor.max_abs, 1e-9) << tensor.name;
  }

  const ScratchFolder folder_;
};

TEST_F(Models, AnExportedModelSaysWhatItsCheckpointSays) {
  train();
  const Ran exported = run(
      {"export", "runs/small-reference", "--format", "hf", "--out", "hf", "--shard-size", "8K"});
  EXPECT_TRUE(has(exported.out, "GPT2LMHeadModel")) << exported.out;
  for (const char* name : {"config.json", "generation_config.json", "README.md", "tokenizer.json",
                           "model.safetensors.index.json"})
    EXPECT_TRUE(folder_.has(std::string("hf/") + name)) << name;
  EXPECT_TRUE(has(folder_.read("hf/README.md"), "for 6 steps (768 tokens in all)"));
  const double loss = loss_of("runs/small-reference");
  EXPECT_GT(loss, 1);
  EXPECT_NEAR(loss_of("hf:hf"), loss, 1e-6 * loss);  // it has fp32, the run fp64
  const std::vector<std::string> more = {"--prompt", "word1", "--seed", "7", "--max-tokens", "60"};
  const auto text = [&](const std::string& model) {
    std::vector<std::string> arguments = {"generate", model};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments).out;
  };
  const std::string made = text("runs/small-reference");
  EXPECT_TRUE(made.starts_with("word1")) << made;
  EXPECT_EQ(text("runs/small-reference"), made) << "the same seed";
  EXPECT_EQ(text("hf:hf"), made);
  const Ran again = folder_.run({"export", "runs/small-reference", "--out", "hf"});
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_TRUE(has(again.err, "hf is there already")) << again.err;
}

TEST_F(Models, ARunBeginsWithAFolderInASwarmAndWithoutOne) {
  train();
  run({"export", "runs/small-reference", "--out", "hf"});
  std::vector<std::string> launch = {"launch", "run.toml",         "--set",  "run.init=hf:hf",
                                     "--set",  "run.steps=3",      "--set",  "optimizer.kind=lamb",
                                     "--set",  "pipeline.delay=1", "--name", "next"};
  run(launch);
  EXPECT_TRUE(has(folder_.read("runs/next/log.jsonl"), "\"initial_parameters\""));
  EXPECT_TRUE(folder_.has("runs/next/init/step-0/manifest.json"));
  launch.push_back("--reference");
  run(launch);
  expect_same("next", "next-reference");

  // It goes on without the folder, but not as a run that began with another.
  std::filesystem::remove_all(folder_.path() + "/hf");
  launch = {"launch", "run.toml",         "--set",  "run.init=hf:hf",
            "--set",  "run.steps=4",      "--set",  "optimizer.kind=lamb",
            "--set",  "pipeline.delay=1", "--name", "next"};
  run(launch);
  launch[3] = "run.init=";
  const Ran other = folder_.run(launch);
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_TRUE(has(other.err, "run.init: found")) << other.err;
}

TEST_F(Models, ARunBeginsWithTheCheckpointOfAnotherCutAndType) {
  train();
  std::vector<std::string> launch = {"launch", "run.toml",
                                     "--set",  "run.init=checkpoint:runs/small-reference",
                                     "--set",  "run.steps=2",
                                     "--set",  "pipeline.stages=4",
                                     "--set",  "pipeline.peers=1",
                                     "--set",  "batch.sequence=12",
                                     "--name", "next"};
  run(launch);
  launch.push_back("--reference");
  run(launch);
  expect_same("next", "next-reference");
  run({"launch", "run.toml", "--reference", "--name", "narrow", "--set", "model.dtype=fp32",
       "--set", "run.init=checkpoint:runs/small-reference/checkpoints/step-6", "--set",
       "run.steps=1"});
}

TEST_F(Models, WhatDoesNotFitIsSaidBeforeAnythingIsMade) {
  train();
  const std::vector<std::string> launch = {
      "launch", "run.toml", "--name", "next", "--set", "run.init=checkpoint:runs/small-reference"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), launch.begin(), launch.end());
    return folder_.run(more);
  };
  const Ran wider = with({"--set", "model.d_ff=80"});
  EXPECT_EQ(wider.exit_code, 2);
  EXPECT_TRUE(has(wider.err, "run.init: ")) << wider.err;
  EXPECT_TRUE(has(wider.err, "model.d_ff is 80, and there 64")) << wider.err;
  EXPECT_TRUE(has(wider.err, "layers.3.mlp.down.weight")) << wider.err;
  EXPECT_FALSE(folder_.has("runs/next"));
  const Ran nowhere =
      folder_.run({"launch", "run.toml", "--name", "next", "--set", "run.init=hf:nowhere"});
  EXPECT_EQ(nowhere.exit_code, 2);
  EXPECT_TRUE(has(nowhere.err, "nowhere")) << nowhere.err;
  const Ran word = folder_.run({"launch", "run.toml", "--set", "run.init=gpt2"});
  EXPECT_EQ(word.exit_code, 2);
  EXPECT_TRUE(has(word.err, "\"hf:DIR\", \"checkpoint:PATH\"")) << word.err;
}

TEST_F(Models, MultipleChoiceCountsTheLikelierEnding) {
  train();
  folder_.write("q.jsonl",
                "{\"context\": \"word1\", \"choices\": [\" word2\", "
                "\"\\u0001\\u0002\\u0003\\u0004\\u0005\\u0006\"], "
                "\"answer\": 0}\n\n"
                "{\"context\": \"\", \"choices\": [\"\\u0001\\u0002\", \"wo\"], \"answer\": 0}\n");
  const Ran ran = run({"eval", "runs/small-reference", "--data", "q.jsonl", "--json"});
  const auto json = parse_json(ran.out);
  ASSERT_TRUE(json) << ran.out;
  EXPECT_EQ((*json)["choices"]["questions"].count(), 2U);
  EXPECT_EQ((*json)["choices"]["accuracy"].number, 0.5);
  EXPECT_EQ((*json)["choices"]["accuracy_normalised"].number, 0.5);
  folder_.write("bad.jsonl", "{\"context\": \"a\", \"choices\": [\"b\"], \"answer\": 0}\n");
  const Ran bad = folder_.run({"eval", "runs/small-reference", "--data", "bad.jsonl"});
  EXPECT_EQ(bad.exit_code, 2);
  EXPECT_TRUE(has(bad.err, "bad.jsonl:1: expected")) << bad.err;
}

TEST_F(Models, CheckpointsAreListedVerifiedAndPruned) {
  const Ran trained = run({"launch", "run.toml", "--set", "checkpoint.every_steps=1", "--set",
                           "checkpoint.keep=1", "--set", "checkpoint.keep_every=1", "--set",
                           "eval.every_steps=1", "--set", "pipeline.peers=1"});
  EXPECT_TRUE(has(trained.out, "Its own words")) << trained.out;
  const auto listed = parse_json(run({"checkpoint", "list", "runs/small", "--json"}).out);
  ASSERT_TRUE(listed);
  std::vector<std::uint64_t> steps;
  for (const JsonValue& one : (*listed)["checkpoints"].items) {
    steps.push_back(one["step"].count());
    EXPECT_TRUE(one["whole"].boolean);
    EXPECT_TRUE(one["loss"].is_number());
    EXPECT_TRUE(one["held_out_loss"].is_number());
  }
  EXPECT_EQ(steps.back(), 6U);
  ASSERT_GE(steps.size(), 2U);
  EXPECT_TRUE(has(run({"checkpoint", "list", "runs/small"}).out, "whole"));
  EXPECT_TRUE(has(run({"checkpoint", "verify", "runs/small"}).out, "step-6: "));

  // One byte of the newest.
  const std::string file = "runs/small/checkpoints/step-6/stage-1.safetensors";
  std::string bytes = folder_.read(file);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  folder_.write(file, bytes);
  const Ran damaged = folder_.run({"checkpoint", "verify", "runs/small"});
  EXPECT_EQ(damaged.exit_code, 1);
  EXPECT_TRUE(has(damaged.out, "step-6: damaged: ")) << damaged.out;

  const Ran looked = run({"checkpoint", "prune", "runs/small", "--keep", "1", "--dry-run"});
  EXPECT_TRUE(has(looked.out, "would remove runs/small/checkpoints/step-")) << looked.out;
  EXPECT_TRUE(has(looked.out, "would set aside runs/small/checkpoints/step-6,")) << looked.out;
  run({"checkpoint", "prune", "runs/small", "--keep", "1"});
  EXPECT_FALSE(folder_.has("runs/small/checkpoints/step-6"));
  EXPECT_TRUE(folder_.has("runs/small/checkpoints/step-6.damaged"));
  EXPECT_TRUE(folder_.has("runs/small/checkpoints/step-" + std::to_string(steps[steps.size() - 2]) +
                          "/manifest.json"));
  EXPECT_EQ(folder_.has("runs/small/checkpoints/step-" + std::to_string(steps.front())),
            steps.size() == 2);
}

}  // namespace
}  // namespace swarmline
