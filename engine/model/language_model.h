// A whole model that reads text and says what comes next: what evaluates and samples a saved one.
// libtorch is underneath and stays there.
//   Shapes:    tokens are numbers below vocab(); a sequence has at most context() of them.
//   Ownership: owns its parameters and the keys and values of the sequence that it reads.
//   Thread:    one at a time. Errors: kDevice with libtorch's sentence; kUserMistake for a device
//              this machine or build does not have.
//   Bounds:    context() tokens; of a token beyond the vocabulary, kUserMistake.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "engine/model/model_spec.h"

namespace swarmline {

class LanguageModel {
 public:
  virtual ~LanguageModel() = default;
  virtual std::uint32_t vocab() const = 0;
  virtual std::uint32_t context() const = 0;

  // Forgets the sequence.
  virtual void restart() = 0;
  virtual std::uint32_t length() const = 0;
  // Adds tokens to the sequence (at least one; it still fits) and gives the logits of the next one.
  virtual Result<std::vector<float>> read(std::span<const std::int32_t> tokens) = 0;
  // Of a text of its own: log p(tokens[i + 1] | tokens[0..i]), in nats, for each i. The sequence is
  // forgotten. `greedy`, if there, gets for each whether no token is likelier.
  virtual Result<std::vector<double>> log_probabilities(std::span<const std::int32_t> tokens,
                                                        std::vector<bool>* greedy = nullptr) = 0;
};

struct LanguageModelOptions {
  std::string device = "cpu";  // "cpu" | "cuda" | "cuda:N"
  int threads = 1;             // intra-op threads of this process
};
// Gives a parameter's values, row-major, in the model's dtype.
using FillParameter = std::function<void(const ParameterSlot& slot, MutableBytes out)>;
// `boundaries`: layers behind a learned boundary.
Result<std::unique_ptr<LanguageModel>> make_language_model(
    const ModelSpec& spec, const std::vector<std::uint32_t>& boundaries, const FillParameter& fill,
    const LanguageModelOptions& options);

}  // namespace swarmline
