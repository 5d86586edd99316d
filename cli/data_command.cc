#include <algorithm>
#include <charconv>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/printable.h"
#include "cli/commands.h"
#include "console/exit_codes.h"
#include "console/screen.h"
#include "console/text.h"
#include "engine/runtime/asio_runtime.h"
#include "engine/store/parallel.h"
#include "engine/tokenizer/open_tokenizer.h"
#include "tools/prepare/data_info.h"
#include "tools/prepare/prepare.h"
#include "tools/prepare/text_inputs.h"

namespace swarmline {
namespace {

constexpr double kScreenSeconds = 0.2, kLineSeconds = 10;
constexpr std::size_t kBarColumns = 30;
constexpr std::uint32_t kPrepareThreadsMax = 1024;

struct PrepareFlags {
  std::vector<std::string> inputs;
  std::string out, tokenizer = "bytes", text_key = "text", format = "auto";
  std::string begin = "none", end = "auto", python = "python3";
  std::uint64_t shard_tokens = kShardTokens;
  std::uint32_t threads = 0;
  bool special_as_text = false, skip_bad_lines = false;
};

std::unexpected<Error> bad_data_flag(std::string sentence) {
  return fail(ErrorCode::kUserMistake, std::move(sentence));
}

Result<std::optional<InputKind>> kind_of(const std::string& format) {
  if (format == "auto") return std::nullopt;
  if (format == "text") return InputKind::kText;
  if (format == "lines") return InputKind::kLines;
  if (format == "jsonl") return InputKind::kJsonl;
  if (format == "parquet") return InputKind::kParquet;
  return bad_data_flag(fmt::format("--format {}: expected auto, text, lines, jsonl or parquet",
                                   printable_lines(format)));
}

// A token by its number or its text.
Result<std::optional<std::uint32_t>> token_of(const std::string& flag, const std::string& word,
                                              const Tokenizer& tokenizer) {
  if (word == "none") return std::nullopt;
  if (word == "auto") {
    if (tokenizer.document_end()) return tokenizer.document_end();
    return bad_data_flag(
        fmt::format("the tokenizer does not say which token ends a document; name it by {0} TOKEN, "
                    "or write {0} none",
                    flag));
  }
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  const bool is_number = error == std::errc{} && end == word.data() + word.size();
  if (is_number && number < tokenizer.vocabulary()) return number;
  if (!is_number)
    if (const auto found = tokenizer.find(word)) return found;
  return bad_data_flag(fmt::format("{} {}: the tokenizer has no such token; it has {}", flag,
                                   printable_lines(word), with_commas(tokenizer.vocabulary())));
}

// On a terminal a bar in place; else a line from time to time.
class PrepareScreen {
 public:
  PrepareScreen() {
    if (output_is_terminal()) screen_.emplace();
  }

  void show(const PrepareProgress& progress) {
    const double seconds = elapsed();
    if (seconds - shown_ < (screen_ ? kScreenSeconds : kLineSeconds)) return;
    shown_ = seconds;
    const double fraction = progress.bytes_all == 0 ? 0
                                                    : static_cast<double>(progress.bytes) /
                                                          static_cast<double>(progress.bytes_all);
    const std::string numbers = fmt::format(
        "{} of {} read, {} documents, {} tokens", human_bytes(static_cast<double>(progress.bytes)),
        progress.bytes_all > 0 ? human_bytes(static_cast<double>(progress.bytes_all)) : "?",
        with_commas(progress.documents), human_count(static_cast<double>(progress.tokens)));
    if (!screen_) {
      std::printf("%s\n", numbers.c_str());
      std::fflush(stdout);
      return;
    }
    const ScreenStyle style = terminal_style();
    const double left = fraction > 0 ? seconds / fraction - seconds : 0;
    screen_->draw(
        {fmt::format("{} {:3.0f} %  {} left", progress_bar(fraction, kBarColumns, style.utf8),
                     100 * fraction, human_seconds(left)),
         cut_columns(numbers, style.columns)});
  }
  void warn(const std::string& line) {
    end();
    std::fprintf(stderr, "swarmline: %s\n", printable_lines(line).c_str());
  }
  void end() {
    if (screen_) screen_->draw({});
  }
  double elapsed() const { return std::chrono::duration<double>(runtime_.now() - began_).count(); }

