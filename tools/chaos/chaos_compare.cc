#include "tools/chaos/chaos_compare.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "engine/checkpoint/checkpoint_diff.h"
#include "engine/config/load.h"
#include "engine/runtime/asio_runtime.h"
#include "engine/store/files.h"
#include "node/child_process.h"
#include "node/run_folder.h"
#include "pipeline/protocol/run_status.h"

namespace swarmline {
namespace {

constexpr Duration kLook = std::chrono::milliseconds(20);
constexpr std::uint64_t kTextBytesMax = 16 << 20;

bool rounds(const RunConfig& config) {
  const CodecSection& codec = config.codec;
  return codec.averaging != "none" ||
         (config.pipeline.stages > 1 && (codec.forward != "none" || codec.backward != "none"));
}

bool has_zero_true_gradient(const std::string& tensor, const ModelSection& model) {
  return model.positions != PositionKind::kRotary && !model.qk_norm &&
         tensor.ends_with(".attention.k.bias");
}

bool is_done(const RunFolder& folder, const RunConfig& config) {
  const auto text = read_text_file(folder.config(), kTextBytesMax);
  const auto json = folder.final_status();
  if (!text || *text != to_toml(config) || !json) return false;
  const auto status = parse_status(*json);
  return status && status->state == "done";
}

// Runs the program to its end.
Result<void> run_child(std::vector<std::string> arguments, const std::string& output) {
  auto program = own_program_path();
  if (!program) return std::unexpected(std::move(program).error());
  const std::string words = fmt::format("{}", fmt::join(arguments, " "));
  auto child = ChildProcess::start(
      {.program = *program, .arguments = std::move(arguments), .output_file = output});
  if (!child) return std::unexpected(std::move(child).error());
  AsioRuntime runtime;
  bool interrupted = false;
  runtime.on_signals([&](int) { interrupted = true; });
  while (!child->poll() && !interrupted) runtime.run_until([] { return false; }, kLook);
  if (interrupted) return fail(ErrorCode::kStopped, "interrupted");
  if (*child->poll() == 0) return {};
  return fail(ErrorCode::kIo, fmt::format("\"swarmline {}\" ended with code {}; see {}", words,
                                          *child->poll(), output));
}

// The run folder of the reference; with `permute_sums` of one that sums in another order.
Result<std::string> reference_run(const RunConfig& config, std::uint64_t permute_sums) {
  RunConfig asked = config;
  if (permute_sums > 0) asked.run.name += fmt::format("-permuted-{}", permute_sums);
  RunConfig made = asked;
  made.run.name += "-reference";
  const RunFolder folder(made.run_folder());
  if (is_done(folder, made)) return folder.path();
  const RunFolder hurt(config.run_folder());
  std::vector<std::string> arguments{"launch",       hurt.config(), "--name",
                                     asked.run.name, "--reference", "--fresh"};
  if (permute_sums > 0)
    arguments.insert(arguments.end(), {"--permute-sums", std::to_string(permute_sums)});
  SWARMLINE_TRY(run_child(std::move(arguments), hurt.log_of("reference")));
  return folder.path();
}

// Tensor -> what may differ, relative to its peak.
using Allowed = std::map<std::string, double>;

void raise(Allowed& noise, const CheckpointDiff& diff) {
  for (const TensorDiff& tensor : diff.tensors)
    noise[tensor.name] = std::max(noise[tensor.name], tensor.max_rel_to_peak);
}

Result<Allowed> measure_noise(const RunConfig& config, const std::string& reference) {
  std::vector<std::string> runs{reference};
  for (int seed = 1; seed <= kPermutedRuns; ++seed) {
    auto run = reference_run(config, static_cast<std::uint64_t>(seed));
    if (!run) return std::unexpected(std::move(run).error());
    runs.push_back(std::move(*run));
  }
  Allowed noise;
  for (std::size_t a = 0; a < runs.size(); ++a) {
    for (std::size_t b = a + 1; b < runs.size(); ++b) {
      const auto diff = diff_checkpoints(runs[a], runs[b]);
      if (!diff) return std::unexpected(diff.error());
      raise(noise, *diff);
    }
  }
  const double least = static_cast<double>(config.run.steps) *
                       static_cast<double>(std::numeric_limits<float>::epsilon());
  for (auto& [tensor, allowed] : noise) allowed = std::max(kNoiseFactor * allowed, least);
  return noise;
}

ChaosComparison judge(const CheckpointDiff& diff, const ModelSection& model,
                      const std::optional<Allowed>& allowed) {
  ChaosComparison worst{.verdict = ChaosVerdict::kEqual, .sentence = {}};
  worst.allowed = kFloat64Allowed;
  double ratio = -1;
  std::string where;
  for (const TensorDiff& tensor : diff.tensors) {
    if (has_zero_true_gradient(tensor.name, model)) continue;
    double bound = kFloat64Allowed;
    if (allowed) {
      const auto found = allowed->find(tensor.name);
      bound = found == allowed->end() ? 0 : found->second;
    }
    const double share = tensor.max_rel_to_peak == 0 ? 0 : tensor.max_rel_to_peak / bound;
    if (share <= ratio) continue;
    ratio = share;
    where = tensor.name;
    worst.max_rel_to_peak = tensor.max_rel_to_peak;
    worst.allowed = bound;
  }
  if (!diff.same_tensors() || ratio < 0) {
    worst.verdict = ChaosVerdict::kDiffers;
    worst.sentence =
        fmt::format("{} and {} do not hold the same tensors", diff.path_a, diff.path_b);
    return worst;
  }
  if (!(ratio <= 1)) worst.verdict = ChaosVerdict::kDiffers;  // NaN differs
  worst.sentence =
      fmt::format("at most {:.2g} of a tensor's largest value apart ({}; allowed {:.2g}) from {}",
                  worst.max_rel_to_peak, where, worst.allowed, diff.path_a);
  return worst;
}

}  // namespace

Result<ChaosComparison> compare_with_reference(const ChaosCompareOptions& options) {
  const RunConfig& config = options.config;
  if (rounds(config))
    return ChaosComparison{
        .verdict = ChaosVerdict::kNotJudged,
        .sentence =
            "the run's codecs round what travels, and its reference has none; give it "
            "codec.forward, backward and averaging \"none\""};
  std::string reference = options.reference;
  if (reference.empty()) {
    auto run = reference_run(config, 0);
    if (!run) return std::unexpected(std::move(run).error());
    reference = std::move(*run);
  }
  std::optional<Allowed> allowed;
  if (config.model.dtype != DType::kF64) {
    auto measured = measure_noise(config, reference);
    if (!measured) return std::unexpected(std::move(measured).error());
    allowed = std::move(*measured);
  }
  const auto diff = diff_checkpoints(reference, config.run_folder());
  if (!diff) return std::unexpected(diff.error());
  return judge(*diff, config.model, allowed);
}

}  // namespace swarmline
