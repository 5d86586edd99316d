// What comes to a port that wants authenticated links and is none: nothing gets in, each is counted
// and closed, and honest ones are taken meanwhile.
#include <csignal>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include "base/rng.h"
#include "engine/net/tcp/tcp_network.h"
#include "engine/net/tcp/tls_lobby.h"
#include "tests/golden/golden.h"
#include "tests/harness/mark_expected.h"
#include "tests/net/open_guard.h"
#include "tests/net/raw_socket.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

// A TLS client as another program has it, in a thread of its own: what it may be told to leave out
// is what an attack leaves out.
struct ForeignClient {
  int version = TLS1_3_VERSION;
  std::optional<Identity> key = Identity::make();
  std::string protocol = "swarmline/1";
  bool rsa = false;
  std::string says;  // once the handshake is done

  // Whether it is told that it is admitted.
  bool gets_in(const Address& address) const {
    sigset_t pipe;  // OpenSSL's own sockets raise it
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
    SSL_CTX* context = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_min_proto_version(context, version);
    SSL_CTX_set_max_proto_version(context, version);
    EVP_PKEY* made = rsa ? EVP_PKEY_Q_keygen(nullptr, nullptr, "RSA", std::size_t{2048}) : nullptr;
    if (rsa) {
      X509* certificate = X509_new();
      X509_set_pubkey(certificate, made);
      X509_gmtime_adj(X509_getm_notBefore(certificate), 0);
      X509_gmtime_adj(X509_getm_notAfter(certificate), 1000);
      X509_sign(certificate, made, EVP_sha256());
      SSL_CTX_use_certificate(context, certificate);
      SSL_CTX_use_PrivateKey(context, made);
      X509_free(certificate);
    } else if (key) {
      const std::string der = key->self_signed_certificate();
      SSL_CTX_use_certificate_ASN1(context, static_cast<int>(der.size()),
                                   reinterpret_cast<const unsigned char*>(der.data()));
      SSL_CTX_use_PrivateKey(context, key->handle());
    }
    const std::string list = std::string(1, static_cast<char>(protocol.size())) + protocol;
    if (!protocol.empty())
      SSL_CTX_set_alpn_protos(context, reinterpret_cast<const unsigned char*>(list.data()),
                              static_cast<unsigned int>(list.size()));
    RawSocket socket = RawSocket::connect(address);
    SSL* link = SSL_new(context);
    SSL_set_fd(link, socket.fd());
    bool in = SSL_connect(link) == 1;
    if (in && !says.empty()) in = SSL_write(link, says.data(), static_cast<int>(says.size())) > 0;
    char byte = 1;
    in = in && SSL_read(link, &byte, 1) == 1 && byte == 0;  // 0: admitted
    SSL_free(link);
    SSL_CTX_free(context);
    EVP_PKEY_free(made);
    ERR_clear_error();
    return in;
  }
};

class TlsAttacks : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto bound = server_.listen({"127.0.0.1", 0}, [this](auto connection) {
      connection->start({.on_frame = [](Frame) {}, .on_closed = [](Error) {}});
      links_.push_back(std::move(connection));
    });
    ASSERT_TRUE(bound.has_value());
    address_ = *bound;
  }
  bool run_until(const std::function<bool()>& done, Duration limit = 20s) {
    return runtime_.run_until(done, limit);
  }
  bool gets_in(const ForeignClient& client) {
    std::optional<bool> in;
    std::thread thread([&] {
      const bool result = client.gets_in(address_);
      runtime_.post([&, result] { in = result; });
    });
    EXPECT_TRUE(run_until([&] { return in.has_value(); }));
    thread.join();
    return in.value_or(false);
  }
  // Nobody got in, so many tried, and who is honest is taken after all that.
  void expect_refused(std::uint64_t tried) {
    EXPECT_TRUE(run_until([&] { return server_.counters().handshakes_failed == tried; }))
        << server_.counters().handshakes_failed;
    EXPECT_TRUE(links_.empty());
    expect_open();
  }
  void expect_open() {
    TcpNetwork honest(runtime_, {.guard = std::make_shared<OpenGuard>()});
    const std::size_t before = links_.size();
    std::shared_ptr<Connection> connection;
    honest.connect(address_, 10s, [&](auto made) {
      ASSERT_TRUE(made.has_value()) << made.error().what;
      connection = *made;
    });
    EXPECT_TRUE(run_until([&] { return connection && links_.size() == before + 1; }));
  }

  AsioRuntime runtime_;
  std::shared_ptr<OpenGuard> guard_ = std::make_shared<OpenGuard>();
  static constexpr Duration kHandshakeMax = 1500ms;
  TcpNetwork server_{runtime_, {.guard = guard_, .handshake_max = kHandshakeMax}};
  Address address_;
  std::vector<std::shared_ptr<Connection>> links_;
};

