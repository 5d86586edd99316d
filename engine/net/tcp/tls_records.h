// The record layer of TLS 1.3 (RFC 8446, sections 5 and 7.3), one direction each: what an OpenSSL
// link hands its traffic secret to when its handshake is done. OpenSSL's own takes one thread for
// both directions and copies each record once more on its way out and twice on its way in; here a
// record is sealed from where its bytes lie to where it waits for the socket, and opened from where
// it was received to where its bytes belong.
//   Keys:      a sealer goes on to the next key after kRecordsOfKeyMax records (RFC 8446, 5.5), and
//              when the other end asks for it; an opener when the other end says so.
//   Ownership: values that are not copied. Thread: one at a time; the two of a link need not share
//              one.
//   Errors:    of sealing none but of a broken OpenSSL (CHECK). Of opening: kCorrupt with a
//              sentence, after which the opener must not be used. What was written meanwhile is
//              nobody's: only a whole record is authentic.
//   Source:    RFC 8446; AES-128-GCM and ChaCha20-Poly1305 of OpenSSL 3.0 (EVP); RFC 5869.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/bytes.h"
#include "base/result.h"

struct evp_cipher_ctx_st;

namespace swarmline {

enum class TlsSuite : std::uint16_t {
  kAes128Gcm = 0x1301,
  kChaCha20Poly1305 = 0x1303,
};

inline constexpr std::size_t kRecordBytes = 16 * 1024;  // of content, at most
inline constexpr std::size_t kRecordHeaderBytes = 5;
inline constexpr std::size_t kRecordAddedBytes = kRecordHeaderBytes + 1 + 16;  // type and tag
// A record as another program may pad it.
inline constexpr std::size_t kSealedRecordBytesMax = kRecordHeaderBytes + kRecordBytes + 256;
inline constexpr std::uint64_t kRecordsOfKeyMax = std::uint64_t{1} << 24U;

// One direction's secret, and the cipher under the key that comes of it.
class RecordCipher {
 public:
  using Nonce = std::array<unsigned char, 12>;

  RecordCipher(TlsSuite suite, std::string secret, bool seals);
  ~RecordCipher();
  RecordCipher(const RecordCipher&) = delete;
  RecordCipher& operator=(const RecordCipher&) = delete;

  void next_key();
  void begin_record(const std::byte* header);
  void pass(const std::byte* from, std::byte* to, std::size_t size);
  void take_tag(std::byte* to);          // of what was sealed
  bool fits_tag(const std::byte* from);  // of what was opened
  std::uint64_t records() const { return records_; }

 private:
  void set_key();

  const TlsSuite suite_;
  const bool seals_;
  std::string secret_;
  Nonce iv_{};
  std::uint64_t records_ = 0;  // under this key
  evp_cipher_ctx_st* context_;
};

class TlsSealer {
 public:
  TlsSealer(TlsSuite suite, std::string secret, std::uint64_t records_of_key = kRecordsOfKeyMax)
      : cipher_(suite, std::move(secret), true), records_of_key_(records_of_key) {}
  // One record of these bytes, kRecordBytes of them at most; before it, where the key is used up
  // or `next_key`, one that says so. Returns how many bytes were written: at most
  // kSealRoomBytes of them.
  static constexpr std::size_t kSealRoomBytes = kRecordBytes + 2 * kRecordAddedBytes + 5;
  std::size_t seal(std::span<const BytesView> content, std::byte* to, bool next_key);

 private:
  std::size_t put(std::uint8_t type, std::span<const BytesView> content, std::byte* to);

  RecordCipher cipher_;
  const std::uint64_t records_of_key_;
};

class TlsOpener {
 public:
  enum class What : std::uint8_t { kContent, kEnd, kNextKey, kNextKeyWanted };
  struct Opened {
    What what;
    std::size_t bytes;  // of content
  };

  TlsOpener(TlsSuite suite, std::string secret) : cipher_(suite, std::move(secret), false) {}
  // How many bytes the record is long that begins with these kRecordHeaderBytes.
  static Result<std::size_t> record_bytes(const std::byte* header);
  // `record`: all of it. Its content goes into the parts, the first one first, which have room for
  // content_room(record.size()).
  Result<Opened> open(BytesView record, std::span<const MutableBytes> parts);
  static std::size_t content_room(std::size_t record_bytes) {
    return record_bytes - kRecordAddedBytes;
  }

 private:
  RecordCipher cipher_;
};

}  // namespace swarmline
