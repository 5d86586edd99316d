// Texts into prepared folders: what is in them, whatever the number of threads and however often it
// was interrupted.
#include "tools/prepare/prepare.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <functional>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "engine/data/token_dataset.h"
#include "tests/store/temp_folder.h"
#include "tests/tokenizer/fixtures.h"
#include "tools/prepare/data_info.h"
#include "tools/prepare/text_inputs.h"

namespace swarmline {
namespace {

std::string gzip(const std::string& text) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(out.size() - stream.avail_out);
  deflateEnd(&stream);
  return out;
}

std::string zstandard(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

class PrepareTest : public testing::Test {
 protected:
  PrepareOptions options(const std::vector<std::string>& words, const std::string& out,
                         const std::string& tokenizer = "gpt2.json") {
    auto inputs = find_text_inputs(words, std::nullopt);
    EXPECT_TRUE(inputs) << inputs.error().what;
    PrepareOptions made{
        .inputs = *inputs,
        .folder = folder_.at(out),
        .tokenizer = tokenizer == "bytes" ? *open_tokenizer("bytes") : open_fixture(tokenizer),
        .tokenizer_name = tokenizer,
        .threads = 2};
    made.rules.end = made.tokenizer->document_end();
    made.warn = [this](const std::string& line) { warnings_.push_back(line); };
    return made;
  }
  std::vector<std::uint32_t> tokens_of(const std::string& out) {
    const auto manifest = read_prepared(folder_.at(out));
    EXPECT_TRUE(manifest) << manifest.error().what;
    std::vector<std::uint32_t> tokens;
    for (const PreparedFile& file : manifest->files) {
      const std::string bytes = slurp(folder_.at(out) + "/" + file.name);
      for (std::size_t at = 0; at < bytes.size(); at += manifest->token_bytes) {
        std::uint32_t token = 0;
        std::memcpy(&token, bytes.data() + at, manifest->token_bytes);
        tokens.push_back(token);
      }
    }
    EXPECT_EQ(tokens.size(), manifest->tokens);
    return tokens;
  }
  std::map<std::string, std::string> content_of(const std::string& out) {
    std::map<std::string, std::string> content;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.at(out)))
      content[entry.path().filename()] = slurp(entry.path());
    return content;
  }
  std::string failure(const PrepareOptions& wanted) {
    const auto made = prepare_data(wanted);
    return made ? "" : made.error().what;
  }
  // Prose of hard texts, so that every block has something to cut.
  std::string prose(std::size_t bytes) {
    static const auto cases = tokenizer_cases("gpt2");
    std::string text;
    while (text.size() < bytes) {
      text += cases[rng_.below(cases.size())].text;
      text += rng_.below(3) == 0 ? "\n" : " and then some words\nof a line ";
    }
    return text;
  }

  TempFolder folder_;
  Rng rng_{7};
  std::vector<std::string> warnings_;
};

TEST_F(PrepareTest, DocumentsAreEncodedOneByOneAndEndWithTheirToken) {
  folder_.write("b.txt", "Hello world");
  folder_.write("a.jsonl", "{\"text\": \"it's 12\"}\n\n{\"id\": 1, \"text\": \"\\u00e9\"}\r\n");
  folder_.write("c.jsonl.gz", gzip("{\"text\": \"packed\"}\n") + gzip("{\"text\": \"twice\"}"));
  folder_.write("d.txt.zst", zstandard("Zstandard ") + zstandard("twice"));
  folder_.write("empty.txt", "");
  const auto wanted = options({folder_.at("*.txt"), folder_.at("*.jsonl"), folder_.at("c*"),
                               folder_.at("d*"), folder_.at("b.txt")},
                              "out");
  const auto made = prepare_data(wanted);
  ASSERT_TRUE(made) << made.error().what;
  EXPECT_EQ(made->manifest.documents, 6U);
  EXPECT_EQ(made->manifest.token_bytes, 2U);
  std::vector<std::uint32_t> expected;
  for (const char* text : {"Hello world", "it's 12", "é", "packed", "twice", "Zstandard twice"}) {
    const auto tokens = encoded(*wanted.tokenizer, text);
    expected.insert(expected.end(), tokens.begin(), tokens.end());
    expected.push_back(*wanted.tokenizer->document_end());
  }
  EXPECT_EQ(tokens_of("out"), expected);
  ASSERT_EQ(warnings_.size(), 1U);
  EXPECT_EQ(warnings_[0], folder_.at("empty.txt") + ": the input is empty; it is left out");
  EXPECT_EQ(slurp(folder_.at("out/gpt2.json")), slurp(tokenizer_fixture("gpt2.json")));
}

