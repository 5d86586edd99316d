// The run's key in a coordinator's life: which one it has, and how it comes to another.
#include <utility>

#include <fmt/format.h>

#include "base/log.h"
#include "base/marks.h"
#include "engine/config/link_security.h"
#include "node/admission/key_record.h"
#include "node/coordinator_node.h"

namespace swarmline {
namespace {

constexpr Duration kJoinStringLook = std::chrono::hours(1);

}  // namespace

Result<void> CoordinatorNode::open_key() {
  key_is_new_ = !file_exists(folder_.run_key());
  // One that finds no key would make another run's.
  if (options_.standby && !options_.config.run.etcd.empty() && key_is_new_)
    return fail(ErrorCode::kUserMistake,
                fmt::format("there is no {}: a standby needs the run's key; copy the folder {} "
                            "from the machine of the coordinator that began the run",
                            folder_.run_key(), folder_.keys()));
  auto guard = open_run_guard(folder_, options_.config.run.name, runtime_, clerk_);
  if (!guard) return std::unexpected(std::move(guard).error());
  link_guard_ = std::move(*guard);
  key_watch_.emplace(runtime_, clerk_, folder_.run_key(), link_guard_->identity().hash(),
                     [this](RunKey next) { on_key(std::move(next)); });
  return {};
}

// Whoever begins to lead has the key that the run has come to.
Result<void> CoordinatorNode::settle_key() {
  auto key = load_run_key(folder_.run_key());
  if (!key) return std::unexpected(std::move(key).error());
  Journal& journal = journal_->at_once();
  const auto recorded = recorded_key(journal);
  if (!recorded) return std::unexpected(recorded.error());
  const auto before = *recorded ? parse_key_hash(**recorded) : key->identity.hash();
  const bool leads = before && leads_to(*before, *key, options_.config.run.name);
  if (!leads && !key_is_new_)
    return fail(
        ErrorCode::kUserMistake,
        fmt::format("{} is not the key of this run any more: that is {}; copy the folder {} "
                    "from the machine where \"swarmline keys rotate\" changed it",
                    folder_.run_key(), before ? short_text(*before) : **recorded, folder_.keys()));
  if (!leads)
    log(LogLevel::kWarn,
        "the run had another key, and {} was made anew: its peers need the new join string",
        folder_.run_key());
  if (!*recorded || *before != key->identity.hash())
    SWARMLINE_TRY(record_key(journal, *key, runtime_.wall_seconds()));
  link_guard_->take_key(std::move(*key));
  key_watch_->know(link_guard_->identity().hash());
  return {};
}

// Leading would be for nothing: no peer takes that key for the run's.
void CoordinatorNode::wait_for_key(const std::string& why) {
  let_go();
  waits_for_key_ = true;
  log(LogLevel::kError, "{}; this standby waits for it", why);
}

// Its peers hear of it once the journal has it: whoever leads after this one has it, too.
void CoordinatorNode::on_key(RunKey next) {
  if (over_ || records_key_) return;
  if (journal_ == nullptr) {
    take_key(std::move(next));
    if (!std::exchange(waits_for_key_, false)) return;
    make_leadership();
    return stand_by();
  }
  if (!leads_to(link_guard_->identity().hash(), next, options_.config.run.name)) {
    SWARMLINE_MARK("keys.nobody_vouches_for_it");
    log(LogLevel::kError,
        "{} holds a key that the run's key has not signed; the run goes on with the one that it "
        "has: only \"swarmline keys rotate\" changes it",
        folder_.run_key());
    return key_watch_->know(next.identity.hash());
  }
  records_key_ = true;
  const auto kept = std::make_shared<RunKey>(std::move(next));
  journal_->run([kept, now = runtime_.wall_seconds()](
                    Journal& journal) { return record_key(journal, *kept, now); },
                guard_.wrap([this, kept](const Result<void>& recorded) {
                  records_key_ = false;
                  if (over_) return;
                  if (recorded) return take_key(std::move(*kept));
                  log(LogLevel::kWarn, "the run's new key waits: {}", recorded.error().what);
                }));
}

void CoordinatorNode::take_key(RunKey next) {
  log(LogLevel::kInfo, "the run's key is {} from now on", short_text(next.identity.hash()));
  link_guard_->take_key(std::move(next));
  key_watch_->know(link_guard_->identity().hash());
  if (!bound_ || !coordinator_) return;
  if (const auto join = way_to_join(*bound_); !join) log(LogLevel::kWarn, "{}", join.error().what);
}

// The string in the run folder joins a run however long it takes.
void CoordinatorNode::keep_join_string() {
  runtime_.call_after(kJoinStringLook, guard_.wrap([this] {
    if (over_) return;
    if (coordinator_)
      if (const auto join = way_to_join(*bound_); !join)
        log(LogLevel::kWarn, "{}", join.error().what);
    keep_join_string();
  }));
}

}  // namespace swarmline
