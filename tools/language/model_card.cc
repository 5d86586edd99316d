#include "tools/language/model_card.h"

#include <fmt/format.h>

namespace swarmline {

std::string model_card(const ModelSource& source, const std::optional<RunConfig>& run) {
  const ModelSpec& model = source.model();
  const auto architecture = architecture_of(model);
  std::string card =
      "---\nlibrary_name: transformers\npipeline_tag: text-generation\ntags:\n- swarmline\n---\n\n";
  card += fmt::format("# {}\n\n", source.manifest() ? source.manifest()->run : "A language model");
  card += fmt::format(
      "A {} of {} layers, {} wide, with {} attention heads, {} tokens of vocabulary and {} of "
      "context.\n",
      architecture ? std::string(class_name(*architecture)) : "model", model.shape.layers,
      model.shape.d_model, model.shape.heads, model.shape.vocab, model.sequence);
  if (source.manifest()) {
    const Manifest& manifest = *source.manifest();
    card += fmt::format("Trained with Swarmline for {} steps", manifest.step);
    if (manifest.tokens) card += fmt::format(" ({} tokens in all)", *manifest.tokens);
    card += fmt::format("; run `{}`", manifest.run);
    if (run && !run->run.init.empty())
      card += fmt::format(", which began with `{}`", run->run.init);
    card += ".\n";
  }
  card +=
      "\n```python\nfrom transformers import AutoModelForCausalLM\n\n"
      "model = AutoModelForCausalLM.from_pretrained(\".\")\n```\n";
  return card;
}

}  // namespace swarmline
