// A connection between the two nodes of a World, with everything that both ends saw.
#pragma once

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/contract/world.h"

namespace swarmline {

inline SharedBytes pattern(std::size_t size, std::uint64_t seed) {
  Buffer buffer(size);
  std::uint64_t word = seed;
  // Tests are not optimized: a call for each word of 256 MiB takes seconds.
  std::byte* to = buffer.data();
  for (std::size_t left = size; left > 0;) {
    word = word * 6364136223846793005U + 1442695040888963407U;
    const std::size_t some = left < sizeof(word) ? left : sizeof(word);
    std::memcpy(to, &word, some);
    to += some;
    left -= some;
  }
  return SharedBytes(std::move(buffer));
}

struct End {
  std::shared_ptr<Connection> connection;
  std::vector<Frame> frames;
  std::vector<std::pair<std::string, std::uint64_t>> arrivals;  // meta, bytes there
  std::function<void(const Arrival&)> on_arriving;
  std::vector<Error> closed;

  void start() {
    connection->start({.on_frame = [this](Frame frame) { frames.push_back(std::move(frame)); },
                       .on_closed = [this](Error error) { closed.push_back(std::move(error)); },
                       .on_arriving =
                           [this](const Arrival& arrival) {
                             arrivals.emplace_back(std::string(arrival.meta),
                                                   arrival.arrived.size());
                             if (on_arriving) on_arriving(arrival);
                           }});
  }
};

struct Link {
  End client, server;
};

inline Frame make_frame(std::uint16_t kind, std::string meta = {},
                        std::vector<SharedBytes> payload = {}) {
  return {.kind = kind, .meta = std::move(meta), .payload = std::move(payload)};
}

// Connects node 0 to node 1. The Link must outlive the World's callbacks, hence the pointer.
inline std::unique_ptr<Link> make_link(World& world, bool start = true) {
  auto link = std::make_unique<Link>();
  const auto bound =
      world.network(1).listen(world.listen_address(), [&link = *link, start](auto connection) {
        link.server.connection = std::move(connection);
        if (start) link.server.start();
      });
  EXPECT_TRUE(bound.has_value());
  world.network(0).connect(*bound, std::chrono::seconds(5),
                           [&link = *link, start](auto connection) {
                             ASSERT_TRUE(connection.has_value()) << connection.error().what;
                             link.client.connection = std::move(*connection);
                             if (start) link.client.start();
                           });
  EXPECT_TRUE(world.run_until([&] { return link->client.connection && link->server.connection; },
                              std::chrono::seconds(10)));
  return link;
}

}  // namespace swarmline
