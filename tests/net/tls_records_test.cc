// Records of TLS 1.3 by themselves: as RFC 8448 has them, cut any way, padded, changed, and across
// keys. That OpenSSL understands them, tls_foreign_test.cc shows.
#include "engine/net/tcp/tls_records.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/byte_ops.h"
#include "base/rng.h"
#include "tests/harness/mark_expected.h"

namespace swarmline {
namespace {

constexpr TlsSuite kSuites[] = {TlsSuite::kAes128Gcm, TlsSuite::kChaCha20Poly1305};

std::string from_hex(std::string_view text) {
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); i += 2)
    bytes.push_back(static_cast<char>(std::stoi(std::string(text.substr(i, 2)), nullptr, 16)));
  return bytes;
}

std::vector<std::byte> random_bytes(Rng& rng, std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(rng.next_u32());
  return bytes;
}

// As its end of the link would have it.
std::vector<std::byte> seal(TlsSealer& sealer, BytesView content, bool next_key = false) {
  std::vector<std::byte> out(TlsSealer::kSealRoomBytes);
  out.resize(sealer.seal({&content, 1}, out.data(), next_key));
  return out;
}

Result<TlsOpener::Opened> open(TlsOpener& opener, BytesView record, MutableBytes to) {
  return opener.open(record, {&to, 1});
}

// RFC 8448, section 3: the client's application data.
TEST(TlsRecords, AreAsTheStandardsExampleHasThem) {
  const std::string secret =
      from_hex("9e40646ce79a7f9dc05af8889bce6552875afa0b06df0087f792ebb7c17504a5");
  const std::string expected = from_hex(
      "1703030043a23f7054b62c94d0affafe8228ba55cbefacea42f914aa66bcab3f2b9819a8a5b46b395bd54a9a2044"
      "1e2b62974e1f5a6292a2977014bd1e3deae63aeebb21694915e4");
  std::vector<std::byte> content;
  for (int i = 0; i < 50; ++i) content.push_back(static_cast<std::byte>(i));
  TlsSealer sealer(TlsSuite::kAes128Gcm, secret);
  EXPECT_TRUE(same_bytes(seal(sealer, content), as_bytes(expected)));
  TlsOpener opener(TlsSuite::kAes128Gcm, secret);
  std::vector<std::byte> got(50);
  const auto opened = open(opener, as_bytes(expected), got);
  ASSERT_TRUE(opened.has_value()) << opened.error().what;
  EXPECT_EQ(opened->bytes, 50U);
  EXPECT_EQ(got, content);
}

TEST(TlsRecords, CutAnyWayArriveAsTheyWere) {
  Rng rng(3);
  for (const TlsSuite suite : kSuites) {
    const std::string secret(32, 's');
    TlsSealer sealer(suite, secret);
    TlsOpener opener(suite, secret);
    for (int i = 0; i < 200; ++i) {
      const std::size_t size = i == 0 ? kRecordBytes : 1 + rng.next_u32() % kRecordBytes;
      const std::vector<std::byte> content = random_bytes(rng, size);
      std::vector<BytesView> parts;
      for (std::size_t at = 0; at < size;) {
        const std::size_t part = std::min<std::size_t>(size - at, rng.next_u32() % 3000);
        parts.emplace_back(content.data() + at, part);
        at += part;
      }
      std::vector<std::byte> record(TlsSealer::kSealRoomBytes);
      record.resize(sealer.seal(parts, record.data(), false));
      ASSERT_EQ(*TlsOpener::record_bytes(record.data()), record.size());
      std::vector<std::byte> got(size);
      const std::size_t cut = rng.next_u32() % (size + 1);
      const MutableBytes to[] = {MutableBytes(got).first(cut), MutableBytes(got).subspan(cut)};
      const auto opened = opener.open(record, to);
      ASSERT_TRUE(opened.has_value()) << opened.error().what;
      ASSERT_EQ(opened->bytes, size);
      ASSERT_EQ(got, content);
    }
  }
}