std::string hello_words() {
  return {std::string("\0\5hello", 7)};
}

TEST_F(TlsAttacks, AForeignClientThatDoesAllOfItGetsIn) {
  EXPECT_TRUE(gets_in({.says = hello_words()}));
  EXPECT_EQ(guard_->openings, std::vector<std::string>{"hello"});
}

TEST_F(TlsAttacks, WithoutACertificate) {
  EXPECT_FALSE(gets_in({.key = std::nullopt, .says = hello_words()}));
  expect_refused(1);
}

TEST_F(TlsAttacks, OfAnOlderTls) {
  EXPECT_FALSE(gets_in({.version = TLS1_2_VERSION, .says = hello_words()}));
  expect_refused(1);
}

TEST_F(TlsAttacks, WithAKeyOfAnotherType) {
  EXPECT_FALSE(gets_in({.rsa = true, .says = hello_words()}));
  expect_refused(1);
}

TEST_F(TlsAttacks, OfAnotherProtocol) {
  EXPECT_FALSE(gets_in({.protocol = "h2", .says = hello_words()}));
  EXPECT_FALSE(gets_in({.protocol = "", .says = hello_words()}));
  expect_refused(2);
}

TEST_F(TlsAttacks, InCleartext) {
  RawSocket frames = RawSocket::connect(address_);
  frames.send(read_golden("frames/message.bin"));
  expect_refused(1);
  EXPECT_EQ(guard_->accepted.size(), 1U) << "but the honest one nobody came to the guard";
}

TEST_F(TlsAttacks, WithTooManyWords) {
  EXPECT_FALSE(gets_in({.says = "\x10\x01" + std::string(5000, 'x')}));
  expect_refused(1);
  EXPECT_EQ(guard_->openings, std::vector<std::string>{"hello"});
}

TEST_F(TlsAttacks, ThatLeaveHalfway) {
  for (int i = 0; i < 20; ++i) {
    RawSocket socket = RawSocket::connect(address_);
    const auto taken = static_cast<std::uint64_t>(i) + 1;
    ASSERT_TRUE(run_until([&] { return server_.counters().accepted == taken; }));
    socket.send(std::string("\x16\x03\x01\x02\x00\x01", 6).substr(0, 1 + i % 6));
    i % 2 == 0 ? socket.close() : socket.reset();
  }
  expect_refused(20);
}

TEST_F(TlsAttacks, OfRandomBytes) {
  Rng rng(11);
  std::vector<RawSocket> sockets;
  for (int i = 0; i < 200; ++i) {
    std::string bytes = i % 2 == 0 ? std::string("\x16\x03\x01", 3) : "";
    for (std::uint32_t n = rng.next_u32() % 600; n > 0; --n)
      bytes.push_back(static_cast<char>(rng.next_u32()));
    sockets.push_back(RawSocket::connect(address_));
    sockets.back().send(bytes);
    sockets.back().close();
  }
  expect_refused(200);
}

// A TLS greeting of ours to a port that speaks plain frames.
TEST_F(TlsAttacks, OnAPlainPort) {
  TcpNetwork plain(runtime_, {});
  std::vector<std::shared_ptr<Connection>> taken;
  std::vector<Error> closed;
  const auto bound = plain.listen({"127.0.0.1", 0}, [&](auto connection) {
    taken.push_back(connection);
    connection->start({.on_frame = [](Frame) { FAIL() << "that is no frame"; },
                       .on_closed = [&](Error error) { closed.push_back(std::move(error)); }});
  });
  std::optional<Error> refused;
  TcpNetwork client(runtime_, {.guard = std::make_shared<OpenGuard>()});
  client.connect(*bound, 5s, [&](auto made) { refused = made.error(); });
  ASSERT_TRUE(run_until([&] { return closed.size() == 1 && refused.has_value(); }));
  EXPECT_EQ(closed[0].code, ErrorCode::kCorrupt);
  EXPECT_EQ(plain.counters().bad_streams, 1U);
  EXPECT_NE(refused->what.find("handshake"), std::string::npos) << refused->what;
}

