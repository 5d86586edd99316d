// What a welcome says a peer is to be, as plain values, and the stage made of it.
//   Ownership: values. Thread: build_stage() on the device's, the rest anywhere.
//   Errors:    a config, model or cut that can't be: kCorrupt or kUserMistake, with a sentence.
//   Bounds:    Limits of the config.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "pipeline/protocol/messages.pb.h"
#include "pipeline/stage/seat/seated_stage.h"
#include "pipeline/stage/stage_peer.h"

namespace swarmline {

struct SeatOffer {
  struct Cut {
    std::uint32_t first_layer = 0;
    std::uint32_t last_layer = 0;
  };
  Seat seat;
  Term term;
  Era era;
  std::string run_id;
  std::string seat_proof, link_key;  // pipeline/protocol/seat_proof.h
  std::string config;                // TOML
  std::uint32_t vocab = 0;
  std::uint32_t separator = 0;  // ModelSpec's
  std::vector<Cut> cuts;
  Version version;              // of the checkpoint that the era begins with
  bool joining = false;         // the run has started
  bool resumed = false;         // by another coordinator: the peer keeps what it holds
  bool keeps_followed = false;  // it begins with what its shadow of the stage holds
  bool sealed_links = false;    // so is the coordinator's, and then all of the run's are
  Duration heartbeat{};         // zero: the default
};
SeatOffer offer_of(const wire::Welcome& welcome, bool sealed_links);

// Without model, source and wiring.
Result<SeatedStageParts> parts_of(const SeatOffer& offer, const PeerConfig& machine);
// [device] Makes them, with all memory of the device that the stage holds for good, and measures
// what that leaves for microbatches: a large stage takes longer to make than a coordinator waits
// for a heartbeat. kOutOfMemory: it does not fit, with what it takes, what is free and what helps.
Result<void> build_stage(const StagePeerOptions& options, SeatedStageParts& parts);

}  // namespace swarmline
