// Where documents lie in a microbatch, so that attention stays within them.
//   Rule:    a sequence's first token begins a document, and so does each separator behind it: what
//            of a document continues from the sequence before is a document of its own. The next
//            tokens say all of it: targets[t] is the token at position t + 1.
//   Spans:   stretches of whole documents that attention computes at once, over the tokens of all
//            rows in a row: a document of `together` tokens or more alone, shorter neighbours until
//            they have as many.
//   Bounds:  a span of several documents has less than 2 `together` tokens.
//   Thread:  pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace swarmline {

// On a CPU a call costs little and work is dear, on a CUDA device the other way round. At least 1.
inline constexpr std::int64_t kTogetherOnCpu = 128;
inline constexpr std::int64_t kTogetherOnCuda = 1024;

struct DocumentSpan {
  std::int64_t tokens = 0;
  std::vector<std::int64_t> documents;  // lengths, in order
};

// Empty: each sequence is one document. `targets`: of whole sequences.
std::vector<DocumentSpan> document_spans(std::span<const std::int32_t> targets,
                                         std::uint32_t sequence, std::uint32_t separator,
                                         std::int64_t together);

}  // namespace swarmline
