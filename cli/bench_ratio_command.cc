#include <algorithm>
#include <cstdio>
#include <memory>

#include <fmt/format.h>

#include "cli/commands.h"
#include "console/exit_codes.h"
#include "console/screen.h"
#include "engine/config/configured_codec.h"
#include "engine/config/load.h"
#include "engine/runtime/asio_runtime.h"
#include "engine/store/files.h"
#include "pipeline/source/lease_window.h"
#include "tools/link_proxy/link_shape.h"
#include "tools/measure/bench_machine.h"
#include "tools/measure/bench_ratio.h"
#include "tools/measure/bench_ratio_report.h"

namespace swarmline {
namespace {

constexpr std::uint32_t kHiddenMax = 65536, kLayersMax = 1024, kSequenceMax = 1 << 20;
constexpr std::uint32_t kMicrobatchMax = 1024;
constexpr std::uint32_t kChainStagesMax = 64, kInFlightMax = 256, kMicrobatchesMax = 100'000;
constexpr double kRttMsMax = 60'000, kSecondsMax = 86'400, kEmulateMsMax = 3'600'000;
constexpr int kRoundsMax = 1000, kThreadsMax = 1024;
constexpr double kMemoryShare = 0.8;  // of what is free
constexpr std::uint32_t kHeadWidth = 64;
constexpr std::size_t kPlotColumns = 78, kPlotRows = 21;

// Empty lists, empty texts and zeros: the config's, or the default.
struct RatioFlags {
  std::string config;
  std::vector<std::uint32_t> hidden, layers, sequences;
  std::vector<std::string> codecs;
  std::vector<std::string> bandwidths = {"100M", "200M", "500M", "1G"};
  std::vector<double> rtts_ms = {0, 10, 50, 100, 200};
  std::string device = "cpu";
  int threads = 0, rounds = 5;
  double seconds = 120;
  double emulate_forward_ms = 0, emulate_backward_ms = 0;
  std::uint32_t microbatch = 0, stages = 0, in_flight = 0;
  std::optional<std::uint32_t> microbatches;
  std::string json, csv, svg;
};

// Without a config: GPT-2's block, a sequence at a time.
Result<RunConfig> ratio_config(const RatioFlags& flags) {
  RunConfig config;
  config.model.d_model = config.model.heads * kHeadWidth;
  config.batch.microbatch = config.batch.batch = 1;
  if (!flags.config.empty()) {
    auto loaded = load_run_config(flags.config);
    if (!loaded) return loaded;
    config = std::move(*loaded);
  }
  if (flags.microbatch > 0) config.batch.microbatch = flags.microbatch;
  return config;
}

// The most layers that a stage of the config has.
std::uint32_t layers_per_stage(const RunConfig& config) {
  if (!config.pipeline.layers.empty()) return std::ranges::max(config.pipeline.layers);
  return (config.model.layers + config.pipeline.stages - 1) / config.pipeline.stages;
}

std::vector<RatioShape> chosen_shapes(const RatioFlags& flags, const RunConfig& config) {
  const auto or_else = [&](const std::vector<std::uint32_t>& given, std::uint32_t of_config,
                           std::vector<std::uint32_t> of_none) {
    if (!given.empty()) return given;
    return flags.config.empty() ? std::move(of_none) : std::vector{of_config};
  };
  std::vector<RatioShape> shapes;
  for (const std::uint32_t layers : or_else(flags.layers, layers_per_stage(config), {1})) {
    for (const std::uint32_t tokens : or_else(flags.sequences, config.batch.sequence, {512})) {
      for (const std::uint32_t hidden :
           or_else(flags.hidden, config.model.d_model, {768, 1024, 2048, 4096, 12288})) {
        const RatioShape shape{.hidden = hidden, .layers = layers, .sequence = tokens};
        if (std::ranges::find(shapes, shape) == shapes.end()) shapes.push_back(shape);
      }
    }
  }
  return shapes;
}

Result<std::vector<CodecSpec>> chosen_codecs(const RatioFlags& flags, const RunConfig& config) {
  if (flags.codecs.empty() && !flags.config.empty())
    return std::vector{configured_codec(config.codec.forward, config.codec)};
  const std::vector<std::string> names =
      flags.codecs.empty() ? std::vector<std::string>{"fp16"} : flags.codecs;
  std::vector<CodecSpec> codecs;
  for (const std::string& name : names) {
    const auto codec = parse_codec(name, codec_options(config.codec));
    if (!codec) return fail(ErrorCode::kUserMistake, "--codec: " + codec.error().what);
    codecs.push_back(*codec);
  }
  return codecs;
}

Result<std::vector<LinkSpeed>> chosen_links(const RatioFlags& flags) {
  std::vector<LinkSpeed> links;
  for (const std::string& word : flags.bandwidths) {
    const auto shape = parse_link_shape("rate=" + word);
    if (!shape || shape->bits_per_second <= 0) {
      return fail(
          ErrorCode::kUserMistake,
          fmt::format("--bandwidth {}: expected bits per second above 0, e.g. 100M or 1G", word));
    }
    for (const double rtt : flags.rtts_ms)
      links.push_back({.bits_per_second = shape->bits_per_second, .rtt_seconds = rtt / 1e3});
  }
  return links;
}

Chain chosen_chain(const RatioFlags& flags, const RunConfig& config) {
  Chain chain;
  const std::uint32_t wanted = flags.config.empty() ? chain.stages : config.pipeline.stages;
  chain.stages = flags.stages > 0 ? flags.stages : std::clamp(wanted, 2U, kChainStagesMax);
  const std::uint32_t window =
      flags.in_flight > 0 ? flags.in_flight
                          : window_for(config.pipeline.in_flight, chain.stages, /*sources=*/1);
  chain.in_flight = std::min(window, kInFlightMax);
  const std::uint32_t of_config =
      flags.config.empty() ? 0 : config.batch.batch / config.batch.microbatch;
  chain.microbatches = std::min(flags.microbatches.value_or(of_config), kMicrobatchesMax);
  return chain;
}

Result<void> write_files(const RatioFlags& flags, const RatioReport& report) {
  if (!flags.json.empty()) SWARMLINE_TRY(write_text_file_atomically(flags.json, to_json(report)));
  if (!flags.csv.empty()) SWARMLINE_TRY(write_text_file_atomically(flags.csv, to_csv(report)));
  if (!flags.svg.empty())
    SWARMLINE_TRY(write_text_file_atomically(flags.svg, to_svg(utilization_plot(report))));
  return {};
}

void print(const RatioReport& report) {
  std::printf("%s", to_tables(report).c_str());
  if (report.stages.size() < 2) return;
  std::printf("\n");
  for (const std::string& line : to_text(utilization_plot(report), kPlotColumns, kPlotRows))
    std::printf("%s\n", line.c_str());
}

Result<void> bench_ratio(const RatioFlags& flags) {
  const auto config = ratio_config(flags);
  if (!config) return std::unexpected(config.error());
  const auto codecs = chosen_codecs(flags, *config);
  if (!codecs) return std::unexpected(codecs.error());
  const auto links = chosen_links(flags);
  if (!links) return std::unexpected(links.error());

  const RatioOptions options{.config = *config,
                             .device = flags.device,
                             .threads = flags.threads > 0 ? flags.threads : processor_cores(),
                             .rounds = flags.rounds,
                             .seconds = flags.seconds,
                             .emulate_forward_seconds = flags.emulate_forward_ms / 1e3,
                             .emulate_backward_seconds = flags.emulate_backward_ms / 1e3,
                             .memory_bytes = static_cast<std::uint64_t>(
                                 kMemoryShare * static_cast<double>(free_memory_bytes())),
                             .codecs = *codecs};
  const AsioRuntime runtime;
  RatioReport report{.machine = processor_name(),
                     .device = flags.device,
                     .threads = options.threads,
                     .rounds = flags.rounds,
                     .wall_seconds = runtime.wall_seconds(),
                     .microbatch = config->batch.microbatch,
                     .chain = chosen_chain(flags, *config),
                     .links = *links,
                     .stages = {}};
  std::printf("%s\n\n", report.machine.c_str());
  const std::vector<RatioShape> shapes = chosen_shapes(flags, *config);
  BenchProgress progress(ratio_pieces(options, shapes));
  auto stages = measure_ratios(options, shapes, seconds_clock(runtime),
                               [&](const std::string& what) { progress.begin(what); });
  progress.clear();
  if (!stages) return std::unexpected(std::move(stages).error());
  report.stages = std::move(*stages);
  print(report);
  return write_files(flags, report);
}

template <typename T>
CLI::Option* add_list(CLI::App& command, const std::string& flag, std::vector<T>& values,
                      const std::string& help, const char* type) {
  return command.add_option(flag, values, help)->delimiter(',')->type_name(type);
}

void add_size_flags(CLI::App& command, RatioFlags& flags) {
  add_list(command, "--hidden", flags.hidden, "Hidden sizes; default 768,1024,2048,4096,12288",
           "N,...")
      ->check(CLI::Range(1U, kHiddenMax));
  add_list(command, "--layers-per-stage", flags.layers,
           "Numbers of layers in a stage, e.g. 1,3,16; default 1", "N,...")
      ->check(CLI::Range(1U, kLayersMax));
  add_list(command, "--seq", flags.sequences, "Tokens per sequence, e.g. 512,2048; default 512",
           "N,...")
      ->check(CLI::Range(1U, kSequenceMax));
  add_list(command, "--codec", flags.codecs, "Codecs of activations and gradients; default fp16",
           "NAME,...");
  command.add_option("--microbatch", flags.microbatch, "Sequences per microbatch; default 1")
      ->check(CLI::Range(1U, kMicrobatchMax))
      ->type_name("N");
}

void add_link_flags(CLI::App& command, RatioFlags& flags) {
  add_list(command, "--bandwidth", flags.bandwidths,
           "Bandwidths each way in bits per second; default 100M,200M,500M,1G", "RATE,...");
  add_list(command, "--rtt", flags.rtts_ms, "Round-trip times in ms; default 0,10,50,100,200",
           "MS,...")
      ->check(CLI::Range(0.0, kRttMsMax));
  command.add_option("--stages", flags.stages, "Number of stages in the chain; default 4")
      ->check(CLI::Range(2U, kChainStagesMax))
      ->type_name("N");
  command
      .add_option("--in-flight", flags.in_flight,
                  "Microbatches in flight; default 2 per stage, as in the engine")
      ->check(CLI::Range(1U, kInFlightMax))
      ->type_name("N");
  command
      .add_option(
          "--microbatches", flags.microbatches,
          "Microbatches per step, which fills and empties the chain; 0, the default: no end")
      ->check(CLI::Range(0U, kMicrobatchesMax))
      ->type_name("N");
}

void add_measuring_flags(CLI::App& command, RatioFlags& flags) {
  command.add_option("--device", flags.device, "cpu, cuda or cuda:N")->capture_default_str();
  command.add_option("--threads", flags.threads, "Number of compute threads; default all cores")
      ->check(CLI::Range(1, kThreadsMax))
      ->type_name("N");
  command.add_option("--rounds", flags.rounds, "Number of rounds, of which the median counts")
      ->check(CLI::Range(1, kRoundsMax))
      ->capture_default_str();
  command
      .add_option("--seconds", flags.seconds,
                  "Time limit for measuring stages; what would take longer is modelled")
      ->check(CLI::Range(0.0, kSecondsMax))
      ->capture_default_str();
  command
      .add_option("--emulate-forward-ms", flags.emulate_forward_ms,
                  "Emulate another device, on which a forward pass takes at least this long")
      ->check(CLI::Range(0.0, kEmulateMsMax))
      ->type_name("MS");
  command
      .add_option("--emulate-backward-ms", flags.emulate_backward_ms,
                  "The same for a backward pass")
      ->check(CLI::Range(0.0, kEmulateMsMax))
      ->type_name("MS");
  command
      .add_option("--json", flags.json,
                  "Write the results to this file as JSON (docs/formats/bench.md)")
      ->type_name("FILE");
  command.add_option("--csv", flags.csv, "Write the results to this file as CSV")
      ->type_name("FILE");
  command.add_option("--svg", flags.svg, "Write the plot to this file")->type_name("FILE");
}

}  // namespace

void add_bench_ratio_command(CLI::App& bench, int& exit_code) {
  auto flags = std::make_shared<RatioFlags>();
  CLI::App* command = bench.add_subcommand(
      "ratio", "Compute against communication by hidden size: what a link lets this device do");
  command
      ->add_option("config", flags->config, "The run's TOML file, whose sizes replace the defaults")
      ->type_name("CONFIG");
  add_size_flags(*command, *flags);
  add_link_flags(*command, *flags);
  add_measuring_flags(*command, *flags);
  command->footer(
      "How to read it: docs/square_cube.md.\n"
      "Examples:\n"
      "  swarmline bench ratio\n"
      "  swarmline bench ratio --layers-per-stage 1,3,16 --codec fp16,h8 --svg ratio.svg\n"
      "  swarmline bench ratio configs/gpt2_small.toml --bandwidth 100M,1G");
  command->callback([flags, &exit_code] {
    auto done = bench_ratio(*flags);
    exit_code = done ? kExitDone : report_error(done.error());
  });
}

}  // namespace swarmline
