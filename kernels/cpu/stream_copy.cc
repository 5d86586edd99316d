#include <algorithm>
#include <cstring>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "kernels/kernels.h"

namespace swarmline::kernels {
namespace {

constexpr std::size_t kLineBytes = 64;

#if defined(__SSE2__)
// A line that is written whole is not read from memory first. Wider stores are no faster.
void stream_lines(const std::byte* from, std::byte* to, std::size_t lines) {
  for (; lines > 0; --lines, from += kLineBytes, to += kLineBytes) {
    const auto* const in = reinterpret_cast<const __m128i*>(from);
    auto* const out = reinterpret_cast<__m128i*>(to);
    const __m128i a = _mm_loadu_si128(in), b = _mm_loadu_si128(in + 1);
    const __m128i c = _mm_loadu_si128(in + 2), d = _mm_loadu_si128(in + 3);
    _mm_stream_si128(out, a);
    _mm_stream_si128(out + 1, b);
    _mm_stream_si128(out + 2, c);
    _mm_stream_si128(out + 3, d);
  }
  _mm_sfence();
}
#else
void stream_lines(const std::byte* from, std::byte* to, std::size_t lines) {
  std::memcpy(to, from, lines * kLineBytes);
}
#endif

}  // namespace

void stream_copy(const std::byte* source, std::byte* destination, std::size_t bytes) {
  if (bytes == 0) return;
  const std::size_t over = reinterpret_cast<std::uintptr_t>(destination) % kLineBytes;
  const std::size_t head = std::min(bytes, over == 0 ? 0 : kLineBytes - over);
  std::memcpy(destination, source, head);
  const std::size_t lines = (bytes - head) / kLineBytes;
  stream_lines(source + head, destination + head, lines);
  const std::size_t done = head + lines * kLineBytes;
  std::memcpy(destination + done, source + done, bytes - done);
}

}  // namespace swarmline::kernels
