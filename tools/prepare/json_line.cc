#include "tools/prepare/json_line.h"

#include <algorithm>

#include <boost/json/parse.hpp>
#include <fmt/format.h>

#include "base/printable.h"

namespace swarmline {

namespace {

namespace json = boost::json;

constexpr std::size_t kDepthMax = 64;
constexpr std::size_t kKeysShown = 8;
constexpr std::size_t kShownBytes = 40;

std::unexpected<Error> bad_line(std::string what) {
  return fail(ErrorCode::kUserMistake, std::move(what));
}

std::string keys_of(const json::object& object) {
  std::string names;
  std::size_t count = 0;
  for (const auto& [name, value] : object) {
    if (++count > kKeysShown) break;
    names += (names.empty() ? "" : ", ") + printable({name.data(), name.size()}, kShownBytes);
  }
  return names.empty() ? "nothing" : names;
}

}  // namespace

Result<std::string> text_of_json_line(std::string_view line, std::string_view key) {
  json::parse_options options;
  options.max_depth = kDepthMax;
  json::error_code error;
  const json::value value = json::parse({line.data(), line.size()}, error, {}, options);
  if (error)
    return bad_line(fmt::format("found no JSON ({}), expected an object a line", error.message()));
  if (!value.is_object()) return bad_line("found other JSON, expected an object a line");
  const json::value* text = value.get_object().if_contains({key.data(), key.size()});
  if (!text)
    return bad_line(fmt::format("found no \"{}\" among {}; name the key of the text by --text-key",
                                printable(key, kShownBytes), keys_of(value.get_object())));
  if (!text->is_string())
    return bad_line(
        fmt::format("found no text under \"{}\", expected a string; name another key by --text-key",
                    printable(key, kShownBytes)));
  return std::string(text->get_string());
}

}  // namespace swarmline
