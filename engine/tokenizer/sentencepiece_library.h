// SentencePiece's library, opened at run time and kept apart: Debian's holds an old Protocol
// Buffers of its own, and exports it; linked beside ours, one of the two would call into the other.
//   Ownership: opened once a process, never closed. Thread: any; a processor is immutable.
//   Errors:    kUserMistake: this machine lacks it, in one sentence.
#pragma once

#include <memory>
#include <string_view>

#include "base/result.h"

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace swarmline {

class SentencePieceLibrary {
 public:
  static Result<const SentencePieceLibrary*> open();

  struct Deleter {
    void operator()(sentencepiece::SentencePieceProcessor* processor) const;
  };
  using Processor = std::unique_ptr<sentencepiece::SentencePieceProcessor, Deleter>;
  // Null: these bytes are no model.
  Processor load(std::string_view model) const;

 private:
  struct Status;
  using Construct = void (*)(void* room);
  using Load = Status (*)(sentencepiece::SentencePieceProcessor*, std::string_view);
  using DestroyStatus = void (*)(Status*);

  Construct construct_ = nullptr;
  Load load_ = nullptr;
  DestroyStatus destroy_status_ = nullptr;
};

}  // namespace swarmline
