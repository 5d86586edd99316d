#include "engine/net/ucx/ucx_link.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "engine/net/bulk/bulk_offer.h"

namespace swarmline {
namespace {

constexpr std::size_t kAddressPaddingBytes = 4096;
// Parts that are smaller than this are copied together: each message of UCX has its price.
constexpr std::size_t kGatheredPartBytesMax = 64 * kKiB;

}  // namespace

// What UCX uses until it calls back, whatever has become of the link.
struct UcxLink::Request {
  std::shared_ptr<UcxLink> link;
  UcxHead head;
  SharedBytes piece;             // that leaves
  std::shared_ptr<Buffer> into;  // that is filled
  std::size_t bytes = 0;
};

UcxLink::UcxLink(std::shared_ptr<UcxWorker> worker, std::string token,
                 std::function<void()> on_here)
    : worker_(std::move(worker)), token_(std::move(token)), on_here_(std::move(on_here)) {}

UcxLink::~UcxLink() {
  worker_->forget(token_);
  if (ep_ == nullptr) return;
  // It was dropped before it was made, with the loop that it was made on.
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  const ucs_status_ptr_t closing = worker_->ucx().ep_close_nbx(ep_, &param);
  if (closing != nullptr && !UCS_PTR_IS_ERR(closing)) worker_->ucx().request_free(closing);
}

UcxHead UcxLink::head(std::uint32_t kind) const {
  UcxHead head{};
  std::memcpy(head.token, token_.data(), kUcxTokenBytes);
  head.kind = kind;
  return head;
}

Result<void> UcxLink::dial(const std::string& address) {
  worker_->listen(token_, [weak = weak_from_this()](const UcxArrival& arrival) {
    const auto self = weak.lock();
    return self && self->hear(arrival);
  });
  if (!UcxWorker::is_address(address))
    return fail(ErrorCode::kCorrupt, "the other end names no worker of this version of UCX");
  // UCX is not told how long it is: whatever a text that lies makes it look at is here.
  std::string padded(UcxWorker::without_version(address));
  padded.resize(kBulkAddressBytesMax + kAddressPaddingBytes, '\0');
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(padded.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {.cb = &UcxLink::on_error, .arg = this};
  const ucs_status_t status = worker_->ucx().ep_create(worker_->worker(), &params, &ep_);
  worker_->kick();
  if (status != UCS_OK) {
    ep_ = nullptr;
    return fail(ErrorCode::kPeerGone, fmt::format("UCX can't reach it: {}", worker_->say(status)));
  }
  return {};
}

void UcxLink::on_error(void* user, ucp_ep_h, ucs_status_t status) {
  auto& self = *static_cast<UcxLink*>(user);
  self.end_later({ErrorCode::kPeerGone, self.worker_->say(status)});
}

// ---- What leaves --------------------------------------------------------------------------------

void UcxLink::say_here() {
  send_piece({}, kUcxHere, 0);
}

void UcxLink::start(Handlers handlers) {
  handlers_ = std::move(handlers);
  settle_soon();
}

void UcxLink::send(std::vector<SharedBytes> payload) {
  if (closed_) return;
  std::erase_if(payload, [](const SharedBytes& part) { return part.empty(); });
  for (SharedBytes& part : payload) part = part.kept();  // UCX reads it whenever it likes
  leaving_.push_back({.parts = std::move(payload)});
  settle_soon();
}

void UcxLink::cut_pieces() {
  for (std::size_t i = 0; i < leaving_.size() && !closed_ && !ending_; ++i) {
    Leaving& leaving = leaving_[i];
    while (!leaving.is_cut()) {
      if (pieces_under_way_ >= kUcxPiecesMax || ending_) return;
      SharedBytes piece = next_piece(leaving);
      const std::uint64_t offset = leaving.offset;
      leaving.offset += piece.size();
      ++leaving.under_way;
      ++pieces_under_way_;
      send_piece(std::move(piece), first_leaving_ + i, offset);
    }
  }
}

// A large part is sent from where it lies; small ones are put together.
SharedBytes UcxLink::next_piece(Leaving& leaving) {
  const SharedBytes& part = leaving.parts[leaving.part];
  const std::size_t rest = part.size() - leaving.at;
  const bool alone = rest > kGatheredPartBytesMax || leaving.part + 1 == leaving.parts.size();
  if (alone) {
    const std::size_t count = std::min(rest, kUcxPieceBytes);
    SharedBytes piece = part.slice(leaving.at, count);
    leaving.at = count == rest ? 0 : leaving.at + count;
    leaving.part += count == rest ? 1 : 0;
    return piece;
  }
  Buffer gathered(kUcxPieceBytes);
  std::size_t filled = 0;
  while (!leaving.is_cut() && filled < gathered.size()) {
    const SharedBytes& next = leaving.parts[leaving.part];
    const std::size_t count = std::min(next.size() - leaving.at, gathered.size() - filled);
    std::memcpy(gathered.data() + filled, next.data() + leaving.at, count);
    filled += count;
    leaving.at += count;
    if (leaving.at < next.size()) break;
    leaving.at = 0;
    ++leaving.part;
  }
  gathered.shrink(filled);
  return SharedBytes(std::move(gathered));
}

// `piece` empty: the first word, of the kind `payload`.
void UcxLink::send_piece(SharedBytes piece, std::uint64_t payload, std::uint64_t offset) {
  const bool is_word = piece.empty();
  auto request = std::make_unique<Request>(Request{.link = shared_from_this(),
                                                   .head = head(is_word ? kUcxHere : kUcxPiece),
                                                   .piece = std::move(piece),
                                                   .into = nullptr});
  request->head.payload = is_word ? 0 : payload;
  request->head.offset = offset;
  request->bytes = request->piece.size();
  ucp_request_param_t param{};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = is_word ? UCP_AM_SEND_FLAG_EAGER : UCP_AM_SEND_FLAG_RNDV;
  param.cb.send = &UcxLink::on_sent;
  param.user_data = request.get();
  const ucs_status_ptr_t asked =
      worker_->ucx().am_send_nbx(ep_, kUcxMessageId, &request->head, sizeof(UcxHead),
                                 request->piece.data(), request->piece.size(), &param);
  worker_->kick();
  if (asked != nullptr && !UCS_PTR_IS_ERR(asked)) {
    [[maybe_unused]] const Request* const ucxs = request.release();
    return;
  }
  took(*request, UCS_PTR_STATUS(asked));
}

void UcxLink::on_sent(void* request, ucs_status_t status, void* user) {
  const std::unique_ptr<Request> own(static_cast<Request*>(user));
  own->link->worker_->ucx().request_free(request);
  own->link->took(*own, status);
}

void UcxLink::on_fetched(void* request, ucs_status_t status, size_t /*bytes*/, void* user) {
  on_sent(request, status, user);
}

// UCX is done with it.
void UcxLink::took(const Request& request, ucs_status_t status) {
  if (closed_) return;
  if (status != UCS_OK) return end_later({ErrorCode::kPeerGone, worker_->say(status)});
  if (request.into) {
    const std::uint64_t index = request.head.payload - first_asked_;
    if (index < asked_.size()) asked_[index].filled += request.bytes;
  } else if (request.bytes > 0) {
    const std::uint64_t index = request.head.payload - first_leaving_;
    if (index < leaving_.size()) --leaving_[index].under_way;
    --pieces_under_way_;
  }
  settle_soon();
}

// ---- What comes ---------------------------------------------------------------------------------

void UcxLink::receive(Buffer into) {
  if (closed_) return;
  asked_.push_back({.into = std::make_shared<Buffer>(std::move(into))});
  settle_soon();
}

bool UcxLink::hear(const UcxArrival& arrival) {
  if (closed_ || ending_) return false;
  if (arrival.head.kind == kUcxHere) {
    if (const auto here = std::exchange(on_here_, {}))
      worker_->runtime().post([self = shared_from_this(), here] { here(); });
    return false;
  }
  // The other end has no more pieces under way than this, and they are never small words.
  if (arrival.head.kind != kUcxPiece || !arrival.is_promised || arrival.bytes == 0 ||
      arrival.bytes > kUcxPieceBytes || promises_.size() >= kUcxPiecesMax) {
    end_later({ErrorCode::kCorrupt, "a message that is no piece of a payload"});
    return false;
  }
  promises_.push_back({.head = arrival.head, .data = arrival.data, .bytes = arrival.bytes});
  settle_soon();
  return true;
}

bool UcxLink::fits(const Promise& promise) const {
  const Asked& asked = asked_[promise.head.payload - first_asked_];
  return promise.head.offset == asked.promised &&
         promise.bytes <= asked.into->size() - asked.promised;
}

void UcxLink::fetch_promised() {
  while (!promises_.empty() && !ending_) {
    const Promise first = promises_.front();
    if (first.head.payload < first_asked_)
      return end_later({ErrorCode::kCorrupt, "a piece of a payload that is over"});
    if (first.head.payload - first_asked_ >= asked_.size()) return;  // not asked for yet
    if (!fits(first))
      return end_later({ErrorCode::kCorrupt, "a piece that is not the next of its payload"});
    promises_.pop_front();
    fetch(first);
  }
}

void UcxLink::fetch(const Promise& promise) {
  Asked& asked = asked_[promise.head.payload - first_asked_];
  asked.promised += promise.bytes;
  auto request = std::make_unique<Request>(Request{.link = shared_from_this(),
                                                   .head = promise.head,
                                                   .piece = {},
                                                   .into = asked.into,
                                                   .bytes = promise.bytes});
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.recv_am = &UcxLink::on_fetched;
  param.user_data = request.get();
  const ucs_status_ptr_t started = worker_->ucx().am_recv_data_nbx(
      worker_->worker(), promise.data, asked.into->data() + promise.head.offset, promise.bytes,
      &param);
  worker_->kick();
  if (started != nullptr && !UCS_PTR_IS_ERR(started)) {
    [[maybe_unused]] const Request* const ucxs = request.release();
    return;
  }
  took(*request, UCS_PTR_STATUS(started));
}

// ---- What is told to who uses it: never from within UCX -----------------------------------------

void UcxLink::settle_soon() {
  if (std::exchange(settle_posted_, true)) return;
  worker_->runtime().post([self = shared_from_this()] {
    self->settle_posted_ = false;
    self->settle();
  });
}

void UcxLink::settle() {
  if (closed_ || !handlers_.on_received) return;
  while (!closed_ && !leaving_.empty() && leaving_.front().is_cut() &&
         leaving_.front().under_way == 0) {
    leaving_.pop_front();
    ++first_leaving_;
    handlers_.on_sent();
  }
  while (!closed_ && !asked_.empty() && asked_.front().filled == asked_.front().into->size()) {
    Buffer payload = std::move(*asked_.front().into);
    asked_.pop_front();
    ++first_asked_;
    reported_ = 0;
    handlers_.on_received(std::move(payload));
  }
  if (closed_) return;
  if (!asked_.empty() && asked_.front().filled > reported_) {
    reported_ = asked_.front().filled;
    if (handlers_.on_arriving) handlers_.on_arriving(reported_);
    if (closed_) return;
  }
  fetch_promised();
  cut_pieces();
  if (!ending_) return;
  const Handlers handlers = std::exchange(handlers_, {});
  const Error error = *ending_;
  close();
  if (handlers.on_closed) handlers.on_closed(error);
}

void UcxLink::end_later(Error error) {
  if (ending_) return;
  ending_ = std::move(error);
  settle_soon();
}

void UcxLink::close() {
  if (std::exchange(closed_, true)) return;
  worker_->forget(token_);
  for (const Promise& promise : promises_)
    worker_->ucx().am_data_release(worker_->worker(), promise.data);
  promises_.clear();
  leaving_.clear();
  if (ep_ == nullptr) return;
  // Whoever is under way is cancelled; the endpoint's callbacks may name this object until it is
  // closed.
  auto* const keeps = new std::shared_ptr<UcxLink>(shared_from_this());
  ucp_request_param_t param{};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  param.user_data = keeps;
  param.cb.send = [](void* request, ucs_status_t, void* user) {
    const std::unique_ptr<std::shared_ptr<UcxLink>> own(
        static_cast<std::shared_ptr<UcxLink>*>(user));
    (*own)->worker_->ucx().request_free(request);
  };
  const ucs_status_ptr_t closing = worker_->ucx().ep_close_nbx(std::exchange(ep_, nullptr), &param);
  worker_->kick();
  if (closing == nullptr || UCS_PTR_IS_ERR(closing)) delete keeps;
}

}  // namespace swarmline
