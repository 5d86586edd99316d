// Members of a fabric's group on one backend of the door, so that one suite states what every
// backend does. Words travel as messages do: in order, later, and to the newest group alone.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/fabric/fabric.h"
#include "engine/runtime/runtime.h"

namespace swarmline {

enum class FabricBackend { kSimNccl, kSimIpc, kNccl, kIpc };

inline std::ostream& operator<<(std::ostream& out, FabricBackend backend) {
  return out << (backend == FabricBackend::kSimNccl  ? "SimNccl"
                 : backend == FabricBackend::kSimIpc ? "SimIpc"
                 : backend == FabricBackend::kNccl   ? "Nccl"
                                                     : "Ipc");
}

struct FabricWorldOptions {
  Duration patience = kFabricPatience;
};

class FabricWorld {
 public:
  virtual ~FabricWorld() = default;
  virtual FabricKind kind() const = 0;
  virtual Runtime& runtime(std::uint32_t rank) = 0;
  virtual Fabric& fabric(std::uint32_t rank) = 0;
  virtual bool run_until(const std::function<bool()>& done, Duration limit) = 0;
  // The next thing that the rank's backend is asked for fails.
  virtual void fail_next(std::uint32_t rank) = 0;

  void run_for(Duration time) {
    run_until([] { return false; }, time);
  }
};

std::unique_ptr<FabricWorld> make_fabric_world(FabricBackend backend, std::uint32_t ranks,
                                               const FabricWorldOptions& options = {});

// The groups of all ranks, and the words between them.
class FabricMembers {
 public:
  FabricMembers(FabricWorld& world, std::uint32_t ranks) : world_(world), groups_(ranks) {}

  // A member's next group; words of the one before do not come to it.
  void open(std::uint32_t rank) {
    drop(rank);
    auto& member = groups_[rank];
    ++member.number;
    member.group = world_.fabric(rank).open(
        world_.kind(), rank, static_cast<std::uint32_t>(groups_.size()),
        [this, rank, number = member.number](std::uint32_t to, Buffer word) {
          EXPECT_LE(word.size(), kFabricWordBytesMax);
          send(rank, to, number, std::make_shared<const Buffer>(std::move(word)));
        });
    for (Sent& sent : std::exchange(member.early, {})) take(rank, std::move(sent));
  }
  void open_all() {
    for (std::uint32_t rank = 0; rank < groups_.size(); ++rank) open(rank);
  }
  void drop(std::uint32_t rank) { groups_[rank].group.reset(); }
  FabricGroup& group(std::uint32_t rank) { return *groups_[rank].group; }
  // Words that come to the member are lost from now on.
  void deafen(std::uint32_t rank) { groups_[rank].is_deaf = true; }
  // Of each word, before it travels.
  std::function<void(std::uint32_t from, std::uint32_t to, const Buffer& word)> on_word_sent;

 private:
  struct Sent {
    std::uint32_t from = 0;
    std::uint64_t number = 0;  // of the sender's group; all members open the same ones
    std::shared_ptr<const Buffer> word;
  };
  struct Member {
    std::unique_ptr<FabricGroup> group;
    std::uint64_t number = 0;
    std::vector<Sent> early;  // for the next group
    bool is_deaf = false;
  };

  void send(std::uint32_t from, std::uint32_t to, std::uint64_t number,
            std::shared_ptr<const Buffer> word) {
    if (on_word_sent) on_word_sent(from, to, *word);
    world_.runtime(to).post([this, from, to, number, word = std::move(word)] {
      take(to, {.from = from, .number = number, .word = word});
    });
  }
  void take(std::uint32_t to, Sent sent) {
    Member& member = groups_[to];
    if (member.is_deaf || sent.number < member.number) return;
    if (sent.number > member.number) return member.early.push_back(std::move(sent));
    if (!member.group) return;
    const Result<void> taken = member.group->on_word(sent.from, sent.word->bytes());
    EXPECT_TRUE(taken.has_value()) << taken.error().what;
  }

  FabricWorld& world_;
  std::vector<Member> groups_;  // by rank
};

#define SWARMLINE_FOR_EVERY_FABRIC(Suite)                                                     \
  INSTANTIATE_TEST_SUITE_P(Fabrics, Suite,                                                    \
                           ::testing::Values(FabricBackend::kSimNccl, FabricBackend::kSimIpc, \
                                             FabricBackend::kNccl, FabricBackend::kIpc),      \
                           ::testing::PrintToStringParamName())

}  // namespace swarmline
