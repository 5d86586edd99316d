#include "tools/language/evaluate.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <span>

#include <fmt/format.h>

#include "engine/store/files.h"
#include "engine/store/json_value.h"
#include "engine/store/json_writer.h"

namespace swarmline {
namespace {

// Standard error of a share, as a sample of more questions.
double error_of(double share, std::uint64_t count) {
  return count < 2 ? 0 : std::sqrt(share * (1 - share) / static_cast<double>(count - 1));
}

struct Question {
  std::string context;
  std::vector<std::string> choices;
  std::size_t answer = 0;
};

Result<Question> read_question(std::string_view line, const std::string& where) {
  auto root = parse_json(line);
  if (!root) return fail(ErrorCode::kUserMistake, fmt::format("{}: {}", where, root.error().what));
  using Kind = JsonValue::Kind;
  const JsonValue& context = (*root)["context"];
  const JsonValue& choices = (*root)["choices"];
  const JsonValue& answer = (*root)["answer"];
  Question question;
  const bool shaped = context.kind == Kind::kString && choices.kind == Kind::kArray &&
                      choices.items.size() >= 2 && choices.items.size() <= kChoicesMax &&
                      std::ranges::all_of(choices.items, [](const JsonValue& choice) {
                        return choice.kind == Kind::kString && !choice.string.empty();
                      });
  if (!shaped || !answer.is_number() || answer.number < 0 ||
      answer.number >= static_cast<double>(choices.items.size()) ||
      answer.number != std::floor(answer.number))
    return fail(ErrorCode::kUserMistake,
                fmt::format("{}: expected {{\"context\": TEXT, \"choices\": [2 to {} TEXTS], "
                            "\"answer\": NUMBER FROM 0}}",
                            where, kChoicesMax));
  question.context = context.string;
  for (const JsonValue& choice : choices.items) question.choices.push_back(choice.string);
  question.answer = static_cast<std::size_t>(answer.number);
  return question;
}

// log p of the ending behind the context, in nats.
Result<double> log_probability(LanguageModel& model, const TextTokens& tokens,
                               const std::string& context, const std::string& choice) {
  const auto before = tokens.encode(context);
  auto encoded = tokens.encode(context + choice);
  if (!before || !encoded) return std::unexpected(before ? encoded.error() : before.error());
  std::vector<std::int32_t>& all = *encoded;
  std::size_t ending = all.size() - std::min(all.size() - 1, before->size());
  if (before->empty()) {
    ending = all.size();
    if (tokens.document_begin()) all.insert(all.begin(), *tokens.document_begin());
  }
  ending = std::min(ending, all.size() - 1);
  std::span<const std::int32_t> read = all;
  if (read.size() > std::size_t{model.context()} + 1) read = read.last(model.context() + 1);
  auto parts = model.log_probabilities(read);
  if (!parts) return std::unexpected(std::move(parts).error());
  const std::size_t counted = std::min(ending, parts->size());
  return std::accumulate(parts->end() - static_cast<std::ptrdiff_t>(counted), parts->end(), 0.0);
}

Result<void> answer(LanguageModel& model, const TextTokens& tokens, const Question& question,
                    ChoiceEvaluation& sum) {
  std::size_t best = 0, best_normalised = 0;
  std::vector<double> values, normalised;
  for (const std::string& choice : question.choices) {
    auto value = log_probability(model, tokens, question.context, choice);
    if (!value) return std::unexpected(std::move(value).error());
    values.push_back(*value);
    normalised.push_back(*value / static_cast<double>(choice.size()));
    if (values.back() > values[best]) best = values.size() - 1;
    if (normalised.back() > normalised[best_normalised]) best_normalised = values.size() - 1;
  }
  ++sum.questions;
  sum.right += best == question.answer ? 1 : 0;
  sum.right_normalised += best_normalised == question.answer ? 1 : 0;
  return {};
}

}  // namespace

double TextEvaluation::perplexity() const {
  return std::exp(loss());
}
double TextEvaluation::bits_per_byte() const {
  return nats / std::numbers::ln2 / static_cast<double>(bytes);
}

Result<void> evaluate_text(LanguageModel& model, const TextTokens& tokens, const std::string& path,
                           TextEvaluation& sum) {
  auto file = MappedFile::open(path);
  if (!file) return std::unexpected(std::move(file).error());
  const std::string_view text = as_text((*file)->bytes());
  if (text.size() > kEvalTextBytesMax)
    return fail(ErrorCode::kUserMistake, fmt::format("{} has {} bytes; at most {} are evaluated",
                                                     path, text.size(), kEvalTextBytesMax));
  auto encoded = tokens.encode(text);
  if (!encoded) return std::unexpected(std::move(encoded).error());
  std::vector<std::int32_t>& all = *encoded;
  if (tokens.document_begin()) all.insert(all.begin(), *tokens.document_begin());
  std::vector<bool> likeliest;
  for (std::size_t at = 0; at + 1 < all.size(); at += model.context()) {
    const std::size_t count = std::min<std::size_t>(all.size() - at, model.context() + 1);
    auto parts = model.log_probabilities(std::span(all).subspan(at, count), &likeliest);
    if (!parts) return std::unexpected(std::move(parts).error());
    sum.nats -= std::accumulate(parts->begin(), parts->end(), 0.0);
    sum.tokens += parts->size();
    sum.right += static_cast<std::uint64_t>(std::ranges::count(likeliest, true));
  }
  ++sum.files;
  sum.bytes += text.size();
  return {};
}

Result<void> evaluate_choices(LanguageModel& model, const TextTokens& tokens,
                              const std::string& path, ChoiceEvaluation& sum) {
  auto file = MappedFile::open(path);
  if (!file) return std::unexpected(std::move(file).error());
  std::string_view text = as_text((*file)->bytes());
  for (std::uint64_t number = 1; !text.empty(); ++number) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text = end == text.npos ? std::string_view() : text.substr(end + 1);
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    const auto question = read_question(line, fmt::format("{}:{}", path, number));
    if (!question) return std::unexpected(question.error());
    SWARMLINE_TRY(answer(model, tokens, *question, sum));
  }
  return {};
}

