// Checkpoints: members of each stage send its file, or write it themselves, each a part, where they
// see the folder; the sink puts all of it in place at once.
//   What:      begins a checkpoint of a committed version, takes its pieces in order, commits it
//              when every stage's file is whole. One that makes no progress, can't be written,
//              or loses a saver is abandoned, with an event, and tried again.
//   Ownership: what it is made with outlives it.
//   Thread:    control thread; nothing waits for the sink.
//   Errors:    a piece that nobody asked for, or out of order, is refused. No checkpoint ends the
//              run but the last one, once it has failed knobs().final_checkpoints_max times.
//   Bounds:    one at a time; a part is as large as its stage's state and a header, one piece of
//              each is on its way to the sink; knobs().checkpoint_progress for the next one. At
//              most kCheckpointPartsMax parts of a stage; more than one only of a stage whose
//              member has written the one before itself.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "engine/net/rpc.h"
#include "pipeline/coordinator/members/failure_detector.h"
#include "pipeline/coordinator/members/membership.h"
#include "pipeline/coordinator/members/outbox.h"
#include "pipeline/coordinator/run/alarms.h"
#include "pipeline/coordinator/run/coordinator_options.h"
#include "pipeline/coordinator/run/event_log.h"
#include "pipeline/coordinator/run/run_identity.h"
#include "pipeline/coordinator/run/run_journal.h"
#include "pipeline/coordinator/run/run_observer.h"
#include "pipeline/coordinator/run/run_shape.h"
#include "pipeline/coordinator/states/checkpoint_schedule.h"
#include "pipeline/protocol/messages.pb.h"

namespace swarmline {

struct CommittedVersion {
  std::uint64_t version = 0;
  std::uint64_t updates = 0;  // commits up to it that were not skipped
  std::uint64_t tokens = 0;   // that its parameters were trained on
};

class Checkpointer final : public RunObserver {
 public:
  struct Needs {  // services, and parts below it
    const RunShape& shape;
    const RunIdentity& identity;
    Alarms& alarms;
    CheckpointSink& sink;
    RunJournal& journal;
    const FailureDetector& detector;
    const Membership& members;
    Outbox& outbox;
    EventLog& events;
    Rulings& rulings;
  };
  explicit Checkpointer(const Needs& needs)
      : in_(needs), schedule_(needs.shape.config.checkpoint) {}

  void start(Instant now) { schedule_.start(now); }  // training begins, or goes on
  void ask() { schedule_.ask(); }                    // for one at the next commit
  // It is not the last one.
  void on_committed(const CommittedVersion& of);
  // Of the last version, that all members hold; again and again until it is in place. True: it has
  // begun one, or the run fails.
  bool begin_last(const CommittedVersion& last);
  void on_piece(const Seat& seat, const Frame& frame, const RpcChannel::Respond& respond);
  // Nothing happens where none is under way.
  void abandon(const std::string& why);
  bool is_active() const { return round_.has_value(); }
  bool is_saving(const Seat& seat) const;  // this member sends its stage, or a part of it

  // An era began with that checkpoint; empty: with the seed's parameters.
  void began_with(const std::string& path, std::uint64_t version);
  void found(const std::string& path) { last_ = path; }  // in the journal
  bool has_saved(std::uint64_t version) const { return saved_version_ == version; }
  std::optional<std::uint64_t> saved_version() const { return saved_version_; }
  const std::string& last() const { return last_; }
  std::uint64_t bytes() const { return bytes_; }  // of all pieces that came, framing included
  void count_bytes(std::uint64_t bytes) { bytes_ += bytes; }  // of pieces that went out

  void on_seat_lost(const SeatLoss& lost) override;
  void on_rollback() override;
  void check_invariants() const;

 private:
  struct Saver {  // of a part
    Seat seat;
    std::uint64_t bytes_max = 0;  // of its file
    bool heard = false;           // a piece has come, or the word that it writes itself
    bool writes = false;          // it writes its file itself
    std::uint64_t received = 0;   // bytes
    std::uint64_t piece_at = 0;   // where the newest piece begins
    RpcChannel::Respond respond;  // to whoever sent it; empty: answered
    bool finished = false;        // its file is whole, in the sink
    Instant progressed;
  };
  struct Round {
    std::string name;
    std::string token;          // the name on the wire, its own for each try
    std::uint64_t attempt = 0;  // names it in the shared folder
    std::uint64_t version = 0;
    std::map<CheckpointPart, Saver> savers;
    bool begun = false;    // in the sink
    bool is_last = false;  // of the run's last version
    bool committing = false;
    Instant progressed;  // of the sink, at what is not one stage's
    TimerId deadline;
  };
  void begin(const CommittedVersion& of);
  std::vector<Seat> savers_of(StageId stage, std::uint64_t bytes) const;
  void ask(CheckpointPart part, std::uint32_t parts, Saver saver);
  void begun(const Result<void>& begun);
  void arm_deadline();
  void look_for_progress();
  // Nothing, once another round is under way or none.
  template <typename Function>
  auto of_this_round(Function function);
  std::pair<const CheckpointPart, Saver>* asked(const Seat& seat,
                                                const wire::CheckpointPiece& piece);
  static Result<void> check_piece(const Saver& saver, const wire::CheckpointPiece& piece,
                                  std::uint64_t bytes);
  void take_piece(CheckpointPart part, const wire::CheckpointPiece& piece, const Frame& frame);
  void take_written(CheckpointPart part, const wire::CheckpointPiece& piece);
  void piece_kept(CheckpointPart part, bool last, const Result<void>& kept);
  void answer(Saver& saver, const Result<void>& kept);
  void commit();
  void committed(const Result<std::string>& path);
  void failed(const std::string& why);
  void drop_round(const std::string& why);

  Needs in_;
  CheckpointSchedule schedule_;
  std::optional<Round> round_;
  std::uint64_t bytes_ = 0;
  std::uint64_t begun_ = 0;
  std::set<StageId> seen_;           // whose members wrote the newest one themselves, all of them
  std::set<Seat> failing_;           // that could not save, and do not write themselves any more
  std::uint32_t last_failures_ = 0;  // of the last version's, in a row
  bool waits_ = false;               // a timer goes off when the last version's may be tried again
  std::string failure_;              // of the newest one that failed
  std::string last_;
  std::optional<std::uint64_t> saved_version_;
};

}  // namespace swarmline
