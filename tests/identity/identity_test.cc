// Keys: what they sign, what they are known by, and the files that hold them.
#include "engine/identity/identity.h"

#include <filesystem>
#include <fstream>
#include <sys/stat.h>

#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include "engine/identity/key_file.h"
#include "engine/identity/secrets.h"
#include "tests/store/temp_folder.h"

namespace swarmline {
namespace {

// RFC 8410, 10.3; its hash is what "openssl pkey -pubout -outform DER | sha256sum" prints.
constexpr const char* kKnownPem =
    "-----BEGIN PRIVATE KEY-----\n"
    "MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n"
    "-----END PRIVATE KEY-----\n";
constexpr const char* kKnownPublicKey =
    "19bf44096984cdfe8541bac167dc3b96c85086aa30b6b6cb0c5c38ad703166e1";

std::string other_type_pem() {
  EVP_PKEY* key = EVP_PKEY_Q_keygen(nullptr, nullptr, "X25519");
  BIO* target = BIO_new(BIO_s_mem());
  PEM_write_bio_PKCS8PrivateKey(target, key, nullptr, nullptr, 0, nullptr, nullptr);
  char* start = nullptr;
  const long size = BIO_get_mem_data(target, &start);
  std::string pem(start, static_cast<std::size_t>(size));
  BIO_free_all(target);
  EVP_PKEY_free(key);
  return pem;
}

TEST(Identity, AKnownKeyHasItsKnownPublicKeyAndHash) {
  const auto key = Identity::from_pem(kKnownPem, "here");
  ASSERT_TRUE(key.has_value()) << key.error().what;
  EXPECT_EQ(to_hex(as_bytes(key->public_key())), kKnownPublicKey);
  EXPECT_EQ(to_string(key->hash()),
            to_hex(as_bytes(as_string(sha256_of(
                *from_hex("302a300506032b6570032100" + std::string(kKnownPublicKey), 44))))));
  EXPECT_EQ(key->to_pem(), kKnownPem);
}

TEST(Identity, OfTheSamePrivateBytesIsTheSame) {
  const std::string bytes =
      *from_hex("d4ee72dbf913584ad5b6d8f1f769f8ad3afe7c28cbf1d4fbe097a88f44755842",
                kPrivateKeyBytes);  // those of kKnownPem
  const Identity made = Identity::from_private_key(bytes);
  EXPECT_EQ(to_hex(as_bytes(made.public_key())), kKnownPublicKey);
  EXPECT_EQ(made.to_pem(), kKnownPem);
}

TEST(Identity, SignaturesHoldForTheirMessageAndKeyAlone) {
  const Identity key = Identity::make(), other = Identity::make();
  EXPECT_NE(key.hash(), other.hash());
  std::string signature = key.sign("message");
  EXPECT_TRUE(verify_signature(key.public_key(), "message", signature));
  EXPECT_FALSE(verify_signature(key.public_key(), "massage", signature));
  EXPECT_FALSE(verify_signature(other.public_key(), "message", signature));
  EXPECT_FALSE(verify_signature("short", "message", signature));
  EXPECT_FALSE(verify_signature(key.public_key(), "message", signature.substr(1)));
  signature[10] = static_cast<char>(signature[10] ^ 1);
  EXPECT_FALSE(verify_signature(key.public_key(), "message", signature));
}

TEST(Identity, ItsCertificateIsOfItsKeyAndSignedByIt) {
  const Identity key = Identity::make();
  const std::string der = key.self_signed_certificate();
  const auto* bytes = reinterpret_cast<const unsigned char*>(der.data());
  X509* x509 = d2i_X509(nullptr, &bytes, static_cast<long>(der.size()));
  ASSERT_NE(x509, nullptr);
  EXPECT_EQ(X509_verify(x509, key.handle()), 1);
  EXPECT_EQ(EVP_PKEY_eq(X509_get0_pubkey(x509), key.handle()), 1);
  X509_free(x509);
}

TEST(KeyHash, TextIsReadAsItIsWritten) {
  const KeyHash hash = Identity::make().hash();
  const std::string text = to_string(hash);
  ASSERT_EQ(text.size(), 64U);
  EXPECT_EQ(*parse_key_hash(text), hash);
  for (const std::string& bad : {text.substr(1), text + "0", "g" + text.substr(1), std::string()})
    EXPECT_FALSE(parse_key_hash(bad).has_value()) << bad;
  EXPECT_FALSE(parse_key_hash(std::string(64, 'A')).has_value());
}

TEST(Secrets, HmacIsTheOneOfRfc4231) {
  EXPECT_EQ(to_hex(as_bytes(as_string(hmac_sha256("Jefe", "what do ya want for nothing?")))),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_TRUE(equal_in_secret("abc", "abc"));
  EXPECT_FALSE(equal_in_secret("abc", "abd"));
  EXPECT_FALSE(equal_in_secret("abc", "ab"));
  EXPECT_NE(random_secret(16), random_secret(16));
}

class KeyFile : public ::testing::Test {
 protected:
  std::string path() const { return folder_.at("own.key"); }
  void write(const std::string& text, mode_t mode) {
    std::ofstream(path()) << text;
    ASSERT_EQ(chmod(path().c_str(), mode), 0);
  }
  std::string refusal() {
    const auto key = load_or_make_key(path());
    EXPECT_FALSE(key.has_value());
    if (key) return "";
    EXPECT_EQ(key.error().code, ErrorCode::kUserMistake);
    EXPECT_NE(key.error().what.find(path()), std::string::npos) << key.error().what;
    return key.error().what;
  }
  TempFolder folder_;
};

TEST_F(KeyFile, IsMadeOnceForItsOwnerAlone) {
  const auto made = load_or_make_key(path());
  ASSERT_TRUE(made.has_value()) << made.error().what;
  struct stat info{};
  ASSERT_EQ(stat(path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0600U);
  const auto again = load_or_make_key(path());
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->hash(), made->hash());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path()), {}), 1);
}

TEST_F(KeyFile, ThatIsNotThereIsNotFound) {
  const auto key = load_key(path());
  ASSERT_FALSE(key.has_value());
  EXPECT_EQ(key.error().code, ErrorCode::kNotFound);
}

TEST_F(KeyFile, ThatOthersMayReadIsRefused) {
  write(kKnownPem, 0640);
  EXPECT_NE(refusal().find("has mode 0640"), std::string::npos);
  ASSERT_EQ(chmod(path().c_str(), 0604), 0);
  EXPECT_NE(refusal().find("chmod 600"), std::string::npos);
  ASSERT_EQ(chmod(path().c_str(), 0600), 0);
  EXPECT_TRUE(load_key(path()).has_value());
}

TEST_F(KeyFile, ThatIsDamagedIsRefused) {
  std::string damaged = kKnownPem;
  damaged[60] = '!';
  for (const std::string& text : {damaged, std::string(), std::string("hello\n"),
                                  std::string(kKnownPem).substr(0, 50), std::string(20000, 'x')}) {
    write(text, 0600);
    refusal();
  }
}

TEST_F(KeyFile, OfAnotherTypeIsRefused) {
  write(other_type_pem(), 0600);
  EXPECT_NE(refusal().find("X25519"), std::string::npos);
}

TEST_F(KeyFile, ThatIsAFolderIsRefused) {
  std::filesystem::create_directory(path());
  EXPECT_NE(refusal().find("no regular file"), std::string::npos);
}

}  // namespace
}  // namespace swarmline