TEST(TlsRecords, ChangedAnywhereAreRefused) {
  for (const TlsSuite suite : kSuites) {
    const std::vector<std::byte> content(40, std::byte{7});
    for (std::size_t at = kRecordHeaderBytes; at < kRecordAddedBytes + content.size(); ++at) {
      TlsSealer sealer(suite, std::string(32, 's'));
      TlsOpener opener(suite, std::string(32, 's'));
      std::vector<std::byte> record = seal(sealer, content), got(40);
      record[at] ^= std::byte{1};
      EXPECT_FALSE(open(opener, record, got).has_value()) << at;
    }
  }
}

TEST(TlsRecords, LeftOutRepeatedOrOfAnotherSecretAreRefused) {
  const std::vector<std::byte> content(40, std::byte{7});
  std::vector<std::byte> got(40);
  TlsSealer sealer(TlsSuite::kAes128Gcm, std::string(32, 's'));
  const auto first = seal(sealer, content), second = seal(sealer, content);
  TlsOpener skips(TlsSuite::kAes128Gcm, std::string(32, 's'));
  EXPECT_FALSE(open(skips, second, got).has_value());
  TlsOpener repeats(TlsSuite::kAes128Gcm, std::string(32, 's'));
  EXPECT_TRUE(open(repeats, first, got).has_value());
  EXPECT_FALSE(open(repeats, first, got).has_value());
  TlsOpener other(TlsSuite::kAes128Gcm, std::string(32, 't'));
  EXPECT_FALSE(open(other, first, got).has_value());
}

TEST(TlsRecords, OfImpossibleLengthsAreNone) {
  const auto header = [](int type, int size) {
    return std::vector<std::byte>{static_cast<std::byte>(type), std::byte{3}, std::byte{3},
                                  static_cast<std::byte>(size >> 8),
                                  static_cast<std::byte>(size & 255)};
  };
  EXPECT_EQ(TlsOpener::record_bytes(header(23, 17).data()).value(), 22U);
  EXPECT_FALSE(TlsOpener::record_bytes(header(23, 16).data()).has_value());
  EXPECT_FALSE(TlsOpener::record_bytes(header(23, 0).data()).has_value());
  EXPECT_TRUE(TlsOpener::record_bytes(header(23, 16384 + 256).data()).has_value());
  EXPECT_FALSE(TlsOpener::record_bytes(header(23, 16384 + 257).data()).has_value());
  EXPECT_FALSE(TlsOpener::record_bytes(header(22, 100).data()).has_value());
  EXPECT_FALSE(TlsOpener::record_bytes(header(0, 100).data()).has_value());
}

// Both ends go on to the next key after the same record, as often as it takes.
TEST(TlsRecords, GoOnUnderTheNextKey) {
  MarkExpected next_key("tls.next_key");
  const std::string secret(32, 'k');
  TlsSealer sealer(TlsSuite::kAes128Gcm, secret, 3);
  TlsOpener opener(TlsSuite::kAes128Gcm, secret);
  int keys = 0;
  for (int i = 0; i < 10; ++i) {
    const std::vector<std::byte> content(100, static_cast<std::byte>(i));
    const std::vector<std::byte> sealed = seal(sealer, content, i == 1);
    std::vector<std::byte> got(100);
    for (std::size_t at = 0; at < sealed.size();) {
      const std::size_t size = *TlsOpener::record_bytes(sealed.data() + at);
      const auto opened = open(opener, BytesView(sealed).subspan(at, size), got);
      ASSERT_TRUE(opened.has_value()) << opened.error().what;
      keys += opened->what == TlsOpener::What::kNextKey ? 1 : 0;
      at += size;
    }
    EXPECT_EQ(got, content);
  }
  EXPECT_EQ(keys, 3) << "before 1, because it was asked for; before 4; before 7";
}

}  // namespace
}  // namespace swarmline
