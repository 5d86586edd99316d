#include "tools/language/sample.h"

#include "tools/language/generate.h"
#include "tools/language/open_model.h"

namespace swarmline {

std::optional<std::string> short_sample(const std::string& run_folder) {
  const auto source = ModelSource::open(run_folder);
  if (!source || !TextTokens::of(*source)) return std::nullopt;
  std::uint64_t parameters = 0;
  for (const ParameterSlot& slot :
       make_layout(source->model(), whole_model(source->model(), {})).slots)
    parameters += slot.elements;
  if (parameters > kSampleParametersMax) return std::nullopt;
  auto open = open_model(run_folder, {});
  if (!open) return std::nullopt;
  std::string text;
  const auto made = generate(*open->model, open->tokens, "",
                             {.sampling = {.temperature = 0.7, .top_k = 40, .top_p = 1, .seed = 1},
                              .max_tokens = kSampleTokens,
                              .past_the_end = true},
                             [&](std::string_view part) { text += part; });
  if (!made) return std::nullopt;
  return text;
}

}  // namespace swarmline