TEST_F(PrepareTest, OfManyEmptyInputsTheFirstAreNamedAndAllAreCounted) {
  folder_.write("text.txt", "text");
  for (std::uint64_t i = 0; i < kEmptyInputsNamed + 2; ++i)
    folder_.write("empty" + std::to_string(i) + ".txt", "");
  ASSERT_TRUE(prepare_data(options({folder_.at("*.txt")}, "out")));
  ASSERT_EQ(warnings_.size(), kEmptyInputsNamed + 1);
  EXPECT_EQ(warnings_[2], folder_.at("empty2.txt") + ": the input is empty; it is left out");
  EXPECT_EQ(warnings_[3], "5 inputs in all are empty; they are left out");
}

TEST_F(PrepareTest, LongTextsAreCutAndGiveTheTokensOfTheWhole) {
  const std::string text = prose(2 * kBlockBytes + 1000);
  folder_.write("long.txt", text);
  for (const char* tokenizer : {"gpt2.json", "qwen2.json", "llama3.json", "bytes"}) {
    const auto wanted = options({folder_.at("long.txt")}, tokenizer, tokenizer);
    const auto made = prepare_data(wanted);
    ASSERT_TRUE(made) << made.error().what;
    auto expected = encoded(*wanted.tokenizer, text);
    expected.push_back(*wanted.tokenizer->document_end());
    EXPECT_EQ(tokens_of(tokenizer), expected) << tokenizer;
    EXPECT_EQ(made->manifest.documents, 1U);
  }
}

TEST_F(PrepareTest, TextOfExactlyABlockHasItsEnd) {
  folder_.write("exact.txt", std::string(2 * kBlockBytes, 'x'));
  ASSERT_TRUE(prepare_data(options({folder_.at("exact.txt")}, "out", "bytes")));
  const auto tokens = tokens_of("out");
  EXPECT_EQ(tokens.size(), 2 * kBlockBytes + 1);
  EXPECT_EQ(tokens.back(), 256U);
}

TEST_F(PrepareTest, TheNumberOfThreadsChangesNothing) {
  for (int i = 0; i < 40; ++i) folder_.write("t" + std::to_string(i) + ".txt", prose(3000));
  folder_.write("u.txt", prose(kBlockBytes + 5000));
  std::map<std::string, std::string> first;
  for (const std::uint32_t threads : {1U, 2U, 5U}) {
    const std::string out = "out" + std::to_string(threads);
    auto wanted = options({folder_.at("*.txt")}, out);
    wanted.threads = threads;
    wanted.shard_tokens = 50'000;
    wanted.batch_bytes = 100'000 * threads;
    ASSERT_TRUE(prepare_data(wanted));
    const auto content = content_of(out);
    EXPECT_GT(content.size(), 4U);
    if (first.empty()) first = content;
    EXPECT_EQ(content, first) << threads;
  }
}

