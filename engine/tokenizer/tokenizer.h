// Text into the numbers of tokens and back: bytes, byte-level BPE (tokenizer.json), SentencePiece.
//   Ownership: a Tokenizer is shared; encoders refer to it and are one thread's each.
//   Thread:    Tokenizer immutable.
//   Errors:    of encoding: kUserMistake, without a place.
//   Bounds:    kTokenizerFileBytesMax; tokens below kVocabularyMax (bpe_model.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/units.h"

namespace swarmline {

inline constexpr std::uint64_t kTokenizerFileBytesMax = 256 * kMiB;

class TokenEncoder {
 public:
  virtual ~TokenEncoder() = default;
  // Appends the tokens of `text`. Bytes that are not UTF-8 are read as U+FFFD, but by the
  // tokenizer of bytes. `goes_on`: the document goes on behind it, cut by last_text_cut().
  virtual Result<void> encode(std::string_view text, bool goes_on,
                              std::vector<std::uint32_t>& tokens) = 0;
};

struct EncodeOptions {
  // true: the names of special tokens in a text ("<|endoftext|>") are text like any other.
  bool special_as_text = false;
};

// Where a document may be cut to be encoded in pieces, with the same tokens.
enum class TextCuts : std::uint8_t { kAnywhere, kBetweenWords, kNowhere };

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual std::string kind() const = 0;          // "bytes" | "bpe" | "sentencepiece"
  virtual std::string description() const = 0;   // for people
  virtual std::uint32_t vocabulary() const = 0;  // all tokens' numbers lie below it
  virtual TextCuts cuts() const = 0;
  virtual std::unique_ptr<TokenEncoder> make_encoder(const EncodeOptions& options) const = 0;

  // The number of a token by its text, as "<|endoftext|>" or "</s>".
  virtual std::optional<std::uint32_t> find(std::string_view text) const = 0;
  // The bytes that a token adds to a text; a number beyond the vocabulary adds none. Not always
  // whole characters: see Utf8Stream (utf8.h). A special token is left out, or has its name.
  // `begins`: no token has come before it, but special ones.
  virtual std::string decode_next(std::uint32_t token, bool begins, bool with_special) const = 0;
  virtual bool is_special(std::uint32_t token) const = 0;  // it stands for no text
  std::string decode(std::span<const std::uint32_t> tokens, bool with_special) const;

  // What ends a document, by the tokenizer's own files or its usual names; none where they do not
  // say.
  std::optional<std::uint32_t> document_end() const { return document_end_; }
  // The file that it was read from, and that file's content and SHA-256; empty: there is none.
  const std::string& path() const { return path_; }
  const std::string& sha256() const { return sha256_; }

 protected:
  std::optional<std::uint32_t> document_end_;
  std::string path_;
  std::string sha256_;

 private:
  friend Result<std::shared_ptr<const Tokenizer>> open_tokenizer(const std::string& name);
};

}  // namespace swarmline
