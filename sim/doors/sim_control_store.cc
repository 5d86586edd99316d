#include "sim/doors/sim_control_store.h"

#include <optional>
#include <utility>
#include <vector>

namespace swarmline {

// The journal as the leader of one reign has it.
class LedJournal final : public Journal {
 public:
  explicit LedJournal(std::shared_ptr<SimLead::State> state)
      : state_(std::move(state)), own_(state_->reign) {}

  bool leads() const { return own_ == state_->reign; }

  Result<void> put_meta(const std::string& key, const std::string& value) override {
    return led([&](Journal& journal) { return journal.put_meta(key, value); });
  }
  Result<std::optional<std::string>> get_meta(const std::string& key) override {
    return led([&](Journal& journal) { return journal.get_meta(key); });
  }
  Result<void> record_seat(const SeatRecord& seat) override {
    return led([&](Journal& journal) { return journal.record_seat(seat); });
  }
  Result<std::vector<SeatRecord>> seats() override {
    return led([](Journal& journal) { return journal.seats(); });
  }
  Result<void> record_commit(const CommitRecord& commit) override {
    return led([&](Journal& journal) { return journal.record_commit(commit); });
  }
  Result<std::optional<CommitRecord>> last_commit() override {
    return led([](Journal& journal) { return journal.last_commit(); });
  }
  Result<void> record_event(double wall_seconds, const std::string& kind,
                            const std::string& detail) override {
    return led([&](Journal& journal) { return journal.record_event(wall_seconds, kind, detail); });
  }
  Result<std::vector<EventRecord>> events(std::size_t count_max) override {
    return led([&](Journal& journal) { return journal.events(count_max); });
  }

 private:
  template <typename F>
  auto led(F call) -> decltype(call(std::declval<Journal&>())) {
    if (!leads()) return fail(ErrorCode::kRefused, "another process leads");
    return call(state_->journal);
  }

  std::shared_ptr<SimLead::State> state_;
  const std::uint64_t own_;
};

class SimControlStore final : public ControlStore {
 public:
  explicit SimControlStore(std::shared_ptr<SimLead::State> state) : state_(std::move(state)) {}

  Result<bool> try_lead(const std::string& who) override {
    if (leads()) return true;
    if (!state_->leader.empty()) return false;
    state_->leader = who;
    ++state_->reign;
    journal_ = std::make_unique<LedJournal>(state_);
    return true;
  }
  Result<std::optional<std::string>> leader() override {
    if (state_->leader.empty()) return std::nullopt;
    return state_->leader;
  }
  Result<void> renew() override {
    if (!leads()) return fail(ErrorCode::kRefused, "another process leads");
    return {};
  }
  Duration renewal_period() const override { return {}; }
  void release() override {
    if (leads()) state_->leader.clear();
    journal_.reset();
  }
  Result<Journal*> journal() override {
    if (!leads()) return fail(ErrorCode::kRefused, "this process does not lead");
    return journal_.get();
  }

 private:
  bool leads() const { return journal_ && journal_->leads(); }

  std::shared_ptr<SimLead::State> state_;
  std::unique_ptr<LedJournal> journal_;  // since it led for the first time
};

SimLead::SimLead(Journal& journal) : state_(std::make_shared<State>(State{.journal = journal})) {}

std::unique_ptr<ControlStore> SimLead::open() {
  return std::make_unique<SimControlStore>(state_);
}

void SimLead::expire() {
  state_->leader.clear();
  ++state_->reign;
}

}  // namespace swarmline
