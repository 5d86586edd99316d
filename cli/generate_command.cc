#include <cstdio>
#include <unistd.h>
#include <utility>

#include "cli/model_commands.h"
#include "console/exit_codes.h"
#include "engine/store/files.h"
#include "tools/language/generate.h"
#include "tools/language/open_model.h"

namespace swarmline {
namespace {

constexpr std::uint64_t kPromptBytesMax = 16 << 20;

struct GenerateFlags {
  std::string model, prompt, prompt_file, tokenizer;
  LanguageModelOptions machine;
  GenerateOptions options;
  std::uint32_t samples = 1;
};

// A terminal gets no control characters but new lines and tabs: the text is anybody's.
void write_out(std::string_view text, bool terminal) {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool control = (byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7F;
    std::fputc(terminal && control ? '?' : c, stdout);
  }
  std::fflush(stdout);
}

Result<void> run_generate(GenerateFlags flags) {
  if (!flags.prompt_file.empty()) {
    auto text = read_text_file(flags.prompt_file, kPromptBytesMax);
    if (!text) return std::unexpected(std::move(text).error());
    flags.prompt = std::move(*text);
  }
  auto open = open_model(flags.model, flags.machine, flags.tokenizer);
  if (!open) return std::unexpected(std::move(open).error());
  const bool terminal = ::isatty(STDOUT_FILENO) == 1;
  const auto give = [&](std::string_view text) { write_out(text, terminal); };
  for (std::uint32_t sample = 0; sample < flags.samples; ++sample) {
    give(flags.prompt);
    const auto made = generate(*open->model, open->tokens, flags.prompt, flags.options, give);
    if (!made) return std::unexpected(made.error());
    give("\n");
    ++flags.options.sampling.seed;
  }
  return {};
}

void add_sampling_flags(CLI::App& command, GenerateFlags& flags) {
  SamplingOptions& sampling = flags.options.sampling;
  command.add_option("--max-tokens", flags.options.max_tokens, "Longest text, in tokens")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 32))
      ->capture_default_str();
  command
      .add_option("--temperature", sampling.temperature,
                  "Divides the logits; 0: always the likeliest token")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  command.add_option("--top-k", sampling.top_k, "Choose among the K likeliest tokens; 0: all")
      ->check(CLI::Range(0, 1 << 26))
      ->capture_default_str();
  command
      .add_option("--top-p", sampling.top_p,
                  "Choose among the likeliest tokens that have this probability together")
      ->check(CLI::Range(1e-9, 1.0))
      ->capture_default_str();
  command.add_option("--seed", sampling.seed, "Seed of the random choices")->capture_default_str();
}

}  // namespace

void add_generate_command(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<GenerateFlags>();
  CLI::App* command = app.add_subcommand("generate", "Let a saved model continue a text");
  command
      ->add_option("model", flags->model,
                   "A run folder, a checkpoints/step-N folder, or a folder that transformers opens")
      ->required()
      ->type_name("RUN|CHECKPOINT|hf:DIR");
  CLI::Option* prompt =
      command->add_option("--prompt", flags->prompt, "Text to continue; default: a new document")
          ->type_name("TEXT");
  command->add_option("--prompt-file", flags->prompt_file, "File with the text to continue")
      ->excludes(prompt)
      ->type_name("FILE");
  add_tokenizer_flag(*command, flags->tokenizer);
  add_sampling_flags(*command, *flags);
  command->add_option("--samples", flags->samples, "Number of texts, with one seed after the other")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  command->add_flag("--ignore-end", flags->options.past_the_end,
                    "Go on when the model ends its document");
  command->add_option("--device", flags->machine.device, "cpu, cuda or cuda:N")
      ->capture_default_str();
  command->add_option("--threads", flags->machine.threads, "Compute threads")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->footer(
      "Example: swarmline generate runs/quickstart --prompt \"def \" --temperature 0.8 --top-k 40");
  command->callback([flags, &exit_code] {
    const auto made = run_generate(*flags);
    exit_code = made ? kExitDone : report_error(made.error());
  });
}

}  // namespace swarmline
