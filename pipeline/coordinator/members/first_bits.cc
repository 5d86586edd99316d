#include "pipeline/coordinator/members/first_bits.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/marks.h"

namespace swarmline {

namespace {

constexpr const char* kWhy =
    "they differ in their version of swarmline or libtorch, or in what their processors compute";

// Those that hold other bits than the first.
std::vector<Seat> others_than_first(const ReplicaAudit::Votes& votes, Seat& first) {
  const auto of_first = std::ranges::min_element(
      votes, {}, [](const auto& vote) { return std::ranges::min(vote.second); });
  first = std::ranges::min(of_first->second);
  std::vector<Seat> others;
  for (const auto& [digest, seats] : votes)
    if (digest != of_first->first) others.insert(others.end(), seats.begin(), seats.end());
  return others;
}

}  // namespace

bool FirstBits::agree(std::uint64_t version, bool starts) {
  doubt_.reset();
  bool all = true;
  for (const StageSpec& stage : shape_.stages) all &= agree_at(stage.stage, version, starts);
  if (!doubt_) said_.reset();
  return all;
}

bool FirstBits::agree_at(StageId stage, std::uint64_t version, bool starts) {
  using Kind = ReplicaAudit::Verdict::Kind;
  const std::size_t ready = members_.count_ready(stage);
  const std::size_t wanted = gathering_.wanted(stage);
  const auto verdict = audit_.compare(
      stage, version, starts ? ready : std::max<std::size_t>(members_.live_of(stage), wanted));
  switch (verdict.kind) {
    case Kind::kSame:
      return true;
    case Kind::kUnknown:
      return false;
    case Kind::kMinority:
      SWARMLINE_MARK("first_bits.minority");
      refuse(verdict.wrong, verdict.most);
      return false;
    case Kind::kTie:
      break;
  }
  if (ready <= wanted && !gathering_.has_trained()) {
    leave_in_doubt(verdict, stage);
    return false;
  }
  SWARMLINE_MARK("first_bits.first_counts");
  Seat first;
  const std::vector<Seat> others = others_than_first(verdict.votes, first);
  refuse(others, first);
  return false;
}

void FirstBits::refuse(const std::vector<Seat>& wrong, const Seat& right) {
  for (const Seat& seat : wrong)
    rulings_.lose(seat,
                  fmt::format("it begins with other parameters of stage {} than {}: {}",
                              seat.stage.value, to_string(right), kWhy),
                  Departure::kRefused);
}

void FirstBits::leave_in_doubt(const ReplicaAudit::Verdict& tie, StageId stage) {
  if (!doubt_) doubt_ = stage;
  if (said_ == doubt_ || doubt_ != stage) return;
  SWARMLINE_MARK("first_bits.in_doubt");
  said_ = doubt_;
  events_.event("in_doubt",
                fmt::format("{} and {} begin with different parameters of stage {}, and nobody "
                            "knows who is right: another peer is needed there ({})",
                            events_.who(tie.one), events_.who(tie.other), stage.value, kWhy),
                LogLevel::kWarn);
}

}  // namespace swarmline
