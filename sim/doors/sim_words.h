// What the ends of a simulated link with keys say to each other before it is anybody's: plain
// values, in the place of TLS's own messages and of the words of link_guard.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/result.h"

namespace swarmline {

struct SimWords {
  enum class What : std::uint8_t {
    kHello,    // of who dials: it begins
    kShown,    // of who was dialled: its key
    kOpening,  // of who dials: its own key, and the guard's words
    kAnswer,   // of who was dialled: it is admitted
    kRefusal,  // of who was dialled: it is not
    kAlert,    // of who dials: it does not take that key
  };
  What what = What::kHello;
  std::string public_key = {};  // raw
  std::string vouchers = {};    // beside it
  std::string words = {};       // of the guard, or a sentence
  ErrorCode code{};             // of a refusal, as who dialled has it

  // About what TLS's own messages have.
  std::size_t bytes() const { return 250 + public_key.size() + vouchers.size() + words.size(); }
};

}  // namespace swarmline