std::string to_text(const TextEvaluation& texts, const ChoiceEvaluation& choices) {
  std::string out;
  if (texts.tokens > 0)
    out += fmt::format(
        "{} file{}: {} tokens, {} bytes\n"
        "  loss           {:.4f} nats a token\n"
        "  perplexity     {:.4f}\n"
        "  bits per byte  {:.4f}\n"
        "  accuracy       {:.2f} % of the tokens are the likeliest\n",
        texts.files, texts.files == 1 ? "" : "s", texts.tokens, texts.bytes, texts.loss(),
        texts.perplexity(), texts.bits_per_byte(),
        100.0 * static_cast<double>(texts.right) / static_cast<double>(texts.tokens));
  if (choices.questions == 0) return out;
  const auto share = [&](std::uint64_t right) {
    return static_cast<double>(right) / static_cast<double>(choices.questions);
  };
  const double plain = share(choices.right), normalised = share(choices.right_normalised);
  out += fmt::format(
      "{} question{}\n"
      "  accuracy             {:.2f} % +- {:.2f}\n"
      "  accuracy, by length  {:.2f} % +- {:.2f} (log probability per byte of the ending)\n",
      choices.questions, choices.questions == 1 ? "" : "s", 100 * plain,
      100 * error_of(plain, choices.questions), 100 * normalised,
      100 * error_of(normalised, choices.questions));
  return out;
}

std::string to_json(const std::string& model, const TextEvaluation& texts,
                    const ChoiceEvaluation& choices) {
  JsonWriter json(2);
  json.begin_object().member("format", kEvalFormat).member("model", model);
  if (texts.tokens > 0) {
    json.key("text").begin_object().member("files", texts.files).member("tokens", texts.tokens);
    json.member("bytes", texts.bytes).member("loss", texts.loss());
    json.member("perplexity", texts.perplexity()).member("bits_per_byte", texts.bits_per_byte());
    json.member("accuracy", static_cast<double>(texts.right) / static_cast<double>(texts.tokens));
    json.end_object();
  }
  if (choices.questions > 0) {
    const auto count = static_cast<double>(choices.questions);
    const double plain = static_cast<double>(choices.right) / count;
    const double normalised = static_cast<double>(choices.right_normalised) / count;
    json.key("choices").begin_object().member("questions", choices.questions);
    json.member("accuracy", plain).member("accuracy_error", error_of(plain, choices.questions));
    json.member("accuracy_normalised", normalised);
    json.member("accuracy_normalised_error", error_of(normalised, choices.questions)).end_object();
  }
  json.end_object();
  return json.take() + "\n";
}

}  // namespace swarmline
