// How well a model predicts texts, and how often it finds the right one of several endings.
//   Thread: blocking. Errors: kUserMistake with file and line; those of the files and the model.
//   Bounds: kTextBytesMax a file, kChoicesMax endings a question, kQuestionBytesMax a line.
//   Source: perplexity and bits per byte in windows without overlap; multiple choice as in
//           EleutherAI's lm-evaluation-harness (acc, acc_norm).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "engine/model/language_model.h"
#include "tools/language/text_tokens.h"

namespace swarmline {

inline constexpr std::uint64_t kEvalTextBytesMax = 1 * kGiB;
inline constexpr std::size_t kChoicesMax = 64;
inline constexpr int kEvalFormat = 1;

struct TextEvaluation {
  std::uint64_t files = 0;
  std::uint64_t tokens = 0;  // predicted
  std::uint64_t bytes = 0;   // of text that they stand for
  double nats = 0;           // in all
  std::uint64_t right = 0;   // tokens that were the likeliest

  double loss() const { return nats / static_cast<double>(tokens); }
  double perplexity() const;
  double bits_per_byte() const;
};
// Each file is a document: its first token is predicted from the end of another, where the model
// has such a token, each other one from those before it in windows of the model's context.
Result<void> evaluate_text(LanguageModel& model, const TextTokens& tokens, const std::string& path,
                           TextEvaluation& sum);

struct ChoiceEvaluation {
  std::uint64_t questions = 0;
  std::uint64_t right = 0;             // by the sum of log probabilities
  std::uint64_t right_normalised = 0;  // by that per byte of the ending
};
// JSON lines with "context", "choices" (endings) and "answer" (which of them, from 0).
Result<void> evaluate_choices(LanguageModel& model, const TextTokens& tokens,
                              const std::string& path, ChoiceEvaluation& sum);

std::string to_text(const TextEvaluation& texts, const ChoiceEvaluation& choices);
std::string to_json(const std::string& model, const TextEvaluation& texts,
                    const ChoiceEvaluation& choices);  // docs/formats/eval.md

}  // namespace swarmline
