#include "node/page_access.h"

#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/bytes.h"
#include "engine/config/link_security.h"
#include "engine/identity/secrets.h"
#include "engine/identity/web_certificate.h"
#include "engine/net/http/http_server.h"
#include "engine/runtime/asio_runtime.h"
#include "engine/store/secret_file.h"
#include "node/run_access.h"

namespace swarmline {
namespace {

constexpr std::uint64_t kTokenFileBytesMax = 256;
constexpr std::uint64_t kUrlFileBytesMax = 1024;
constexpr std::uint64_t kPemFileBytesMax = 64 * 1024;
constexpr double kRenewedBeforeSeconds = 30.0 * 86400;

std::string first_line(std::string text) {
  text.resize(std::min(text.find('\n'), text.size()));
  return text;
}

Result<std::string> read_token(const std::string& path) {
  auto text = read_secret_file(path, kTokenFileBytesMax);
  if (!text) return text;
  std::string token = first_line(std::move(*text));
  if (from_hex(token, kPageTokenBytes)) return token;
  return fail(ErrorCode::kUserMistake,
              fmt::format("{}: expected {} hex digits, found something else; remove the file, and "
                          "another token is made",
                          path, 2 * kPageTokenBytes));
}

// As a URL has it.
std::string authority_of(const Address& address) {
  return to_string(address);
}

}  // namespace

Result<std::string> page_token(const RunFolder& folder) {
  auto token = read_token(folder.page_token());
  if (token || token.error().code != ErrorCode::kNotFound) return token;
  auto made = create_secret_file(folder.page_token(),
                                 to_hex(as_bytes(random_secret(kPageTokenBytes))) + "\n");
  // Of two that make it at once, one does.
  if (!made && made.error().code != ErrorCode::kRefused)
    return std::unexpected(std::move(made).error());
  return read_token(folder.page_token());
}

Result<std::string> page_certificate(const RunFolder& folder, const RunConfig& config,
                                     const Address& address, double now) {
  const std::string path = folder.page_pem();
  auto pem = read_secret_file(path, kPemFileBytesMax);
  if (!pem && pem.error().code != ErrorCode::kNotFound) return pem;
  if (pem) {
    const auto certificate = read_web_certificate(*pem, path);
    if (!certificate) return std::unexpected(certificate.error());
    if (certificate->expires - now >= kRenewedBeforeSeconds) return pem;
  }
  std::vector<std::string> hosts;
  for (const Address& at : reached_at(config, address)) hosts.push_back(at.host);
  hosts.insert(hosts.end(), {"localhost", "127.0.0.1"});
  SWARMLINE_TRY(make_keys_folder(folder));
  SWARMLINE_TRY(replace_secret_file(path, make_web_certificate(hosts, now)));
  return read_secret_file(path, kPemFileBytesMax);
}

std::string page_url(const RunConfig& config, const Address& bound, bool tls) {
  Address reached = is_loopback(bound.host) ? bound : reached_at(config, bound).front();
  reached.port = bound.port;
  return fmt::format("{}://{}/", tls ? "https" : "http", authority_of(reached));
}

std::string with_token(const std::string& url, const std::string& token) {
  return fmt::format("{}?token={}", url, token);
}

Result<void> leave_page_url(const RunFolder& folder, const std::string& url) {
  return replace_secret_file(folder.page_url(), url + "\n");
}

void remove_page_url(const RunFolder& folder) {
  std::error_code ignored;  // a stale one leads nowhere
  std::filesystem::remove(folder.page_url(), ignored);
}

std::optional<std::string> read_page_url(const RunFolder& folder) {
  auto text = read_secret_file(folder.page_url(), kUrlFileBytesMax);
  if (!text) return std::nullopt;
  return first_line(std::move(*text));
}

void add_page_token(RunStatus& status, const RunFolder& folder) {
  if (status.page.empty()) return;
  if (auto url = read_page_url(folder); url && url->starts_with(status.page))
    status.page = std::move(*url);
}

Result<void> check_page_address(const RunConfig& config) {
  if (config.net.page == "none") return {};
  auto address = parse_address(config.net.page);
  if (!address) return std::unexpected(std::move(address).error());
  AsioRuntime runtime;
  HttpServer server(runtime, {}, [](const HttpRequest&) { return HttpAnswer(); });
  if (const auto bound = server.listen(*address); !bound)
    return fail(ErrorCode::kUserMistake,
                fmt::format("net.page: {}; give the run's page another address by --set "
                            "net.page=HOST:PORT (port 0: any free one), or none by --set "
                            "net.page=none",
                            bound.error().what));
  return {};
}

}  // namespace swarmline
