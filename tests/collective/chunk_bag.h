// What tests of an all-reduce share: values of its members, and the network between them as a bag
// of messages. Thread: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/dtype.h"
#include "base/rng.h"
#include "engine/collective/all_reduce.h"

namespace swarmline {

enum class Order { kInOrder, kLast, kRandom };

// From -1 to 1.
inline Buffer random_values(std::uint64_t elements, DType dtype, Rng& rng) {
  Buffer buffer(elements * size_bytes(dtype));
  const auto draw = [&]<typename T>(std::span<T> values) {
    for (T& value : values) value = static_cast<T>(2 * rng.uniform() - 1);
  };
  dtype == DType::kF32 ? draw(buffer.as<float>()) : draw(buffer.as<double>());
  return buffer;
}

class ChunkBag {
 public:
  struct Message {
    std::uint32_t from;
    ChunkSend send;
  };

  bool empty() const { return messages_.empty(); }
  std::size_t size() const { return messages_.size(); }
  void post(std::uint32_t from, ChunkSend send) { messages_.push_back({from, std::move(send)}); }
  void post(std::uint32_t from, std::vector<ChunkSend> sends) {
    for (ChunkSend& send : sends) post(from, std::move(send));
  }
  // Not of an empty bag.
  Message take(Order order, Rng& rng) {
    if (order == Order::kRandom)
      std::swap(messages_[rng.below(messages_.size())], messages_.back());
    Message& next = order == Order::kInOrder ? messages_.front() : messages_.back();
    Message message = std::move(next);
    order == Order::kInOrder ? messages_.pop_front() : messages_.pop_back();
    return message;
  }

 private:
  std::deque<Message> messages_;
};

}  // namespace swarmline
