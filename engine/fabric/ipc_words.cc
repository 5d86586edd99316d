#include "engine/fabric/ipc_words.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

namespace swarmline {
namespace {

constexpr std::array<char, 4> kOffer{'I', 'p', 'O', '1'};
constexpr std::array<char, 4> kTaken{'I', 'p', 'T', '1'};
constexpr std::size_t kOfferBytes = 4 + 8 + 4 + 4 + 8 + 8 + sizeof(IpcHandle);
constexpr std::size_t kTakenBytes = 4 + 8;

// Both ends are one machine: its order of bytes.
class Writer {
 public:
  explicit Writer(std::size_t bytes) : word_(bytes) {}
  template <typename T>
  Writer& add(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    std::memcpy(word_.data() + at_, &value, sizeof value);
    at_ += sizeof value;
    return *this;
  }
  Buffer take() { return std::move(word_); }

 private:
  Buffer word_;
  std::size_t at_ = 0;
};

class Reader {
 public:
  explicit Reader(BytesView word) : word_(word) {}
  template <typename T>
  Reader& take(T& value) {
    std::memcpy(&value, word_.data(), sizeof value);
    word_ = word_.subspan(sizeof value);
    return *this;
  }

 private:
  BytesView word_;
};

}  // namespace

Buffer to_word(const IpcOffer& offer) {
  return Writer(kOfferBytes)
      .add(kOffer)
      .add(offer.turn)
      .add(offer.index)
      .add(offer.count)
      .add(offer.bytes)
      .add(offer.memory.offset)
      .add(offer.memory.handle)
      .take();
}

Buffer to_word(const IpcTaken& taken) {
  return Writer(kTakenBytes).add(kTaken).add(taken.turn).take();
}

std::optional<std::variant<IpcOffer, IpcTaken>> parse_ipc_word(BytesView word) {
  if (word.size() != kOfferBytes && word.size() != kTakenBytes) return std::nullopt;
  std::array<char, 4> kind{};
  Reader reader(word);
  reader.take(kind);
  if (word.size() == kTakenBytes) {
    IpcTaken taken;
    reader.take(taken.turn);
    return kind == kTaken ? std::optional(taken) : std::nullopt;
  }
  IpcOffer offer;
  reader.take(offer.turn)
      .take(offer.index)
      .take(offer.count)
      .take(offer.bytes)
      .take(offer.memory.offset)
      .take(offer.memory.handle);
  const bool is_good = kind == kOffer && offer.count <= kIpcTransfersMax &&
                       offer.index < offer.count && offer.bytes > 0;
  return is_good ? std::optional(offer) : std::nullopt;
}

}  // namespace swarmline
