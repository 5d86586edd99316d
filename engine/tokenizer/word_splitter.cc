#include "engine/tokenizer/word_splitter.h"

#include <array>
#include <optional>

#include <fmt/format.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/check.h"
#include "engine/tokenizer/utf8.h"

namespace swarmline {

namespace {

constexpr std::uint32_t kMatchLimit = 100'000'000;  // steps of one word
constexpr std::size_t kJitStackBytesMin = 32 << 10;
constexpr std::size_t kJitStackBytesMax = 8 << 20;
constexpr std::uint32_t kHeapKiBMax = 256 << 10;

// PCRE2's \s has U+180E, too, which Unicode does not count as white space any more.
#define SPACE "\\p{White_Space}"
#define NOT_SPACE "\\P{White_Space}"
#define CONTRACTIONS "'s|'t|'re|'ve|'m|'ll|'d"

// What Unicode 15, 15.1 and 16 added: `tokenizers` 0.23 knows Unicode 16, PCRE2 10.42 Unicode 14.
#define NEWER_LETTERS                                                                    \
  "\\x{1C89}-\\x{1C8A}\\x{A7CB}-\\x{A7CD}\\x{A7DA}-\\x{A7DC}\\x{105C0}-\\x{105F3}"       \
  "\\x{10D4A}-\\x{10D65}\\x{10D6F}-\\x{10D85}\\x{10EC2}-\\x{10EC4}\\x{1123F}-\\x{11240}" \
  "\\x{11380}-\\x{11389}\\x{1138B}\\x{1138E}\\x{11390}-\\x{113B5}\\x{113B7}\\x{113D1}"   \
  "\\x{113D3}\\x{11BC0}-\\x{11BE0}\\x{11F02}\\x{11F04}-\\x{11F10}\\x{11F12}-\\x{11F33}"  \
  "\\x{1342F}\\x{13441}-\\x{13446}\\x{13460}-\\x{143FA}\\x{16100}-\\x{1611D}"            \
  "\\x{16D40}-\\x{16D6C}\\x{18CFF}\\x{1B132}\\x{1B155}\\x{1DF25}-\\x{1DF2A}"             \
  "\\x{1E030}-\\x{1E06D}\\x{1E4D0}-\\x{1E4EB}\\x{1E5D0}-\\x{1E5ED}\\x{1E5F0}\\x{2B739}"  \
  "\\x{2EBF0}-\\x{2EE5D}\\x{31350}-\\x{323AF}"
#define NEWER_NUMBERS                                                                    \
  "\\x{10D40}-\\x{10D49}\\x{116D0}-\\x{116E3}\\x{11BF0}-\\x{11BF9}\\x{11F50}-\\x{11F59}" \
  "\\x{16130}-\\x{16139}\\x{16D70}-\\x{16D79}\\x{1CCF0}-\\x{1CCF9}\\x{1D2C0}-\\x{1D2D3}" \
  "\\x{1E4F0}-\\x{1E4F9}\\x{1E5F1}-\\x{1E5FA}"
// What stands in a class: ASCII first, which is looked up in a bitmap.
#define LETTERS "A-Za-z\\p{L}" NEWER_LETTERS
#define NUMBERS "0-9\\p{N}" NEWER_NUMBERS

struct Known {
  WordRule rule;
  std::string_view name;
  std::string_view published;  // as tokenizer.json has it
  const char* pattern;         // the same for PCRE2
};

constexpr std::array kKnown = {
    Known{WordRule::kGpt2, "GPT-2",
          R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
          CONTRACTIONS "| ?[" LETTERS "]+| ?[" NUMBERS "]+| ?[^" SPACE LETTERS NUMBERS "]+|" SPACE
                       "+(?!" NOT_SPACE ")|" SPACE "+"},
    Known{WordRule::kLlama3, "Llama 3",
          R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
          R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
          "(?i:" CONTRACTIONS ")|[^\\r\\n" LETTERS NUMBERS "]?[" LETTERS "]+|[" NUMBERS
          "]{1,3}| ?[^" SPACE LETTERS NUMBERS "]+[\\r\\n]*|" SPACE "*[\\r\\n]+|" SPACE
          "+(?!" NOT_SPACE ")|" SPACE "+"},
    Known{WordRule::kQwen2, "Qwen 2",
          R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
          R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
          "(?i:" CONTRACTIONS ")|[^\\r\\n" LETTERS NUMBERS "]?[" LETTERS "]+|[" NUMBERS
          "]| ?[^" SPACE LETTERS NUMBERS "]+[\\r\\n]*|" SPACE "*[\\r\\n]+|" SPACE "+(?!" NOT_SPACE
          ")|" SPACE "+"}};

#undef LETTERS
#undef NUMBERS
#undef NEWER_LETTERS
#undef NEWER_NUMBERS
#undef SPACE
#undef NOT_SPACE
#undef CONTRACTIONS

const Known& known(WordRule rule) {
  for (const Known& one : kKnown)
    if (one.rule == rule) return one;
  SWARMLINE_CHECK_MSG(false, "a rule without a pattern");
  return kKnown.front();
}

}  // namespace

std::optional<WordRule> find_word_rule(std::string_view pattern) {
  for (const Known& one : kKnown)
    if (one.published == pattern) return one.rule;
  return std::nullopt;
}

std::string_view to_string(WordRule rule) {
  return known(rule).name;
}

struct WordPattern::State {
  pcre2_code* code = nullptr;
  bool compiled = false;  // to machine code
};

WordPattern::WordPattern(WordRule rule) : state_(std::make_unique<State>()) {
  int error = 0;
  PCRE2_SIZE where = 0;
  state_->code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(known(rule).pattern), PCRE2_ZERO_TERMINATED,
                    PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &error, &where, nullptr);
  SWARMLINE_CHECK_MSG(state_->code != nullptr, "PCRE2 10.40 or newer understands the patterns");
  state_->compiled = pcre2_jit_compile(state_->code, PCRE2_JIT_COMPLETE) == 0;
}

