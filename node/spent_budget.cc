#include "node/spent_budget.h"

#include "node/run_store.h"
#include "pipeline/coordinator/run/cost_meter.h"
#include "pipeline/coordinator/run/run_journal.h"

namespace swarmline {

Result<void> check_budget(const RunConfig& config, const RunFolder& folder) {
  const bool has_budget = config.money.budget > 0 || config.money.budget_hours > 0;
  if (!has_budget) return {};
  auto journal = read_journal(config, folder);
  if (!journal) return std::unexpected(std::move(journal).error());
  if (*journal == nullptr) return {};
  const auto commit = (*journal)->last_commit();
  if (!commit) return std::unexpected(commit.error());
  if (*commit && (*commit)->version >= config.run.steps) return {};  // nothing is left to do
  const auto text = RunJournal::totals_in(**journal);
  if (!text) return std::unexpected(text.error());
  if (!*text) return {};
  const auto totals = parse_run_totals(**text);
  if (!totals) return std::unexpected(totals.error());
  CostMeter meter(config.money);
  if (totals->cost) meter.restore(*totals->cost);
  if (const auto refusal = meter.refusal(totals->seconds))
    return fail(ErrorCode::kUserMistake, folder.path() + ": " + *refusal);
  return {};
}

}  // namespace swarmline
