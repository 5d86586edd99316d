// Random events against a model that keeps one plain record per cell and recounts everything.
#include <map>
#include <optional>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "pipeline/ledger/ledger.h"

namespace swarmline {
namespace {

struct ModelCell {
  std::optional<Seat> owner;
  std::optional<std::pair<Seat, Attempt>> claim;
  bool missing = false;
  PeerId through;  // of an owned one; 0: nobody knows
};

struct ModelPhase {
  std::uint32_t indices = 0;
  std::uint32_t stages = 0;
  bool eval = false;
  std::uint32_t fresh = 0;
  std::vector<std::vector<ModelCell>> cells;  // by stage, index; untracked stages stay empty
  std::vector<StageState> states;
  std::vector<std::set<Seat>> sources;  // by index
  std::set<std::uint32_t> leased_again;
  std::vector<std::optional<double>> losses;
  std::set<std::pair<std::uint32_t, std::uint32_t>> doubtful;  // stage, index
  std::set<PeerId> lost;                                       // since it was opened

  bool pending(std::uint32_t stage, std::uint32_t index) const {
    const ModelCell& cell = cells[stage][index];
    return !cell.owner && !cell.claim && !cell.missing;
  }
  // A stage below has the index: what a lost seat may have added above it is nobody's, unless the
  // stage just below says that another peer had it, or may say so yet.
  void resolve(std::uint32_t s, std::uint32_t index) {
    if (!doubtful.contains({s, index})) return;
    if (!pending(s, index)) {
      doubtful.erase({s, index});
      return;
    }
    for (std::uint32_t below = s; below-- > 0;) {
      const ModelCell& cell = cells[below][index];
      if (!cell.owner) continue;
      const bool just_below = below + 1 == s;
      const ModelCell& next = cells[s - 1][index];
      if (cell.through.value != 0 && !just_below && !next.missing) return;
      doubtful.erase({s, index});
      const bool lives = just_below && cell.through.value != 0 && !lost.contains(cell.through);
      if (!lives) cells[s][index].missing = true;
      return;
    }
  }
  bool tracked(std::uint32_t stage) const { return !eval || stage + 1 == stages; }
  bool stage_complete(std::uint32_t stage) const {
    for (const ModelCell& cell : cells[stage]) {
      if (!cell.owner) return false;
    }
    return true;
  }
  StageMask mask(std::uint32_t index) const {
    StageMask mask(stages, false);
    for (std::uint32_t s = 0; s < stages; ++s) {
      if (tracked(s)) mask[s] = cells[s][index].missing && !cells[s][index].claim;
    }
    return mask;
  }
  void lose(std::uint32_t stage, std::uint32_t index) {
    cells[stage][index] = {.owner = {}, .claim = {}, .missing = true, .through = {}};
    if (stage + 1 == stages) losses[index].reset();
    states[stage] = StageState::kOpen;
  }
};

class Model {
 public:
  void open(Phase phase, std::uint32_t indices, std::uint32_t stages) {
    ModelPhase& p = phases[phase];
    p.indices = indices;
    p.stages = stages;
    p.eval = phase.kind == PhaseKind::kEval;
    p.cells.assign(stages, {});
    for (std::uint32_t s = 0; s < stages; ++s) p.cells[s].resize(p.tracked(s) ? indices : 0);
    p.states.assign(stages, StageState::kOpen);
    p.sources.resize(indices);
    p.losses.resize(indices);
  }

  // What lease() should hand out, one index at a time: (index, mask, fresh).
  std::vector<std::tuple<std::uint32_t, StageMask, bool>> lease(ModelPhase& p, Seat source,
                                                                std::uint32_t count_max) {
    std::vector<std::tuple<std::uint32_t, StageMask, bool>> out;
    if (fenced(source)) return out;
    for (std::uint32_t i = 0; i < p.fresh && out.size() < count_max; ++i) {
      const StageMask mask = p.mask(i);
      if (mask == StageMask(p.stages, false)) continue;
      for (std::uint32_t s = 0; s < p.stages; ++s) {
        if (mask[s]) p.cells[s][i].missing = false;
      }
      p.sources[i].insert(source);
      p.leased_again.insert(i);
      out.emplace_back(i, mask, false);
    }
    while (p.fresh < p.indices && out.size() < count_max) {
      StageMask mask(p.stages, !p.eval);
      mask.back() = true;
      p.sources[p.fresh].insert(source);
      out.emplace_back(p.fresh++, mask, true);
    }
    return out;
  }

