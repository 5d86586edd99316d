// The parts of a running coordinator. Only coordinator*.cc see this header.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/log.h"
#include "engine/net/rpc.h"
#include "engine/optimizer/saved_state.h"
#include "pipeline/coordinator/coordinator.h"
#include "pipeline/coordinator/members/balance_desk.h"
#include "pipeline/coordinator/members/failure_detector.h"
#include "pipeline/coordinator/members/membership.h"
#include "pipeline/coordinator/members/outbox.h"
#include "pipeline/coordinator/members/session_table.h"
#include "pipeline/coordinator/run/event_log.h"
#include "pipeline/coordinator/run/run_journal.h"
#include "pipeline/coordinator/run/run_sequence.h"
#include "pipeline/coordinator/run/run_shape.h"
#include "pipeline/coordinator/run/run_stats.h"
#include "pipeline/coordinator/states/join_desk.h"
#include "pipeline/coordinator/states/shadow_desk.h"
#include "pipeline/coordinator/steps/boundary_board.h"
#include "pipeline/coordinator/steps/reduce_board.h"
#include "pipeline/coordinator/steps/replica_audit.h"
#include "pipeline/coordinator/steps/report_pace.h"
#include "pipeline/ledger/ledger.h"
#include "pipeline/protocol/message_kinds.h"

namespace swarmline {

// One reign; a coordinator that begins again on its journal has another one.
class Coordinator::Impl {
 public:
  // `on_again` ends this one.
  Impl(Runtime& runtime, Network& network, Journal& journal, CheckpointSink& sink,
       CoordinatorOptions options, std::function<void(RunOutcome)> on_finished, Again again,
       std::function<void(Again)> on_again);
  ~Impl();

  Result<Address> start();
  void start_again();  // a failure ends the run
  bool takes_peers() const { return !finding_; }
  void request_stop(bool now);
  std::string status_json() const;
  void check_invariants() const { ledger_.check_invariants(); }
  bool serves(const Seat& seat) const;  // hears of everything
  std::vector<Seat> shadow_hosts(StageId stage) const;

 private:
  enum class Goes { kLost, kFailed, kLeft, kMoves };
  enum class State { kWaiting, kTraining, kDraining, kCheckpointing, kDone, kFailed, kCollecting };

  struct Beginning {  // of the era
    std::uint64_t version = 0;
    std::uint64_t updates = 0;
    std::string path;               // of the checkpoint; empty: the seed's parameters
    std::vector<SavedState> saved;  // by stage, when there is one
  };

  struct LeaseBook {  // one source
    std::uint64_t wanted = 0;
    std::uint64_t granted = 0;
  };

  // A stage that nobody serves, while a shadow's host is on its way there.
  struct Emptied {
    Seat last;  // who served it, and how that ended
    std::string why;
    Goes how = Goes::kLost;
    std::optional<Seat> heir;  // the shadow whose host was sent
    std::uint64_t digest = 0;  // of what it holds
    std::optional<Seat> seat;  // its host's at the stage, once it has come back
    Instant deadline{};        // for what comes next
  };

  struct CheckpointRound {
    std::string name;
    std::string token;  // the name on the wire, its own for each try
    std::uint64_t version = 0;
    std::map<std::uint32_t, Seat> savers;              // stage -> who sends it
    std::map<std::uint32_t, std::uint64_t> bytes_max;  // of a stage's file
    std::map<std::uint32_t, std::uint64_t> received;   // bytes, by stage
    std::set<std::uint32_t> finished;
    bool final = false;
    TimerId deadline;
  };

  // While a coordinator that was begun again hears what its peers hold.
  struct Collecting {
    std::uint64_t committed = 0, evaluated = 0;
    std::optional<std::uint64_t> updates;     // when the era began; empty: the journal does not say
    std::optional<CommitRecord> last_commit;  // of this era
    std::set<Seat> awaited;
    std::map<Seat, wire::Holdings> holdings;
    std::vector<std::function<void()>> held;  // what peers say meanwhile, in order
    bool heard_nobody = false;                // of those that it had, nor of others
    TimerId deadline;                         // whoever has not come by then is lost
    TimerId quiet;                            // nobody has come or gone for a while
  };

