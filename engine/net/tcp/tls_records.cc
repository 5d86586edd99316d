#include "engine/net/tcp/tls_records.h"

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "base/check.h"
#include "base/marks.h"

namespace swarmline {
namespace {

constexpr std::size_t kTrafficSecretBytes = 32, kTagBytes = 16;
constexpr std::uint8_t kAlert = 21, kHandshake = 22, kContent = 23;
constexpr std::uint8_t kCloseNotify = 0, kKeyUpdate = 24;
constexpr std::size_t kKeyUpdateBytes = 5;
constexpr std::size_t kCopiedBytesMax = 512;  // a copy costs less than another call of the cipher

const EVP_CIPHER* cipher_of(TlsSuite suite) {
  return suite == TlsSuite::kAes128Gcm ? EVP_aes_128_gcm() : EVP_chacha20_poly1305();
}

// HKDF-Expand-Label with no context (RFC 8446, 7.1), of at most one hash: both suites have SHA-256.
std::string expand(const std::string& secret, std::string_view label, std::size_t bytes) {
  const std::string full = "tls13 " + std::string(label);
  std::string info = {'\0', static_cast<char>(bytes), static_cast<char>(full.size())};
  info += full + std::string("\0\1", 2);
  std::string made(kTrafficSecretBytes, '\0');
  unsigned int size = 0;
  SWARMLINE_CHECK(HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
                       reinterpret_cast<const unsigned char*>(info.data()), info.size(),
                       reinterpret_cast<unsigned char*>(made.data()), &size) != nullptr &&
                  size == kTrafficSecretBytes && bytes <= kTrafficSecretBytes);
  made.resize(bytes);
  return made;
}

void wipe(std::string& secret) {
  OPENSSL_cleanse(secret.data(), secret.size());
}

void write_header(std::byte* to, std::size_t sealed_bytes) {
  to[0] = std::byte{kContent};
  to[1] = to[2] = std::byte{3};
  to[3] = static_cast<std::byte>(sealed_bytes >> 8U);
  to[4] = static_cast<std::byte>(sealed_bytes & 255U);
}

}  // namespace

// ---- The cipher ---------------------------------------------------------------------------------

RecordCipher::RecordCipher(TlsSuite suite, std::string secret, bool seals)
    : suite_(suite), seals_(seals), secret_(std::move(secret)), context_(EVP_CIPHER_CTX_new()) {
  SWARMLINE_CHECK(context_ != nullptr && secret_.size() == kTrafficSecretBytes);
  set_key();
}

RecordCipher::~RecordCipher() {
  wipe(secret_);
  EVP_CIPHER_CTX_free(context_);
}

void RecordCipher::set_key() {
  const EVP_CIPHER* cipher = cipher_of(suite_);
  std::string key =
      expand(secret_, "key", static_cast<std::size_t>(EVP_CIPHER_get_key_length(cipher)));
  const std::string iv = expand(secret_, "iv", iv_.size());
  std::memcpy(iv_.data(), iv.data(), iv_.size());
  SWARMLINE_CHECK(EVP_CipherInit_ex(context_, cipher, nullptr,
                                    reinterpret_cast<const unsigned char*>(key.data()), nullptr,
                                    seals_ ? 1 : 0) == 1);
  wipe(key);
  records_ = 0;
}

void RecordCipher::next_key() {
  std::string next = expand(secret_, "traffic upd", kTrafficSecretBytes);
  secret_.swap(next);
  wipe(next);
  set_key();
}

void RecordCipher::begin_record(const std::byte* header) {
  Nonce nonce = iv_;
  for (std::size_t i = 0; i < sizeof(records_); ++i)
    nonce[nonce.size() - 1 - i] ^= static_cast<unsigned char>(records_ >> (8 * i));
  ++records_;
  int size = 0;
  SWARMLINE_CHECK(EVP_CipherInit_ex(context_, nullptr, nullptr, nullptr, nonce.data(), -1) == 1 &&
                  EVP_CipherUpdate(context_, nullptr, &size,
                                   reinterpret_cast<const unsigned char*>(header),
                                   kRecordHeaderBytes) == 1);
}

void RecordCipher::pass(const std::byte* from, std::byte* to, std::size_t size) {
  int made = 0;
  SWARMLINE_CHECK(EVP_CipherUpdate(context_, reinterpret_cast<unsigned char*>(to), &made,
                                   reinterpret_cast<const unsigned char*>(from),
                                   static_cast<int>(size)) == 1 &&
                  static_cast<std::size_t>(made) == size);
}

void RecordCipher::take_tag(std::byte* to) {
  int size = 0;
  unsigned char none = 0;
  SWARMLINE_CHECK(EVP_CipherFinal_ex(context_, &none, &size) == 1 && size == 0 &&
                  EVP_CIPHER_CTX_ctrl(context_, EVP_CTRL_AEAD_GET_TAG, kTagBytes, to) == 1);
}

bool RecordCipher::fits_tag(const std::byte* from) {
  std::array<std::byte, kTagBytes> tag;
  std::memcpy(tag.data(), from, tag.size());
  int size = 0;
  unsigned char none = 0;
  return EVP_CIPHER_CTX_ctrl(context_, EVP_CTRL_AEAD_SET_TAG, kTagBytes, tag.data()) == 1 &&
         EVP_CipherFinal_ex(context_, &none, &size) == 1;
}

// ---- Sealing ------------------------------------------------------------------------------------

