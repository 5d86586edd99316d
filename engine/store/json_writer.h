// Writes one JSON text front to back: commas, quotes and escapes are put where they belong.
//   Numbers:   doubles in the shortest form that reads back the same bits; NaN and infinities as
//   null. Bytes:     strings that are not UTF-8 keep their valid parts; each bad byte becomes
//   U+FFFD. Thread:    one. Misuse (a value without its key, an unclosed object) is a broken
//   invariant.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace swarmline {

class JsonWriter {
 public:
  // `indent_spaces` 0: everything on one line.
  explicit JsonWriter(int indent_spaces = 0) : indent_(indent_spaces) {}

  JsonWriter& begin_object() { return open('{'); }
  JsonWriter& end_object() { return close('{', '}'); }
  JsonWriter& begin_array() { return open('['); }
  JsonWriter& end_array() { return close('[', ']'); }
  JsonWriter& key(std::string_view name);

  JsonWriter& value(std::string_view text);
  JsonWriter& value(const char* text) { return value(std::string_view(text)); }
  JsonWriter& value(double number);
  JsonWriter& value(bool truth) { return raw(truth ? "true" : "false"); }
  JsonWriter& value(std::integral auto number) { return raw(std::to_string(number)); }
  JsonWriter& null() { return raw("null"); }
  // Nothing is null.
  template <typename T>
  JsonWriter& value(const std::optional<T>& content) {
    return content ? value(*content) : null();
  }
  template <typename T>
  JsonWriter& member(std::string_view name, const T& content) {
    return key(name).value(content);
  }

  // The finished text; everything opened must have been closed.
  std::string take();

 private:
  struct Level {
    char kind;
    bool empty = true;
  };
  JsonWriter& open(char bracket);
  JsonWriter& close(char opened, char bracket);
  JsonWriter& raw(std::string_view token);
  void before_value();
  void new_line();

  std::string text_;
  std::vector<Level> levels_;
  int indent_;
  bool after_key_ = false;
};

}  // namespace swarmline
