#include "engine/model/documents.h"

#include "base/check.h"

namespace swarmline {
namespace {

std::vector<std::int64_t> document_lengths(std::span<const std::int32_t> targets,
                                           std::uint32_t sequence, std::uint32_t separator) {
  std::vector<std::int64_t> lengths;
  for (std::size_t begin = 0; begin < targets.size(); begin += sequence) {
    lengths.push_back(1);
    // The last target is the next sequence's first token.
    for (const std::int32_t next : targets.subspan(begin, sequence - 1)) {
      if (next >= 0 && static_cast<std::uint32_t>(next) == separator)
        lengths.push_back(1);
      else
        ++lengths.back();
    }
  }
  return lengths;
}

}  // namespace

std::vector<DocumentSpan> document_spans(std::span<const std::int32_t> targets,
                                         std::uint32_t sequence, std::uint32_t separator,
                                         std::int64_t together) {
  SWARMLINE_CHECK(sequence > 0 && targets.size() % sequence == 0 && together > 0);
  const std::vector<std::int64_t> lengths = document_lengths(targets, sequence, separator);
  if (lengths.size() * sequence == targets.size()) return {};
  std::vector<DocumentSpan> spans;
  for (const std::int64_t length : lengths) {
    const bool joins = !spans.empty() && spans.back().tokens < together && length < together;
    if (!joins) spans.emplace_back();
    spans.back().tokens += length;
    spans.back().documents.push_back(length);
  }
  return spans;
}

}  // namespace swarmline
