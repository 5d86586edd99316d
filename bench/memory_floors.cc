#include "bench/memory_floors.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace swarmline::bench {

#if defined(__x86_64__)
namespace {

bool has_avx512() {
  static const bool has =
      __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0;
  return has;
}

[[gnu::target("avx512f,avx512bw")]] std::uint64_t read_512(const char* p, std::size_t bytes) {
  __m512i a = _mm512_setzero_si512(), b = a, c = a, d = a;
  for (std::size_t i = 0; i < bytes; i += 256) {
    a = _mm512_or_si512(a, _mm512_loadu_si512(p + i));
    b = _mm512_or_si512(b, _mm512_loadu_si512(p + i + 64));
    c = _mm512_or_si512(c, _mm512_loadu_si512(p + i + 128));
    d = _mm512_or_si512(d, _mm512_loadu_si512(p + i + 192));
  }
  const __m512i all = _mm512_or_si512(_mm512_or_si512(a, b), _mm512_or_si512(c, d));
  return static_cast<std::uint64_t>(_mm512_reduce_or_epi64(all));
}
[[gnu::target("avx512f,avx512bw")]] void widen_512(const std::uint8_t* from, char* to,
                                                   std::size_t bytes, bool by_4) {
  for (std::size_t i = 0; i < bytes; i += 64) {
    const __m512i wide =
        by_4 ? _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i / 4)))
             : _mm512_cvtepu8_epi16(
                   _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i / 2)));
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + i), wide);
  }
  _mm_sfence();
}

[[gnu::target("avx2")]] std::uint64_t read_256(const char* p, std::size_t bytes) {
  __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;
  for (std::size_t i = 0; i < bytes; i += 128) {
    const auto* at = reinterpret_cast<const __m256i*>(p + i);
    a = _mm256_or_si256(a, _mm256_loadu_si256(at));
    b = _mm256_or_si256(b, _mm256_loadu_si256(at + 1));
    c = _mm256_or_si256(c, _mm256_loadu_si256(at + 2));
    d = _mm256_or_si256(d, _mm256_loadu_si256(at + 3));
  }
  const __m256i all = _mm256_or_si256(_mm256_or_si256(a, b), _mm256_or_si256(c, d));
  return static_cast<std::uint64_t>(_mm256_extract_epi64(all, 0) | _mm256_extract_epi64(all, 1) |
                                    _mm256_extract_epi64(all, 2) | _mm256_extract_epi64(all, 3));
}
[[gnu::target("avx2")]] void widen_256(const std::uint8_t* from, char* to, std::size_t bytes,
                                       bool by_4) {
  for (std::size_t i = 0; i < bytes; i += 32) {
    const __m256i wide =
        by_4
            ? _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from + i / 4)))
            : _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i / 2)));
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i), wide);
  }
  _mm_sfence();
}

}  // namespace

std::uint64_t read_only(const void* from, std::size_t bytes) {
  const auto* p = static_cast<const char*>(from);
  return has_avx512() ? read_512(p, bytes) : read_256(p, bytes);
}
void widen_by_4(const std::uint8_t* from, void* to, std::size_t bytes) {
  auto* p = static_cast<char*>(to);
  has_avx512() ? widen_512(from, p, bytes, true) : widen_256(from, p, bytes, true);
}
void widen_by_2(const std::uint8_t* from, void* to, std::size_t bytes) {
  auto* p = static_cast<char*>(to);
  has_avx512() ? widen_512(from, p, bytes, false) : widen_256(from, p, bytes, false);
}
#else
std::uint64_t read_only(const void* from, std::size_t bytes) {
  const auto* p = static_cast<const std::uint64_t*>(from);
  std::uint64_t all = 0;
  for (std::size_t i = 0; i < bytes / sizeof(*p); ++i) all |= p[i];
  return all;
}
void widen_by_4(const std::uint8_t* from, void* to, std::size_t bytes) {
  auto* p = static_cast<std::uint32_t*>(to);
  for (std::size_t i = 0; i < bytes / sizeof(*p); ++i) p[i] = from[i];
}
void widen_by_2(const std::uint8_t* from, void* to, std::size_t bytes) {
  auto* p = static_cast<std::uint16_t*>(to);
  for (std::size_t i = 0; i < bytes / sizeof(*p); ++i) p[i] = from[i];
}
#endif

}  // namespace swarmline::bench
