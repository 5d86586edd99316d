#include "engine/checkpoint/strict_json.h"

#include <set>
#include <string>
#include <vector>

#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/parse.hpp>
#include <fmt/format.h>

namespace swarmline {

namespace {

namespace json = boost::json;

// Boost.JSON keeps the last of two equal keys; two readers that choose differently would see two
// files.
class RepeatedKeyFinder {
 public:
  static constexpr std::size_t max_array_size = SIZE_MAX;
  static constexpr std::size_t max_object_size = SIZE_MAX;
  static constexpr std::size_t max_string_size = SIZE_MAX;
  static constexpr std::size_t max_key_size = SIZE_MAX;

  const std::string& repeated() const { return repeated_; }

  bool on_document_begin(json::error_code&) { return true; }
  bool on_document_end(json::error_code&) { return true; }
  bool on_object_begin(json::error_code&) {
    keys_.emplace_back();
    return true;
  }
  bool on_object_end(std::size_t, json::error_code&) {
    keys_.pop_back();
    return true;
  }
  bool on_array_begin(json::error_code&) { return true; }
  bool on_array_end(std::size_t, json::error_code&) { return true; }
  bool on_key_part(json::string_view part, std::size_t, json::error_code&) {
    key_.append(part.data(), part.size());
    return true;
  }
  bool on_key(json::string_view part, std::size_t, json::error_code& error) {
    key_.append(part.data(), part.size());
    if (!keys_.back().insert(key_).second) {
      repeated_ = key_;
      error = json::error::syntax;
      return false;
    }
    key_.clear();
    return true;
  }
  bool on_string_part(json::string_view, std::size_t, json::error_code&) { return true; }
  bool on_string(json::string_view, std::size_t, json::error_code&) { return true; }
  bool on_number_part(json::string_view, json::error_code&) { return true; }
  bool on_int64(std::int64_t, json::string_view, json::error_code&) { return true; }
  bool on_uint64(std::uint64_t, json::string_view, json::error_code&) { return true; }
  bool on_double(double, json::string_view, json::error_code&) { return true; }
  bool on_bool(bool, json::error_code&) { return true; }
  bool on_null(json::error_code&) { return true; }
  bool on_comment_part(json::string_view, json::error_code&) { return true; }
  bool on_comment(json::string_view, json::error_code&) { return true; }

 private:
  std::vector<std::set<std::string>> keys_;  // of the objects that are open
  std::string key_;
  std::string repeated_;
};

}  // namespace

Result<json::value> parse_strict_json(std::string_view text, std::string_view where) {
  json::parse_options options;
  options.max_depth = kJsonDepthMax;

  json::basic_parser<RepeatedKeyFinder> finder(options);
  json::error_code error;
  finder.write_some(false, text.data(), text.size(), error);
  if (!finder.handler().repeated().empty()) {
    return fail(ErrorCode::kCorrupt,
                fmt::format("{} has the key \"{}\" twice", where, finder.handler().repeated()));
  }
  json::value value;
  if (!error) value = json::parse(json::string_view(text.data(), text.size()), error, {}, options);
  if (error) {
    return fail(ErrorCode::kCorrupt, fmt::format("{} is no JSON: {}", where, error.message()));
  }
  return value;
}

}  // namespace swarmline
