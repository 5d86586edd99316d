#include "tools/prepare/prepare_state.h"

#include <fmt/format.h>

#include "engine/store/json_value.h"
#include "engine/store/json_writer.h"

namespace swarmline {

// The manifest as it is written when it is finished, in an object around it.
std::string to_json(const PrepareState& state) {
  JsonWriter json;
  json.begin_object().member("format", kPreparedFormat);
  json.member("input", state.next.input).member("offset", state.next.offset);
  json.member("line", state.next.line).member("prepared", to_json(state.made));
  json.end_object();
  return json.take() + "\n";
}

Result<PrepareState> parse_prepare_state(std::string_view text, const std::string& path) {
  const auto damaged = [&] {
    return fail(
        ErrorCode::kUserMistake,
        fmt::format("{}: found no state of an unfinished preparation; remove the folder and "
                    "prepare it anew",
                    path));
  };
  const auto root = parse_json(text);
  if (!root || (*root)["format"].count() != kPreparedFormat) return damaged();
  const JsonValue& prepared = (*root)["prepared"];
  if (prepared.kind != JsonValue::Kind::kString || !(*root)["input"].is_number() ||
      !(*root)["offset"].is_number() || !(*root)["line"].is_number())
    return damaged();
  auto made = parse_prepared(prepared.string, path);
  if (!made) return std::unexpected(std::move(made).error());
  return PrepareState{.made = std::move(*made),
                      .next = {.input = (*root)["input"].count(),
                               .offset = (*root)["offset"].count(),
                               .line = (*root)["line"].count()}};
}

}  // namespace swarmline