  Verdict report(ModelPhase& p, std::uint32_t stage, std::uint32_t index, Seat seat, Attempt a,
                 PeerId through = {}) {
    if (fenced(seat) || !p.tracked(stage)) return Verdict::kRefused;
    ModelCell& cell = p.cells[stage][index];
    if (cell.owner) return cell.owner == seat ? Verdict::kDuplicate : Verdict::kRefused;
    if (index >= p.fresh || p.states[stage] != StageState::kOpen) return Verdict::kRefused;
    if (cell.claim && *cell.claim != std::pair(seat, a)) return Verdict::kRefused;
    // Nothing is added in an evaluation: any attempt's loss is as good.
    cell = {.owner = seat,
            .claim = {},
            .missing = false,
            .through = a == Attempt(0) ? through : PeerId{}};
    for (std::uint32_t s = stage + 1; s < p.stages; ++s) p.resolve(s, index);
    return Verdict::kAccepted;
  }

  bool claim(ModelPhase& p, std::uint32_t stage, std::uint32_t index, Seat seat, Attempt a) {
    if (fenced(seat) || !p.tracked(stage) || index >= p.fresh) return false;
    ModelCell& cell = p.cells[stage][index];
    if (cell.owner || p.states[stage] != StageState::kOpen) return false;
    if (cell.claim) return *cell.claim == std::pair(seat, a);
    cell.claim = {seat, a};
    return true;
  }

  void release_claim(ModelPhase& p, std::uint32_t stage, std::uint32_t index, Seat seat,
                     Attempt a) {
    if (!p.tracked(stage)) return;
    ModelCell& cell = p.cells[stage][index];
    if (cell.claim && *cell.claim == std::pair(seat, a))
      cell = {.owner = {}, .claim = {}, .missing = true, .through = {}};
  }

  void seat_lost(Seat lost) {
    fences[lost.peer] = std::max(fences[lost.peer], lost.incarnation);
    for (auto& [phase, p] : phases) {
      p.lost.insert(lost.peer);
      for (std::uint32_t s = 0; s < p.stages; ++s) {
        if (!p.tracked(s) || p.states[s] == StageState::kReduced) continue;
        for (std::uint32_t i = 0; i < p.indices; ++i) {
          ModelCell& cell = p.cells[s][i];
          if (cell.owner && fenced(*cell.owner)) p.lose(s, i);
          if (cell.claim && fenced(cell.claim->first))
            cell = {.owner = {}, .claim = {}, .missing = true, .through = {}};
        }
      }
      for (std::uint32_t i = 0; i < p.indices; ++i) lose_source(p, i);
      for (std::uint32_t i = 0; i < p.fresh; ++i) {
        const std::uint32_t s = p.eval ? p.stages - 1 : lost.stage.value;
        if (!p.pending(s, i)) continue;
        if (p.eval) {
          p.cells[s][i].missing = true;
        } else {
          p.doubtful.insert({s, i});
          p.resolve(s, i);
        }
      }
    }
  }

  void hand_over(ModelPhase& p, std::uint32_t stage, Seat from, Seat to) {
    for (ModelCell& cell : p.cells[stage])
      if (cell.owner == from) cell.owner = to;
  }

  bool fenced(Seat seat) const {
    const auto fence = fences.find(seat.peer);
    return fence != fences.end() && seat.incarnation <= fence->second;
  }

  std::map<Phase, ModelPhase> phases;
  std::map<PeerId, Incarnation> fences;

