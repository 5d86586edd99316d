// Who waits for the state of a stage, and who has frozen it: one frozen state a stage at a time,
// shared by all that fetch it. Pure.
//   A joiner waits until a state is frozen for it, follows (it hears of every commit from that
//   version on), and leaves the desk with a seat or when it is lost. When all holders of a frozen
//   state are lost, its followers wait for a newer one.
//   A holder whose hashes differ from those of the first is not named.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/ids.h"

namespace swarmline {

class JoinDesk {
 public:
  struct Offer {
    std::uint64_t version = 0;
    std::uint64_t bytes = 0;
    std::vector<std::string> hashes;  // of pieces
    std::vector<Seat> holders;
    std::vector<Seat> followers;
  };

  void want(const Seat& joiner) { stages_[joiner.stage].waiting.insert(joiner); }
  // Whether a state shall be frozen now: joiners wait, and nobody fetches an older one. Then those
  // who wait follow from `version` on, and `mates` are asked. Empty: nothing to do.
  std::vector<Seat> begin(StageId stage, std::uint64_t version, const std::vector<Seat>& mates);
  // False: of no use (of another version, or other bytes than the first holder's).
  bool frozen(const Seat& mate, std::uint64_t version, std::uint64_t bytes,
              std::vector<std::string> hashes);
  // The state that can be fetched at the stage; empty while nobody has it.
  std::optional<Offer> offer(StageId stage) const;
  void seated(const Seat& joiner);
  void lost(const Seat& seat);
  bool follows(const Seat& seat) const;
  bool waits(const Seat& seat) const;
  std::vector<Seat> waiting_at(StageId stage) const;
  // Followers of an older state, while others wait for the next one.
  std::vector<Seat> holding_up(StageId stage) const;

 private:
  struct Desk {
    std::set<Seat> waiting;
    std::set<Seat> following;
    std::uint64_t version = 0;
    std::uint64_t bytes = 0;
    std::vector<std::string> hashes;
    std::set<Seat> asked;  // and have not answered
    std::set<Seat> holders;
  };
  std::map<StageId, Desk> stages_;
};

}  // namespace swarmline
