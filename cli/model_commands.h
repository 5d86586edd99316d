// The commands about saved models; as those of commands.h.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

namespace swarmline {

// --tokenizer, of a command that reads or writes a model's text.
inline void add_tokenizer_flag(CLI::App& command, std::string& tokenizer) {
  command
      .add_option(
          "--tokenizer", tokenizer,
          "tokenizer.json, a SentencePiece model, a folder with one, or \"bytes\"; default: "
          "what lies beside the model, or in its run's data")
      ->type_name("FILE");
}

void add_export_command(CLI::App& app, int& exit_code);
void add_eval_command(CLI::App& app, int& exit_code);
void add_generate_command(CLI::App& app, int& exit_code);

}  // namespace swarmline
