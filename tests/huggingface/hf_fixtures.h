// Folders that transformers saved (scripts/make_huggingface_fixtures.py).
#pragma once

#include <string>

namespace swarmline::testing {

inline constexpr const char* kHfFixtures[] = {"gpt2",         "gpt2_untied", "llama",
                                              "llama_biases", "mistral",     "qwen3"};

inline std::string hf_fixture(const std::string& name) {
  return std::string(SWARMLINE_SOURCE_DIR) + "/tests/fixtures/huggingface/" + name;
}

}  // namespace swarmline::testing
