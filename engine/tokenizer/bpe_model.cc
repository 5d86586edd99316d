#include "engine/tokenizer/bpe_model.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/hash.h"

namespace swarmline {

namespace {

constexpr std::uint32_t kNone = PairTable::kNoRank;

}  // namespace

Result<std::shared_ptr<const BpeModel>> BpeModel::make(BpeDefinition definition) {
  const std::shared_ptr<BpeModel> model(new BpeModel());
  model->pieces_ = std::move(definition.pieces);
  model->bytes_.fill(kNone);
  const auto tokens = static_cast<std::uint32_t>(model->pieces_.size());
  SWARMLINE_CHECK(tokens <= kVocabularyMax);
  for (std::uint32_t token = 0; token < tokens; ++token)
    if (const std::string& piece = model->pieces_[token]; piece.size() == 1)
      model->bytes_[static_cast<unsigned char>(piece.front())] = token;
  const auto lacking = std::ranges::count(model->bytes_, kNone);
  if (lacking > 0)
    return fail(ErrorCode::kUserMistake,
                fmt::format("{} of the 256 bytes have no token, so that text would be lost; train "
                            "it with all bytes as its initial alphabet",
                            lacking));
  model->merges_ = PairTable(definition.merges.size());
  for (std::uint32_t rank = 0; rank < definition.merges.size(); ++rank) {
    const BpeDefinition::Merge& merge = definition.merges[rank];
    SWARMLINE_CHECK(std::max({merge.left, merge.right, merge.merged}) < tokens);
    model->merges_.put(merge.left, merge.right, {.rank = rank, .token = merge.merged});
  }
  if (definition.ignore_merges) {
    model->words_ = TextTable(tokens);
    for (std::uint32_t token = 0; token < tokens; ++token)
      if (!model->pieces_[token].empty()) model->words_.put(model->pieces_[token], token);
  }
  return model;
}

BpeEncoder::BpeEncoder(std::shared_ptr<const BpeModel> model)
    : model_(std::move(model)), cache_(kCacheSlots) {}

void BpeEncoder::encode(std::string_view word, std::vector<std::uint32_t>& tokens) {
  if (word.size() == 1) {
    tokens.push_back(model_->bytes_[static_cast<unsigned char>(word.front())]);
    return;
  }
  if (word.size() > Slot::kBytesMax) {
    if (const auto whole = model_->words_.find(word)) {
      tokens.push_back(*whole);
    } else if (word.size() < kHeapFrom) {
      merge_short(word, tokens);
    } else {
      merge_long(word, tokens);
    }
    return;
  }
  Slot& slot = cache_[xxh3(as_bytes(word)) & (kCacheSlots - 1)];
  if (slot.bytes == word.size() && std::memcmp(slot.word.data(), word.data(), word.size()) == 0) {
    tokens.insert(tokens.end(), slot.ids.begin(), slot.ids.begin() + slot.tokens);
    return;
  }
  const std::size_t before = tokens.size();
  if (const auto whole = model_->words_.find(word))
    tokens.push_back(*whole);
  else
    merge_short(word, tokens);
  const std::size_t made = tokens.size() - before;
  if (made > Slot::kTokensMax) return;
  slot.bytes = static_cast<std::uint8_t>(word.size());
  slot.tokens = static_cast<std::uint8_t>(made);
  std::memcpy(slot.word.data(), word.data(), word.size());
  std::copy_n(tokens.end() - static_cast<std::ptrdiff_t>(made), made, slot.ids.begin());
}

// Looks over all pairs for each merge, in place in `tokens`.
void BpeEncoder::merge_short(std::string_view word, std::vector<std::uint32_t>& tokens) {
  std::array<std::uint32_t, kHeapFrom> ids{};
  std::array<PairTable::Merge, kHeapFrom> merges{};  // of each with the next
  std::size_t count = word.size();
  for (std::size_t i = 0; i < count; ++i)
    ids[i] = model_->bytes_[static_cast<unsigned char>(word[i])];
  for (std::size_t i = 0; i + 1 < count; ++i) merges[i] = model_->merges_.find(ids[i], ids[i + 1]);
  while (count > 1) {
    const auto best = static_cast<std::size_t>(
        std::ranges::min_element(merges.begin(), merges.begin() + count - 1, {},
                                 &PairTable::Merge::rank) -
        merges.begin());
    if (merges[best].rank == kNone) break;
    ids[best] = merges[best].token;
    std::copy(ids.begin() + best + 2, ids.begin() + count, ids.begin() + best + 1);
    std::copy(merges.begin() + best + 1, merges.begin() + count - 1, merges.begin() + best);
    --count;
    if (best + 1 < count) merges[best] = model_->merges_.find(ids[best], ids[best + 1]);
    if (best > 0) merges[best - 1] = model_->merges_.find(ids[best - 1], ids[best]);
  }
  tokens.insert(tokens.end(), ids.begin(), ids.begin() + count);
}

// The pair that begins at `place`, if it merges, onto the heap.
void BpeEncoder::offer(std::uint32_t place) {
  const Symbol& left = symbols_[place];
  if (left.after == kNone) return;
  const Symbol& right = symbols_[left.after];
  const PairTable::Merge merge = model_->merges_.find(left.token, right.token);
  if (merge.rank == kNone) return;
  heap_.push_back({.rank = merge.rank, .place = place, .left = left.token, .right = right.token});
  std::ranges::push_heap(heap_, std::ranges::greater{}, &Candidate::order);
}

// A heap of pairs over a list of symbols. What has changed since it was offered is passed over.
void BpeEncoder::merge_long(std::string_view word, std::vector<std::uint32_t>& tokens) {
  SWARMLINE_CHECK(word.size() < kNone);
  const auto count = static_cast<std::uint32_t>(word.size());
  symbols_.clear();
  heap_.clear();
  for (std::uint32_t i = 0; i < count; ++i)
    symbols_.push_back({.token = model_->bytes_[static_cast<unsigned char>(word[i])],
                        .before = i == 0 ? kNone : i - 1,
                        .after = i + 1 == count ? kNone : i + 1});
  for (std::uint32_t i = 0; i < count; ++i) offer(i);
  while (!heap_.empty()) {
    std::ranges::pop_heap(heap_, std::ranges::greater{}, &Candidate::order);
    const Candidate best = heap_.back();
    heap_.pop_back();
    Symbol& left = symbols_[best.place];
    if (left.token != best.left || left.after == kNone) continue;
    Symbol& right = symbols_[left.after];
    if (right.token != best.right) continue;
    left.token = model_->merges_.find(best.left, best.right).token;
    right.token = kNone;  // gone
    left.after = right.after;
    if (left.after != kNone) symbols_[left.after].before = best.place;
    if (left.before != kNone) offer(left.before);
    offer(best.place);
  }
  for (std::uint32_t i = 0; i != kNone; i = symbols_[i].after) tokens.push_back(symbols_[i].token);
}

}  // namespace swarmline
