#include <cstdio>

#include <fmt/format.h>

#include "cli/commands.h"
#include "compression/sample_tensors.h"
#include "console/exit_codes.h"
#include "engine/runtime/asio_runtime.h"
#include "engine/store/files.h"
#include "kernels/kernels.h"
#include "tools/measure/bench_codec_report.h"
#include "tools/measure/bench_machine.h"

namespace swarmline {
namespace {

constexpr const char* kCapturedTensors = "bench/tensors/quickstart.safetensors";
constexpr std::size_t kAccuracyElements = 1 << 20;  // of a made tensor
constexpr std::uint64_t kAccuracySeed = 1;
constexpr std::uint64_t kMib = 1 << 20;
constexpr int kBenchRoundsMax = 1000;

struct CodecFlags {
  std::vector<std::string> codecs = {"none", "fp16", "bf16", "lin8", "dyn8", "h8",
                                     "fp8",  "e5m2", "int4", "h4",   "topk"};
  std::vector<std::string> dtypes = {"fp32", "bf16", "fp16"};
  std::vector<std::uint32_t> blocks = {64, 256, 4096};
  std::string scales = "fp32";
  std::vector<std::string> tensors;
  std::uint64_t mib = 64;
  int rounds = 7;
  std::string json, csv;
};

std::unexpected<Error> mistake(std::string sentence) {
  return fail(ErrorCode::kUserMistake, std::move(sentence));
}

// Each codec once for every block that it can have.
Result<std::vector<CodecSpec>> chosen_codecs(const CodecFlags& flags) {
  if (flags.scales != "fp32" && flags.scales != "bf16") {
    return mistake(fmt::format("--scales {}: expected fp32 or bf16", flags.scales));
  }
  std::vector<CodecSpec> codecs;
  for (const std::string& name : flags.codecs) {
    for (const std::uint32_t block : flags.blocks) {
      const auto codec =
          parse_codec(name, {.block = block,
                             .scales = flags.scales == "bf16" ? kernels::ScaleKind::kBf16
                                                              : kernels::ScaleKind::kF32});
      if (!codec) return mistake("bench codec: " + codec.error().what);
      if (std::ranges::find(codecs, *codec) == codecs.end()) codecs.push_back(*codec);
    }
  }
  return codecs;
}

Result<std::vector<DType>> chosen_dtypes(const CodecFlags& flags) {
  std::vector<DType> dtypes;
  for (const std::string& name : flags.dtypes) {
    bool known = false;
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      if (name != bench_dtype_name(dtype)) continue;
      dtypes.push_back(dtype);
      known = true;
    }
    if (!known) return mistake(fmt::format("--dtypes {}: expected fp32, bf16 or fp16", name));
  }
  return dtypes;
}

Result<void> append_tensors(const std::string& word, std::vector<BenchTensor>& tensors) {
  if (const auto kind = sample_tensor_from_name(word)) {
    tensors.push_back(
        {.name = word, .values = make_sample(*kind, kAccuracyElements, kAccuracySeed)});
    return {};
  }
  if (!file_exists(word)) {
    return mistake(fmt::format(
        "--tensors {}: found no such file; expected a .safetensors file, normal, heavy-tailed, "
        "outlier-channels, massive-tokens or gradients",
        word));
  }
  auto read = read_bench_tensors(word);
  if (!read) return std::unexpected(std::move(read).error());
  std::ranges::move(*read, std::back_inserter(tensors));
  return {};
}

Result<std::vector<BenchTensor>> chosen_tensors(const CodecFlags& flags) {
  std::vector<BenchTensor> tensors;
  std::vector<std::string> words = flags.tensors;
  if (words.empty()) {
    for (const SampleTensor kind : kSampleTensors) words.emplace_back(name_of(kind));
    if (file_exists(kCapturedTensors)) words.emplace_back(kCapturedTensors);
  }
  for (const std::string& word : words) SWARMLINE_TRY(append_tensors(word, tensors));
  return tensors;
}

Result<void> measure_speeds(const CodecFlags& flags, const std::vector<CodecSpec>& codecs,
                            const std::vector<DType>& dtypes, const SecondsClock& clock,
                            CodecBenchReport& report) {
  std::printf("%s\n", speed_head(flags.mib).c_str());
  BenchProgress progress(codecs.size() * dtypes.size());
  for (const DType dtype : dtypes) {
    for (const CodecSpec& codec : codecs) {
      progress.begin(fmt::format("{} from {}", to_string(codec), bench_dtype_name(dtype)));
      auto speed = measure_codec_speed(codec, dtype, flags.mib * kMib, flags.rounds, clock);
      if (!speed) return std::unexpected(std::move(speed).error());
      progress.end(speed_line(*speed));
      report.speeds.push_back(*speed);
    }
  }
  return {};
}

Result<void> measure_accuracies(const std::vector<CodecSpec>& codecs,
                                const std::vector<BenchTensor>& tensors, CodecBenchReport& report) {
  std::printf("\n%s\n", accuracy_head().c_str());
  BenchProgress progress(codecs.size() * tensors.size());
  for (const BenchTensor& tensor : tensors) {
    for (const CodecSpec& codec : codecs) {
      progress.begin(fmt::format("{} on {}", to_string(codec), tensor.name));
      auto accuracy = measure_codec_accuracy(codec, tensor);
      if (!accuracy) return std::unexpected(std::move(accuracy).error());
      progress.end(accuracy_line(*accuracy));
      report.accuracies.push_back(std::move(*accuracy));
    }
  }
  return {};
}

Result<void> bench_codec(const CodecFlags& flags) {
  const auto codecs = chosen_codecs(flags);
  if (!codecs) return std::unexpected(codecs.error());
  const auto dtypes = chosen_dtypes(flags);
  if (!dtypes) return std::unexpected(dtypes.error());
  const auto tensors = chosen_tensors(flags);
  if (!tensors) return std::unexpected(tensors.error());

  const AsioRuntime runtime;
  const SecondsClock clock = seconds_clock(runtime);
  CodecBenchReport report{.machine = processor_name(),
                          .instruction_set = kernels::instruction_set(),
                          .wall_seconds = runtime.wall_seconds(),
                          .rounds = flags.rounds,
                          .speeds = {},
                          .accuracies = {}};
  std::printf("%s, %s\n\n", report.machine.c_str(), report.instruction_set.c_str());
  SWARMLINE_TRY(measure_speeds(flags, *codecs, *dtypes, clock, report));
  SWARMLINE_TRY(measure_accuracies(*codecs, *tensors, report));
  if (flags.tensors.empty() && !file_exists(kCapturedTensors)) {
    std::printf("\nReal tensors are left out: %s is not here; --tensors FILE names others.\n",
                kCapturedTensors);
  }
  if (!flags.json.empty()) SWARMLINE_TRY(write_text_file_atomically(flags.json, to_json(report)));
  if (!flags.csv.empty()) SWARMLINE_TRY(write_text_file_atomically(flags.csv, to_csv(report)));
  return {};
}

void add_codec_command(CLI::App& bench, int& exit_code) {
  auto flags = std::make_shared<CodecFlags>();
  CLI::App* command =
      bench.add_subcommand("codec", "Every codec's speed and error on this machine, on one core");
  command->add_option("--codecs", flags->codecs, "Codecs to measure; default all")
      ->delimiter(',')
      ->type_name("NAME,...");
  command
      ->add_option("--dtypes", flags->dtypes,
                   "Types to encode from and decode to; default fp32,bf16,fp16")
      ->delimiter(',')
      ->type_name("NAME,...");
  command
      ->add_option("--blocks", flags->blocks, "Block sizes of lin8 and dyn8; default 64,256,4096")
      ->delimiter(',')
      ->type_name("N,...");
  command->add_option("--scales", flags->scales, "fp32 or bf16")->capture_default_str();
  command
      ->add_option("--mib", flags->mib,
                   "Size of the timed tensor in MiB, far larger than the caches")
      ->check(CLI::Range(std::uint64_t{1}, kBenchMibMax))
      ->capture_default_str();
  command->add_option("--rounds", flags->rounds, "Number of rounds, of which the best counts")
      ->check(CLI::Range(1, kBenchRoundsMax))
      ->capture_default_str();
  command
      ->add_option(
          "--tensors", flags->tensors,
          "Tensors to measure errors on: normal, heavy-tailed, outlier-channels, massive-tokens, "
          "gradients, .safetensors files; default all and captured ones")
      ->delimiter(',')
      ->type_name("NAME|FILE,...");
  command
      ->add_option("--json", flags->json,
                   "Write the results to this file as JSON (docs/formats/bench.md)")
      ->type_name("FILE");
  command->add_option("--csv", flags->csv, "Write the results to this file as CSV")
      ->type_name("FILE");
  command->footer(
      "How to choose: docs/codecs.md.\n"
      "Examples:\n"
      "  swarmline bench codec --codecs h8,lin8 --dtypes fp32\n"
      "  swarmline bench codec --tensors runs/quickstart/checkpoints/step-400/stage-0.safetensors");
  command->callback([flags, &exit_code] {
    auto done = bench_codec(*flags);
    exit_code = done ? kExitDone : report_error(done.error());
  });
}

}  // namespace

void add_bench_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("bench", "Measure what this machine can do");
  command->require_subcommand(1);
  add_codec_command(*command, exit_code);
  add_bench_links_command(*command, exit_code);
  add_bench_ratio_command(*command, exit_code);
  add_bench_allreduce_command(*command, exit_code);
}

}  // namespace swarmline
