#include "node/admission/join_string.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "engine/identity/secrets.h"

namespace swarmline {
namespace {

constexpr std::string_view kAlphabet = "abcdefghijklmnopqrstuvwxyz234567";
constexpr std::size_t kChecksumBytes = 5;
constexpr std::size_t kFixedBytes =
    1 + KeyHash::kBytes + kInviteIdBytes + kInviteSecretBytes + kChecksumBytes;

std::unexpected<Error> none(std::string_view why) {
  return fail(ErrorCode::kUserMistake,
              fmt::format("this is no join string: {}; expected swarm1...@HOST:PORT as the "
                          "coordinator printed it, whole and on one line",
                          why));
}

std::string to_base32(std::string_view bytes) {
  std::string text;
  std::uint32_t held = 0;
  int bits = 0;
  for (const char byte : bytes) {
    held = held << 8U | static_cast<unsigned char>(byte);
    for (bits += 8; bits >= 5; bits -= 5) text.push_back(kAlphabet[held >> (bits - 5) & 31U]);
    held &= 31U;
  }
  if (bits > 0) text.push_back(kAlphabet[held << (5 - bits) & 31U]);
  return text;
}

// What to_base32 can't have written is refused by who compares.
std::string from_base32(std::string_view text) {
  std::string bytes;
  std::uint32_t held = 0;
  int bits = 0;
  for (const char letter : text) {
    held = held << 5U | static_cast<std::uint32_t>(kAlphabet.find(letter) & 31U);
    bits += 5;
    if (bits < 8) continue;
    bits -= 8;
    bytes.push_back(static_cast<char>(held >> bits & 255U));
    held &= 255U;
  }
  return bytes;
}

bool is_name(std::string_view name) {
  const auto good = [](char c) { return c > ' ' && c < 127; };
  return !name.empty() && name.size() <= kRunNameBytesMax && std::ranges::all_of(name, good);
}

bool is_host(std::string_view host) {
  const auto good = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' ||
           c == '-' || c == '_' || c == ':' || c == '%';
  };
  return !host.empty() && host.size() <= 255 && std::ranges::all_of(host, good);
}

std::string text_of(const std::vector<Address>& addresses) {
  std::string text;
  for (const Address& address : addresses) text += (text.empty() ? "" : ",") + to_string(address);
  return text;
}

std::string checksum(std::string_view word, std::string_view addresses) {
  return as_string(sha256_of(fmt::format("{}\n{}@{}", kJoinStringBegins, word, addresses)))
      .substr(0, kChecksumBytes);
}

Result<std::vector<Address>> parse_addresses(std::string_view text) {
  std::vector<Address> addresses;
  while (true) {
    const std::size_t end = std::min(text.find(','), text.size());
    auto address = parse_address(text.substr(0, end));
    if (!address) return none(address.error().what);
    addresses.push_back(std::move(*address));
    if (addresses.size() > kJoinAddressesMax)
      return none(fmt::format("it has more than {} addresses", kJoinAddressesMax));
    if (end == text.size()) return addresses;
    text.remove_prefix(end + 1);
  }
}

}  // namespace

Result<std::string> to_text(const JoinString& join) {
  if (!is_name(join.run)) return none("the run's name can't be in one");
  if (join.invite_id.size() != kInviteIdBytes || join.secret.size() != kInviteSecretBytes)
    return none("its invite has another size");
  if (join.addresses.empty()) return none("there is no address");
  if (join.addresses.size() > kJoinAddressesMax)
    return none(fmt::format("it has more than {} addresses", kJoinAddressesMax));
  for (const Address& address : join.addresses)
    if (!is_host(address.host) || address.port == 0)
      return none(fmt::format("{} is no address to dial", to_string(address)));
  const std::string addresses = text_of(join.addresses);
  std::string word;
  word.push_back(static_cast<char>(join.run.size()));
  word += join.run;
  word.append(reinterpret_cast<const char*>(join.run_key.bytes.data()), KeyHash::kBytes);
  word += join.invite_id + join.secret;
  word += checksum(word, addresses);
  return fmt::format("{}{}@{}", kJoinStringBegins, to_base32(word), addresses);
}

Result<JoinString> parse_join_string(std::string_view text) {
  if (text.size() > kJoinStringBytesMax) return none("it is too long");
  if (!text.starts_with(kJoinStringBegins))
    return none(text.starts_with("swarm") ? "it is of another version of swarmline"
                                          : "it does not begin with swarm1");
  const std::size_t at = text.find('@');
  if (at == std::string_view::npos) return none("there is no @ with an address after it");
  const std::string_view letters =
      text.substr(kJoinStringBegins.size(), at - kJoinStringBegins.size());
  if (letters.find_first_not_of(kAlphabet) != std::string_view::npos)
    return none("it has letters that are in none; is something missing or added?");
  const std::string word = from_base32(letters);
  const std::size_t name = word.empty() ? 0 : static_cast<unsigned char>(word.front());
  if (word.size() != kFixedBytes + name) return none("it is too short or too long");
  auto addresses = parse_addresses(text.substr(at + 1));
  if (!addresses) return std::unexpected(std::move(addresses).error());
  JoinString join{
      .run = word.substr(1, name),
      .run_key = {},
      .invite_id = word.substr(1 + name + KeyHash::kBytes, kInviteIdBytes),
      .secret = word.substr(1 + name + KeyHash::kBytes + kInviteIdBytes, kInviteSecretBytes),
      .addresses = std::move(*addresses)};
  std::ranges::copy(word.substr(1 + name, KeyHash::kBytes), join.run_key.bytes.begin());
  // Whatever is not as it would be written, its checksum included, was changed.
  const auto written = to_text(join);
  if (!written || *written != text) return none("its checksum does not fit");
  return join;
}

}  // namespace swarmline