 private:
  void lose_source(ModelPhase& p, std::uint32_t index) {
    bool lost = false;
    for (auto source = p.sources[index].begin(); source != p.sources[index].end();) {
      lost |= fenced(*source);
      source = fenced(*source) ? p.sources[index].erase(source) : std::next(source);
    }
    if (!lost) return;
    // Its one try came down to the first stage, where a mate has it: it is everywhere.
    if (!p.eval && p.cells[0][index].owner && p.cells[0][index].through.value != 0 &&
        !p.leased_again.contains(index))
      return;
    for (std::uint32_t s = 0; s < p.stages; ++s) {
      if (p.tracked(s) && !p.cells[s][index].owner) p.cells[s][index].missing = true;
    }
  }
};

class Harness {
 public:
  explicit Harness(std::uint64_t seed)
      : rng_(seed), stages_(1 + static_cast<std::uint32_t>(rng_.below(4))) {
    for (std::uint32_t p = 1; p <= 3 * stages_; ++p) {
      incarnations_.push_back(1);
    }
  }

  void run(int events) {
    for (int e = 0; e < events; ++e) {
      event();
      ledger_.check_invariants();
      compare();
      if (::testing::Test::HasFatalFailure()) return;
    }
  }

  std::uint64_t commits() const { return commits_; }
  std::uint64_t reissues() const { return reissues_; }

 private:
  std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(rng_.below(n)); }
  // Peer p serves stage p % stages; now and then an old incarnation speaks.
  Seat seat_of_stage(std::uint32_t stage) {
    const std::uint32_t p = stage + stages_ * below(3);
    const std::uint32_t incarnation = incarnations_[p] - (incarnations_[p] > 1 && below(8) == 0);
    return {PeerId(p + 1), StageId(static_cast<std::uint16_t>(stage)), Incarnation(incarnation)};
  }
  Attempt attempt() { return Attempt((std::uint64_t{1} << 32) | below(3)); }

  void event() {
    if (ledger_.open_phases().empty() ||
        (below(20) == 0 && model_.phases.size() < Ledger::kOpenPhasesMax)) {
      return open();
    }
    auto phase =
        std::next(model_.phases.begin(), below(static_cast<std::uint32_t>(model_.phases.size())));
    const std::uint32_t what = below(100);
    if (what < 15) return lease(phase->first, phase->second);
    if (what < 60) return report(phase->first, phase->second);
    if (what < 75) return claim(phase->first, phase->second);
    if (what < 80) return release(phase->first, phase->second);
    if (what < 82) return lose();
    if (what < 84) return expire(phase->first, phase->second);
    if (what < 86) return hand_over(phase->first, phase->second);
    close(phase->first, phase->second);
  }

  void open() {
    const Phase phase{below(3) == 0 ? PhaseKind::kEval : PhaseKind::kTrain, ++opened_};
    const std::uint32_t indices = 1 + below(6);
    ledger_.open(phase, Version(opened_), indices, stages_);
    model_.open(phase, indices, stages_);
  }

  void lease(Phase phase, ModelPhase& p) {
    const Seat source = seat_of_stage(0);
    const std::uint32_t count = below(4);
    const auto expected = model_.lease(p, source, count);
    std::size_t at = 0;
    for (const Lease& lease : ledger_.lease(phase, source, count)) {
      ASSERT_GT(lease.count, 0U);
      for (std::uint32_t i = lease.first; i < lease.first + lease.count; ++i, ++at) {
        ASSERT_LT(at, expected.size());
        const auto& [index, mask, fresh] = expected[at];
        ASSERT_EQ(i, index);
        ASSERT_EQ(lease.stages, mask);
        ASSERT_EQ(lease.attempt == Attempt(0), fresh);
        if (!fresh) {
          ++reissues_;
          ASSERT_TRUE(issued_.insert({phase, i, lease.attempt}).second);
        }
      }
    }
    ASSERT_EQ(at, expected.size());
  }

