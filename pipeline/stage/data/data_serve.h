// Gives pieces of the run's data to peers that lack it, out of this machine's own files.
//   What:      only where these were compared with the run's, only pieces of that list, and only to
//              who has a seat: the link says so.
//   Ownership: the folder outlives it; null: it gives none.
//   Thread:    control thread; files are read elsewhere.
//   Errors:    a piece that the run's data does not have, or one asked for in another's name:
//              kCorrupt, of the asker. A file that can't be read: the asker hears that the piece is
//              not held.
//   Bounds:    kReadsOfOneMax pieces under way for an asker, kReadsMax for all, and
//              kUnsentOfOneMax bytes that an asker has not taken; who asks for more than that is
//              not answered, and asks again.
#pragma once

#include <cstdint>
#include <map>

#include "base/callback_guard.h"
#include "base/units.h"
#include "pipeline/protocol/messages.pb.h"
#include "pipeline/stage/common/stage_context.h"
#include "pipeline/stage/data_folder.h"

namespace swarmline {

class DataServe {
 public:
  static constexpr std::uint32_t kReadsOfOneMax = 4;
  static constexpr std::uint32_t kReadsMax = 256;
  static constexpr std::uint64_t kUnsentOfOneMax = 16 * kMiB;

  // `pieces`: of the run's data; 0: it gives none.
  DataServe(StageContext& context, DataFolder* folder, std::uint32_t pieces)
      : context_(context), folder_(folder), pieces_(folder == nullptr ? 0 : pieces) {}

  Result<void> on_request(const Seat& from, const wire::PieceRequest& request);
  void silence() { guard_.drop_callbacks(); }
  void check_invariants() const;

 private:
  bool takes_more(const Seat& from) const;
  void answer(const Seat& from, const wire::PieceRequest& request, const Result<SharedBytes>& read);

  StageContext& context_;
  DataFolder* folder_;
  std::uint32_t pieces_;
  std::map<PeerId, std::uint32_t> reads_;  // under way
  std::uint32_t all_reads_ = 0;
  CallbackGuard guard_;
};

}  // namespace swarmline
