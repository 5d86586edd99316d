// A run's key in its file, with what the keys before it have said (handover.h) behind its PEM: one
// file, so that a rotation is there whole or not at all.
//   Thread: any; blocking. Errors: those of key_file.h and secret_file.h; kUserMistake where a
//           rotation is not to be: a sentence that says until when.
//   Bounds: kKeyFileBytesMax; kHandoversMax that hold, kHandoversKept in the file.
#pragma once

#include <string>
#include <vector>

#include "node/admission/handover.h"

namespace swarmline {

inline constexpr std::size_t kHandoversKept = 16;

struct RunKey {
  Identity identity;
  std::vector<Handover> handovers = {};  // that led to it, oldest first
};

// kUserMistake where what stands behind the key does not lead to it.
Result<RunKey> parse_run_key(std::string_view text, const std::string& where);
std::string to_text(const RunKey& key);
// The key that comes after it: `into`.
Result<RunKey> rotated(const RunKey& key, const std::string& run, double now,
                       double overlap_seconds, Identity into = Identity::make());

Result<RunKey> load_run_key(const std::string& path);
Result<RunKey> load_or_make_run_key(const std::string& path);
// Makes the next key of the run, and has it in the file once this returns. Of two that do it at
// once, one comes after the other.
Result<RunKey> rotate_run_key(const std::string& path, const std::string& run, double now,
                              double overlap_seconds);

}  // namespace swarmline
