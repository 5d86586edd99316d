#include "tools/history/run_history.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "engine/store/files.h"

namespace swarmline {
namespace {

// What was committed from there on before a return to a checkpoint is over.
void add_step(RunHistory& history, StepHistory step) {
  std::vector<StepHistory>& steps = history.steps;
  while (!steps.empty() && steps.back().step >= step.step) steps.pop_back();
  if (steps.size() < kHistoryStepsMax) steps.push_back(std::move(step));
}

void add_eval(RunHistory& history, const EvalHistory& eval) {
  std::vector<EvalHistory>& evals = history.evals;
  while (!evals.empty() && evals.back().version >= eval.version) evals.pop_back();
  evals.push_back(eval);
}

void add_line(RunHistory& history, std::string_view text) {
  auto entry = read_log_line(text);
  if (!entry) {
    ++history.unread_lines;
  } else if (auto* step = std::get_if<LoggedStep>(&*entry)) {
    add_step(history, std::move(*step));
  } else if (const auto* eval = std::get_if<LoggedEval>(&*entry)) {
    add_eval(history, *eval);
  }
}

}  // namespace

Result<RunHistory> read_history(const std::string& log_path) {
  auto file = MappedFile::open(log_path);  // it only grows
  if (!file) return std::unexpected(std::move(file).error());
  std::string_view rest(reinterpret_cast<const char*>((*file)->bytes().data()),
                        (*file)->bytes().size());
  RunHistory history;
  for (std::size_t end = rest.find('\n'); end != rest.npos; end = rest.find('\n')) {
    add_line(history, rest.substr(0, end));
    rest.remove_prefix(end + 1);
  }
  if (!rest.empty()) ++history.unread_lines;
  return history;
}

std::string to_csv(const RunHistory& history) {
  std::string out =
      "step,wall_seconds,loss,held_out_loss,tokens,seconds,tokens_per_second,gradient_norm,"
      "learning_rate,peers,boundary_bytes,averaging_bytes,second_tries\n";
  auto eval = history.evals.begin();
  for (const StepHistory& step : history.steps) {
    while (eval != history.evals.end() && eval->version < step.step + 1) ++eval;
    const bool evaluated = eval != history.evals.end() && eval->version == step.step + 1;
    const double speed = step.seconds > 0 ? static_cast<double>(step.tokens) / step.seconds : 0;
    out += fmt::format("{},{:.3f},{},{},{},{},{:.6g},{},{},{},{},{},{}\n", step.step + 1,
                       step.wall_seconds, step.loss ? fmt::format("{}", *step.loss) : "",
                       evaluated ? fmt::format("{}", eval->loss) : "", step.tokens, step.seconds,
                       speed, step.gradient_norm, step.learning_rate, step.peers.size(),
                       step.boundary_bytes, step.averaging_bytes, step.second_tries);
  }
  return out;
}

}  // namespace swarmline
