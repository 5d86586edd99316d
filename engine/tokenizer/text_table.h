// Numbers by text, by open addressing. The texts are somebody else's, and outlive it.
//   Thread: immutable once filled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace swarmline {

class TextTable {
 public:
  TextTable() : TextTable(0) {}
  explicit TextTable(std::size_t texts);

  // The first one counts where a text is put twice. No more than `texts`.
  void put(std::string_view text, std::uint32_t number);
  std::optional<std::uint32_t> find(std::string_view text) const;

 private:
  struct Entry {
    std::string_view text;
    std::uint32_t number = 0;
    bool used = false;
  };
  std::size_t place(std::string_view text) const;

  std::vector<Entry> entries_;  // a power of two, at most half full
};

}  // namespace swarmline
