// What the two ends of a connection say to each other of other ways for its payloads. Pure.
//   Errors: kCorrupt with a sentence for bytes that are no offer, or beyond the bounds.
//   Bounds: kBulkOfferBytesMax in all, kBulkWaysMax ways; kBulkNameBytesMax, kBulkAddressBytesMax
//           and kBulkSecretBytes each.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace swarmline {

inline constexpr std::size_t kBulkOfferBytesMax = 16 * 1024;
inline constexpr std::size_t kBulkWaysMax = 4;
inline constexpr std::size_t kBulkNameBytesMax = 16;
inline constexpr std::size_t kBulkAddressBytesMax = 4096;
inline constexpr std::size_t kBulkSecretBytes = 32;
// The first frame of a connection that belongs to another one's link: its meta is a secret.
inline constexpr std::uint32_t kFrameFlagBulkStream = 64;  // beside those of frame.h
inline constexpr std::uint32_t kBulkStreamsMax = 16;       // of one link

struct BulkWay {
  std::string backend;
  std::string address;  // the backend's own words
  std::string secret;   // of an answer: kBulkSecretBytes; of an offer: none
  bool operator==(const BulkWay&) const = default;
};

struct BulkOffer {
  std::string from, to;  // HOST:PORT of the connection's two ends, as the end that says it has them
  std::vector<BulkWay> ways;
  std::uint16_t trial_kind = 0;  // of frames in which it takes trials of both ways; 0: none
  bool operator==(const BulkOffer&) const = default;
};

std::string encode(const BulkOffer& offer);
Result<BulkOffer> parse_bulk_offer(std::string_view bytes);
// An offer with one way, which has a secret.
Result<BulkOffer> parse_bulk_answer(std::string_view bytes);

}  // namespace swarmline
