// What comes back from an etcd endpoint, in any shape that HTTP allows, and in none.
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "engine/store/etcd_client.h"
#include "tests/net/raw_socket.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

// An endpoint that says the same parts to each request, and hangs up.
class CannedEtcd {
 public:
  explicit CannedEtcd(std::vector<std::string> parts) : parts_(std::move(parts)) {
    auto [listening, at] = RawSocket::listen(8);
    listening_ = std::move(listening);
    port_ = std::to_string(at.port);
    serves_ = std::thread([this] { serve(); });
  }
  ~CannedEtcd() {
    listening_.shut();
    serves_.join();
  }
  Result<void> asked() const { return EtcdClient({{"127.0.0.1", port_}}, 2s).compact(7); }

 private:
  void serve() {
    while (true) {
      const RawSocket peer = listening_.accept();
      if (peer.fd() < 0) return;
      char request[4096];
      if (::recv(peer.fd(), request, sizeof request, 0) <= 0) continue;
      for (const std::string& part : parts_) {
        peer.send_if_open(part);
        std::this_thread::sleep_for(5ms);
      }
      if (parts_.empty()) static_cast<void>(::recv(peer.fd(), request, sizeof request, 0));
    }
  }

  const std::vector<std::string> parts_;
  RawSocket listening_{-1};
  std::string port_;
  std::thread serves_;
};

std::string with_length(std::size_t bytes) {
  return "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: " +
         std::to_string(bytes) + "\r\n\r\n";
}

TEST(EtcdAnswer, InManyPieces) {
  std::vector<std::string> parts;
  for (const char c : with_length(2) + "{}") parts.emplace_back(1, c);
  const Result<void> asked = CannedEtcd(parts).asked();
  EXPECT_TRUE(asked.has_value()) << asked.error().what;
}

TEST(EtcdAnswer, InChunks) {
  const Result<void> asked =
      CannedEtcd({"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
                  "1\r\n}\r\n0\r\n\r\n"})
          .asked();
  EXPECT_TRUE(asked.has_value()) << asked.error().what;
}

TEST(EtcdAnswer, WithoutALengthItEndsWithItsConnection) {
  const Result<void> asked = CannedEtcd({"HTTP/1.1 200 OK\r\n\r\n{", "}"}).asked();
  EXPECT_TRUE(asked.has_value()) << asked.error().what;
}

TEST(EtcdAnswer, ThatIsNoneIsAFailureWithinTheDeadline) {
  const std::vector<std::vector<std::string>> all = {
      {},                                              // says nothing
      {"HTTP/1.1 200"},                                // cut off in the head
      {with_length(20) + "{"},                         // ... and in the body
      {"I am no etcd\r\n\r\n"},                        //
      {with_length(EtcdClient::kAnswerBytesMax + 1)},  // more than is taken
      {"HTTP/1.1 200 OK\r\nX: " + std::string(100'000, 'x')},
  };
  for (const auto& parts : all) {
    const auto began = std::chrono::steady_clock::now();
    const Result<void> asked = CannedEtcd(parts).asked();
    const std::string first = parts.empty() ? "" : parts.front().substr(0, 40);
    ASSERT_FALSE(asked.has_value()) << first;
    EXPECT_EQ(asked.error().code, ErrorCode::kIo) << first;
    EXPECT_LT(std::chrono::steady_clock::now() - began, 10s) << first;
  }
}

}  // namespace
}  // namespace swarmline
