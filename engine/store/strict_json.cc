#include "engine/store/strict_json.h"

#include <charconv>
#include <set>
#include <string>
#include <vector>

#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/value_stack.hpp>
#include <fmt/format.h>

namespace swarmline {

namespace {

namespace json = boost::json;

// Builds the value, and is stricter than Boost.JSON's own builder: that one keeps the last of two
// equal keys (two readers that choose differently would see two files), and gives a number of many
// digits an ulp or two off (what is written would not be what is read back).
class StrictBuilder {
 public:
  static constexpr std::size_t max_array_size = SIZE_MAX;
  static constexpr std::size_t max_object_size = SIZE_MAX;
  static constexpr std::size_t max_string_size = SIZE_MAX;
  static constexpr std::size_t max_key_size = SIZE_MAX;

  const std::string& repeated() const { return repeated_; }
  json::value release() { return stack_.release(); }

  bool on_document_begin(json::error_code&) {
    stack_.reset();
    return true;
  }
  bool on_document_end(json::error_code&) { return true; }
  bool on_object_begin(json::error_code&) {
    keys_.emplace_back();
    return true;
  }
  bool on_object_end(std::size_t members, json::error_code&) {
    keys_.pop_back();
    stack_.push_object(members);
    return true;
  }
  bool on_array_begin(json::error_code&) { return true; }
  bool on_array_end(std::size_t items, json::error_code&) {
    stack_.push_array(items);
    return true;
  }
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
    stack_.push_key(key_);
    key_.clear();
    return true;
  }
  bool on_string_part(json::string_view part, std::size_t, json::error_code&) {
    stack_.push_chars(part);
    return true;
  }
  bool on_string(json::string_view part, std::size_t, json::error_code&) {
    stack_.push_string(part);
    return true;
  }
  bool on_number_part(json::string_view part, json::error_code&) {
    number_.append(part.data(), part.size());
    return true;
  }
  bool on_int64(std::int64_t number, json::string_view, json::error_code&) {
    number_.clear();
    stack_.push_int64(number);
    return true;
  }
  bool on_uint64(std::uint64_t number, json::string_view, json::error_code&) {
    number_.clear();
    stack_.push_uint64(number);
    return true;
  }
  bool on_double(double rough, json::string_view part, json::error_code&) {
    number_.append(part.data(), part.size());
    // Left as it is beyond what a double holds: infinity or 0, which the reader judges by its key.
    std::from_chars(number_.data(), number_.data() + number_.size(), rough);
    number_.clear();
    stack_.push_double(rough);
    return true;
  }
  bool on_bool(bool truth, json::error_code&) {
    stack_.push_bool(truth);
    return true;
  }
  bool on_null(json::error_code&) {
    stack_.push_null();
    return true;
  }
  bool on_comment_part(json::string_view, json::error_code&) { return true; }
  bool on_comment(json::string_view, json::error_code&) { return true; }

 private:
  json::value_stack stack_;
  std::vector<std::set<std::string>> keys_;  // of the objects that are open
  std::string key_;
  std::string number_;
  std::string repeated_;
};

}  // namespace

Result<json::value> parse_strict_json(std::string_view text, std::string_view where) {
  json::parse_options options;
  options.max_depth = kJsonDepthMax;

  json::basic_parser<StrictBuilder> parser(options);
  json::error_code error;
  const std::size_t read = parser.write_some(false, text.data(), text.size(), error);
  if (!parser.handler().repeated().empty()) {
    return fail(ErrorCode::kCorrupt,
                fmt::format("{} has the key \"{}\" twice", where, parser.handler().repeated()));
  }
  if (!error && read < text.size()) error = json::error::extra_data;
  if (error) {
    return fail(ErrorCode::kCorrupt, fmt::format("{} is no JSON: {}", where, error.message()));
  }
  return parser.handler().release();
}

}  // namespace swarmline
