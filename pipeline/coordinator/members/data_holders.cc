#include "pipeline/coordinator/members/data_holders.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/marks.h"
#include "pipeline/coordinator/members/data_desk.h"
#include "pipeline/protocol/data_messages.h"

namespace swarmline {

DataHolders::DataHolders(std::shared_ptr<const DataManifest> manifest, const Membership& members,
                         Outbox& outbox, EventLog& events)
    : manifest_(std::move(manifest)), members_(members), outbox_(outbox), events_(events) {}

std::vector<Seat> DataHolders::fetching() const {
  std::vector<Seat> fetching;
  for (const auto& [peer, member] : members_.members())
    if (member.fetches_data && member.seat.stage == kReadingStage &&
        member.state != MemberState::kLost && member.state != MemberState::kAway)
      fetching.push_back(member.seat);
  return fetching;
}

std::vector<Seat> DataHolders::holders() const {
  std::vector<Seat> holders;
  for (const auto& [peer, member] : members_.members())
    if (member.serves_data && member.state == MemberState::kReady) holders.push_back(member.seat);
  return holders;
}

bool DataHolders::may_start() const {
  return !manifest_ || fetching().empty() || !holders().empty();
}

void DataHolders::tell() {
  if (!manifest_) return;
  const std::vector<Seat> asking = fetching();
  if (asking.empty()) return;
  const std::vector<Seat> all = holders();
  say(!all.empty(), asking);
  for (const Seat& seat : asking) {
    std::set<Seat> some;  // others for each, so that no holder has to serve all
    for (std::size_t i = 0; i < std::min(all.size(), kToldMax); ++i)
      some.insert(all[(seat.peer.value + i) % all.size()]);
    if (some.empty() || std::exchange(told_[seat], some) == some) continue;
    wire::DataHolders holders;
    for (const Seat& holder : some) {
      wire::GroupMember* named = holders.add_holders();
      *named->mutable_seat() = to_wire(holder);
      named->set_address(members_.members().at(holder.peer).address);
    }
    outbox_.send(seat, make_frame(MessageKind::kDataHolders, holders));
  }
}

void DataHolders::say(bool anybody, const std::vector<Seat>& fetching) {
  if (anybody != said_) return;  // said, or nothing to say
  said_ = !anybody;
  if (anybody) return events_.event("data_here", "a peer that has the run's data is there again");
  SWARMLINE_MARK("data_holders.nobody");
  events_.event("waiting",
                fmt::format("nobody in the run has its data, which {} of its peers fetch{}: the "
                            "run waits for a peer on a machine that has it",
                            fetching.size(), fetching.size() == 1 ? "es" : ""),
                LogLevel::kWarn);
}

Result<void> DataHolders::on_want_hashes(const Seat& from, const wire::WantHashes& want) {
  if (!manifest_) return fail(ErrorCode::kCorrupt, "it asks for hashes of data that there is not");
  std::uint64_t skip = std::uint64_t{want.block()} * kDataHashesOfBlock * kHashDigits;
  wire::DataHashes hashes;
  hashes.set_block(want.block());
  std::string& text = *hashes.mutable_hashes();
  constexpr std::size_t kBlockDigits = kDataHashesOfBlock * kHashDigits;
  for (const DataFile& file : manifest_->files) {
    const std::uint64_t passed = std::min<std::uint64_t>(skip, file.pieces.size());
    skip -= passed;
    text += file.pieces.substr(passed, kBlockDigits - text.size());
    if (text.size() == kBlockDigits) break;
  }
  if (text.empty()) {
    SWARMLINE_MARK("data_holders.no_such_hashes");
    return fail(ErrorCode::kCorrupt, "it asks for hashes of pieces that the data does not have");
  }
  outbox_.send(from, make_frame(MessageKind::kDataHashes, hashes));
  // What it was told while it built its stage it has not heard.
  told_.erase(from);
  tell();
  return {};
}

}  // namespace swarmline
