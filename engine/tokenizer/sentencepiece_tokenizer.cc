#include "engine/tokenizer/sentencepiece_tokenizer.h"

#include <sentencepiece_processor.h>

#include <fmt/format.h>

#include "engine/tokenizer/sentencepiece_library.h"
#include "engine/tokenizer/utf8.h"

namespace swarmline {

namespace {

constexpr std::string_view kBlank = "\xE2\x96\x81";      // U+2581, as pieces have it
constexpr std::string_view kUnknown = " \xE2\x81\x87 ";  // as the library writes it

using Processor = sentencepiece::SentencePieceProcessor;

class SentencePieceEncoder final : public TokenEncoder {
 public:
  explicit SentencePieceEncoder(const Processor& processor) : processor_(processor) {}

  Result<void> encode(std::string_view text, bool /*goes_on*/,
                      std::vector<std::uint32_t>& tokens) override {
    if (!is_utf8(text)) {
      replaced_.clear();
      append_as_utf8(text, replaced_);
      text = replaced_;
    }
    const std::vector<int> ids = processor_.EncodeAsIds(text);
    tokens.insert(tokens.end(), ids.begin(), ids.end());
    return {};
  }

 private:
  const Processor& processor_;
  std::string replaced_;
};

class SentencePieceTokenizer final : public Tokenizer {
 public:
  static Result<std::unique_ptr<Tokenizer>> make(std::string_view model, const std::string& path) {
    const auto library = SentencePieceLibrary::open();
    if (!library)
      return fail(library.error().code, fmt::format("{}: {}", path, library.error().what));
    auto processor = (*library)->load(model);
    if (!processor)
      return fail(ErrorCode::kUserMistake,
                  fmt::format("{}: found no model of SentencePiece; name a *.model file that it "
                              "trained, or a tokenizer.json",
                              path));
    std::unique_ptr<SentencePieceTokenizer> made(new SentencePieceTokenizer(std::move(processor)));
    made->adds_blank_ = made->begins_with_blank();
    const int end = made->processor_->eos_id();
    if (end >= 0) made->document_end_ = static_cast<std::uint32_t>(end);
    return made;
  }

  std::string kind() const override { return "sentencepiece"; }
  std::string description() const override {
    return fmt::format("SentencePiece, {} tokens", vocabulary());
  }
  std::uint32_t vocabulary() const override {
    return static_cast<std::uint32_t>(processor_->GetPieceSize());
  }
  TextCuts cuts() const override { return TextCuts::kNowhere; }
  std::unique_ptr<TokenEncoder> make_encoder(const EncodeOptions& /*options*/) const override {
    return std::make_unique<SentencePieceEncoder>(*processor_);
  }
  std::optional<std::uint32_t> find(std::string_view text) const override {
    const int token = processor_->PieceToId({text.data(), text.size()});
    if (token < 0 || processor_->IdToPiece(token) != text) return std::nullopt;
    return static_cast<std::uint32_t>(token);
  }
  bool is_special(std::uint32_t token) const override {
    return token < vocabulary() && processor_->IsControl(static_cast<int>(token));
  }
  // As the library decodes, but bytes are bytes, where it has whole characters or U+FFFD.
  std::string decode_next(std::uint32_t token, bool begins, bool with_special) const override {
    if (token >= vocabulary()) return {};
    const int id = static_cast<int>(token);
    const std::string& piece = processor_->IdToPiece(id);
    if (processor_->IsControl(id)) return with_special ? piece : std::string();
    if (processor_->IsUnknown(id)) return std::string(kUnknown);
    if (processor_->IsByte(id))  // "<0x0A>"
      return std::string(1, static_cast<char>(std::stoi(piece.substr(3, 2), nullptr, 16)));
    std::string text;
    for (std::string_view left = piece; !left.empty();) {
      const bool blank = left.starts_with(kBlank);
      if (blank)
        text += ' ';
      else
        text += left.front();
      left.remove_prefix(blank ? kBlank.size() : 1);
    }
    return begins && adds_blank_ && text.starts_with(' ') ? text.substr(1) : text;
  }

 private:
  explicit SentencePieceTokenizer(SentencePieceLibrary::Processor processor)
      : processor_(std::move(processor)) {}
  // Whether a text begins with a blank that is not its own.
  bool begins_with_blank() const {
    const std::vector<std::string> pieces = processor_->EncodeAsPieces("a");
    return !pieces.empty() && pieces.front().starts_with(kBlank);
  }

  SentencePieceLibrary::Processor processor_;
  bool adds_blank_ = false;
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> make_sentencepiece_tokenizer(std::string_view model,
                                                                const std::string& path) {
  return SentencePieceTokenizer::make(model, path);
}

}  // namespace swarmline
