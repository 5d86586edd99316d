// Where documents lie in a microbatch, by the separators among its targets.
#include "engine/model/documents.h"

#include <gtest/gtest.h>

namespace swarmline::testing {
namespace {

constexpr std::uint32_t kSeparator = 9;

std::vector<std::vector<std::int64_t>> spans_of(const std::vector<std::int32_t>& targets,
                                                std::uint32_t sequence, std::int64_t together) {
  std::vector<std::vector<std::int64_t>> found;
  for (const DocumentSpan& span : document_spans(targets, sequence, kSeparator, together)) {
    std::int64_t sum = 0;
    for (const std::int64_t length : span.documents) sum += length;
    EXPECT_EQ(span.tokens, sum);
    found.push_back(span.documents);
  }
  return found;
}

using Spans = std::vector<std::vector<std::int64_t>>;

TEST(Documents, BeginWithTheirSeparator) {
  // Tokens: 1 2 9 3 4 9 | 5; the documents are 1 2, 9 3 4 and 9.
  EXPECT_EQ(spans_of({2, 9, 3, 4, 9, 5}, 6, 1), (Spans{{2}, {3}, {1}}));
}

TEST(Documents, ASeparatorThatBeginsASequenceBeginsNoSecondDocument) {
  // Tokens: 9 1 2 | 9 3 4: the target behind the first row is the second row's first token.
  EXPECT_EQ(spans_of({1, 2, 9, 3, 4, 9}, 3, 1), Spans());
  // Tokens: 9 9 1, the second of an empty document.
  EXPECT_EQ(spans_of({9, 1, 2}, 3, 1), (Spans{{1}, {2}}));
}

TEST(Documents, WholeSequencesAreNoSpans) {
  EXPECT_EQ(spans_of({1, 2, 3, 4}, 4, 1), Spans());
  EXPECT_EQ(spans_of({1, 2, 3, 4}, 2, 1), Spans());
  EXPECT_EQ(spans_of({9, 9, 9}, 1, 1), Spans());
  EXPECT_EQ(spans_of({-1, -9, -9}, 3, 1), Spans()) << "what is not counted is no token";
}

TEST(Documents, ShortNeighboursAreTogetherAcrossRows) {
  const std::vector<std::int32_t> targets = {1, 9, 1, 9, 1, 1, 1, 1, 1, 1, 1, 1};  // 2 2 2 | 6
  EXPECT_EQ(spans_of(targets, 6, 1), (Spans{{2}, {2}, {2}, {6}}));
  EXPECT_EQ(spans_of(targets, 6, 3), (Spans{{2, 2}, {2}, {6}}));
  EXPECT_EQ(spans_of(targets, 6, 7), (Spans{{2, 2, 2, 6}}));
}

TEST(Documents, SpansOfSeveralAreBounded) {
  std::vector<std::int32_t> targets(1024, 1);
  for (std::size_t i = 0; i < targets.size(); i += 1 + i % 50) targets[i] = 9;
  for (const DocumentSpan& span : document_spans(targets, 256, kSeparator, 64))
    EXPECT_TRUE(span.documents.size() == 1 || span.tokens < 2 * 64);
}

}  // namespace
}  // namespace swarmline::testing
