// Texts to tokens to a trained model, by the program.
#include <algorithm>
#include <array>
#include <filesystem>
#include <signal.h>

#include <gtest/gtest.h>

#include "engine/checkpoint/checkpoint_diff.h"
#include "tests/cli/program.h"

namespace swarmline {
namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

const std::string kFixtures = std::string(SWARMLINE_SOURCE_DIR) + "/tests/fixtures/tokenizer/";

void write_texts(const ScratchFolder& folder) {
  std::string prose, lines;
  for (int i = 0; i < 3000; ++i) {
    const std::string words = "word" + std::to_string(i * 7919 % 97) + (i % 9 ? " " : "\n");
    prose += words;
    if (i % 5 == 0) lines += "{\"text\": \"line " + std::to_string(i % 31) + " of it\"}\n";
  }
  folder.write("prose.txt", prose);
  folder.write("lines.jsonl", lines);
  folder.write("validation.txt", prose.substr(0, 4000));
}

TEST(DataProgram, ARunTrainsOnPreparedMixturesAsItsReferenceDoes) {
  const ScratchFolder folder;
  folder.write_small_run();
  write_texts(folder);
  for (const auto& [text, out] : {std::pair{"prose.txt", "data/prose"},
                                  {"lines.jsonl", "data/lines"},
                                  {"validation.txt", "data/validation"}}) {
    const Ran made = folder.run({"data", "prepare", text, "--out", out, "--tokenizer",
                                 kFixtures + "llama3.json", "--end", "<|end_of_text|>"});
    ASSERT_EQ(made.exit_code, 0) << made.err;
    EXPECT_TRUE(has(made.out, "kind = \"tokens\"")) << made.out;
    EXPECT_EQ(made.out.find('\x1b'), std::string::npos) << "escape sequences off a terminal";
  }
  const std::vector<std::string> sets = {
      "--set", "data.kind=tokens",    "--set", "data.files=[\"data/prose\", \"data/lines\"]",
      "--set", "data.weights=[3, 1]", "--set", "data.validation=\"data/validation\""};
  std::vector<std::string> swarm = {"launch", "run.toml"},
                           reference = {"launch", "run.toml", "--reference"};
  swarm.insert(swarm.end(), sets.begin(), sets.end());
  reference.insert(reference.end(), sets.begin(), sets.end());
  const Ran trained = folder.run(swarm);
  ASSERT_EQ(trained.exit_code, 0) << trained.out << trained.err;
  EXPECT_TRUE(has(trained.out, "held-out loss")) << trained.out;
  const Ran alone = folder.run(reference);
  ASSERT_EQ(alone.exit_code, 0) << alone.err;
  const auto diff =
      diff_checkpoints(folder.path() + "/runs/small", folder.path() + "/runs/small-reference");
  ASSERT_TRUE(diff) << diff.error().what;
  EXPECT_TRUE(diff->same_tensors());
  for (const TensorDiff& tensor : diff->tensors) EXPECT_LT(tensor.max_abs, 1e-9) << tensor.name;
  EXPECT_TRUE(has(folder.read("runs/small/data.json"), "\"part\": 2"));

  // The model's text is read and written by the tokenizer of its data, here and where it goes.
  const Ran exported = folder.run({"export", "runs/small", "--out", "hf"});
  ASSERT_EQ(exported.exit_code, 0) << exported.err;
  EXPECT_EQ(folder.read("hf/tokenizer.json"), slurp(kFixtures + "llama3.json"));
  EXPECT_TRUE(has(folder.read("hf/tokenizer_config.json"), "\"eos_token\": \"<|end_of_text|>\""));
  const auto said_by = [&](const std::string& model) {
    const Ran eval = folder.run({"eval", model, "--data", "validation.txt"});
    EXPECT_EQ(eval.exit_code, 0) << eval.err;
    EXPECT_FALSE(has(eval.out, " 4001 tokens")) << "those were bytes: " << eval.out;
    const Ran text = folder.run({"generate", model, "--prompt", "word7", "--max-tokens", "20"});
    EXPECT_EQ(text.exit_code, 0) << text.err;
    EXPECT_TRUE(text.out.starts_with("word7")) << text.out;
    return eval.out + text.out;
  };
  EXPECT_EQ(said_by("hf:hf"), said_by("runs/small"));
  const Ran other = folder.run(
      {"eval", "runs/small", "--data", "validation.txt", "--tokenizer", kFixtures + "none.json"});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_TRUE(has(other.err, "found no tokenizer")) << other.err;
}

TEST(DataProgram, MaskedDocumentsAreTheReferencesToo) {
  const ScratchFolder folder;
  folder.write_small_run();
  write_texts(folder);
  std::filesystem::create_directories(folder.path() + "/files");
  for (int i = 0; i < 80; ++i)
    folder.write("files/" + std::to_string(i), "file " + std::to_string(i * 7919 % 97));
  ASSERT_EQ(folder
                .run({"data", "prepare", "lines.jsonl", "--out", "data/lines", "--tokenizer",
                      kFixtures + "llama3.json", "--end", "<|end_of_text|>"})
                .exit_code,
            0);
  const auto train = [&](const std::string& name, std::vector<std::string> sets,
                         bool reference = false) {
    std::vector<std::string> words = {"launch", "run.toml", "--name", name};
    for (const std::string& set : sets) words.insert(words.end(), {"--set", set});
    if (reference) words.emplace_back("--reference");
    return folder.run(words);
  };
  const auto difference = [&](const std::string& one, const std::string& other) {
    const auto diff =
        diff_checkpoints(folder.path() + "/runs/" + one, folder.path() + "/runs/" + other);
    EXPECT_TRUE(diff) << diff.error().what;
    double largest = 0;
    for (const TensorDiff& tensor : diff->tensors) largest = std::max(largest, tensor.max_abs);
    return largest;
  };
  const std::string mask = "data.mask_documents=true";
  for (const auto& [name, kind, files] :
       {std::array{"lines", "tokens", "data/lines"}, std::array{"files", "bytes", "files/*"}}) {
    const std::vector<std::string> data = {std::string("data.kind=") + kind,
                                           std::string("data.files=") + files};
    std::vector<std::string> masked = data;
    masked.push_back(mask);
    const Ran trained = train(name, masked);
    ASSERT_EQ(trained.exit_code, 0) << trained.out << trained.err;
    const Ran alone = train(name, masked, true);
    ASSERT_EQ(alone.exit_code, 0) << alone.out << alone.err;
    EXPECT_LT(difference(name, name + std::string("-reference")), 1e-9);
    const std::string whole = std::string("whole-") + name;
    ASSERT_EQ(train(whole, data, true).exit_code, 0);
    EXPECT_GT(difference(whole + "-reference", name + std::string("-reference")), 1e-6);
    // A run that began with it goes on with it.
    const Ran changed = train(name, data);
    EXPECT_EQ(changed.exit_code, 2) << changed.out;
    EXPECT_TRUE(has(changed.err, "data.mask_documents: found false, but the run began with true"))
        << changed.err;
  }
  // Its model is one like any other.
  ASSERT_EQ(folder.run({"export", "runs/lines", "--out", "hf"}).exit_code, 0);
  const auto said_by = [&](const std::string& model) {
    return folder.run({"eval", model, "--data", "validation.txt"}).out;
  };
  EXPECT_FALSE(said_by("runs/lines").empty());
  EXPECT_EQ(said_by("hf:hf"), said_by("runs/lines"));
  const Ran unknown = train("unknown", {"data.kind=tokens", "data.files=data/lines/*.bin", mask});
  EXPECT_EQ(unknown.exit_code, 2) << unknown.out;
  EXPECT_TRUE(has(unknown.err, "does not say which token its documents begin with")) << unknown.err;
}

TEST(DataProgram, InfoTellsOfFoldersAndFiles) {
  const ScratchFolder folder;
  write_texts(folder);
  ASSERT_EQ(folder.run({"data", "prepare", "prose.txt", "--out", "p"}).exit_code, 0);
  const Ran info = folder.run({"data", "info", "p", "--verify"});
  EXPECT_EQ(info.exit_code, 0) << info.err;
  EXPECT_TRUE(has(info.out, "prepared folder, uint16")) << info.out;
  EXPECT_TRUE(has(info.out, "all as they should be")) << info.out;
  EXPECT_TRUE(has(info.out, "word62 word27")) << info.out;
  const Ran json = folder.run({"data", "info", "p/tokens-00000.u16.bin", "--json"});
  EXPECT_TRUE(has(json.out, "\"largest_token\": 256")) << json.out;
  EXPECT_TRUE(has(folder.run({"data", "info", "lines.jsonl"}).out, "begins      line 0 of it"));
  const Ran again = folder.run({"data", "prepare", "prose.txt", "--out", "p"});
  EXPECT_EQ(again.exit_code, 0);
  EXPECT_TRUE(has(again.out, "nothing was left to do")) << again.out;
}

TEST(DataProgram, MistakesAreOneSentence) {
  const ScratchFolder folder;
  write_texts(folder);
  folder.write("bad.jsonl", "{\"content\": \"x\"}\n");
  struct Mistake {
    std::vector<std::string> words;
    std::string sentence;
  };
  for (const Mistake& mistake :
       {Mistake{{"data"}, "subcommand is required"}, Mistake{{"data", "prepare"}, "name the texts"},
        Mistake{{"data", "prepare", "prose.txt"}, "by --out DIR"},
        Mistake{{"data", "prepare", "none.txt", "--out", "o"}, "no file matches \"none.txt\""},
        Mistake{{"data", "prepare", ".", "--out", "o"}, "is a folder"},
        Mistake{{"data", "prepare", "prose.txt", "--out", "o", "--tokenizer", "nothing"},
                "found no tokenizer \"nothing\""},
        Mistake{{"data", "prepare", "prose.txt", "--out", "o", "--tokenizer", "prose.txt"},
                "prose.txt: found no model of SentencePiece"},
        Mistake{{"data", "prepare", "prose.txt", "--out", "o", "--end", "<eot>"},
                "the tokenizer has no such token"},
        Mistake{{"data", "prepare", "prose.txt", "--out", "o", "--format", "xml"},
                "expected auto, text, lines, jsonl or parquet"},
        Mistake{{"data", "prepare", "bad.jsonl", "--out", "o"},
                "bad.jsonl:1: found no \"text\" among content"},
        Mistake{{"data", "info", "nothing"}, "found no \"nothing\""}}) {
    const Ran ran = folder.run(mistake.words);
    EXPECT_EQ(ran.exit_code, 2) << mistake.sentence << ran.err;
    EXPECT_TRUE(has(ran.err, mistake.sentence)) << ran.err;
  }
}

TEST(DataProgram, AKilledPreparationGoesOn) {
  const ScratchFolder folder;
  std::string text;
  for (int i = 0; i < 600'000; ++i)
    text += "word" + std::to_string(i * 7919LL % 9973) + (i % 11 ? " " : "\n");
  folder.write("long.txt", text);
  const auto words = [&](const std::string& out) {
    return std::vector<std::string>{"data",
                                    "prepare",
                                    "long.txt",
                                    "--out",
                                    out,
                                    "--tokenizer",
                                    kFixtures + "gpt2.json",
                                    "--threads",
                                    "1",
                                    "--shard-tokens",
                                    "100000"};
  };
  ASSERT_EQ(folder.run(words("whole")).exit_code, 0);
  const Ran killed = folder.run_and(
      words("out"), [&] { return folder.has("out/unfinished.json"); },
      [](pid_t pid) { ::kill(pid, SIGKILL); });
  const Ran done = folder.run(words("out"));
  ASSERT_EQ(done.exit_code, 0) << done.err;
  if (killed.exit_code != 0)
    EXPECT_TRUE(has(done.out, "tokens were there from before")) << done.out;
  for (const auto& file : std::filesystem::directory_iterator(folder.path() + "/whole")) {
    const std::string name = file.path().filename();
    EXPECT_EQ(folder.read("out/" + name), folder.read("whole/" + name)) << name;
  }
}

}  // namespace
}  // namespace swarmline
