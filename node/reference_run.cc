#include "node/reference_run.h"

#include <cstdio>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/limits.h"
#include "console/exit_codes.h"
#include "engine/checkpoint/checkpoint_folder.h"
#include "engine/checkpoint/checkpoint_reader.h"
#include "engine/checkpoint/checkpoint_writer.h"
#include "engine/checkpoint/sha256.h"
#include "engine/checkpoint/stage_file_image.h"
#include "engine/config/begun_run.h"
#include "engine/config/load.h"
#include "engine/runtime/asio_runtime.h"
#include "engine/store/files.h"
#include "engine/store/log_lines.h"
#include "node/folder_sink.h"
#include "node/initial_state.h"
#include "node/run_change.h"
#include "node/run_data.h"
#include "node/run_folder.h"
#include "node/summary.h"
#include "pipeline/reference/reference_trainer.h"

namespace swarmline {
namespace {

constexpr Duration kLinePeriod = std::chrono::seconds(2);
constexpr std::size_t kLossesShown = 60;

Result<ReferenceMutation> mutation_named(const std::string& name) {
  using Kind = ReferenceMutation::Kind;
  constexpr std::pair<const char*, Kind> names[] = {
      {"", Kind::kNone},
      {"drop", Kind::kDropMicrobatch},
      {"double", Kind::kDoubleMicrobatch},
      {"miss", Kind::kMissAtOneStage},
      {"lr", Kind::kLearningRate},
      {"clip", Kind::kClipBeforeReduce},
  };
  for (const auto& [known, kind] : names) {
    if (name == known) return ReferenceMutation{kind};
  }
  return fail(ErrorCode::kUserMistake,
              fmt::format("--mutate {}: expected drop, double, miss, lr or clip", name));
}

// Prints and logs what a swarm's coordinator would.
class StepReporter {
 public:
  StepReporter(const RunConfig& config, Runtime& runtime, LineFile log)
      : config_(config),
        runtime_(runtime),
        log_(std::move(log)),
        start_(runtime.now()),
        before_(start_),
        printed_(start_ - kLinePeriod) {
    status_.steps = config.run.steps;
  }

  void step(const ReferenceStep& report) {
    const Instant now = runtime_.now();
    note(log_.append(to_json_line(line_for(report, now))));
    before_ = now;

    status_.step = report.step + 1;
    status_.version = status_.step;
    status_.loss = report.loss;
    status_.losses.push_back(report.loss);
    if (status_.losses.size() > kLossesShown) status_.losses.erase(status_.losses.begin());
    status_.tokens += report.tokens;
    status_.elapsed_seconds = to_seconds(now - start_);
    status_.tokens_per_second = static_cast<double>(status_.tokens) / status_.elapsed_seconds;
    status_.mean_tokens_per_second = status_.tokens_per_second;
    status_.eta_seconds = status_.elapsed_seconds / static_cast<double>(status_.step) *
                          static_cast<double>(config_.run.steps - status_.step);
    if (now - printed_ < kLinePeriod && status_.step < config_.run.steps) return;
    printed_ = now;
    std::printf("%s\n", plain_line(status_).c_str());
    std::fflush(stdout);
  }

  void evaluation(double loss, std::uint64_t sequences) {
    status_.held_out_loss = loss;
    note(log_.append(to_json_line(EvalLogLine{.version = config_.run.steps,
                                              .loss = loss,
                                              .sequences = sequences,
                                              .tokens = sequences * config_.batch.sequence,
                                              .wall_seconds = runtime_.wall_seconds()})));
  }
  RunStatus& status() { return status_; }

 private:
  StepLogLine line_for(const ReferenceStep& report, Instant now) const {
    StepLogLine line;
    line.step = report.step;
    line.version = report.step + 1;
    line.loss = report.loss;
    line.tokens = report.tokens;
    line.seconds = to_seconds(now - before_);
    line.wall_seconds = runtime_.wall_seconds();
    line.gradient_norm = report.gradient_norm;
    line.learning_rate = report.learning_rate;
    return line;
  }
  // A full disk does not end a run whose result is still in memory; it is said once.
  void note(Result<void> written) {
    if (!written && !complained_) std::fprintf(stderr, "%s\n", written.error().what.c_str());
    complained_ = complained_ || !written;
  }

