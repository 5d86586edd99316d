// Pre-tokenizers of byte-level BPE: text into words, which are merged each by itself.
//   What:      the patterns of GPT-2, of Llama 3 and of Qwen 2 and 3, as `tokenizers` applies them
//              (each match a word; they match everything), on PCRE2 with Unicode's classes.
//   Ownership: a WordPattern is compiled once and shared; a WordSplitter is one thread's.
//   Thread:    WordPattern immutable.
//   Errors:    kUserMistake where a word takes the library beyond its bounds (kMatchLimit,
//              kJitStackBytesMax, then kHeapKiBMax without the compiler); no known text does.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "base/result.h"

namespace swarmline {

enum class WordRule : std::uint8_t { kGpt2, kLlama3, kQwen2 };

// The rule whose pattern, as tokenizer.json has it, this is.
std::optional<WordRule> find_word_rule(std::string_view pattern);
std::string_view to_string(WordRule rule);

class WordPattern {
 public:
  explicit WordPattern(WordRule rule);
  ~WordPattern();
  WordPattern(const WordPattern&) = delete;
  WordPattern& operator=(const WordPattern&) = delete;

 private:
  friend class WordSplitter;
  struct State;
  std::unique_ptr<State> state_;
};

class WordSplitter {
 public:
  explicit WordSplitter(std::shared_ptr<const WordPattern> pattern);
  ~WordSplitter();

  void begin(std::string_view text);  // valid UTF-8, which outlives the walk
  // The next word; empty at the end.
  Result<std::string_view> next();

 private:
  Result<std::size_t> match_end();

  std::shared_ptr<const WordPattern> pattern_;
  struct State;
  std::unique_ptr<State> state_;
  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace swarmline