// A process of its own, so that it can be killed or be short of room.
int in_a_process(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

TEST_F(PrepareTest, KilledAtAnyTimeItGoesOnToTheSameBytes) {
  for (int i = 0; i < 12; ++i) folder_.write("t" + std::to_string(i) + ".txt", prose(40'000));
  folder_.write("u.txt.gz", gzip(prose(3 * kBlockBytes)));
  std::string lines;
  for (int i = 0; i < 3000; ++i) lines += "{\"text\": \"line " + std::to_string(i) + " of it\"}\n";
  folder_.write("v.jsonl", lines);
  const auto wanted_in = [&](const std::string& out) {
    auto wanted = options({folder_.at("t*.txt"), folder_.at("u*"), folder_.at("v*")}, out);
    wanted.shard_tokens = 20'000;
    wanted.batch_bytes = 50'000;
    return wanted;
  };
  ASSERT_TRUE(prepare_data(wanted_in("whole")));
  const auto whole = content_of("whole");
  std::uint64_t kept = 0;
  for (int round = 0, killed = 1; killed != 0; ++round) {
    ASSERT_LT(round, 50) << "it gets nowhere";
    const int dies_after = 1 + round % 4;
    killed = in_a_process([&] {
      auto wanted = wanted_in("out");
      int told = 0;
      wanted.progress = [&](const PrepareProgress&) {
        if (++told > dies_after) ::raise(SIGKILL);
      };
      const auto made = prepare_data(wanted);
      return made ? 0 : 1;
    });
    ASSERT_TRUE(killed == 0 || killed == 128 + SIGKILL) << killed;
    if (killed != 0 && std::filesystem::exists(folder_.at("out/unfinished.json"))) ++kept;
  }
  EXPECT_GT(kept, 1U) << "it was killed with whole files";
  EXPECT_EQ(content_of("out"), whole);
}

TEST_F(PrepareTest, OtherSettingsBeginAnewAndDoNotMixWithWhatIsThere) {
  folder_.write("a.txt", prose(100'000));
  auto wanted = options({folder_.at("a.txt")}, "out");
  wanted.shard_tokens = 5000;
  wanted.batch_bytes = 1000;
  ASSERT_NE(in_a_process([&] {
              int told = 0;
              wanted.progress = [&](const PrepareProgress&) {
                if (++told > 0) ::raise(SIGKILL);
              };
              return prepare_data(wanted) ? 0 : 1;
            }),
            0);
  wanted.progress = {};
  wanted.rules.end = std::nullopt;
  ASSERT_TRUE(prepare_data(wanted));
  EXPECT_EQ(tokens_of("out"), encoded(*wanted.tokenizer, slurp(folder_.at("a.txt"))));
  EXPECT_TRUE(prepare_data(wanted)->was_there);
  wanted.rules.end = 3;
  EXPECT_EQ(
      failure(wanted),
      folder_.at("out") +
          ": found tokens that were made of other inputs or with other settings; name another "
          "folder by --out, or remove this one");
}

TEST_F(PrepareTest, AFullDiskIsSaidAndWhatIsWholeStays) {
  folder_.write("a.txt", prose(600'000));
  const auto wanted = [&] {
    auto made = options({folder_.at("a.txt")}, "disk/out", "bytes");
    made.shard_tokens = 100'000;  // the first file: one block, 512 KiB
    made.batch_bytes = 50'000;
    return made;
  };
  std::filesystem::create_directories(folder_.at("disk"));
  const int code = in_a_process([&] {
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", folder_.at("disk").c_str(), "tmpfs", 0, "size=900k") != 0)
      return 77;
    const auto full = prepare_data(wanted());
    if (full || full.error().code != ErrorCode::kIo) return 1;
    if (full.error().what.find("No space left") == std::string::npos) return 2;
    if (!std::filesystem::exists(folder_.at("disk/out/tokens-00000.u16.bin"))) return 3;
    if (::mount("tmpfs", folder_.at("disk").c_str(), "tmpfs", MS_REMOUNT, "size=9m") != 0) return 4;
    const auto made = prepare_data(wanted());
    return made && made->kept_tokens > 0 ? 0 : 5;
  });
  if (code == 77) GTEST_SKIP() << "only root may mount a small disk";
  EXPECT_EQ(code, 0);
}

TEST_F(PrepareTest, MistakesAreToldWithFileAndLine) {
  folder_.write("key.jsonl", "{\"text\": \"a\"}\n{\"content\": \"b\", \"id\": 3}\n");
  EXPECT_EQ(failure(options({folder_.at("key.jsonl")}, "o1")),
            folder_.at("key.jsonl") +
                ":2: found no \"text\" among content, id; name the key of the text by --text-key");
  folder_.write("number.jsonl", "{\"text\": 5}\n");
  EXPECT_EQ(failure(options({folder_.at("number.jsonl")}, "o2")),
            folder_.at("number.jsonl") +
                ":1: found no text under \"text\", expected a string; name "
                "another key by --text-key");
  folder_.write("broken.jsonl", "{\"text\": \"a\"}\nnot json\n");
  EXPECT_TRUE(failure(options({folder_.at("broken.jsonl")}, "o3"))
                  .starts_with(folder_.at("broken.jsonl") + ":2: found no JSON ("));
  auto skipping = options({folder_.at("broken.jsonl"), folder_.at("key.jsonl")}, "o4");
  skipping.rules.skip_bad_lines = true;
  EXPECT_EQ(prepare_data(skipping)->skipped, 2U);
  folder_.write("picture.png", std::string("\x89PNG\r\n\x1a\n", 8) + std::string(500, '\0'));
  EXPECT_NE(failure(options({folder_.at("picture.png")}, "o5")).find("that are no UTF-8 text"),
            std::string::npos);
  folder_.write("table.txt", "PAR1....");
  EXPECT_NE(failure(options({folder_.at("table.txt")}, "o6")).find("this is a Parquet file"),
            std::string::npos);
  const std::string packed = gzip(prose(100'000));
  folder_.write("cut.gz", packed.substr(0, packed.size() / 2));
  EXPECT_NE(failure(options({folder_.at("cut.gz")}, "o7")).find("was cut short"),
            std::string::npos);
  const std::string frame = zstandard(prose(100'000));
  folder_.write("cut.zst", frame.substr(0, frame.size() / 2));
  EXPECT_NE(failure(options({folder_.at("cut.zst")}, "o8")).find("was cut short"),
            std::string::npos);
  folder_.write("empty.txt", "");
  EXPECT_EQ(failure(options({folder_.at("empty.txt")}, "o9")),
            "the inputs hold no text, so that there are no tokens to write; name other ones");
  EXPECT_FALSE(std::filesystem::exists(folder_.at("o9/prepared.json")));
}

TEST_F(PrepareTest, BytesThatAreNoUtf8AreReplacedAndCounted) {
  folder_.write("latin.txt", std::string(100, 'a') + "caf\xE9 \xFF");
  const auto wanted = options({folder_.at("latin.txt")}, "out");
  const auto made = prepare_data(wanted);
  ASSERT_TRUE(made) << made.error().what;
  EXPECT_EQ(made->replaced, 2U);
  EXPECT_EQ(wanted.tokenizer->decode(tokens_of("out"), false),
            std::string(100, 'a') + "caf\xEF\xBF\xBD \xEF\xBF\xBD");
}

TEST_F(PrepareTest, WordsOfTheCommandLineAreFoundOrNamed) {
  std::filesystem::create_directories(folder_.at("empty"));
  const auto refusal = [](const std::string& word) {
    const auto found = find_text_inputs(std::vector<std::string>{word}, std::nullopt);
    return found ? "" : found.error().what;
  };
  EXPECT_EQ(refusal(folder_.at("empty")),
            "\"" + folder_.at("empty") + "\" is a folder; name the files in it, for example '" +
                folder_.at("empty") + "/**/*.txt'");
  EXPECT_NE(refusal(folder_.at("none*.txt")).find("no file matches"), std::string::npos);
  EXPECT_NE(refusal("~/x.txt").find("~ is the shell's word"), std::string::npos);
}

TEST_F(PrepareTest, RunsTrainOnTheFolderAndInfoTellsOfIt) {
  folder_.write("a.txt", prose(20'000));
  const auto wanted = options({folder_.at("a.txt")}, "out");
  const auto made = prepare_data(wanted);
  ASSERT_TRUE(made);
  DatasetOptions run{.sequence = 16};
  run.data.kind = DataKind::kTokens;
  run.data.files = {folder_.at("out")};
  const auto dataset = TokenDataset::open(run);
  ASSERT_TRUE(dataset) << dataset.error().what;
  EXPECT_EQ(dataset->tokens(), made->manifest.tokens);
  EXPECT_EQ(dataset->vocab(), wanted.tokenizer->vocabulary());

  const auto info = look_at_data(folder_.at("out"), {.verify = true});
  ASSERT_TRUE(info) << info.error().what;
  EXPECT_EQ(info->tokens, made->manifest.tokens);
  EXPECT_TRUE(info->verified);
  EXPECT_FALSE(info->sample.empty());
  EXPECT_NE(to_text(*info).find("prepared folder, uint16"), std::string::npos);
  const std::string file = folder_.at("out/tokens-00000.u16.bin");
  const auto tokens = look_at_data(file, {});
  ASSERT_TRUE(tokens);
  EXPECT_EQ(tokens->tokens, made->manifest.tokens);
  std::string bytes = slurp(file);
  bytes[5] = static_cast<char>(bytes[5] ^ 1);
  folder_.write("out/tokens-00000.u16.bin", bytes);
  EXPECT_TRUE(look_at_data(folder_.at("out"), {}).has_value()) << "hashes take time";
  const auto damaged = look_at_data(folder_.at("out"), {.verify = true});
  ASSERT_FALSE(damaged);
  EXPECT_TRUE(damaged.error().what.starts_with(file + ": found another SHA-256"));
  EXPECT_EQ(look_at_data(folder_.at("a.txt"), {})->kind, "text");
  EXPECT_FALSE(look_at_data(folder_.at("nothing"), {}));
  EXPECT_FALSE(look_at_data(folder_.path(), {}));
}

}  // namespace
}  // namespace swarmline
