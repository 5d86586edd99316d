// A page over TLS: to OpenSSL as a browser would be, with the certificate that is made for it.
#include <atomic>
#include <thread>

#include <gtest/gtest.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "engine/identity/web_certificate.h"
#include "engine/net/http/http_server.h"
#include "tests/net/raw_socket.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;
constexpr double kNow = 1.8e9;

struct Fetched {
  std::string text;
  int version = 0;
  bool for_this_host = false;
};

// Blocking, in a thread.
Fetched fetch(const Address& address, int version_max) {
  SSL_CTX* const context = SSL_CTX_new(TLS_client_method());
  SSL_CTX_set_max_proto_version(context, version_max);
  const RawSocket socket = RawSocket::connect(address);
  SSL* const link = SSL_new(context);
  SSL_set_fd(link, socket.fd());
  Fetched fetched;
  if (SSL_connect(link) == 1) {
    fetched.version = SSL_version(link);
    X509* const shown = SSL_get1_peer_certificate(link);
    fetched.for_this_host = X509_check_ip_asc(shown, "192.0.2.7", 0) == 1 &&
                            X509_check_host(shown, "node-1.example", 0, 0, nullptr) == 1 &&
                            X509_check_host(shown, "other.example", 0, 0, nullptr) != 1;
    X509_free(shown);
    const std::string request = "GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    SSL_write(link, request.data(), static_cast<int>(request.size()));
    char bytes[1024];
    for (int count = 0; (count = SSL_read(link, bytes, sizeof bytes)) > 0;)
      fetched.text.append(bytes, static_cast<std::size_t>(count));
    SSL_shutdown(link);
  }
  SSL_free(link);
  SSL_CTX_free(context);
  ERR_clear_error();
  return fetched;
}

class HttpTls : public ::testing::Test {
 protected:
  HttpTls() {
    options.tls_pem = make_web_certificate({"192.0.2.7", "node-1.example"}, kNow);
    options.request_max = 2s;
    server.emplace(runtime, options, [](const HttpRequest& request) {
      return http_text(200, "here: " + request.path);
    });
    const auto bound = server->listen({"127.0.0.1", 0});
    EXPECT_TRUE(bound) << bound.error().what;
    address = *bound;
  }
  template <typename Use>
  auto in_a_thread(Use use) {
    decltype(use()) result{};
    std::atomic<bool> done = false;
    std::thread thread([&] {
      result = use();
      done = true;
    });
    EXPECT_TRUE(runtime.run_until([&] { return done.load(); }, 30s));
    thread.join();
    return result;
  }
  AsioRuntime runtime;
  HttpOptions options;
  std::optional<HttpServer> server;
  Address address;
};

TEST_F(HttpTls, IsServedByTls12And13) {
  for (const int version : {TLS1_3_VERSION, TLS1_2_VERSION}) {
    const Fetched fetched = in_a_thread([&] { return fetch(address, version); });
    EXPECT_EQ(fetched.version, version);
    EXPECT_TRUE(fetched.for_this_host);
    EXPECT_TRUE(fetched.text.starts_with("HTTP/1.1 200 OK\r\n")) << fetched.text;
    EXPECT_TRUE(fetched.text.ends_with("here: /a\n")) << fetched.text;
  }
  EXPECT_EQ(in_a_thread([&] { return fetch(address, TLS1_1_VERSION); }).version, 0);
}

TEST_F(HttpTls, EndsWhoSpeaksNoTls) {
  const std::string got = in_a_thread([&] {
    const RawSocket socket = RawSocket::connect(address);
    socket.send("GET /a HTTP/1.1\r\nHost: x\r\n\r\n");
    return socket.receive(1024);
  });
  EXPECT_EQ(got.find("here"), got.npos);
  EXPECT_TRUE(runtime.run_until([&] { return server->connections() == 0; }, 20s));
  EXPECT_EQ(server->counters().answered, 0U);
}

TEST(WebCertificate, IsReadAsItWasMade) {
  const std::string pem = make_web_certificate({"localhost"}, kNow);
  const auto read = read_web_certificate(pem, "page.pem");
  ASSERT_TRUE(read) << read.error().what;
  EXPECT_EQ(read->fingerprint.size(), 32U * 3 - 1);
  EXPECT_GT(read->expires, kNow + 390 * 86400.0);
  EXPECT_LE(read->expires, kNow + kWebCertificateSeconds);
  const auto another = read_web_certificate(make_web_certificate({"localhost"}, kNow), "page.pem");
  EXPECT_NE(another->fingerprint, read->fingerprint);
  const auto none = read_web_certificate("nonsense", "runs/a/keys/page.pem");
  ASSERT_FALSE(none);
  EXPECT_TRUE(none.error().what.starts_with("runs/a/keys/page.pem: expected "))
      << none.error().what;
}

TEST(HttpTlsFile, ThatIsNoneIsRefused) {
  AsioRuntime runtime;
  HttpServer server(runtime, {.tls_pem = "nonsense"},
                    [](const HttpRequest&) { return HttpAnswer(); });
  const auto bound = server.listen({"127.0.0.1", 0});
  ASSERT_FALSE(bound);
  EXPECT_EQ(bound.error().code, ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace swarmline
