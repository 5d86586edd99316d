// Words of a measurement from outside: a kind, and bytes.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "tools/measure/meeting_words.h"

namespace swarmline {
namespace {

// What is taken is read again as it is written.
template <typename Word>
void expect_same(const Result<Word>& word, Result<Word> (*parse)(std::string_view)) {
  if (!word) return;
  const auto again = parse(encode(*word));
  SWARMLINE_CHECK(again && *again == *word);
}

}  // namespace
}  // namespace swarmline

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace swarmline;
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 7) {
    case 0:
      if (const auto hello = parse_meeting_hello(bytes); hello && hello->format == kMeetingFormat)
        expect_same(hello, parse_meeting_hello);
      break;
    case 1:
      expect_same(parse_link_task(bytes), parse_link_task);
      break;
    case 2:
      expect_same(parse_socket_task(bytes), parse_socket_task);
      break;
    case 3:
      expect_same(parse_member_task(bytes), parse_member_task);
      break;
    case 4:
      static_cast<void>(parse_member_line(bytes));
      break;
    case 5:
      static_cast<void>(parse_answer(bytes));
      break;
    default:
      static_cast<void>(parse_task_answer(bytes));
  }
  return 0;
}