  // coordinator.cc: sessions and the order of a run
  void accept(std::shared_ptr<Connection> connection);
  void on_message(const SessionPtr& session, const Frame& frame);
  void on_request(const SessionPtr& session, const Frame& frame,
                  const RpcChannel::Respond& respond);
  void on_closed(const SessionPtr& session, const Error& error);
  void on_hello(const SessionPtr& session, const Frame& frame, const RpcChannel::Respond& respond);
  void on_ready(const SessionPtr& session, const wire::Ready& ready);
  void start_if_formed();
  void advance();
  void open_phase(const RunSequence::Opening& opening);
  void fail_run(const std::string& sentence);
  void end(int exit_code, const std::string& sentence);
  void broadcast(const Frame& frame);  // to all seats that are to hear of it
  void notify(const Seat& seat, Frame frame);
  void send_membership();
  void event(const std::string& kind, const std::string& detail, LogLevel level = LogLevel::kInfo);
  std::weak_ptr<Impl*> weak() const { return alive_; }

  // coordinator_members.cc: who is lost, and what follows
  void watch();
  // Ends the seat: journaled, told to it and to everybody, its contributions missing.
  void fence(const Seat& seat, const std::string& why, Goes how = Goes::kLost);
  void fence_stuck(const Seat& seat, Duration waited);
  void on_leave(const Seat& seat);
  // Lets go who drains and owns nothing any more.
  void release_drained();
  void stage_is_gone(const Seat& last, const std::string& why, Goes how);
  bool follows(const Seat& seat) const;  // hears of commits and losses
  // `keeps`: a copy of its state is of use. `takes`: the stage that it is sent to with what it
  // followed.
  void send_fenced(const Session& session, const std::string& why, bool keeps,
                   std::optional<StageId> takes = {});

  // coordinator_again.cc: whether it is they that are gone
  bool may_begin_again() const;
  bool is_last_of_its_stage(const Seat& seat) const;
  void doubt(const Seat& seat, const std::string& why);
  static void probe(const std::weak_ptr<Impl*>& weak, const Seat& seat, const std::string& why,
                    const std::shared_ptr<Connection>& connection);
  void begin_again(Again again);

  // coordinator_era.cc: where a run begins, and what it goes back to
  Result<void> open_journal();
  // The next era: everybody starts over from the newest checkpoint. For whoever finds that nobody
  // holds a stage's state any more; `why` is for people.
  void begin_from_checkpoint(const std::string& why);
  void find_beginning(std::function<void(Result<void>)> done);
  Result<void> take_beginning(Result<std::optional<CheckpointSource::Saved>> newest);
  void begin_era(const std::string& why, std::uint64_t reached);
  // It is answered when the run has ended, or when the next era is known.
  void hold_hello(const SessionPtr& session, const Frame& frame,
                  const RpcChannel::Respond& respond);
  void dismiss_everybody(const std::string& why);
  void forget_steps();
  SequenceOptions sequence_from(std::uint64_t version) const;
  void wait_for_peers();
  void gather();
  void fill_stages();
  void arm_peers_wait();
  bool may_start() const;
  void on_piece_request(const SessionPtr& session, const wire::PieceRequest& request);

  // coordinator_balance.cc: who should serve what
  std::optional<StageId> place(const wire::Hello& hello) const;
  std::optional<StageId> kept_stage(const wire::Hello& hello) const;
  void balance();

  // coordinator_shadows.cc: who follows what
  void add_shadow(const Seat& host, StageId stage, const std::string& why);
  void drop_shadow(const Seat& shadow, const std::string& kind, const std::string& why);
  void forget_shadow(const Seat& shadow);
  void lose_keeper(const Seat& keeper);
  void lose_shadows_of(const Seat& host);
  bool on_shadow_message(const SessionPtr& session, const Frame& frame);
  void on_shadow_ready(const Seat& shadow, const wire::Ready& ready);
  void check_shadows(StageId stage);
  // Members of a stage differ: whether its shadows say, or may say, who is right.
  bool settled_by_shadows(StageId stage, std::uint64_t version,
                          const std::map<std::uint64_t, std::vector<Seat>>& votes);
  void watch_shadows(Instant now);
  std::vector<Seat> keepers_of(GroupId group) const;
  bool has_result(const Seat& seat) const;
  std::optional<Seat> link_seat(const Seat& holder) const;
  std::set<StageId> stages_to_keep_for() const;
  void tell_shadows(wire::Commit commit, const std::set<StageId>& keepers);
  // The stage's last member is lost: whether a shadow can take it over.
  bool awaits_heir(const Seat& lost, const std::string& why, Goes how);
  std::optional<Seat> heir_of(StageId stage) const;
  void disinherit(StageId stage);
  void take_over();
  bool takes_followed(const Member& member) const;
  bool catches_up(const Member& member) const;
  bool is_heir(const wire::Hello& hello) const;
  bool keeps_followed(const wire::Hello& hello, const Seat& seat) const;
  void follow_on(const Seat& seat, std::uint64_t version);
  bool seat_heir(const Seat& seat, const wire::Ready& ready);