 private:
  AsioRuntime runtime_;
  Instant began_ = runtime_.now();
  double shown_ = 0;
  std::optional<LiveScreen> screen_;
};

void print_result(const Prepared& prepared, const std::string& folder, double seconds) {
  const PreparedManifest& made = prepared.manifest;
  if (prepared.was_there)
    std::printf("%s is prepared already: nothing was left to do\n",
                printable_lines(folder).c_str());
  std::printf(
      "%s\n",
      fmt::format("{} documents, {} of text: {} tokens (uint{}, vocabulary {}) in {} files",
                  with_commas(made.documents), human_bytes(static_cast<double>(made.text_bytes)),
                  with_commas(made.tokens), made.token_bytes * 8, with_commas(made.vocab),
                  with_commas(made.files.size()))
          .c_str());
  if (!prepared.was_there)
    std::printf("%s\n", fmt::format("in {}{}", human_seconds(seconds),
                                    prepared.kept_tokens > 0
                                        ? fmt::format("; {} tokens were there from before",
                                                      with_commas(prepared.kept_tokens))
                                        : std::string())
                            .c_str());
  std::printf("\nA run trains on them by:\n  [data]\n  kind = \"tokens\"\n  files = [\"%s\"]\n",
              printable_lines(folder).c_str());
}

Result<void> run_prepare(const PrepareFlags& flags) {
  if (flags.inputs.empty())
    return bad_data_flag("name the texts: files, globs, or - for standard input");
  if (flags.out.empty()) return bad_data_flag("name the folder for the tokens by --out DIR");
  if (flags.shard_tokens == 0) return bad_data_flag("--shard-tokens 0: expected at least 1");
  const auto kind = kind_of(flags.format);
  if (!kind) return std::unexpected(kind.error());
  const auto tokenizer = open_tokenizer(flags.tokenizer);
  if (!tokenizer) return std::unexpected(tokenizer.error());
  PrepareOptions options{
      .folder = flags.out,
      .tokenizer = *tokenizer,
      .tokenizer_name = flags.tokenizer,
      .shard_tokens = flags.shard_tokens,
      .python = flags.python,
      .threads = flags.threads > 0 ? std::min(kPrepareThreadsMax, flags.threads) : cores_at_hand()};
  auto inputs = find_text_inputs(flags.inputs, *kind);
  if (!inputs) return std::unexpected(std::move(inputs).error());
  options.inputs = std::move(*inputs);
  const auto begin = token_of("--begin", flags.begin, **tokenizer);
  const auto end = token_of("--end", flags.end, **tokenizer);
  if (!begin) return std::unexpected(begin.error());
  if (!end) return std::unexpected(end.error());
  options.rules = {.begin = *begin,
                   .end = *end,
                   .text_key = flags.text_key,
                   .special_as_text = flags.special_as_text,
                   .skip_bad_lines = flags.skip_bad_lines};
  PrepareScreen screen;
  options.progress = [&](const PrepareProgress& progress) { screen.show(progress); };
  options.warn = [&](const std::string& line) { screen.warn(line); };
  auto prepared = prepare_data(options);
  screen.end();
  if (!prepared) return std::unexpected(std::move(prepared).error());
  if (prepared->replaced > 0)
    screen.warn(fmt::format("{} places that are no UTF-8 were read as U+FFFD",
                            with_commas(prepared->replaced)));
  if (prepared->skipped > 0)
    screen.warn(fmt::format("{} lines or rows without a text were left out",
                            with_commas(prepared->skipped)));
  print_result(*prepared, flags.out, screen.elapsed());
  return {};
}

void add_prepare(CLI::App& data, int& exit_code) {
  auto flags = std::make_shared<PrepareFlags>();
  CLI::App* command = data.add_subcommand("prepare", "Make tokens of texts, for runs to train on");
  command
      ->add_option("inputs", flags->inputs,
                   "Files, quoted globs, or - for standard input; gzip and Zstandard are unpacked")
      ->type_name("INPUTS");
  command->add_option("--out", flags->out, "Folder for the tokens")->type_name("DIR");
  command
      ->add_option("--tokenizer", flags->tokenizer,
                   "bytes, a tokenizer.json, a SentencePiece model, or a folder with one of them")
      ->capture_default_str()
      ->type_name("TOKENIZER");
  command
      ->add_option("--format", flags->format,
                   "What a document is: auto (by the file's name), text (a file), lines (a line), "
                   "jsonl (a line's object) or parquet (a row)")
      ->capture_default_str()
      ->type_name("FORMAT");
  command
      ->add_option("--text-key,--text-column", flags->text_key,
                   "Key of the text in JSONL, or its column in Parquet")
      ->capture_default_str()
      ->type_name("KEY");
  command->add_option("--python", flags->python, "Python that reads Parquet; it needs pyarrow")
      ->capture_default_str()
      ->type_name("PROGRAM");
  command
      ->add_option("--end", flags->end,
                   "Token after each document, by its text or number; auto: the tokenizer's; none: "
                   "no token")
      ->capture_default_str()
      ->type_name("TOKEN");
  command->add_option("--begin", flags->begin, "Token before each document, in the same way")
      ->capture_default_str()
      ->type_name("TOKEN");
  command->add_flag("--special-as-text", flags->special_as_text,
                    "Encode names of special tokens that occur in the texts as text");
  command->add_flag(
      "--skip-bad-lines", flags->skip_bad_lines,
      "Leave out JSONL lines and Parquet rows without a text, instead of stopping there");
  command->add_option("--threads", flags->threads, "Number of encoding threads; 0: one per core")
      ->capture_default_str()
      ->type_name("N");
  command
      ->add_option("--shard-tokens", flags->shard_tokens,
                   "Tokens per file of the folder; whole files survive an interruption")
      ->capture_default_str()
      ->type_name("N");
  command->footer(
      "Interrupted, the same command goes on behind the last file that is whole. The files are "
      "the\n"
      "same whatever the number of threads. More: docs/prepare.md.\n"
      "Example: swarmline data prepare 'corpus/**/*.jsonl' --out data/corpus --tokenizer bytes");
  command->callback([flags, &exit_code] {
    if (auto done = run_prepare(*flags); !done) exit_code = report_error(done.error());
  });
}

void add_info(CLI::App& data, int& exit_code) {
  struct InfoFlags {
    std::string path, text_key = "text";
    bool verify = false, json = false;
  };
  auto flags = std::make_shared<InfoFlags>();
  CLI::App* command =
      data.add_subcommand("info", "Show what a prepared folder, a file of tokens or a text holds");
  command->add_option("path", flags->path, "A folder or a file")->required()->type_name("PATH");
  command->add_flag("--verify", flags->verify, "Compare all hashes of a prepared folder");
  command->add_flag("--json", flags->json, "Machine-readable output (docs/formats/prepared.md)");
  command->add_option("--text-key", flags->text_key, "Key of the text in JSONL")
      ->capture_default_str()
      ->type_name("KEY");
  command->callback([flags, &exit_code] {
    const auto info =
        look_at_data(flags->path, {.verify = flags->verify, .text_key = flags->text_key});
    if (!info) {
      exit_code = report_error(info.error());
      return;
    }
    std::fputs((flags->json ? to_json(*info) : to_text(*info)).c_str(), stdout);
  });
}

}  // namespace

void add_data_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("data", "Make tokens of texts, and look at data");
  command->require_subcommand(1);
  add_prepare(*command, exit_code);
  add_info(*command, exit_code);
}

}  // namespace swarmline
