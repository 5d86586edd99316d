#include <cstdio>
#include <utility>

#include <fmt/format.h>

#include "base/printable.h"
#include "cli/model_commands.h"
#include "console/exit_codes.h"
#include "engine/huggingface/hf_export.h"
#include "tools/language/model_card.h"
#include "tools/language/text_tokens.h"

namespace swarmline {
namespace {

struct ExportFlags {
  std::string model, out, tokenizer;
  std::string format = "hf";
  std::string dtype;
  std::uint64_t shard_bytes = kHfShardBytes;
};

std::optional<DType> dtype_of(const std::string& name) {
  if (name == "fp32") return DType::kF32;
  if (name == "bf16") return DType::kBF16;
  if (name == "fp16") return DType::kF16;
  return std::nullopt;
}

Result<void> run_export(const ExportFlags& flags) {
  auto source = ModelSource::open(flags.model);
  if (!source) return std::unexpected(std::move(source).error());
  HfExportOptions options{.out = flags.out,
                          .dtype = dtype_of(flags.dtype),
                          .shard_bytes = flags.shard_bytes,
                          .end_token = std::nullopt,
                          .files = {}};
  while (options.out.size() > 1 && options.out.ends_with('/')) options.out.pop_back();
  const auto tokens = TextTokens::of(*source, flags.tokenizer);
  if (!tokens && !flags.tokenizer.empty()) return std::unexpected(tokens.error());
  if (tokens) {
    if (tokens->document_end())
      options.end_token = static_cast<std::uint32_t>(*tokens->document_end());
    auto files = tokens->files();
    if (!files) return std::unexpected(std::move(files).error());
    options.files = std::move(*files);
  } else {
    std::fprintf(stderr, "swarmline: no tokenizer goes with it: %s\n",
                 printable_lines(tokens.error().what).c_str());
  }
  const auto run = config_of_run(*source);
  options.files.push_back({"README.md", model_card(*source, run)});
  const auto exported = export_hf(*source, options);
  if (!exported) return std::unexpected(exported.error());
  std::printf("%s", printable_lines(
                        fmt::format("{}: a {} of {} parameters from {}, in {} file{}\n"
                                    "transformers.AutoModelForCausalLM.from_pretrained(\"{}\") "
                                    "opens it\n",
                                    options.out, class_name(exported->architecture),
                                    exported->parameters, source->path(), exported->files.size(),
                                    exported->files.size() == 1 ? "" : "s", options.out))
                        .c_str());
  return {};
}

}  // namespace

void add_export_command(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<ExportFlags>();
  CLI::App* command =
      app.add_subcommand("export", "Write a saved model as Hugging Face transformers opens it");
  command->add_option("model", flags->model, "A run folder or a checkpoints/step-N folder")
      ->required()
      ->type_name("RUN|CHECKPOINT");
  command->add_option("--format", flags->format, "Format of the folder")
      ->check(CLI::IsMember({"hf"}))
      ->capture_default_str();
  command->add_option("--out", flags->out, "Folder to make")->required()->type_name("DIR");
  add_tokenizer_flag(*command, flags->tokenizer);
  command->add_option("--dtype", flags->dtype, "Type of the weights; default: the model's own")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}));
  command
      ->add_option("--shard-size", flags->shard_bytes,
                   "Largest size of a file of weights, e.g. 500M or 5G")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/true))
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 50))
      ->type_name("BYTES");
  command->footer(
      "Which models fit which architecture, and how tensors are called: "
      "docs/formats/huggingface.md.\n"
      "Example: swarmline export runs/gpt2-small --format hf --out gpt2-hf");
  command->callback([flags, &exit_code] {
    const auto written = run_export(*flags);
    exit_code = written ? kExitDone : report_error(written.error());
  });
}

}  // namespace swarmline
