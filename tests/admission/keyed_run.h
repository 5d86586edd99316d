// Real links between the guards of a run and of its peers, for tests of who gets in.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/device/cpu_device.h"
#include "engine/net/tcp/tcp_network.h"
#include "engine/runtime/asio_runtime.h"
#include "engine/store/secret_file.h"
#include "node/admission/peer_guard.h"
#include "node/admission/run_guard.h"
#include "tests/store/temp_folder.h"

namespace swarmline {

struct KeyedRun {
  explicit KeyedRun(AsioRuntime& control)
      : runtime(control),
        guard(std::make_shared<RunGuard>(RunKey{.identity = key}, "run",
                                         to_invite_file(folder.at("invites.jsonl")), control,
                                         clerk)),
        network(control, {.guard = guard}) {
    const auto bound = network.listen({"127.0.0.1", 0}, [this](auto connection) {
      connection->start({.on_frame = [](Frame) {}, .on_closed = [](Error) {}});
      links.push_back(std::move(connection));
    });
    address = *bound;
  }
  Invite invite(InviteScope scope = InviteScope::kPeer, double life = 1000,
                std::uint64_t uses = 0) {
    Invite made = make_invite(scope, runtime.wall_seconds(), life, uses);
    EXPECT_TRUE(append_secret_line(folder.at("invites.jsonl"), kInviteFileBytesMax,
                                   [&](std::string_view) { return InviteBook::line_of(made); }));
    return made;
  }
  JoinString join(const Invite& by) const {
    return {.run = "run",
            .run_key = key.hash(),
            .invite_id = by.id,
            .secret = by.secret,
            .addresses = {address}};
  }

  AsioRuntime& runtime;
  TempFolder folder;
  Identity key = Identity::make();
  CpuDevice clerk{runtime, {.name = "invites", .queue_jobs_max = 64}};
  std::shared_ptr<RunGuard> guard;
  TcpNetwork network;
  Address address;
  std::vector<std::shared_ptr<Connection>> links;
};

class Guards : public ::testing::Test {
 protected:
  struct Peer {
    Peer(AsioRuntime& runtime, JoinString join, Identity own = Identity::make())
        : key(own),
          guard(std::make_shared<PeerGuard>(std::move(own), std::move(join), runtime)),
          network(runtime, {.guard = guard}) {}
    Identity key;
    std::shared_ptr<PeerGuard> guard;
    TcpNetwork network;
    Address address;
    std::vector<std::shared_ptr<Connection>> links;
    void listen() {
      address = *network.listen({"127.0.0.1", 0}, [this](auto connection) {
        connection->start({.on_frame = [](Frame) {}, .on_closed = [](Error) {}});
        links.push_back(std::move(connection));
      });
    }
  };

  // As what it was admitted by who was dialled; or why not.
  Result<std::string> dial(Network& network, const Address& address) {
    std::optional<Result<std::string>> answer;
    network.connect(address, std::chrono::seconds(10),
                    [&](Result<std::shared_ptr<Connection>> made) {
                      if (made) {
                        (*made)->start({.on_frame = [](Frame) {}, .on_closed = [](Error) {}});
                        kept_.push_back(*made);
                      }
                      answer = made ? Result<std::string>((*made)->admitted_as())
                                    : Result<std::string>(std::unexpected(made.error()));
                    });
    EXPECT_TRUE(runtime_.run_until([&] { return answer.has_value(); }, std::chrono::seconds(20)));
    return *answer;
  }
  bool lets_in(KeyedRun& run, Network& network) {
    const std::size_t before = run.links.size();
    if (!dial(network, run.address)) return false;
    return runtime_.run_until([&] { return run.links.size() == before + 1; },
                              std::chrono::seconds(10));
  }
  // Seated, as far as links are concerned.
  void seat(KeyedRun& run, Peer& peer, const Seat& seat) {
    ASSERT_TRUE(lets_in(run, peer.network));
    peer.guard->take_certificate(run.guard->certify("run-1", seat, peer.key.hash()));
    peer.listen();
  }
  static Seat seat_of(std::uint32_t peer, std::uint16_t stage = 0) {
    return {PeerId{peer}, StageId{stage}, Incarnation{1}};
  }

  AsioRuntime runtime_;
  std::vector<std::shared_ptr<Connection>> kept_;
  KeyedRun run_{runtime_};
};

}  // namespace swarmline
