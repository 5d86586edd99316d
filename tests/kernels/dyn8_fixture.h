// tests/fixtures/dyn8_bitsandbytes.bin, which scripts/make_dyn8_fixture.py made with bitsandbytes
// and hivemind: what they make of one tensor.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace swarmline::testing {

struct Dyn8Fixture {
  std::array<float, 256> signed_book, unsigned_book;
  std::uint32_t block = 0;
  std::vector<float> values, absmax, decoded;
  std::vector<std::uint8_t> codes;
  std::vector<std::uint8_t> hivemind_message;
};

class ByteReader {
 public:
  explicit ByteReader(std::vector<std::uint8_t> bytes) : bytes_(std::move(bytes)) {}
  template <typename T>
  std::vector<T> take(std::size_t n) {
    if (bytes_.size() - at_ < n * sizeof(T)) throw std::runtime_error("fixture is too short");
    std::vector<T> out(n);
    std::memcpy(out.data(), bytes_.data() + at_, n * sizeof(T));
    at_ += n * sizeof(T);
    return out;
  }
  template <typename T>
  T one() {
    return take<T>(1).front();
  }
  std::size_t left() const { return bytes_.size() - at_; }

 private:
  std::vector<std::uint8_t> bytes_;
  std::size_t at_ = 0;
};

inline Dyn8Fixture read_dyn8_fixture() {
  std::ifstream file(std::string(SWARMLINE_SOURCE_DIR) + "/tests/fixtures/dyn8_bitsandbytes.bin",
                     std::ios::binary);
  ByteReader reader(std::vector<std::uint8_t>{std::istreambuf_iterator<char>(file), {}});
  Dyn8Fixture out;
  for (auto* book : {&out.signed_book, &out.unsigned_book}) {
    const auto values = reader.take<float>(book->size());
    std::copy(values.begin(), values.end(), book->begin());
  }
  const auto n = reader.one<std::uint32_t>();
  out.block = reader.one<std::uint32_t>();
  out.values = reader.take<float>(n);
  out.absmax = reader.take<float>((n + out.block - 1) / out.block);
  out.codes = reader.take<std::uint8_t>(n);
  out.decoded = reader.take<float>(n);
  out.hivemind_message = reader.take<std::uint8_t>(reader.one<std::uint32_t>());
  return out;
}
inline const Dyn8Fixture& dyn8_fixture() {
  static const Dyn8Fixture fixture = read_dyn8_fixture();
  return fixture;
}

}  // namespace swarmline::testing
