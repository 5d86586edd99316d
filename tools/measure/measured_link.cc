#include "tools/measure/measured_link.h"

#include <array>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "tools/measure/payload_way.h"

namespace swarmline {
namespace {

enum Kind : std::uint16_t { kWant = 101, kTake, kTaken, kPayload, kEcho, kEchoed, kOffer, kAnswer };

std::byte byte_at(std::size_t at) {
  return static_cast<std::byte>(at * 31 + (at >> 13U));
}

SharedBytes pattern(std::uint64_t size) {
  Buffer buffer(size);
  for (std::size_t i = 0; i < size; ++i) buffer.data()[i] = byte_at(i);
  return SharedBytes(std::move(buffer));
}

bool is_pattern(BytesView bytes) {
  for (std::size_t i = 0; i < bytes.size(); ++i)
    if (bytes[i] != byte_at(i)) return false;
  return true;
}

using Wanted = std::array<std::uint64_t, 2>;  // how many, of how many bytes

std::string text_of(const Wanted& wanted) {
  std::string meta(sizeof(wanted), '\0');
  std::memcpy(meta.data(), wanted.data(), sizeof(wanted));
  return meta;
}

std::optional<Wanted> parse_wanted(const std::string& meta) {
  Wanted wanted{};
  if (meta.size() != sizeof(wanted)) return std::nullopt;
  std::memcpy(wanted.data(), meta.data(), sizeof(wanted));
  if (wanted[0] == 0 || wanted[0] > kLinkPayloadsMax || wanted[1] > kLinkBenchBytesMax)
    return std::nullopt;
  return wanted;
}

}  // namespace

void MeasuredLink::lost(const Error& error) {
  fail_with("the link has ended: " + error.what);
}

void MeasuredLink::fail_with(std::string what) {
  if (!failed_) failed_ = Error{ErrorCode::kPeerGone, std::move(what)};
}

Result<void> MeasuredLink::wait_for(const std::function<bool()>& done) {
  if (!runtime_.run_until([&] { return failed_ || done(); }, kMeasuredLinkPatience))
    return fail(ErrorCode::kDeadline, fmt::format("nothing came over the link for {:.0f} s",
                                                  to_seconds(kMeasuredLinkPatience)));
  if (failed_) return std::unexpected(*failed_);
  return {};
}

void MeasuredLink::hear(Frame frame) {
  switch (frame.kind) {
    case kPayload:
      return take_payload(frame);
    case kEchoed:
      echoed_ = true;
      return;
    case kTaken:
      taken_ = true;
      return;
    case kAnswer:
      if (frame.meta.empty()) return;
      if (const auto taken = connection_->take_answer(frame.meta); !taken)
        fail_with(taken.error().what);
      return;
    default:
      return serve(frame);
  }
}

void MeasuredLink::serve(const Frame& frame) {
  if (frame.kind == kEcho) return connection_->send({.kind = kEchoed, .meta = frame.meta});
  if (frame.kind == kOffer)
    return connection_->send({.kind = kAnswer, .meta = connection_->answer(frame.meta)});
  const auto wanted = parse_wanted(frame.meta);
  if (!wanted || (frame.kind != kWant && frame.kind != kTake)) {
    fail_with("the other end says what is no word of a measurement");
    return connection_->close();
  }
  const auto [count, bytes] = *wanted;
  if (frame.kind == kWant) return send_payloads(count, bytes);
  left_ = count;
  expected_ = bytes;
  checks_bytes_ = count == 1;
  is_asked_ = true;
}

void MeasuredLink::send_payloads(std::uint64_t count, std::uint64_t bytes) {
  if (payload_.size() != bytes) payload_ = pattern(bytes);
  for (std::uint64_t i = 0; i < count; ++i)
    connection_->send({.kind = kPayload, .payload = {payload_}});
}

void MeasuredLink::take_payload(const Frame& frame) {
  if (left_ == 0 || frame.payload_bytes() != expected_ ||
      (checks_bytes_ && !is_pattern(frame.received_payload()))) {
    fail_with("other bytes came than were sent");
    return connection_->close();
  }
  if (--left_ > 0 || !is_asked_) return;
  is_asked_ = false;
  connection_->send({.kind = kTaken});
}

bool MeasuredLink::offer() {
  std::string offer = connection_->offer();
  if (offer.empty()) return false;
  connection_->send({.kind = kOffer, .meta = std::move(offer)});
  return true;
}

Result<bool> MeasuredLink::take_way(const std::string& way) {
  if (goes_with_frames(way)) return true;
  if (!offer()) return false;
  runtime_.run_until([&] { return failed_ || connection_->way() == way; },
                     kBulkMeetTime + kBulkMeetTime);
  if (failed_) return std::unexpected(*failed_);
  if (connection_->way() != way) return false;
  SWARMLINE_TRY(round_trip());
  return true;
}

Result<void> MeasuredLink::receive(std::uint64_t count, std::uint64_t bytes) {
  left_ = count;
  expected_ = bytes;
  checks_bytes_ = count == 1;
  connection_->send({.kind = kWant, .meta = text_of({count, bytes})});
  return wait_for([this] { return left_ == 0; });
}

Result<void> MeasuredLink::send(std::uint64_t count, std::uint64_t bytes) {
  taken_ = false;
  connection_->send({.kind = kTake, .meta = text_of({count, bytes})});
  send_payloads(count, bytes);
  return wait_for([this] { return taken_; });
}

Result<void> MeasuredLink::round_trip() {
  echoed_ = false;
  connection_->send({.kind = kEcho, .meta = std::string(kLinkBenchMessageBytes, 'm')});
  return wait_for([this] { return echoed_; });
}

}  // namespace swarmline
