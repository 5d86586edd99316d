// Owned and shared bytes.
//   Ownership: SharedBytes keeps its buffer alive; views (std::span) borrow.
//   Alignment: every Buffer starts on a 64-byte boundary (one cache line, one AVX-512 register).
//   Thread:    a Buffer may be written by one owner; once shared it is frozen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace swarmline {

inline constexpr std::size_t kBufferAlignment = 64;

using BytesView = std::span<const std::byte>;
using MutableBytes = std::span<std::byte>;

class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::size_t size_bytes);  // uninitialised
  static Buffer zeroed(std::size_t size_bytes);
  static Buffer copy_of(BytesView bytes);

  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  MutableBytes bytes() { return {data_.get(), size_}; }
  BytesView bytes() const { return {data_.get(), size_}; }
  // Shortens without reallocating. `size_bytes` must not exceed size().
  void shrink(std::size_t size_bytes);

  template <typename T>
  std::span<T> as() {
    return {reinterpret_cast<T*>(data_.get()), size_ / sizeof(T)};
  }
  template <typename T>
  std::span<const T> as() const {
    return {reinterpret_cast<const T*>(data_.get()), size_ / sizeof(T)};
  }

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte, Free> data_;
  std::size_t size_ = 0;
};

// A frozen buffer (or a part of one) that several holders keep alive. Or bytes that are lent:
// nobody here keeps them, and whoever hands them on says for how long they are good. What was
// copied from one loan is used by one thread.
class SharedBytes {
 public:
  SharedBytes() = default;
  explicit SharedBytes(Buffer buffer);
  static SharedBytes lent(BytesView bytes);
  // A part of the same buffer; no copy.
  SharedBytes slice(std::size_t offset_bytes, std::size_t size_bytes) const;

  BytesView view() const { return view_; }
  const std::byte* data() const { return view_.data(); }
  std::size_t size() const { return view_.size(); }
  bool empty() const { return view_.empty(); }
  bool is_lent() const { return loan_ != nullptr; }
  // The same bytes for as long as anybody wants them: of lent ones a copy, one for all that were
  // copied from the same lent().
  SharedBytes kept() const;

 private:
  struct Loan;

  std::shared_ptr<const Buffer> owner_;
  std::shared_ptr<Loan> loan_;
  BytesView view_;
};

inline BytesView as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}
inline std::string_view as_text(BytesView bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace swarmline
