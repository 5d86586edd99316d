#include "engine/huggingface/byte_tokenizer.h"

#include "engine/store/json_writer.h"

namespace swarmline {
namespace {

constexpr const char* kEndText = "<|endoftext|>";

// GPT-2's letters for bytes: those that print stand for themselves, the others for 256, 257, ...
std::string letter_of(unsigned byte) {
  const auto prints = [](unsigned b) {
    return (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
  };
  unsigned code = byte;
  if (!prints(byte)) {
    code = 256;
    for (unsigned b = 0; b < byte; ++b) code += prints(b) ? 0 : 1;
  }
  std::string utf8;
  if (code < 0x80) {
    utf8 += static_cast<char>(code);
  } else {
    utf8 += static_cast<char>(0xC0U | (code >> 6));
    utf8 += static_cast<char>(0x80U | (code & 0x3FU));
  }
  return utf8;
}

void byte_level(JsonWriter& json, const char* key) {
  json.key(key).begin_object().member("type", "ByteLevel").member("add_prefix_space", false);
  json.member("trim_offsets", true).member("use_regex", false).end_object();
}

}  // namespace

std::string byte_tokenizer_json() {
  JsonWriter json(2);
  json.begin_object().member("version", "1.0").key("truncation").null().key("padding").null();
  json.key("added_tokens").begin_array().begin_object().member("id", kByteEndToken);
  json.member("content", kEndText).member("single_word", false).member("lstrip", false);
  json.member("rstrip", false).member("normalized", false).member("special", true);
  json.end_object().end_array().key("normalizer").null();
  byte_level(json, "pre_tokenizer");
  json.key("post_processor").null();
  byte_level(json, "decoder");
  json.key("model").begin_object().member("type", "BPE").key("dropout").null();
  json.key("unk_token").null().key("continuing_subword_prefix").null();
  json.key("end_of_word_suffix").null().member("fuse_unk", false);
  json.member("byte_fallback", false).member("ignore_merges", false);
  json.key("vocab").begin_object();
  for (unsigned byte = 0; byte < 256; ++byte) json.member(letter_of(byte), byte);
  json.member(kEndText, kByteEndToken);
  json.end_object().key("merges").begin_array().end_array().end_object().end_object();
  return json.take() + "\n";
}

std::string byte_tokenizer_config_json() {
  JsonWriter json(2);
  json.begin_object().member("tokenizer_class", "PreTrainedTokenizerFast");
  json.member("bos_token", kEndText).member("eos_token", kEndText);
  json.member("pad_token", kEndText).member("clean_up_tokenization_spaces", false);
  json.end_object();
  return json.take() + "\n";
}

}  // namespace swarmline
