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
#include <vector>

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
// nobody here keeps them. They are good until their Lender takes them back, which copies them for
// whoever holds them still; without a Lender, for as long as who hands them on says. A loan is used
// by one thread.
class SharedBytes {
 public:
  SharedBytes() = default;
  explicit SharedBytes(Buffer buffer);
  static SharedBytes lent(BytesView bytes);
  // A part of the same buffer; no copy.
  SharedBytes slice(std::size_t offset_bytes, std::size_t size_bytes) const;

  BytesView view() const { return {data(), view_.size()}; }
  const std::byte* data() const {
    return loan_ && loan_->taken_back ? loan_->copy->data() + (view_.data() - loan_->bytes.data())
                                      : view_.data();
  }
  std::size_t size() const { return view_.size(); }
  bool empty() const { return view_.empty(); }
  bool is_lent() const { return loan_ != nullptr; }
  bool has_lender() const { return loan_ && loan_->has_lender; }
  // The same bytes for as long as anybody wants them, on any thread: of lent ones a copy, one for
  // all that were copied from the same lent().
  SharedBytes kept() const;
  // The same bytes for as long as this thread wants them: lent ones that have a Lender as they are.
  SharedBytes held() const { return has_lender() ? *this : kept(); }

 private:
  friend class Lender;
  struct Loan {
    BytesView bytes;
    std::shared_ptr<const Buffer> copy = {};  // null: nobody had to keep it so far
    bool has_lender = false, taken_back = false;

    void keep();
  };

  std::shared_ptr<const Buffer> owner_;
  std::shared_ptr<Loan> loan_;
  BytesView view_;
};

// Who lends bytes, and takes them back before they change or go.
//   Ownership: the bytes outlive it, or take_back().
class Lender {
 public:
  Lender() = default;
  ~Lender() { take_back(); }
  Lender(const Lender&) = delete;
  Lender& operator=(const Lender&) = delete;

  // Bytes that SharedBytes::lent() has made; others stay as they are.
  void lend(const SharedBytes& bytes);
  void take_back();  // all of them

 private:
  std::vector<std::weak_ptr<SharedBytes::Loan>> loans_;
  std::size_t most_ = 0;  // so many, before those are dropped that nobody has any more
};

inline BytesView as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}
inline std::string_view as_text(BytesView bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace swarmline
