#include "tools/language/generate.h"

#include <algorithm>
#include <span>
#include <utility>

namespace swarmline {
namespace {

// Logits of what follows `text`, of which the model has read all but the last `unread` tokens.
Result<std::vector<float>> logits_behind(LanguageModel& model, std::span<const std::int32_t> text,
                                         std::size_t unread) {
  const std::size_t context = model.context();
  if (model.length() + unread > context || model.length() == 0) {
    model.restart();
    const std::size_t kept =
        text.size() <= context ? text.size() : std::max<std::size_t>(1, context / 2);
    return model.read(text.last(kept));
  }
  return model.read(text.last(unread));
}

}  // namespace

Result<std::vector<std::int32_t>> generate(LanguageModel& model, const TextTokens& tokens,
                                           const std::string& prompt,
                                           const GenerateOptions& options,
                                           const std::function<void(std::string_view)>& give) {
  auto encoded = tokens.encode(prompt);
  if (!encoded) return std::unexpected(std::move(encoded).error());
  std::vector<std::int32_t> text = std::move(*encoded);
  bool begins = text.empty();
  if (begins && tokens.document_begin()) text.push_back(*tokens.document_begin());
  if (text.empty()) return fail(ErrorCode::kUserMistake, "the prompt is empty; give some text");
  const std::size_t prompt_tokens = text.size();
  model.restart();
  std::size_t unread = text.size();
  while (text.size() < prompt_tokens + options.max_tokens) {
    auto logits = logits_behind(model, text, unread);
    if (!logits) return std::unexpected(std::move(logits).error());
    const std::int32_t token = pick_token(options.sampling, *logits, text.size() - prompt_tokens);
    if (tokens.document_end() == token && !options.past_the_end) break;
    text.push_back(token);
    unread = 1;
    give(tokens.text_of(token, std::exchange(begins, false)));
  }
  text.erase(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(prompt_tokens));
  return text;
}

}  // namespace swarmline
