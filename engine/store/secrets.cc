#include "engine/store/secrets.h"

#include <array>
#include <cerrno>
#include <charconv>
#include <fcntl.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "base/check.h"
#include "engine/store/files.h"

namespace swarmline {
namespace {

constexpr std::size_t kDigits = 2 * kSecretBytes;
constexpr mode_t kOwnerOnly = S_IRUSR | S_IWUSR;

std::string hex_of(std::string_view bytes) {
  std::string hex;
  for (const char byte : bytes) hex += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return hex;
}

Result<std::string> secret_from(std::string_view hex, const std::string& path) {
  std::string secret;
  while (!hex.empty() && hex.back() == '\n') hex.remove_suffix(1);
  for (std::size_t at = 0; at + 2 <= hex.size(); at += 2) {
    unsigned byte = 0;
    const char* const end = hex.data() + at + 2;
    if (std::from_chars(hex.data() + at, end, byte, 16).ptr != end) break;
    secret.push_back(static_cast<char>(byte));
  }
  if (hex.size() == kDigits && secret.size() == kSecretBytes) return secret;
  return fail(ErrorCode::kUserMistake,
              fmt::format("{} is no secret of a run: expected {} hex digits; remove it, and the "
                          "coordinator makes another when it starts",
                          path, kDigits));
}

std::string reason(int error) {
  return std::generic_category().message(error);
}

}  // namespace

std::string random_secret() {
  std::array<unsigned char, kSecretBytes> bytes{};
  SWARMLINE_CHECK(RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) == 1);
  return {bytes.begin(), bytes.end()};
}

std::string random_hex() {
  return hex_of(random_secret());
}

std::string hmac_sha256(std::string_view key, std::string_view text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  SWARMLINE_CHECK(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                       reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                       digest.data(), &size) != nullptr);
  return {digest.begin(), digest.begin() + size};
}

bool equal_secrets(std::string_view one, std::string_view other) {
  return one.size() == other.size() && CRYPTO_memcmp(one.data(), other.data(), one.size()) == 0;
}

// Written aside and linked: of two that make it at once, one does, and both read the same.
Result<std::string> make_secret_file(const std::string& path) {
  if (file_exists(path)) return read_secret_file(path);
  const std::string aside = fmt::format("{}.{}", path, ::getpid());
  const int fd = ::open(aside.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, kOwnerOnly);
  if (fd < 0) return fail(ErrorCode::kIo, fmt::format("cannot make {}: {}", aside, reason(errno)));
  const std::string text = hex_of(random_secret()) + "\n";
  const bool written = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
                       ::fchmod(fd, kOwnerOnly) == 0 && ::fsync(fd) == 0;
  const int write_error = errno;
  ::close(fd);
  const bool linked = written && (::link(aside.c_str(), path.c_str()) == 0 || errno == EEXIST);
  const int error = written ? errno : write_error;
  ::unlink(aside.c_str());
  if (!linked) return fail(ErrorCode::kIo, fmt::format("cannot make {}: {}", path, reason(error)));
  return read_secret_file(path);
}

Result<std::string> read_secret_file(const std::string& path) {
  struct stat about{};
  if (::stat(path.c_str(), &about) != 0)
    return fail(ErrorCode::kNotFound, fmt::format("there is no {}", path));
  if ((about.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    return fail(ErrorCode::kUserMistake,
                fmt::format("{} may be read by other users (mode {:04o}), who could end the run: "
                            "chmod 600 {}",
                            path, about.st_mode & 07777U, path));
  auto text = read_text_file(path, 4 * kDigits);
  if (!text)
    return fail(
        ErrorCode::kUserMistake,
        fmt::format("{}: only the user who started the run may steer it", text.error().what));
  return secret_from(*text, path);
}

}  // namespace swarmline