  const RunConfig& config_;
  Runtime& runtime_;
  LineFile log_;
  Instant start_, before_, printed_;
  RunStatus status_;
  bool complained_ = false;
};

Result<std::string> save(const RunConfig& config, const ModelSpec& model,
                         const ReferenceResult& result, std::uint64_t tokens,
                         const std::string& folder) {
  SWARMLINE_TRY(make_folders(folder));
  auto writer = CheckpointWriter::begin(folder, config.run.steps, 1);
  if (!writer) return std::unexpected(std::move(writer).error());
  const StageFileImage image(
      {ArenaPart{.prefix = {}, .layout = result.layout, .arena = result.parameters.bytes()}});
  Sha256 hash;
  for (std::uint64_t at = 0; at < image.size_bytes();) {
    const Buffer piece = image.piece(at, Limits::checkpoint_piece_bytes);
    SWARMLINE_TRY(writer->write_piece(0, at, piece.bytes()));
    hash.update(piece.bytes());
    at += piece.size();
  }
  SWARMLINE_TRY(writer->finish_stage(0, image.size_bytes(), hash.finish_hex()));
  Manifest manifest = manifest_for(config, model);
  manifest.version = config.run.steps;
  manifest.tokens = tokens;
  manifest.boundaries = result.boundaries;
  manifest.stages.push_back({.parts = {}, .first_layer = 0, .last_layer = model.shape.layers});
  return writer->commit(std::move(manifest));
}

decltype(ReferenceOptions::initial) initial_of(const RunConfig& config, const RunFolder& folder) {
  if (config.run.init.empty()) return {};
  return [path = initial_folder(folder)](const ParameterLayout& layout,
                                         MutableBytes arena) -> Result<void> {
    auto reader = CheckpointReader::open(checkpoint_path(path, 0));
    if (!reader) return std::unexpected(std::move(reader).error());
    return reader->load(layout, arena);
  };
}

// A run that was changed, as it was trained; empty: it was not, or `config` is that of another.
Result<RunSegments> segments_to_follow(const RunConfig& config, const RunFolder& folder) {
  auto recorded = read_segments(config, folder);
  if (!recorded) return recorded;
  RunSegments segments = in_force(*recorded);
  if (segments.size() < 2) return RunSegments();
  const RunConfig& newest = segments.back().config;
  if (fixed_difference(newest, config)) return RunSegments();
  RunConfig of_its_steps = config;
  of_its_steps.run.steps = newest.run.steps;
  if (const auto changes = segment_changes(newest, of_its_steps); !changes.empty()) {
    std::printf(
        "%s was changed as it went on, but not to %s = %s: the reference has that all the "
        "way\n",
        folder.path().c_str(), changes.front().key.c_str(), changes.front().after.c_str());
    return RunSegments();
  }
  std::printf("%s was changed as it went on; the reference does the same:\n",
              folder.path().c_str());
  for (const RunSegment& segment : segments) std::printf("  %s\n", sentence_of(segment).c_str());
  return segments;
}

struct OpenSegments {
  std::vector<std::unique_ptr<MicrobatchSource>> sources;
  std::vector<ReferenceSegment> segments;
};

Result<OpenSegments> open_segments(const RunSegments& trained_as) {
  OpenSegments open;
  for (const RunSegment& segment : trained_as) {
    auto dataset = open_dataset(segment.config);
    if (!dataset) return std::unexpected(std::move(dataset).error());
    open.sources.push_back(make_dataset_source(segment.config, std::move(*dataset)));
    open.segments.push_back({.first_step = segment.first_version,
                             .config = segment.config,
                             .source = open.sources.back().get()});
  }
  return open;
}

}  // namespace

Result<int> run_reference_here(ReferenceRunOptions options) {
  RunConfig& config = options.config;
  auto trained_as = segments_to_follow(config, RunFolder(config.run_folder()));
  if (!trained_as) return std::unexpected(std::move(trained_as).error());
  config.run.name += "-reference";
  auto mutation = mutation_named(options.mutate);
  if (!mutation) return std::unexpected(std::move(mutation).error());
  auto data = open_run_data(config, true);
  if (!data) return std::unexpected(std::move(data).error());
  const RunFolder folder(config.run_folder());
  auto initial = find_initial_parameters(config, folder, options.fresh);
  if (!initial) return std::unexpected(std::move(initial).error());
  SWARMLINE_TRY(folder.prepare(to_toml(config), options.fresh));
  SWARMLINE_TRY(initial->write(config, folder));
  auto log_file = LineFile::open_append(folder.log());
  if (!log_file) return std::unexpected(std::move(log_file).error());

  AsioRuntime runtime;
  StepReporter reporter(config, runtime, std::move(*log_file));
  auto segments = open_segments(*trained_as);
  if (!segments) return std::unexpected(std::move(segments).error());
  const ReferenceOptions reference{.config = config,
                                   .model = data->model,
                                   .device = options.device,
                                   .threads = options.threads,
                                   .permute_sums = options.permute_sums,
                                   .eval_sequences = data->eval_sequences,
                                   .mutation = *mutation,
                                   .segments = std::move(segments->segments),
                                   .initial = initial_of(config, folder)};
  const auto source = make_dataset_source(config, std::move(data->dataset));
  set_compute_threads(options.threads);
  auto result = run_reference(reference, *source,
                              [&](const ReferenceStep& report) { reporter.step(report); });
  if (!result) return std::unexpected(std::move(result).error());
  if (data->eval_sequences > 0) reporter.evaluation(result->eval_loss, data->eval_sequences);

  auto saved =
      save(config, data->model, *result, reporter.status().tokens,
           options.checkpoint_folder.empty() ? folder.checkpoints() : options.checkpoint_folder);
  if (!saved) return std::unexpected(std::move(saved).error());
  RunStatus& status = reporter.status();
  status.state = "done";
  status.sentence = fmt::format("finished {} steps without a swarm", config.run.steps);
  status.run = config.run.name;
  status.unigram_entropy = data->entropy.unigram_nats;
  status.bigram_entropy = data->entropy.bigram_nats;
  status.checkpoint = *saved;
  SWARMLINE_TRY(write_text_file_atomically(folder.status(), to_json(status) + "\n"));
  std::fputs(summary(status, folder, false).c_str(), stdout);
  return kExitDone;
}

}  // namespace swarmline
