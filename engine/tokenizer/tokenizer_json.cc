#include "engine/tokenizer/tokenizer_json.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "base/printable.h"
#include "engine/store/strict_json.h"
#include "engine/tokenizer/byte_alphabet.h"
#include "engine/tokenizer/text_table.h"

namespace swarmline {

namespace {

namespace json = boost::json;

constexpr std::size_t kShownBytes = 80;
constexpr std::size_t kAddedMax = 65'536;
constexpr std::uint32_t kHolesMax = 65'536;  // numbers without a token

const json::value kNull;

const json::value& member(const json::value& object, std::string_view name) {
  if (!object.is_object()) return kNull;
  const json::value* found = object.get_object().if_contains(name);
  return found ? *found : kNull;
}

std::string_view text_of(const json::value& value) {
  if (!value.is_string()) return {};
  return {value.get_string().data(), value.get_string().size()};
}

bool is_true(const json::value& value) {
  return value.is_bool() && value.get_bool();
}

std::string shown(std::string_view text) {
  return printable(text, kShownBytes);
}

// Null, false, 0 or "": a setting that is off.
bool is_off(const json::value& value) {
  return value.is_null() || (value.is_bool() && !value.get_bool()) ||
         (value.is_string() && value.get_string().empty()) ||
         (value.is_number() && value.to_number<double>() == 0);
}

std::size_t size_of(const json::value& value) {
  if (value.is_object()) return value.get_object().size();
  return value.is_array() ? value.get_array().size() : 0;
}

std::optional<std::uint32_t> token_number(const json::value& value, std::size_t max) {
  json::error_code error;
  const auto number = value.to_number<std::uint32_t>(error);
  return error || number >= max ? std::nullopt : std::optional(number);
}

class Reader {
 public:
  Reader(const json::value& root, std::string_view where)
      : root_(root),
        where_(where),
        numbers_max_(std::min<std::size_t>(
            kVocabularyMax, size_of(member(member(root, "model"), "vocab")) +
                                size_of(member(root, "added_tokens")) + kHolesMax)) {}

  Result<TokenizerJson> read() {
    SWARMLINE_TRY(read_normalizer(member(root_, "normalizer")));
    SWARMLINE_TRY(read_pre_tokenizer(member(root_, "pre_tokenizer")));
    SWARMLINE_TRY(read_decoder(member(root_, "decoder")));
    const json::value& model = member(root_, "model");
    SWARMLINE_TRY(check_model(model));
    SWARMLINE_TRY(read_vocabulary(member(model, "vocab")));
    SWARMLINE_TRY(read_merges(member(model, "vocab"), member(model, "merges")));
    SWARMLINE_TRY(read_added(member(root_, "added_tokens")));
    return std::move(out_);
  }

 private:
  std::unexpected<Error> mistake(std::string_view sentence) const {
    return fail(ErrorCode::kUserMistake, fmt::format("{}: {}", where_, sentence));
  }
  std::unexpected<Error> unsupported(std::string_view what, std::string_view found,
                                     std::string_view expected) const {
    return mistake(fmt::format("found {} {}, expected {}; no other is supported", what,
                               found.empty() ? "none" : "\"" + shown(found) + "\"", expected));
  }

  Result<void> read_normalizer(const json::value& normalizer);
  Result<void> read_pre_tokenizer(const json::value& splitter);
  Result<void> read_split(const json::value& split);
  Result<void> read_byte_level(const json::value& level, bool alone);
  Result<void> read_decoder(const json::value& decoder);
  Result<void> check_model(const json::value& model);
  Result<void> read_vocabulary(const json::value& vocab);
  Result<void> read_merges(const json::value& vocab, const json::value& merges);
  Result<void> read_added(const json::value& added);