  // coordinator_join.cc: seats taken after the start
  void on_want_state(const Seat& seat);
  void freeze_states();
  void on_state_frozen(const wire::StateFrozen& frozen);
  void offer_state(StageId stage);
  void on_follower_ready(const Seat& seat, const wire::Ready& ready);
  void seat_followers(StageId stage);
  void take_seat(const Seat& seat, std::uint64_t version);

  // coordinator_step.cc: from leases to complete steps
  void on_want_leases(const wire::WantLeases& want);
  bool is_sealed(const Phase& phase) const;
  bool may_lease(const Phase& phase) const;
  void pump_leases();
  bool takes_leases(PeerId peer, const LeaseBook& source) const;
  void grant(PeerId source, const Lease& lease, wire::Leases& leases);
  void send_leases(const std::map<PeerId, wire::Leases>& granted);
  // coordinator_backups.cc
  void note_report(const Phase& phase);
  void watch_tail(Instant due);
  void on_tail_timer(Instant due);
  bool may_back_up(const Phase& phase) const;
  void back_up(const Phase& phase);
  std::optional<PeerId> idlest_source(PeerId holder) const;
  void on_report(const wire::Report& report);
  void on_claim(const SessionPtr& session, const Frame& frame, const RpcChannel::Respond& respond);
  void on_release_claim(const wire::ReleaseClaim& release);
  void on_compute_failed(const wire::ComputeFailed& failed);
  void on_stall(const wire::StallReport& stall);
  void after_progress(const Phase& phase);
  void finish_eval(const Phase& phase);

  // coordinator_reduce.cc: close, reduce, commit
  void seal(std::uint64_t step);
  wire::ReduceGroup group_of(GroupId id) const;
  std::vector<Seat> members_of(GroupId group) const;
  void send_seals(const std::vector<GroupId>& groups);
  void send_fetch(GroupId group, const std::vector<Seat>& to);
  // Members seated since the round began fetch its result, once somebody has it.
  void fetch_late(GroupId group);
  // Nobody who has not reported counts on its averaging any more.
  void fetch_missing(GroupId group);
  void arm_reduce_deadline(std::uint64_t step);
  void on_reduce_deadline();
  void on_reduced(const wire::Reduced& reduced);
  void on_round_broken(const wire::RoundBroken& broken);
  void on_seal_mismatch(const Seat& seat, const wire::SealMismatch& mismatch);
  void mark_held(const std::vector<StageId>& stages);
  void after_loss_in_rounds(const Seat& lost);
  // Gives broken groups another attempt, once what they reduce is complete.
  static Frame reopen_of(const wire::OpenPhase& opened, const std::set<StageId>& stages);
  void mend_rounds();
  void commit();
  void on_stepped(const wire::Stepped& stepped);
  void compare_states(StageId stage, std::uint64_t version);
  void choose_codecs();

  // coordinator_checkpoint.cc
  void begin_checkpoint(std::uint64_t version, bool final);
  void on_piece(const SessionPtr& session, const Frame& frame, const RpcChannel::Respond& respond);
  void arm_checkpoint_deadline();
  Result<void> check_piece(const Session& session, const wire::CheckpointPiece& piece,
                           std::uint64_t bytes) const;
  void finish_checkpoint();
  void checkpoint_lost(const Seat& seat);
  void checkpoint_damaged(const Error& error);
  void abandon_checkpoint(const std::string& why);
  bool all_stepped(std::uint64_t version) const;

