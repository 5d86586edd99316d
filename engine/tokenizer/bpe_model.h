// Byte pair encoding of one word at a time: which tokens its bytes become.
//   What:      of all neighbours the pair with the lowest rank is merged, the leftmost of equal
//              ones, until none is left; as `tokenizers` does it.
//   Ownership: a BpeModel is shared; a BpeEncoder, with its cache of words, is one thread's.
//   Thread:    BpeModel immutable.
//   Bounds:    tokens below kVocabularyMax, words of less than 4 GiB; short words take quadratic
//              time, from kHeapFrom bytes on n log n; the cache has kCacheSlots words.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/tokenizer/pair_table.h"
#include "engine/tokenizer/text_table.h"

namespace swarmline {

inline constexpr std::uint32_t kVocabularyMax = 1U << 24;

struct BpeDefinition {
  std::vector<std::string> pieces;  // by token number: its bytes; empty: there is no such token
  struct Merge {
    std::uint32_t left = 0, right = 0, merged = 0;
  };
  std::vector<Merge> merges;   // the first has the lowest rank
  bool ignore_merges = false;  // a word that is a piece is that token, whatever merges would make
};

class BpeModel {
 public:
  // kUserMistake, without a place: a byte without a token.
  static Result<std::shared_ptr<const BpeModel>> make(BpeDefinition definition);

  std::string_view piece(std::uint32_t token) const { return pieces_[token]; }
  std::uint32_t vocabulary() const { return static_cast<std::uint32_t>(pieces_.size()); }

 private:
  friend class BpeEncoder;
  BpeModel() = default;

  std::vector<std::string> pieces_;
  std::array<std::uint32_t, 256> bytes_{};  // the token of each byte
  PairTable merges_;
  TextTable words_;  // with ignore_merges: the pieces
};

class BpeEncoder {
 public:
  static constexpr std::size_t kCacheSlots = 1U << 15;
  static constexpr std::size_t kHeapFrom = 64;  // bytes of a word

  explicit BpeEncoder(std::shared_ptr<const BpeModel> model);
  void encode(std::string_view word, std::vector<std::uint32_t>& tokens);

 private:
  // A word that was met before: 64 bytes, one cache line.
  struct Slot {
    static constexpr std::size_t kBytesMax = 30;
    static constexpr std::size_t kTokensMax = 8;
    std::uint8_t bytes = 0;  // 0: empty
    std::uint8_t tokens = 0;
    std::array<char, kBytesMax> word{};
    std::array<std::uint32_t, kTokensMax> ids{};
  };
  struct Symbol {
    std::uint32_t token = 0;
    std::uint32_t before = 0, after = 0;  // places; kNone: none
  };
  struct Candidate {
    std::uint32_t rank = 0, place = 0;
    std::uint32_t left = 0, right = 0;  // as they were
    std::uint64_t order() const { return std::uint64_t{rank} << 32 | place; }
  };

  void merge_short(std::string_view word, std::vector<std::uint32_t>& tokens);
  void merge_long(std::string_view word, std::vector<std::uint32_t>& tokens);
  void offer(std::uint32_t place);

  std::shared_ptr<const BpeModel> model_;
  std::vector<Slot> cache_;
  std::vector<Symbol> symbols_;
  std::vector<Candidate> heap_;
};

}  // namespace swarmline