WordPattern::~WordPattern() {
  pcre2_code_free(state_->code);
}

struct WordSplitter::State {
  pcre2_match_data* data = nullptr;
  pcre2_match_context* context = nullptr;
  pcre2_jit_stack* stack = nullptr;
};

WordSplitter::WordSplitter(std::shared_ptr<const WordPattern> pattern)
    : pattern_(std::move(pattern)), state_(std::make_unique<State>()) {
  state_->data = pcre2_match_data_create(1, nullptr);
  state_->context = pcre2_match_context_create(nullptr);
  state_->stack = pcre2_jit_stack_create(kJitStackBytesMin, kJitStackBytesMax, nullptr);
  SWARMLINE_CHECK(state_->data && state_->context);
  pcre2_set_match_limit(state_->context, kMatchLimit);
  pcre2_set_heap_limit(state_->context, kHeapKiBMax);
  if (state_->stack) pcre2_jit_stack_assign(state_->context, nullptr, state_->stack);
}

WordSplitter::~WordSplitter() {
  pcre2_jit_stack_free(state_->stack);
  pcre2_match_context_free(state_->context);
  pcre2_match_data_free(state_->data);
}

void WordSplitter::begin(std::string_view text) {
  text_ = text;
  at_ = 0;
}

// The end of the match that begins here; where there is none, of the character.
Result<std::size_t> WordSplitter::match_end() {
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text_.data());
  const pcre2_code* code = pattern_->state_->code;
  int matched = PCRE2_ERROR_JIT_STACKLIMIT;
  if (pattern_->state_->compiled)
    matched = pcre2_jit_match(code, subject, text_.size(), at_, 0, state_->data, state_->context);
  if (matched == PCRE2_ERROR_JIT_STACKLIMIT)
    matched = pcre2_match(code, subject, text_.size(), at_, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                          state_->data, state_->context);
  if (matched == PCRE2_ERROR_NOMATCH) return at_ + first_code_point(text_.substr(at_)).bytes;
  if (matched < 0) {
    std::array<PCRE2_UCHAR, 256> why{};
    pcre2_get_error_message(matched, why.data(), why.size());
    return fail(ErrorCode::kUserMistake,
                fmt::format("a word at byte {} of a text is too much for the pre-tokenizer: {}",
                            at_, reinterpret_cast<const char*>(why.data())));
  }
  return pcre2_get_ovector_pointer(state_->data)[1];
}

Result<std::string_view> WordSplitter::next() {
  if (at_ == text_.size()) return std::string_view();
  const Result<std::size_t> end = match_end();
  if (!end) return std::unexpected(end.error());
  const std::string_view word = text_.substr(at_, *end - at_);
  at_ = *end;
  return word;
}

}  // namespace swarmline
