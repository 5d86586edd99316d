#include "base/bytes.h"

#include <cstdlib>
#include <cstring>
#include <new>
#include <sys/mman.h>
#include <utility>

#include "base/check.h"

namespace swarmline {

namespace {

// From here on the C library takes memory from the system anew each time
// (DEFAULT_MMAP_THRESHOLD_MAX of glibc): in pages of 2 MiB that is 512 times fewer page faults.
constexpr std::size_t kHugeBufferBytes = 32U << 20;
constexpr std::size_t kHugePageBytes = 2U << 20;
constexpr std::size_t kLoansAtFirst = 64;

}  // namespace

void Buffer::Free::operator()(std::byte* p) const {
  std::free(p);
}

Buffer::Buffer(std::size_t size_bytes) : size_(size_bytes) {
  if (size_bytes == 0) return;
  const bool huge = size_bytes >= kHugeBufferBytes;
  const std::size_t alignment = huge ? kHugePageBytes : kBufferAlignment;
  const std::size_t rounded = (size_bytes + alignment - 1) / alignment * alignment;
  auto* p = static_cast<std::byte*>(std::aligned_alloc(alignment, rounded));
  if (p == nullptr) throw std::bad_alloc();
  if (huge) madvise(p, rounded, MADV_HUGEPAGE);  // a hint: kernels without it serve small pages
  data_.reset(p);
}

Buffer Buffer::zeroed(std::size_t size_bytes) {
  Buffer buffer(size_bytes);
  if (size_bytes > 0) std::memset(buffer.data(), 0, size_bytes);
  return buffer;
}

Buffer Buffer::copy_of(BytesView bytes) {
  Buffer buffer(bytes.size());
  if (!bytes.empty()) std::memcpy(buffer.data(), bytes.data(), bytes.size());
  return buffer;
}

void Buffer::shrink(std::size_t size_bytes) {
  SWARMLINE_CHECK(size_bytes <= size_);
  size_ = size_bytes;
}

SharedBytes::SharedBytes(Buffer buffer)
    : owner_(std::make_shared<const Buffer>(std::move(buffer))), view_(owner_->bytes()) {}

SharedBytes SharedBytes::lent(BytesView bytes) {
  SharedBytes lent;
  if (!bytes.empty()) lent.loan_ = std::make_shared<Loan>(bytes);
  lent.view_ = bytes;
  return lent;
}

void SharedBytes::Loan::keep() {
  if (!copy) copy = std::make_shared<const Buffer>(Buffer::copy_of(bytes));
}

SharedBytes SharedBytes::kept() const {
  if (!loan_) return *this;
  loan_->keep();
  SharedBytes kept;
  kept.owner_ = loan_->copy;
  kept.view_ = loan_->copy->bytes().subspan(
      static_cast<std::size_t>(view_.data() - loan_->bytes.data()), view_.size());
  return kept;
}

SharedBytes SharedBytes::slice(std::size_t offset_bytes, std::size_t size_bytes) const {
  SWARMLINE_CHECK(offset_bytes <= size() && size_bytes <= size() - offset_bytes);
  SharedBytes part = *this;
  part.view_ = view_.subspan(offset_bytes, size_bytes);
  return part;
}

void Lender::lend(const SharedBytes& bytes) {
  if (!bytes.loan_ || std::exchange(bytes.loan_->has_lender, true)) return;
  if (loans_.size() >= most_) {
    std::erase_if(loans_, [](const auto& loan) { return loan.expired(); });
    most_ = 2 * loans_.size() + kLoansAtFirst;
  }
  loans_.push_back(bytes.loan_);
}

void Lender::take_back() {
  for (const auto& lent : std::exchange(loans_, {})) {
    const auto loan = lent.lock();
    if (!loan) continue;
    loan->keep();
    loan->taken_back = true;
  }
  most_ = 0;
}

}  // namespace swarmline