std::size_t TlsSealer::put(std::uint8_t type, std::span<const BytesView> content, std::byte* to) {
  std::size_t size = 0;
  for (const BytesView part : content) size += part.size();
  SWARMLINE_CHECK(size <= kRecordBytes);
  write_header(to, size + 1 + kTagBytes);
  cipher_.begin_record(to);
  std::byte* at = to + kRecordHeaderBytes;
  std::byte* sealed = at;  // so far; what is between the two was copied and is sealed in place
  const auto seal_copied = [&] {
    if (at > sealed) cipher_.pass(sealed, sealed, static_cast<std::size_t>(at - sealed));
    sealed = at;
  };
  for (const BytesView part : content) {
    if (part.size() >= kCopiedBytesMax) {
      seal_copied();
      cipher_.pass(part.data(), at, part.size());
      sealed = at += part.size();
    } else if (!part.empty()) {
      std::memcpy(at, part.data(), part.size());
      at += part.size();
    }
  }
  *at++ = std::byte{type};
  seal_copied();
  cipher_.take_tag(at);
  return size + kRecordAddedBytes;
}

std::size_t TlsSealer::seal(std::span<const BytesView> content, std::byte* to, bool next_key) {
  std::size_t written = 0;
  if (next_key || cipher_.records() >= records_of_key_) {
    SWARMLINE_MARK("tls.next_key");
    // It asks for none in return: that end counts its own records.
    static constexpr std::array<std::byte, kKeyUpdateBytes> kUpdate = {
        std::byte{kKeyUpdate}, {}, {}, std::byte{1}, {}};
    const BytesView update(kUpdate);
    written = put(kHandshake, {&update, 1}, to);
    cipher_.next_key();
  }
  return written + put(kContent, content, to + written);
}

// ---- Opening ------------------------------------------------------------------------------------

Result<std::size_t> TlsOpener::record_bytes(const std::byte* header) {
  const std::size_t size = kRecordHeaderBytes + std::to_integer<std::size_t>(header[3]) * 256 +
                           std::to_integer<std::size_t>(header[4]);
  if (header[0] != std::byte{kContent} || size <= kRecordHeaderBytes + kTagBytes ||
      size > kSealedRecordBytesMax)
    return fail(ErrorCode::kCorrupt,
                fmt::format("it sent no TLS record (type {}, {} bytes)",
                            std::to_integer<int>(header[0]), size - kRecordHeaderBytes));
  return size;
}

namespace {

// Where padding follows: zeros, and before them the type.
std::pair<std::uint8_t, std::size_t> without_padding(std::span<const MutableBytes> parts,
                                                     std::size_t size) {
  std::uint8_t type = 0;
  std::size_t content = 0, at = 0;
  for (const MutableBytes part : parts) {
    for (std::size_t i = 0; i < part.size() && at < size; ++i, ++at) {
      if (part[i] == std::byte{}) continue;
      type = std::to_integer<std::uint8_t>(part[i]);
      content = at;
    }
  }
  return {type, content};
}

void copy_out(std::span<const MutableBytes> parts, std::span<std::byte> to) {
  for (const MutableBytes part : parts) {
    const std::size_t size = std::min(part.size(), to.size());
    if (size > 0) std::memcpy(to.data(), part.data(), size);
    to = to.subspan(size);
  }
}

Result<TlsOpener::Opened> not_content(std::uint8_t type, std::span<const MutableBytes> parts,
                                      std::size_t size) {
  using What = TlsOpener::What;
  std::array<std::byte, kKeyUpdateBytes> said{};
  copy_out(parts, std::span(said).first(std::min(size, said.size())));
  if (type == kAlert && size == 2) {
    if (said[1] == std::byte{kCloseNotify}) return TlsOpener::Opened{What::kEnd, 0};
    return fail(ErrorCode::kCorrupt,
                fmt::format("it sent the TLS alert {}", std::to_integer<int>(said[1])));
  }
  const bool update = type == kHandshake && size == kKeyUpdateBytes &&
                      said[0] == std::byte{kKeyUpdate} && said[1] == std::byte{} &&
                      said[2] == std::byte{} && said[3] == std::byte{1} && said[4] <= std::byte{1};
  if (update)
    return TlsOpener::Opened{said[4] == std::byte{1} ? What::kNextKeyWanted : What::kNextKey, 0};
  return fail(ErrorCode::kCorrupt, fmt::format("it sent a TLS record of type {}", type));
}

}  // namespace

Result<TlsOpener::Opened> TlsOpener::open(BytesView record, std::span<const MutableBytes> parts) {
  const std::size_t sealed = record.size() - kRecordHeaderBytes - kTagBytes;
  const std::size_t room = sealed - 1;  // where there is no padding
  cipher_.begin_record(record.data());
  const std::byte* at = record.data() + kRecordHeaderBytes;
  std::size_t left = room;
  for (const MutableBytes part : parts) {
    const std::size_t size = std::min(left, part.size());
    if (size > 0) cipher_.pass(at, part.data(), size);
    at += size;
    left -= size;
  }
  SWARMLINE_CHECK(left == 0);
  std::byte last{};
  cipher_.pass(at, &last, 1);
  if (!cipher_.fits_tag(at + 1))
    return fail(ErrorCode::kCorrupt, "a TLS record is not what the other end sent");
  auto type = std::to_integer<std::uint8_t>(last);
  std::size_t content = room;
  if (type == 0) std::tie(type, content) = without_padding(parts, room);
  if (content > kRecordBytes || type == 0)
    return fail(ErrorCode::kCorrupt, "it sent a TLS record that may not be");
  if (type == kContent) return Opened{What::kContent, content};
  auto opened = not_content(type, parts, content);
  if (opened && opened->what != What::kEnd) cipher_.next_key();
  return opened;
}

}  // namespace swarmline
