#include <cstdio>
#include <utility>

#include <fmt/format.h>

#include "cli/model_commands.h"
#include "console/exit_codes.h"
#include "engine/store/files.h"
#include "tools/language/evaluate.h"
#include "tools/language/open_model.h"

namespace swarmline {
namespace {

constexpr std::size_t kEvalFilesMax = 1'000'000;

struct EvalFlags {
  std::string model, tokenizer;
  std::vector<std::string> data;
  LanguageModelOptions machine;
  bool json = false;
};

Result<std::vector<std::string>> files_of(const std::vector<std::string>& patterns) {
  std::vector<std::string> files;
  for (const std::string& pattern : patterns) {
    auto found = glob_files(pattern, kEvalFilesMax);
    if (!found) return std::unexpected(std::move(found).error());
    if (found->empty())
      return fail(ErrorCode::kUserMistake,
                  fmt::format("--data {}: no such file; name text files, or .jsonl files of "
                              "questions",
                              pattern));
    files.insert(files.end(), found->begin(), found->end());
  }
  return files;
}

Result<void> run_eval(const EvalFlags& flags) {
  const auto files = files_of(flags.data);
  if (!files) return std::unexpected(files.error());
  auto open = open_model(flags.model, flags.machine, flags.tokenizer);
  if (!open) return std::unexpected(std::move(open).error());
  TextEvaluation texts;
  ChoiceEvaluation choices;
  for (const std::string& file : *files)
    SWARMLINE_TRY(file.ends_with(".jsonl")
                      ? evaluate_choices(*open->model, open->tokens, file, choices)
                      : evaluate_text(*open->model, open->tokens, file, texts));
  if (texts.tokens == 0 && choices.questions == 0)
    return fail(ErrorCode::kUserMistake, "--data: found nothing to evaluate; the files are empty");
  std::fputs(
      (flags.json ? to_json(open->source.path(), texts, choices) : to_text(texts, choices)).c_str(),
      stdout);
  return {};
}

}  // namespace

void add_eval_command(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<EvalFlags>();
  CLI::App* command = app.add_subcommand(
      "eval", "Measure how well a saved model predicts texts or answers questions");
  command
      ->add_option("model", flags->model,
                   "A run folder, a checkpoints/step-N folder, or a folder that transformers opens")
      ->required()
      ->type_name("RUN|CHECKPOINT|hf:DIR");
  command
      ->add_option(
          "--data", flags->data,
          "Text files and globs, each file a document; .jsonl: multiple choice, lines with "
          "context, choices and answer")
      ->required()
      ->type_name("FILES");
  add_tokenizer_flag(*command, flags->tokenizer);
  command->add_flag("--json", flags->json, "Machine-readable output (docs/formats/eval.md)");
  command->add_option("--device", flags->machine.device, "cpu, cuda or cuda:N")
      ->capture_default_str();
  command->add_option("--threads", flags->machine.threads, "Compute threads")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->footer("Example: swarmline eval runs/quickstart --data 'configs/*.toml'");
  command->callback([flags, &exit_code] {
    const auto done = run_eval(*flags);
    exit_code = done ? kExitDone : report_error(done.error());
  });
}

}  // namespace swarmline
