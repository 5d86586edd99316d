#include "pipeline/stage/data/data_serve.h"

#include "base/check.h"
#include "base/log.h"
#include "base/marks.h"
#include "pipeline/protocol/message_kinds.h"
#include "pipeline/stage/common/piece_reply.h"

namespace swarmline {

Result<void> DataServe::on_request(const Seat& from, const wire::PieceRequest& request) {
  const Seat asker = from_wire(request.seat());
  if (asker.peer != from.peer || asker.incarnation != from.incarnation) {
    SWARMLINE_MARK("data_serve.asked_in_anothers_name");
    return fail(ErrorCode::kCorrupt, "it asks for data in another's name");
  }
  if (pieces_ == 0) {
    context_.links.send(from, piece_reply(request, {}));
    return {};
  }
  if (request.piece() >= pieces_) {
    SWARMLINE_MARK("data_serve.no_such_piece");
    return fail(ErrorCode::kCorrupt,
                fmt::format("it asks for piece {} of data that has {}", request.piece(), pieces_));
  }
  if (!takes_more(from)) {
    SWARMLINE_MARK("data_serve.asked_for_more_than_it_takes");
    return {};
  }
  ++reads_[from.peer];
  ++all_reads_;
  folder_->read(request.piece(), guard_.wrap([this, from, request](Result<SharedBytes> read) {
    --all_reads_;
    if (--reads_[from.peer] == 0) reads_.erase(from.peer);
    answer(from, request, read);
  }));
  return {};
}

bool DataServe::takes_more(const Seat& from) const {
  const auto reads = reads_.find(from.peer);
  return all_reads_ < kReadsMax && (reads == reads_.end() || reads->second < kReadsOfOneMax) &&
         context_.links.unsent_bytes(from) <= kUnsentOfOneMax;
}

void DataServe::answer(const Seat& from, const wire::PieceRequest& request,
                       const Result<SharedBytes>& read) {
  if (read) return context_.links.send(from, reply_with(request, *read));
  SWARMLINE_MARK("data_serve.cannot_read");
  log(LogLevel::kWarn, "{}: piece {} of the run's data is not given to {}: {}",
      to_string(context_.self), request.piece(), to_string(from), read.error().what);
  context_.links.send(from, piece_reply(request, {}));
}

void DataServe::check_invariants() const {
  std::uint32_t all = 0;
  for (const auto& [peer, reads] : reads_) all += reads;
  SWARMLINE_CHECK(all == all_reads_ && all <= kReadsMax);
}

}  // namespace swarmline
