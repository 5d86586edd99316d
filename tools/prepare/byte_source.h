// The bytes of one input from front to back: a file, unpacked where it is gzip or Zstandard, or
// standard input.
//   What:    what it is its first bytes say, not its name; several gzip members or Zstandard
//            frames, one behind another, are one stream.
//   Thread:  one. Errors: kUserMistake with the path: damaged or cut short; kIo, kNotFound.
//   Bounds:  a file is mapped; unpacking takes the libraries' windows (kZstdWindowLogMax).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace swarmline {

inline constexpr std::string_view kStandardInput = "-";

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Fills `out`, or as much as there is: less only at the end.
  virtual Result<std::size_t> read(std::span<char> out) = 0;
  // Bytes of the input itself that were taken so far, for progress.
  virtual std::uint64_t consumed() const = 0;
};

// Fills `out` from an open file or pipe: less only at its end. `what`: what it is, for errors.
Result<std::size_t> read_fully(int file, std::span<char> out, std::string_view what);

Result<std::unique_ptr<ByteSource>> open_byte_source(const std::string& path);
// Passes over so many bytes; kUserMistake where there are fewer.
Result<void> skip_bytes(ByteSource& source, std::uint64_t bytes, const std::string& path);

}  // namespace swarmline
