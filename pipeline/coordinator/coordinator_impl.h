// The parts of a running coordinator. Only coordinator*.cc see this header.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/net/rpc.h"
#include "pipeline/coordinator/boundary_board.h"
#include "pipeline/coordinator/coordinator.h"
#include "pipeline/coordinator/membership.h"
#include "pipeline/coordinator/reduce_board.h"
#include "pipeline/coordinator/run_sequence.h"
#include "pipeline/coordinator/run_stats.h"
#include "pipeline/ledger/ledger.h"
#include "pipeline/protocol/message_kinds.h"

namespace swarmline {

class Coordinator::Impl {
 public:
  Impl(Runtime& runtime, Network& network, Journal& journal, CheckpointSink& sink,
       CoordinatorOptions options, std::function<void(RunOutcome)> on_finished);
  ~Impl();

  Result<Address> start();
  void request_stop(bool now);
  std::string status_json() const;

 private:
  enum class State { kWaiting, kTraining, kDraining, kCheckpointing, kDone, kFailed };

  // One connection: a peer after its Hello, or a tool that asks for the status.
  struct Session {
    std::shared_ptr<RpcChannel> channel;
    Seat seat;            // peer 0 until Hello
    std::string goodbye;  // why the peer left, in its words
    std::string lost;     // why this side closed
  };
  using SessionPtr = std::shared_ptr<Session>;

  struct LeaseBook {  // one source
    std::uint64_t wanted = 0;
    std::uint64_t granted = 0;
  };

  struct CheckpointRound {
    std::string name;
    std::uint64_t version = 0;
    std::map<std::uint32_t, Seat> savers;             // stage -> who sends it
    std::map<std::uint32_t, std::uint64_t> received;  // bytes, by stage
    std::set<std::uint32_t> finished;
    bool final = false;
    TimerId deadline;
  };

  // coordinator.cc: sessions and the order of a run
  void accept(std::shared_ptr<Connection> connection);
  void on_message(const SessionPtr& session, const Frame& frame);
  void on_request(const SessionPtr& session, const Frame& frame,
                  const RpcChannel::Respond& respond);
  void on_closed(const SessionPtr& session, const Error& error);
  void on_hello(const SessionPtr& session, const Frame& frame, const RpcChannel::Respond& respond);
  void on_ready(const SessionPtr& session, const wire::Ready& ready);
  bool was_stopped() const;
  void check_silence();
  void advance();
  void open_phase(const RunSequence::Opening& opening);
  void fail_run(const std::string& sentence);
  void end(int exit_code, const std::string& sentence);
  void broadcast(const Frame& frame);
  void notify(const Seat& seat, Frame frame);
  void send_membership();
  void event(const std::string& kind, const std::string& detail);
  std::weak_ptr<Impl*> weak() const { return alive_; }

  // coordinator_step.cc: from leases to the commit
  void on_want_leases(const wire::WantLeases& want);
  void pump_leases();
  void on_report(const wire::Report& report);
  void on_claim(const SessionPtr& session, const Frame& frame, const RpcChannel::Respond& respond);
  void on_compute_failed(const wire::ComputeFailed& failed);
  void on_stall(const wire::StallReport& stall);
  void after_progress(const Phase& phase);
  void finish_eval(const Phase& phase);
  void seal(std::uint64_t step);
  wire::ReduceGroup group_of(std::uint32_t id, const std::vector<Seat>& members,
                             std::uint64_t elements) const;
  void arm_reduce_deadline(std::uint64_t step);
  void on_reduced(const wire::Reduced& reduced);
  void commit();
  void on_stepped(const wire::Stepped& stepped);
  void choose_codecs();

  // coordinator_checkpoint.cc
  void begin_checkpoint(std::uint64_t version, bool final);
  void on_piece(const SessionPtr& session, const Frame& frame, const RpcChannel::Respond& respond);
  void arm_checkpoint_deadline();
  Result<void> check_piece(const Session& session, const wire::CheckpointPiece& piece,
                           std::uint64_t bytes) const;
  void finish_checkpoint();
  bool all_stepped(std::uint64_t version) const;

  std::uint64_t control_bytes() const;

  Runtime& runtime_;
  Network& network_;
  Journal& journal_;
  CheckpointSink& sink_;
  CoordinatorOptions options_;
  std::function<void(RunOutcome)> on_finished_;

  std::vector<StageSpec> stages_;
  std::vector<ParameterLayout> layouts_;
  Membership membership_;
  RunSequence sequence_;
  Ledger ledger_;
  ReduceBoard board_;
  RunStats stats_;
  BoundaryBoard boundaries_;
  State state_ = State::kWaiting;
  std::string sentence_;
  Term term_{1};
  Era era_{0};
  bool ended_ = false;

  std::vector<SessionPtr> sessions_;
  std::map<PeerId, SessionPtr> peers_;
  std::map<PeerId, LeaseBook> sources_;
  std::map<MicrobatchId, std::vector<std::string>> failures_;  // of open phases
  std::uint64_t updates_ = 0;  // optimizer updates so far: commits that were not skipped
  std::map<std::pair<StageId, std::uint64_t>, std::pair<Seat, std::uint64_t>> state_digests_;
  std::optional<CheckpointRound> checkpoint_;
  std::uint64_t checkpoint_bytes_ = 0;
  std::string last_checkpoint_;
  std::uint64_t saved_version_ = ~std::uint64_t{0};
  Instant expected_tick_{};
  TimerId reduce_deadline_;
  std::uint64_t bytes_of_closed_ = 0;
  std::shared_ptr<Impl*> alive_;
};

}  // namespace swarmline