  const json::value& root_;
  std::string_view where_;
  std::size_t numbers_max_;
  TokenizerJson out_;
};

Result<void> Reader::read_normalizer(const json::value& normalizer) {
  if (normalizer.is_null()) return {};
  const std::string_view type = text_of(member(normalizer, "type"));
  if (type == "NFC") {
    out_.composes = true;
    return {};
  }
  const json::value& several = member(normalizer, "normalizers");
  if (type != "Sequence" || !several.is_array())
    return unsupported("the normalizer", type, "none or \"NFC\"");
  for (const json::value& one : several.get_array()) SWARMLINE_TRY(read_normalizer(one));
  return {};
}

Result<void> Reader::read_byte_level(const json::value& level, bool alone) {
  const json::value& use_regex = member(level, "use_regex");
  const bool splits = use_regex.is_null() || is_true(use_regex);  // older files do not say
  const bool prefix = is_true(member(level, "add_prefix_space"));
  if (splits != alone)
    return mistake(
        "found a pre_tokenizer \"ByteLevel\" whose use_regex does not fit what is beside it, "
        "expected true where it is alone and false behind \"Split\"; no other is supported");
  if (prefix && !alone)
    return mistake(
        "found add_prefix_space behind a pre_tokenizer \"Split\", expected false; no other is "
        "supported");
  out_.adds_prefix_space = prefix;
  return {};
}

Result<void> Reader::read_split(const json::value& split) {
  const std::string_view pattern = text_of(member(member(split, "pattern"), "Regex"));
  const auto rule = find_word_rule(pattern);
  if (!rule)
    return unsupported("the pre_tokenizer's pattern", pattern, "GPT-2's, Llama 3's or Qwen 2's");
  if (text_of(member(split, "behavior")) != "Isolated" || is_true(member(split, "invert")))
    return unsupported("the pre_tokenizer's behavior", text_of(member(split, "behavior")),
                       "\"Isolated\", not inverted");
  out_.rule = *rule;
  return {};
}

Result<void> Reader::read_pre_tokenizer(const json::value& splitter) {
  constexpr std::string_view kExpected = "\"ByteLevel\", or \"Split\" and then \"ByteLevel\"";
  const std::string_view type = text_of(member(splitter, "type"));
  if (type == "ByteLevel") return read_byte_level(splitter, true);
  if (type != "Sequence") return unsupported("the pre_tokenizer", type, kExpected);
  const json::value& several = member(splitter, "pretokenizers");
  if (!several.is_array()) return unsupported("the pre_tokenizer", type, kExpected);
  const json::array& steps = several.get_array();
  std::string types;
  for (const json::value& step : steps)
    types += (types.empty() ? "" : ", ") + std::string(text_of(member(step, "type")));
  if (types == "ByteLevel") return read_byte_level(steps[0], true);
  if (types != "Split, ByteLevel") return unsupported("the pre_tokenizer", types, kExpected);
  SWARMLINE_TRY(read_split(steps[0]));
  return read_byte_level(steps[1], false);
}

Result<void> Reader::read_decoder(const json::value& decoder) {
  const std::string_view type = text_of(member(decoder, "type"));
  if (decoder.is_null() || type == "ByteLevel") return {};
  return unsupported("the decoder", type, "\"ByteLevel\"");
}

Result<void> Reader::check_model(const json::value& model) {
  const std::string_view type = text_of(member(model, "type"));
  if (!model.is_object() || (!type.empty() && type != "BPE") ||
      (type.empty() && member(model, "merges").is_null()))
    return unsupported("a model of type", type, "\"BPE\"");
  for (const std::string_view setting :
       {"dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"}) {
    if (!is_off(member(model, setting)))
      return mistake(
          fmt::format("found {} in the BPE model, expected none; no other is supported", setting));
  }
  out_.bpe.ignore_merges = is_true(member(model, "ignore_merges"));
  return {};
}

Result<void> Reader::read_vocabulary(const json::value& vocab) {
  if (!vocab.is_object() || vocab.get_object().empty())
    return mistake("found no vocabulary in the model, expected \"vocab\" with tokens");
  std::vector<std::string>& pieces = out_.bpe.pieces;
  for (const auto& [name, value] : vocab.get_object()) {
    const auto number = token_number(value, numbers_max_);
    if (!number)
      return mistake(fmt::format("found no number of token \"{}\", expected one below {}",
                                 shown({name.data(), name.size()}), numbers_max_));
    if (*number >= pieces.size()) pieces.resize(*number + 1);
    const std::string_view text(name.data(), name.size());
    auto bytes = bytes_of_piece(text);
    if (bytes && !bytes->empty() && pieces[*number].empty())
      pieces[*number] = std::move(*bytes);
    else
      out_.names.emplace_back(*number, std::string(text));
  }
  return {};
}

Result<void> Reader::read_merges(const json::value& vocab, const json::value& merges) {
  if (!merges.is_array()) return mistake("found no merges in the model, expected a list of them");
  TextTable numbers(vocab.get_object().size());
  for (const auto& [name, value] : vocab.get_object())
    numbers.put({name.data(), name.size()}, *token_number(value, numbers_max_));
  for (const json::value& merge : merges.get_array()) {
    std::string_view left, right;
    if (merge.is_array() && merge.get_array().size() == 2) {
      left = text_of(merge.get_array()[0]);
      right = text_of(merge.get_array()[1]);
    } else if (const std::string_view both = text_of(merge); !both.empty()) {
      const std::size_t blank = both.find(' ');
      left = both.substr(0, blank);
      if (blank != std::string_view::npos) right = both.substr(blank + 1);
    }
    const std::string joined = std::string(left) + std::string(right);
    const auto a = numbers.find(left), b = numbers.find(right), made = numbers.find(joined);
    if (left.empty() || right.empty() || !a || !b || !made)
      return mistake(fmt::format(
          "found a merge of \"{}\" and \"{}\", expected tokens of the vocabulary that make a third",
          shown(left), shown(right)));
    out_.bpe.merges.push_back({.left = *a, .right = *b, .merged = *made});
  }
  return {};
}

Result<void> Reader::read_added(const json::value& added) {
  if (added.is_null()) return {};
  if (!added.is_array() || added.get_array().size() > kAddedMax)
    return mistake(fmt::format("found no list in added_tokens, expected at most {}", kAddedMax));
  for (const json::value& value : added.get_array()) {
    const auto number = token_number(member(value, "id"), numbers_max_);
    const std::string_view text = text_of(member(value, "content"));
    if (!number || text.empty())
      return mistake("found an added token without a number or content, expected both");
    if (is_true(member(value, "single_word")))
      return mistake(fmt::format(
          "found single_word in the added token \"{}\", expected false; no other is supported",
          shown(text)));
    out_.added.push_back({.id = *number,
                          .text = std::string(text),
                          .special = is_true(member(value, "special")),
                          .strips_left = is_true(member(value, "lstrip")),
                          .strips_right = is_true(member(value, "rstrip")),
                          .in_normalized = is_true(member(value, "normalized"))});
    out_.names.emplace_back(*number, std::string(text));
    if (*number >= out_.bpe.pieces.size()) out_.bpe.pieces.resize(*number + 1);
  }
  return {};
}

}  // namespace

Result<TokenizerJson> parse_tokenizer_json(std::string_view text, std::string_view where) {
  const auto root = parse_strict_json(text, where);
  if (!root) return fail(ErrorCode::kUserMistake, root.error().what);
  if (!root->is_object())
    return fail(ErrorCode::kUserMistake,
                fmt::format("{}: found other JSON, expected a tokenizer.json", where));
  return Reader(*root, where).read();
}

std::string document_end_of(std::string_view tokenizer_config) {
  const auto root = parse_strict_json(tokenizer_config, "tokenizer_config.json");
  if (!root) return {};
  const json::value& end = member(*root, "eos_token");
  return std::string(text_of(end.is_object() ? member(end, "content") : end));
}

}  // namespace swarmline
