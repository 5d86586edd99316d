#include "node/admission/seat_certificate.h"

#include <array>
#include <charconv>
#include <cstdint>

#include <fmt/format.h>

#include "node/admission/invites.h"

namespace swarmline {
namespace {

constexpr std::string_view kFirstLine = "swarmline seat 1";
constexpr std::size_t kLines = 6;

std::unexpected<Error> refused(std::string_view why) {
  return fail(ErrorCode::kRefused, fmt::format("it has not shown its seat: {}", why));
}

std::string signed_part(const SeatCertificate& certificate) {
  return fmt::format("{}\n{}\n{} {} {}\n{}\n{}\n", kFirstLine, certificate.run_id,
                     certificate.seat.peer.value, certificate.seat.stage.value,
                     certificate.seat.incarnation.value, to_string(certificate.key),
                     static_cast<std::uint64_t>(certificate.expires));
}

// Numbers up to `max`, without signs; `text` goes on after it and one character.
bool take(std::string_view& text, std::uint64_t& value, std::uint64_t max) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value > max) return false;
  text.remove_prefix(std::min(text.size(), static_cast<std::size_t>(end - text.data()) + 1));
  return true;
}

}  // namespace

std::string to_text(const SeatCertificate& certificate, const Identity& run_key) {
  const std::string text = signed_part(certificate);
  return text + to_hex(as_bytes(run_key.sign(text)));
}

Result<SeatCertificate> check_seat_certificate(std::string_view text,
                                               std::string_view run_public_key,
                                               const KeyHash& link_key, double now) {
  std::array<std::string_view, kLines> lines;
  std::string_view rest = text;
  for (std::string_view& line : lines) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  const auto signature = from_hex(lines[5], kSignatureBytes);
  if (lines[0] != kFirstLine || !rest.empty() || !signature) return refused("there is none");
  const std::string_view signed_text = text.substr(0, text.size() - lines[5].size());
  if (!verify_signature(run_public_key, signed_text, *signature))
    return refused("the run's key has not signed it");
  SeatCertificate certificate{.run_id = std::string(lines[1]), .seat = {}, .key = {}, .expires = 0};
  std::uint64_t peer = 0, stage = 0, incarnation = 0, expires = 0;
  std::string_view seat = lines[2], until = lines[4];
  const auto key = parse_key_hash(lines[3]);
  if (!take(seat, peer, UINT32_MAX) || !take(seat, stage, UINT16_MAX) ||
      !take(seat, incarnation, UINT32_MAX) || !take(until, expires, UINT64_MAX) || !key)
    return refused("it can't be read");
  certificate.seat = {PeerId{static_cast<std::uint32_t>(peer)},
                      StageId{static_cast<std::uint16_t>(stage)},
                      Incarnation{static_cast<std::uint32_t>(incarnation)}};
  certificate.key = *key;
  certificate.expires = static_cast<double>(expires);
  if (certificate.key != link_key) return refused("it is another key's");
  if (now > certificate.expires + kClockSkewSeconds) return refused("it has expired");
  return certificate;
}

Result<SeatCertificate> check_shown_seat(std::string_view shown, RunTrust& trust,
                                         const KeyHash& link_key, double now) {
  std::string_view certificate = shown;
  if (const auto handovers = take_handovers(certificate); !handovers)
    return refused(handovers.error().what);
  trust.learn(shown.substr(0, shown.size() - certificate.size()), now);
  Result<SeatCertificate> checked = check_seat_certificate(certificate, "", link_key, now);
  for (const std::string& signer : trust.signers(now))
    if (!checked) checked = check_seat_certificate(certificate, signer, link_key, now);
  return checked;
}

}  // namespace swarmline
