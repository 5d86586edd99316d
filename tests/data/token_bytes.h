// Token files as other programs write them. Header-only.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace swarmline {

template <typename T>
std::string raw_tokens(const std::vector<T>& tokens) {
  return {reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(T)};
}

inline std::string llmc_file(const std::vector<std::uint16_t>& tokens, std::int32_t count,
                             std::int32_t magic = 20240520, std::int32_t version = 1) {
  std::vector<std::int32_t> header(256, 0);
  header[0] = magic;
  header[1] = version;
  header[2] = count;
  return raw_tokens(header) + raw_tokens(tokens);
}

}  // namespace swarmline
