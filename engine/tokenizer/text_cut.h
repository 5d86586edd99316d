// Where a long text may be cut in two that are encoded apart, and give together the tokens of the
// whole: so documents are encoded by several threads, and none has to be in memory at once.
//   Why:    the pre-tokenizers that we know (word_splitter.h) begin anew behind a line's end that
//           a letter or digit follows, or another character that is not ASCII and no white space;
//           and between a letter and a blank that a letter follows. So does NFC. Behind a line's
//           end the word before it depends on what follows being no white space: the encoder is
//           told that the text goes on.
//   Thread: pure.
#pragma once

#include <cstddef>
#include <string_view>

namespace swarmline {

// The last place inside `text`, which need not be valid UTF-8, where it may be cut; 0: none.
std::size_t last_text_cut(std::string_view text);

}  // namespace swarmline
