#include "engine/tokenizer/byte_tokenizer.h"

namespace swarmline {

namespace {

constexpr std::uint32_t kByteTokens = 256;

class ByteEncoder final : public TokenEncoder {
 public:
  Result<void> encode(std::string_view text, bool /*goes_on*/,
                      std::vector<std::uint32_t>& tokens) override {
    for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
    return {};
  }
};

class ByteTokenizer final : public Tokenizer {
 public:
  ByteTokenizer() { document_end_ = kByteTokens; }
  std::string kind() const override { return std::string(kByteTokenizerName); }
  std::string description() const override { return "bytes, and the end of a document"; }
  std::uint32_t vocabulary() const override { return kByteTokens + 1; }
  TextCuts cuts() const override { return TextCuts::kAnywhere; }
  std::unique_ptr<TokenEncoder> make_encoder(const EncodeOptions& /*options*/) const override {
    return std::make_unique<ByteEncoder>();
  }
  std::optional<std::uint32_t> find(std::string_view text) const override {
    if (text.size() != 1) return std::nullopt;
    return static_cast<unsigned char>(text.front());
  }
  bool is_special(std::uint32_t token) const override { return token == kByteTokens; }
  std::string decode_next(std::uint32_t token, bool /*begins*/,
                          bool /*with_special*/) const override {
    return token < kByteTokens ? std::string(1, static_cast<char>(token)) : std::string();
  }
};

}  // namespace

std::unique_ptr<Tokenizer> make_byte_tokenizer() {
  return std::make_unique<ByteTokenizer>();
}

}  // namespace swarmline