  void report(Phase phase, ModelPhase& p) {
    const std::uint32_t stage = below(p.stages);
    const std::uint32_t index = below(p.indices);
    const Seat seat = seat_of_stage(stage);
    const Attempt a = below(2) == 0 ? Attempt(0) : attempt();
    const PeerId through =
        stage + 1 < stages_ && below(4) > 0 ? seat_of_stage(stage + 1).peer : PeerId{};
    const Verdict verdict =
        ledger_.report(phase, StageId(static_cast<std::uint16_t>(stage)), index, seat, a, through);
    ASSERT_EQ(verdict, model_.report(p, stage, index, seat, a, through));
    if (verdict != Verdict::kAccepted || stage + 1 != p.stages) return;
    const double loss = rng_.uniform();
    ledger_.record_loss(phase, index, loss);
    p.losses[index] = loss;
  }

  void claim(Phase phase, ModelPhase& p) {
    const std::uint32_t stage = below(p.stages);
    const std::uint32_t index = below(p.indices);
    const Seat seat = seat_of_stage(stage);
    const Attempt a = Attempt(attempt().value + 1);
    ASSERT_EQ(ledger_.claim(phase, StageId(static_cast<std::uint16_t>(stage)), index, seat, a),
              model_.claim(p, stage, index, seat, a));
    if (below(2) == 0) return;
    const Verdict verdict =
        ledger_.report(phase, StageId(static_cast<std::uint16_t>(stage)), index, seat, a);
    ASSERT_EQ(verdict, model_.report(p, stage, index, seat, a));
    if (verdict != Verdict::kAccepted || stage + 1 != p.stages) return;
    ledger_.record_loss(phase, index, 1.0);
    p.losses[index] = 1.0;
  }

  void release(Phase phase, ModelPhase& p) {
    const std::uint32_t stage = below(p.stages);
    const std::uint32_t index = below(p.indices);
    const Seat seat = seat_of_stage(stage);
    const Attempt a = Attempt(attempt().value + 1);
    ledger_.release_claim(phase, StageId(static_cast<std::uint16_t>(stage)), index, seat, a);
    model_.release_claim(p, stage, index, seat, a);
  }

  void hand_over(Phase phase, ModelPhase& p) {
    const std::uint32_t stage = below(p.stages);
    const Seat from = seat_of_stage(stage), to = seat_of_stage(stage);
    if (!p.tracked(stage) || p.states[stage] != StageState::kOpen || model_.fenced(from) ||
        model_.fenced(to))
      return;
    ledger_.hand_over(phase, StageId(static_cast<std::uint16_t>(stage)), from, to);
    model_.hand_over(p, stage, from, to);
  }

  void lose() {
    const std::uint32_t p = below(static_cast<std::uint32_t>(incarnations_.size()));
    const Seat seat{PeerId(p + 1), StageId(static_cast<std::uint16_t>(p % stages_)),
                    Incarnation(incarnations_[p])};
    ledger_.seat_lost(seat);
    model_.seat_lost(seat);
    ++incarnations_[p];
  }

  void expire(Phase phase, ModelPhase& p) {
    const std::uint32_t index = below(p.indices);
    ledger_.expire(phase, index);
    if (index >= p.fresh) return;
    for (std::uint32_t s = 0; s < p.stages; ++s) {
      if (!p.tracked(s)) continue;
      ModelCell& cell = p.cells[s][index];
      if (!cell.owner && !cell.claim) cell.missing = true;
    }
  }

  void close(Phase phase, ModelPhase& p) {
    if (p.eval) {
      if (!p.stage_complete(p.stages - 1)) return;
      ledger_.commit(phase);
      model_.phases.erase(phase);
      ++commits_;
      return;
    }
    bool all_reduced = true;
    for (std::uint32_t s = 0; s < p.stages; ++s) {
      const StageId stage(static_cast<std::uint16_t>(s));
      if (p.states[s] == StageState::kOpen && p.stage_complete(s)) {
        ledger_.begin_close(phase, stage);
        p.states[s] = StageState::kClosing;
      } else if (p.states[s] == StageState::kClosing && below(2) == 0) {
        ledger_.mark_reduced(phase, stage);
        p.states[s] = StageState::kReduced;
      } else if (p.states[s] == StageState::kClosing && below(4) == 0) {
        release_owner(phase, p, s);
      } else if (p.states[s] == StageState::kReduced && below(20) == 0) {
        reduction_lost(phase, p, s);
      }
      all_reduced &= p.states[s] == StageState::kReduced;
    }
    if (!all_reduced) return;
    ledger_.commit(phase);
    model_.phases.erase(phase);
    ++commits_;
  }