  // coordinator_resume.cc: begun again on its journal
  Result<Address> listen();
  Result<void> say_moved(const Address& from, const Address& to, const std::string& why);
  void begin_collecting(const JournaledRun& run);
  void arm_collect_deadline();
  void arm_quiet();
  bool resumes(const wire::Hello& hello) const;
  void resume_seat(const SessionPtr& session, const wire::Hello& hello,
                   const RpcChannel::Respond& respond);
  void no_longer_awaited(const Seat& seat);
  bool awaited_again(const Session& session);
  bool waits_for_collecting(const SessionPtr& session, std::function<void()> handle);
  void end_collecting_soon();
  void end_collecting();
  void say_resume(const std::optional<CommitRecord>& last);
  wire::Commit said_again(const CommitRecord& record) const;
  void collect_phase(wire::OpenPhase& open);
  void name_coordinators(wire::Welcome& welcome) const;
  void journal_failed(const Error& error);
  void check_reign();
  void step_down(const std::string& why);

  std::uint64_t control_bytes() const;

  Runtime& runtime_;
  Network& network_;
  RunJournal journal_;
  EventLog events_;
  CheckpointSink& sink_;
  CoordinatorOptions options_;
  const RunShape shape_;
  std::function<void(RunOutcome)> on_finished_;
  Again again_;
  std::function<void(Again)> on_again_;

  Membership membership_;
  FailureDetector detector_;
  SessionTable sessions_;
  Outbox outbox_;
  ReplicaAudit audit_;
  RunSequence sequence_;
  Ledger ledger_;
  ReduceBoard board_;
  JoinDesk desk_;
  ShadowDesk shadows_;
  std::map<StageId, Emptied> emptied_;
  std::deque<wire::Commit> recent_commits_;
  std::map<Phase, wire::OpenPhase> opened_;  // as it is said to newcomers
  RunStats stats_;
  BalanceDesk balancer_;
  BoundaryBoard boundaries_;
  State state_ = State::kWaiting;
  std::string sentence_;
  Term term_{1};
  Era era_{0};
  Beginning beginning_;
  bool restarted_ = false;                          // this era is the first one of its own
  bool finding_ = false;                            // where the next era begins
  std::vector<std::function<void()>> held_hellos_;  // in order
  std::string era_sentence_;                        // why the newest era began, and where
  std::string why_waiting_;                         // for peers, in an era
  bool trained_ = false;                            // peers of this run are about
  std::set<PeerId> expected_;                       // lived when the era began, and are not back
  bool filling_ = false;                            // stages, just now
  bool gathered_ = false;                           // whoever comes back has had the time
  std::uint64_t furthest_ = 0;                      // version ever committed
  std::uint32_t fruitless_eras_ = 0;                // in a row that did not get beyond it
  TimerId gather_timer_, peers_wait_;
  bool ended_ = false;
  bool begins_again_ = false;  // in a moment

  std::map<PeerId, LeaseBook> sources_;
  std::map<MicrobatchId, std::vector<std::string>> failures_;  // of open phases
  ReportPace report_pace_;
  Phase reported_;  // the last report's
  bool tail_watched_ = false;
  std::set<MicrobatchId> backed_up_;  // of open steps
  std::uint64_t updates_ = 0;         // optimizer updates so far: commits that were not skipped
  std::set<StageId> reopened_;        // stages of the sealed step
  std::map<std::pair<PeerId, PeerId>, int> broken_links_;  // in averaging, of the open step
  std::map<Seat, int> mismatches_;
  int reduce_deadlines_ = 0;  // passed, for the sealed step
  std::unique_ptr<Collecting> collecting_;
  std::map<Seat, wire::Holdings> resumed_;  // while the phases they name are opened
  std::optional<CheckpointRound> checkpoint_;
  std::uint64_t checkpoint_bytes_ = 0;
  std::uint64_t checkpoints_begun_ = 0;
  std::uint64_t checkpoints_damaged_ = 0;
  std::string last_checkpoint_;
  std::uint64_t saved_version_ = ~std::uint64_t{0};
  TimerId reduce_deadline_;
  std::shared_ptr<Impl*> alive_;
};

}  // namespace swarmline
