#include "tools/language/open_model.h"

#include <utility>

namespace swarmline {

Result<OpenModel> open_model(const std::string& name, const LanguageModelOptions& options,
                             const std::string& tokenizer) {
  auto source = ModelSource::open(name);
  if (!source) return std::unexpected(std::move(source).error());
  auto tokens = TextTokens::of(*source, tokenizer);
  if (!tokens) return std::unexpected(std::move(tokens).error());
  const ModelSpec& spec = source->model();
  StageSpec whole = whole_model(spec, {});
  whole.inner_boundaries = source->boundaries();
  SWARMLINE_TRY(source->check(spec, make_layout(spec, whole)));
  auto model = make_language_model(
      spec, source->boundaries(),
      [&](const ParameterSlot& slot, MutableBytes out) {
        source->read(slot.name, spec.shape.dtype, out);
      },
      options);
  if (!model) return std::unexpected(std::move(model).error());
  return OpenModel{std::move(*source), std::move(*tokens), std::move(*model)};
}

}  // namespace swarmline