  void release_owner(Phase phase, ModelPhase& p, std::uint32_t stage) {
    const Seat seat = *p.cells[stage][below(p.indices)].owner;
    ledger_.release_owner(phase, StageId(static_cast<std::uint16_t>(stage)), seat);
    for (std::uint32_t i = 0; i < p.indices; ++i) {
      if (p.cells[stage][i].owner == seat) p.lose(stage, i);
    }
  }

  void reduction_lost(Phase phase, ModelPhase& p, std::uint32_t stage) {
    ledger_.reduction_lost(phase, StageId(static_cast<std::uint16_t>(stage)));
    p.states[stage] = StageState::kOpen;
    for (std::uint32_t i = 0; i < p.indices; ++i) {
      if (model_.fenced(*p.cells[stage][i].owner)) p.lose(stage, i);
    }
  }

  void compare() {
    for (const auto& [phase, p] : model_.phases) {
      ASSERT_TRUE(ledger_.is_open(phase));
      std::uint32_t leasable = p.indices - p.fresh;
      double loss = 0;
      for (std::uint32_t i = 0; i < p.indices; ++i) {
        leasable += i < p.fresh && p.mask(i) != StageMask(p.stages, false);
        loss += p.losses[i].value_or(0.0);
      }
      ASSERT_EQ(ledger_.leasable(phase), leasable);
      ASSERT_EQ(ledger_.loss_sum(phase), loss);
      for (std::uint32_t s = 0; s < p.stages; ++s) {
        if (p.tracked(s)) compare_stage(phase, p, s);
      }
    }
  }

  void compare_stage(Phase phase, const ModelPhase& p, std::uint32_t s) {
    const StageId stage(static_cast<std::uint16_t>(s));
    ASSERT_EQ(ledger_.stage_complete(phase, stage), p.stage_complete(s));
    ASSERT_EQ(ledger_.stage_state(phase, stage), p.states[s]);
    std::set<Seat> owners;
    for (std::uint32_t i = 0; i < p.indices; ++i) {
      ASSERT_EQ(ledger_.owner(phase, stage, i), p.cells[s][i].owner);
      if (p.cells[s][i].owner) owners.insert(*p.cells[s][i].owner);
    }
    ASSERT_EQ(ledger_.owners(phase, stage), std::vector<Seat>(owners.begin(), owners.end()));
    // The sets of a stage's members are disjoint and, once it closes, cover the batch.
    std::vector<int> covered(p.indices, 0);
    for (const auto& [peer, ranges] : ledger_.ownership(phase, stage)) {
      for (const IndexRange& range : ranges) {
        for (std::uint32_t i = range.first; i < range.first + range.count; ++i) {
          ++covered[i];
          ASSERT_EQ(p.cells[s][i].owner->peer, peer);
        }
      }
    }
    for (std::uint32_t i = 0; i < p.indices; ++i)
      ASSERT_EQ(covered[i], p.cells[s][i].owner ? 1 : 0);
  }

  Rng rng_;
  std::uint32_t stages_;
  std::vector<std::uint32_t> incarnations_;  // by peer
  Ledger ledger_;
  Model model_;
  std::uint64_t opened_ = 0;
  std::uint64_t commits_ = 0;
  std::uint64_t reissues_ = 0;
  std::set<std::tuple<Phase, std::uint32_t, Attempt>> issued_;
};

TEST(LedgerPropertyTest, AgreesWithAPlainModelOverRandomEvents) {
  std::uint64_t commits = 0;
  std::uint64_t reissues = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    Harness harness(seed);
    harness.run(2000);
    ASSERT_FALSE(::testing::Test::HasFatalFailure()) << "seed " << seed;
    commits += harness.commits();
    reissues += harness.reissues();
  }
  // The events reached what they are here to test.
  EXPECT_GT(commits, 300U);
  EXPECT_GT(reissues, 1000U);
}

}  // namespace
}  // namespace swarmline
