#include "sim/doors/sim_control_store.h"

#include <optional>
#include <utility>
#include <vector>

namespace swarmline {

namespace {
constexpr int kRenewalsPerLease = 3;
}

// The journal as the leader of one reign has it.
class LedJournal final : public Journal {
 public:
  explicit LedJournal(std::shared_ptr<SimLead::State> state)
      : state_(std::move(state)), own_(state_->reign) {}

  bool leads() const {
    state_->look();
    return own_ == state_->reign;
  }

  Result<void> write(std::span<const JournalRecord> records) override {
    return led([&](Journal& journal) { return journal.write(records); });
  }
  Result<std::optional<std::string>> get_meta(const std::string& key) override {
    return led([&](Journal& journal) { return journal.get_meta(key); });
  }
  Result<std::vector<SeatRecord>> seats() override {
    return led([](Journal& journal) { return journal.seats(); });
  }
  Result<std::optional<CommitRecord>> last_commit() override {
    return led([](Journal& journal) { return journal.last_commit(); });
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
  SimControlStore(std::shared_ptr<SimLead::State> state, SimNodeId node)
      : state_(std::move(state)), node_(node) {}

  Result<bool> try_lead(const std::string& who) override {
    if (is_cut_off()) return no_answer();
    if (leads()) return true;
    state_->look();
    if (!state_->leader.empty()) return false;
    state_->leader = who;
    ++state_->reign;
    state_->expires = state_->runtime.now() + state_->lease;
    led_ = std::make_unique<LedJournal>(state_);
    link_ = std::make_unique<SimJournalLink>(state_->runtime, node_, state_->journal.disk(), *led_,
                                             [this] { return is_cut_off(); });
    return true;
  }
  Result<std::optional<std::string>> leader() override {
    if (is_cut_off()) return no_answer();
    state_->look();
    if (state_->leader.empty()) return std::nullopt;
    return state_->leader;
  }
  void renew(Renewed done) override {
    if (is_cut_off()) {
      state_->runtime.schedule(node_, state_->runtime.now() + renewal_period(),
                               [done = std::move(done)] { done(no_answer()); });
      return;
    }
    Result<void> renewed;
    if (!leads()) renewed = fail(ErrorCode::kRefused, "another process leads");
    if (renewed) state_->expires = state_->runtime.now() + state_->lease;
    state_->runtime.schedule(node_, state_->runtime.now(),
                             [done = std::move(done), renewed] { done(renewed); });
  }
  Duration renewal_period() const override { return state_->lease / kRenewalsPerLease; }
  Duration lease_time() const override { return state_->lease; }
  void release() override {
    if (leads() && !is_cut_off()) state_->end();
    link_.reset();
    led_.reset();
  }
  Result<AsyncJournal*> journal() override {
    if (!leads()) return fail(ErrorCode::kRefused, "this process does not lead");
    return link_.get();
  }

 private:
  static std::unexpected<Error> no_answer() { return fail(ErrorCode::kIo, "no answer in time"); }
  bool leads() const { return led_ && led_->leads(); }
  bool is_cut_off() const { return state_->cut_off.contains(node_); }

  std::shared_ptr<SimLead::State> state_;
  SimNodeId node_;
  std::unique_ptr<LedJournal> led_;  // since it led for the first time
  std::unique_ptr<SimJournalLink> link_;
};

SimLead::SimLead(SimRuntime& runtime, SimJournal& journal, Duration lease)
    : state_(
          std::make_shared<State>(State{.runtime = runtime, .journal = journal, .lease = lease})) {}

std::unique_ptr<ControlStore> SimLead::open(SimNodeId node) {
  return std::make_unique<SimControlStore>(state_, node);
}

void SimLead::expire() {
  state_->end();
}

void SimLead::cut_off(SimNodeId node, bool yes) {
  yes ? static_cast<void>(state_->cut_off.insert(node))
      : static_cast<void>(state_->cut_off.erase(node));
}

}  // namespace swarmline
