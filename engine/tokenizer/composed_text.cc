#include "engine/tokenizer/composed_text.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>
#include <utf8proc.h>

#include "base/check.h"

namespace swarmline {

namespace {

// No character below U+0300 changes in NFC, nor by what is beside it.
constexpr unsigned char kFirstLeadThatMay = 0xCC;

}  // namespace

std::string_view composed(std::string_view text, std::string& room) {
  if (std::ranges::none_of(
          text, [](char c) { return static_cast<unsigned char>(c) >= kFirstLeadThatMay; }))
    return text;
  utf8proc_uint8_t* made = nullptr;
  const utf8proc_ssize_t bytes =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &made,
                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  if (bytes == UTF8PROC_ERROR_NOMEM) throw std::bad_alloc();
  SWARMLINE_CHECK_MSG(bytes >= 0, "valid UTF-8 has a composed form");
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(made, &std::free);
  room.assign(reinterpret_cast<const char*>(made), static_cast<std::size_t>(bytes));
  return room;
}

}  // namespace swarmline
