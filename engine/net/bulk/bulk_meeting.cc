// How the two ends of a connection come to have a bulk link.
#include <algorithm>
#include <utility>

#include "base/log.h"
#include "engine/net/bulk/bulk_connection.h"

namespace swarmline {

// None: it is relayed, or something stands between that wants to see what passes.
std::optional<BulkPath> BulkConnection::path() const {
  const Ends ends = beneath_->ends();
  const auto own = parse_address(ends.own), other = parse_address(ends.other);
  if (beneath_->is_relayed() || !own || !other) return std::nullopt;
  const std::vector<IpRange>& trusted = shared_->policy.trusted;
  const auto key = beneath_->peer_key();
  return BulkPath{.own_host = own->host,
                  .other_host = other->host,
                  .is_trusted = in_any(trusted, own->host) && in_any(trusted, other->host),
                  // What is said over it could be anybody's where it leaves this machine, and the
                  // other end has shown no key.
                  .is_straight = own->host == other->host || key,
                  .other_key = key,
                  .other = *other,
                  .streams = std::min(shared_->policy.streams, kBulkStreamsMax),
                  .stranger_kind = stranger_kind_};
}

std::string BulkConnection::offer() {
  const auto between = path();
  if (!between) return {};
  Ends ends = beneath_->ends();
  own_trial_kind_ = kind_for_trials();
  offered_ = {.from = std::move(ends.own),
              .to = std::move(ends.other),
              .ways = {},
              .trial_kind = own_trial_kind_};
  for (BulkBackend* const backend : shared_->ways_for(*between)) {
    std::string address = backend->address(*between);
    if (address.empty() || address.size() > kBulkAddressBytesMax) continue;
    offered_.ways.push_back(
        {.backend = std::string(backend->name()), .address = std::move(address), .secret = {}});
    if (offered_.ways.size() == kBulkWaysMax) break;
  }
  return offered_.ways.empty() ? std::string() : encode(offered_);
}

std::string BulkConnection::answer(std::string_view offered) {
  auto between = path();
  if (offered.empty() || !between || link_ || meets_) return {};
  const auto offer = parse_bulk_offer(offered);
  if (!offer) {
    ++shared_->counters.bad_tickets;
    return {};
  }
  // Who translates addresses, or passes bytes on, stands between: nothing may go past it.
  const Ends ends = beneath_->ends();
  if (offer->from != ends.other || offer->to != ends.own) between->is_straight = false;
  for (BulkBackend* const backend : shared_->ways_for(*between)) {
    const auto theirs = std::ranges::find(offer->ways, backend->name(), &BulkWay::backend);
    if (theirs == offer->ways.end() || !backend->reaches(*between, theirs->address)) continue;
    const std::string name(backend->name());
    meets_ = true;
    auto own = backend->await(*between, *theirs, kBulkMeetTime, once_made(name));
    if (own) {
      their_trial_kind_ = offer->trial_kind;
      own_trial_kind_ = their_trial_kind_ == 0 ? 0 : kind_for_trials();
      return encode(BulkOffer{.from = ends.own,
                              .to = ends.other,
                              .ways = {std::move(*own)},
                              .trial_kind = own_trial_kind_});
    }
    meets_ = false;
    log(LogLevel::kDebug, "no {} link with {}: {}", name, remote(), own.error().what);
  }
  return {};
}

Result<void> BulkConnection::take_answer(std::string_view answered) {
  const auto between = path();
  if (is_over() || link_ || meets_ || !between) return {};
  auto answer = parse_bulk_answer(answered);
  if (!answer) return std::unexpected(std::move(answer).error());
  const BulkWay& taken = answer->ways.front();
  BulkBackend* const backend = shared_->find(taken.backend);
  if (backend == nullptr ||
      std::ranges::find(offered_.ways, taken.backend, &BulkWay::backend) == offered_.ways.end())
    return fail(ErrorCode::kCorrupt, "the answer to an offer of bulk links takes another one");
  offered_.ways.clear();  // one answer
  their_trial_kind_ = answer->trial_kind;
  meets_ = true;
  backend->meet(*between, taken, kBulkMeetTime, once_made(taken.backend));
  return {};
}

BulkBackend::Made BulkConnection::once_made(std::string way) {
  return [weak = weak_from_this(), way = std::move(way)](auto link) {
    if (const auto self = weak.lock()) return self->made(way, std::move(link));
    if (link) (*link)->close();
  };
}

// The first frame says that this is no connection of its own. To who uses it, it has ended; who
// holds the link starts it again.
void BulkConnection::become_stream(const Frame& frame) {
  const Handlers before = std::exchange(handlers_, {});
  is_stream_ = true;
  if (shared_->take_stream(frame.meta, shared_from_this())) {
    ++shared_->counters.streams_taken;
  } else {
    ++shared_->counters.bad_tickets;
    closing_ = true;
    beneath_->close();
  }
  if (before.on_closed)
    before.on_closed({ErrorCode::kStopped, "it is a stream of another connection's link"});
}

void BulkConnection::made(const std::string& way, Result<std::shared_ptr<BulkLink>> link) {
  meets_ = false;
  if (!link) {
    log(LogLevel::kDebug, "no {} link with {}: {}", way, remote(), link.error().what);
    if (!waiting_.empty() && !is_over())
      end({ErrorCode::kPeerGone, "a payload was announced over a link that was not made"});
    return;
  }
  if (is_over() || beneath_ended_) return (*link)->close();
  way_ = way;
  link_ = std::move(*link);
  had_link_ = true;
  ++shared_->counters.links_made;
  const auto alive = [weak = weak_from_this(), raw = link_.get()]() {
    auto self = weak.lock();
    return self && self->link_.get() == raw ? self : nullptr;
  };
  link_->start({.on_arriving =
                    [alive](std::uint64_t bytes_there) {
                      if (const auto self = alive()) self->arrived(bytes_there);
                    },
                .on_received =
                    [alive](Buffer payload) {
                      if (const auto self = alive()) self->received(std::move(payload));
                    },
                .on_sent =
                    [alive] {
                      if (const auto self = alive()) self->sent();
                    },
                .on_closed =
                    [alive](const Error& error) {
                      if (const auto self = alive()) self->end_link(error);
                    }});
  choose_way();
  ask_for_next();
}

}  // namespace swarmline