// Sealed bytes that were changed on their way: the link ends, nothing of them is delivered.
TEST_F(TlsAttacks, InBetween) {
  auto [middle, at] = RawSocket::listen(4);
  std::shared_ptr<Connection> connection;
  std::optional<Error> closed;
  TcpNetwork client(runtime_, {.guard = std::make_shared<OpenGuard>()});
  std::thread proxy([&middle, this] {
    RawSocket near = middle.accept();
    RawSocket far = RawSocket::connect(address_);
    std::thread back([&] {
      for (std::string got = far.receive(1); !got.empty(); got = far.receive(1)) near.send(got);
      near.shut();
    });
    int passed = 0;
    for (std::string got = near.receive(1); !got.empty(); got = near.receive(1)) {
      if (++passed == 3000) got[0] = static_cast<char>(got[0] ^ 1);
      far.send_if_open(got);
    }
    far.shut();
    back.join();
  });
  client.connect(at, 10s, [&](auto made) {
    ASSERT_TRUE(made.has_value()) << made.error().what;
    connection = *made;
  });
  ASSERT_TRUE(run_until([&] { return connection && links_.size() == 1; }));
  std::size_t delivered = 0;
  connection->start({.on_frame = [&](Frame) { ++delivered; },
                     .on_closed = [&](Error error) { closed = std::move(error); }});
  connection->send({.kind = 1, .meta = std::string(4000, 'm'), .payload = {}});
  ASSERT_TRUE(run_until([&] { return closed.has_value(); }));
  EXPECT_EQ(server_.counters().bad_streams, 1U);
  connection.reset();
  proxy.join();
}

// What it costs is rationed: an address whose handshakes fail gets few, and one that has a key is
// taken again soon.
TEST_F(TlsAttacks, ThatFailOverAndOver) {
  MarkExpected rationed("tls.rationed");
  TcpNetwork strict(runtime_, {.guard = guard_, .handshakes = {.burst = 2, .per_second = 0.5}});
  std::vector<std::shared_ptr<Connection>> taken;
  const auto bound = strict.listen({"127.0.0.1", 0}, [&](auto connection) {
    connection->start({.on_frame = [](Frame) {}, .on_closed = [](Error) {}});
    taken.push_back(std::move(connection));
  });
  ASSERT_TRUE(bound.has_value());
  address_ = *bound;
  for (int i = 0; i < 8; ++i) EXPECT_FALSE(gets_in({.key = std::nullopt}));
  const TcpNetwork::Counters counted = strict.counters();
  EXPECT_EQ(counted.handshakes_failed, 8U);
  EXPECT_GE(counted.handshakes_rationed, 1U);
  EXPECT_LE(counted.handshakes_rationed, 6U);
  bool in = false;
  for (int dials = 0; dials < 100 && !in; ++dials) {
    run_until([] { return false; }, 100ms);
    in = gets_in({.says = hello_words()});
  }
  EXPECT_TRUE(in);
  EXPECT_EQ(taken.size(), 1U);
}

// Those that connect and say nothing hold no honest one up, and are closed in time.
TEST_F(TlsAttacks, ThatStall) {
  MarkExpected crowded_out("tls.crowded_out");
  std::vector<RawSocket> silent;
  for (std::size_t i = 0; i < 20; ++i) silent.push_back(RawSocket::connect(address_));
  expect_open();
  EXPECT_TRUE(run_until([&] { return server_.counters().handshakes_failed == 20; }));
  const std::size_t many = Limits::strangers_of_host_max + 10;
  for (std::size_t i = 0; i < many; ++i) silent.push_back(RawSocket::connect(address_));
  expect_open();  // while as many as may be say nothing
  EXPECT_GE(server_.counters().handshakes_dropped, 10U);
  EXPECT_LT(server_.counters().handshakes_failed, 20 + many) << "the others are still waited for";
  EXPECT_TRUE(run_until([&] { return server_.counters().handshakes_failed == 20 + many; }));
  EXPECT_EQ(guard_->accepted.size(), 2U);
}

}  // namespace
}  // namespace swarmline
