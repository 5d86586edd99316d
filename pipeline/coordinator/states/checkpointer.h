// Checkpoints: one member of each stage sends its file, the sink puts them in place all at once.
//   What:      begins a checkpoint of a committed version, takes its pieces in order, commits it
//              when every stage's file is whole, gives it up when a saver is lost.
//   Ownership: what it is made with outlives it. Thread: control thread.
//   Errors:    a piece that nobody asked for, or out of order, is refused; one that came damaged
//              ends this try; a sink that can't be written ends the run.
//   Bounds:    one at a time; a stage's file is as large as its state and a header; knobs()
//              .checkpoint_deadline, damaged_checkpoints_max.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "base/ids.h"
#include "base/result.h"
#include "engine/net/rpc.h"
#include "pipeline/coordinator/members/failure_detector.h"
#include "pipeline/coordinator/members/membership.h"
#include "pipeline/coordinator/members/outbox.h"
#include "pipeline/coordinator/run/alarms.h"
#include "pipeline/coordinator/run/coordinator_options.h"
#include "pipeline/coordinator/run/event_log.h"
#include "pipeline/coordinator/run/run_journal.h"
#include "pipeline/coordinator/run/run_observer.h"
#include "pipeline/coordinator/run/run_shape.h"
#include "pipeline/protocol/messages.pb.h"

namespace swarmline {

class Checkpointer final : public RunObserver {
 public:
  struct Needs {  // services, and parts below it
    const RunShape& shape;
    Alarms& alarms;
    CheckpointSink& sink;
    RunJournal& journal;
    const FailureDetector& detector;
    const Membership& members;
    Outbox& outbox;
    EventLog& events;
    Rulings& rulings;
  };
  explicit Checkpointer(const Needs& needs) : in_(needs) {}

  // Of a committed version that all members hold. Nothing happens while another one is under way.
  void begin(std::uint64_t version, std::uint64_t updates);
  void on_piece(const Seat& seat, const Frame& frame, const RpcChannel::Respond& respond);
  void abandon(const std::string& why);  // nothing happens where none is under way
  bool is_active() const { return round_.has_value(); }
  bool is_saving(const Seat& seat) const;  // this member sends its stage's file

  // An era began with that checkpoint; empty: with the seed's parameters.
  void began_with(const std::string& path, std::uint64_t version);
  void found(const std::string& path) { last_ = path; }  // in the journal
  bool has_saved(std::uint64_t version) const { return saved_version_ == version; }
  std::optional<std::uint64_t> saved_version() const { return saved_version_; }
  const std::string& last() const { return last_; }
  std::uint64_t bytes() const { return bytes_; }  // of all pieces that came, framing included
  void count_bytes(std::uint64_t bytes) { bytes_ += bytes; }  // of pieces that went out

  void on_seat_lost(const SeatLoss& lost) override;
  void on_rollback() override { abandon("the run goes back"); }
  void check_invariants() const;

 private:
  struct Round {
    std::string name;
    std::string token;  // the name on the wire, its own for each try
    std::uint64_t version = 0;
    std::map<StageId, Seat> savers;              // stage -> who sends it
    std::map<StageId, std::uint64_t> bytes_max;  // of a stage's file
    std::map<StageId, std::uint64_t> received;   // bytes, by stage
    std::set<StageId> finished;
    TimerId deadline;
  };
  void arm_deadline();
  Result<void> check_piece(const Seat& seat, const wire::CheckpointPiece& piece,
                           std::uint64_t bytes) const;
  Result<void> take_piece(const wire::CheckpointPiece& piece, const Frame& frame);
  void finish();
  void came_damaged(const Error& error);

  Needs in_;
  std::optional<Round> round_;
  std::uint64_t bytes_ = 0;
  std::uint64_t begun_ = 0;
  std::uint32_t damaged_ = 0;
  std::string last_;
  std::optional<std::uint64_t> saved_version_;
};

}  // namespace swarmline
