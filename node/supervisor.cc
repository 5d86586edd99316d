#include "node/supervisor.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <numeric>
#include <optional>
#include <signal.h>
#include <utility>

#include <fmt/format.h>

#include "balancer/seating.h"
#include "console/exit_codes.h"
#include "console/screen.h"
#include "engine/net/tcp/tcp_network.h"
#include "engine/runtime/asio_runtime.h"
#include "engine/store/files.h"
#include "node/admin_client.h"
#include "node/child_process.h"
#include "node/page_access.h"
#include "node/plain_progress.h"
#include "node/process_log.h"
#include "node/summary.h"
#include "node/supervised_process.h"
#include "pipeline/protocol/run_status.h"

namespace swarmline {
namespace {

constexpr Duration kTick = std::chrono::milliseconds(50);  // children and address file
constexpr Duration kStatusPeriod = std::chrono::milliseconds(500);
constexpr Duration kAddressWait = std::chrono::minutes(10);  // the data is read before
// The coordinator says why the last peer's failure is the run's; sooner when it may not know the
// peer yet.
constexpr Duration kCoordinatorVerdict = std::chrono::seconds(20);
constexpr Duration kJoinVerdict = std::chrono::seconds(2);
constexpr Duration kPeersLeave = std::chrono::seconds(5);  // after the coordinator ended
// From a peer's start to its seat. Counted in ticks: none pass while this process is stopped.
constexpr int kJoinTicks = std::chrono::seconds(60) / kTick;

constexpr const char* kNoteRunning =
    "Ctrl-C: finish the step, write a checkpoint, end.  Twice: leave at once.";
constexpr const char* kNoteDraining =
    "Finishing the step and writing a checkpoint.  Ctrl-C: leave at once.";

constexpr Duration kNewsShown = std::chrono::seconds(15);  // on the screen

bool is_signal(int code) {
  return code > 128 && code != kExitInterrupted;
}

// A failure that another start may not have. A mistake of the user's, or what the coordinator told
// it, it would have again.
bool may_pass(int code) {
  return code == kExitFailed || is_signal(code);
}

std::string how_it_ended(int code) {
  return is_signal(code) ? fmt::format("was ended by signal {}", code - 128)
                         : fmt::format("ended with code {}", code);
}

// peer-a ... peer-z, peer-aa ...: the coordinator numbers peers as they come, in another order.
std::string peer_name(std::uint32_t number) {
  std::string letters;
  for (; number > 0; number = (number - 1) / 26)
    letters.insert(letters.begin(), static_cast<char>('a' + (number - 1) % 26));
  return "peer-" + letters;
}

class Supervisor {
 public:
  Supervisor(SupervisorOptions options, std::string program)
      : options_(std::move(options)),
        program_(std::move(program)),
        peers_wanted_(std::accumulate(options_.config.pipeline.peers.begin(),
                                      options_.config.pipeline.peers.end(), 0U)) {
    status_.run = options_.config.run.name;
    status_.steps = options_.config.run.steps;
    status_.state = "starting";
  }

  Result<int> run();

 private:
  Result<void> start_child(const std::string& name, std::vector<std::string> arguments);
  void tick();
  void look_for_address();
  std::optional<std::pair<std::uint32_t, std::uint32_t>> next_seat() const;
  void start_peers();
  void start_peer(const std::vector<std::string>& seat_arguments);
  void look_for_seats();
  void watch_children();
  SupervisedProcess& coordinator() { return children_.front(); }
  void child_ended(SupervisedProcess& child, int code);
  bool restarts(SupervisedProcess& child, int code);
  void say(const std::string& sentence);
  std::vector<std::string> coordinator_arguments() const;
  bool has_started() const;
  bool goes_on() const;
  void finish_when_peers_left();
  void poll_status();
  void take_status(std::string_view json);
  void show();
  void interrupted();
  void end(int exit_code);
  int conclude();
  void show_failure();

  SupervisorOptions options_;
  std::string program_;
  AsioRuntime runtime_;
  std::optional<TcpNetwork> network_;  // once the coordinator listens
  std::optional<AdminClient> admin_;
  std::string join_;                         // what its peers join by
  std::vector<SupervisedProcess> children_;  // the coordinator first
  std::uint32_t peers_wanted_;
  std::uint32_t peers_started_ = 0;
  int ticks_unseated_ = 0;  // since the newest peer was started
  RunStatus status_;
  bool started_ = false;  // it has trained
  bool asked_ = false;    // a status request is on its way
  std::optional<LiveScreen> screen_;
  std::string said_refused_;
  PlainProgress plain_{runtime_.wall_seconds()};  // where there is no screen
  std::string news_;                              // on the screen, until
  Instant news_until_{};
  std::optional<int> coordinator_code_;
  Instant coordinator_ended_{};
  std::optional<Instant> verdict_deadline_;
  std::string guilty_;  // the child that failed first
  int guilty_code_ = 0;
  bool draining_ = false;
  bool ended_ = false;
  int exit_code_ = kExitFailed;
  std::optional<Error> error_;
};

Result<void> Supervisor::start_child(const std::string& name, std::vector<std::string> arguments) {
  auto process = SupervisedProcess::start(name,
                                          {.program = program_,
                                           .arguments = std::move(arguments),
                                           .output_file = options_.folder.log_of(name)},
                                          {.attempts_max = options_.restarts_max}, runtime_.now());
  if (!process) return std::unexpected(std::move(process).error());
  children_.push_back(std::move(*process));
  return {};
}

void Supervisor::end(int exit_code) {
  exit_code_ = exit_code;
  ended_ = true;
  runtime_.request_stop();
}

void Supervisor::tick() {
  if (ended_) return;
  if (!admin_) look_for_address();
  if (admin_) {
    start_peers();
    look_for_seats();
  }
  watch_children();
  if (!ended_) runtime_.call_after(kTick, [this] { tick(); });
}

void Supervisor::look_for_address() {
  auto address = options_.folder.read_address();
  if (!address) return;
  auto guard = options_.folder.owner_guard();
  if (!guard) {
    error_ = std::move(guard).error();
    return end(kExitFailed);
  }
  join_ = *guard ? options_.folder.join_string() : to_string(*address);
  network_.emplace(runtime_, TcpOptions{.guard = std::move(*guard)});
  admin_.emplace(runtime_, *network_, *address, options_.folder.admin_secret().value_or(""));
  if (!screen_) {
    std::printf("run %s: coordinator at %s, %u peers in %u stages, folder %s\n",
                options_.config.run.name.c_str(), to_string(*address).c_str(), peers_wanted_,
                options_.config.pipeline.stages, options_.folder.path().c_str());
    std::fflush(stdout);
  }
  poll_status();
}

// The stage that the coordinator gives to the next peer, and how many it has there: the same
// planner over the same facts.
std::optional<std::pair<std::uint32_t, std::uint32_t>> Supervisor::next_seat() const {
  SwarmSnapshot snapshot;
  for (const std::uint32_t target : options_.config.pipeline.peers) {
    snapshot.stages.push_back({.cost = 1, .memory_bytes = 0, .target = target});
  }
  std::vector<std::uint32_t> seated(snapshot.stages.size());
  for (const StageStatus& stage : status_.stages) {
    if (stage.stage >= seated.size()) continue;
    for (const PeerStatus& peer : stage.peers) {
      ++seated[stage.stage];
      snapshot.peers.push_back({.peer = PeerId{static_cast<std::uint32_t>(peer.peer)},
                                .speed = 1,
                                .memory_bytes = 0,
                                .stage = StageId{static_cast<std::uint16_t>(stage.stage)}});
    }
  }
  const PeerId next{static_cast<std::uint32_t>(snapshot.peers.size() + 1)};
  const auto stage = place_joiner(snapshot, {.peer = next, .stage = std::nullopt});
  if (!stage) return std::nullopt;
  return std::pair{std::uint32_t{stage->value}, seated[stage->value]};
}

void Supervisor::start_peers() {
  while (peers_started_ < peers_wanted_ && !ended_) {
    std::vector<std::string> seat_arguments;
    if (!options_.seat_arguments.empty()) {
      if (status_.stages.empty() || status_.peers() < peers_started_) return;
      const auto seat = next_seat();
      const auto found = seat ? options_.seat_arguments.find(*seat) : options_.seat_arguments.end();
      if (found != options_.seat_arguments.end()) seat_arguments = found->second;
    }
    start_peer(seat_arguments);
  }
}

void Supervisor::start_peer(const std::vector<std::string>& seat_arguments) {
  const std::string name = peer_name(++peers_started_);
  std::vector<std::string> arguments{"peer", "--join", join_, "--name", name};
  arguments.insert(arguments.end(), options_.peer_arguments.begin(), options_.peer_arguments.end());
  arguments.insert(arguments.end(), seat_arguments.begin(), seat_arguments.end());
  if (!options_.peer_devices.empty())
    arguments.insert(arguments.end(), {"--device", options_.peer_devices.at(peers_started_ - 1)});
  if (auto started = start_child(name, std::move(arguments)); !started) {
    error_ = std::move(started).error();
    end(kExitFailed);
  }
}

// A peer that neither joins nor ends (stopped, or waiting for a disk that is gone) would leave the
// coordinator waiting for ever.
void Supervisor::look_for_seats() {
  if (peers_started_ == 0 || status_.state != "waiting" || status_.peers() >= peers_started_) {
    ticks_unseated_ = 0;
    return;
  }
  if (ended_ || coordinator_code_ || ++ticks_unseated_ < kJoinTicks) return;
  std::string missing;
  for (std::uint32_t number = 1; number <= peers_started_; ++number) {
    const std::string name = peer_name(number);
    const bool seated = std::ranges::any_of(status_.stages, [&](const StageStatus& stage) {
      return std::ranges::any_of(stage.peers,
                                 [&](const PeerStatus& peer) { return peer.name == name; });
    });
    if (!seated) missing += (missing.empty() ? "" : ", ") + name;
  }
  error_ = Error{
      ErrorCode::kDeadline,
      fmt::format("{} did not join the coordinator at {} within {} s; see the logs in {}", missing,
                  to_string(admin_->address()),
                  std::chrono::duration_cast<std::chrono::seconds>(kTick * kJoinTicks).count(),
                  options_.folder.logs())};
  end(kExitFailed);
}

void Supervisor::watch_children() {
  for (SupervisedProcess& child : children_) {
    if (const auto code = child.poll()) child_ended(child, *code);
    if (coordinator_code_ || draining_) child.cancel_restart();
    if (auto started = child.start_if_due(runtime_.now()); !started) {
      error_ = std::move(started).error();
      return end(kExitFailed);
    }
  }
  if (coordinator_code_) return finish_when_peers_left();
  // What the status said when the peer ended may have been old.
  if (verdict_deadline_ && goes_on()) verdict_deadline_.reset();
  if (verdict_deadline_ && runtime_.now() > *verdict_deadline_) end(kExitFailed);
}

bool Supervisor::has_started() const {
  return started_;
}

// Once it has started, the run goes on while each stage keeps a peer; when none is left, the
// coordinator says so.
bool Supervisor::goes_on() const {
  return has_started() && std::ranges::any_of(children_, [&](const SupervisedProcess& child) {
           return &child != &children_.front() && child.is_alive();
         });
}

std::vector<std::string> Supervisor::coordinator_arguments() const {
  return {"coordinator", options_.folder.config(), "--prepared"};
}

void Supervisor::say(const std::string& sentence) {
  if (!screen_) {
    std::printf("%s\n", sentence.c_str());
    std::fflush(stdout);
    return;
  }
  news_ = sentence;
  news_until_ = runtime_.now() + kNewsShown;
  show();
}

// A coordinator that was killed left its journal and its peers; one that ended by itself meant it.
bool Supervisor::restarts(SupervisedProcess& child, int code) {
  const bool is_coordinator = &child == &coordinator();
  const bool may = is_coordinator ? is_signal(code) : may_pass(code);
  if (!may || !admin_ || draining_ || coordinator_code_) return false;
  const std::string who = is_coordinator ? "the coordinator" : child.name();
  if (const auto pause = child.plan_restart(runtime_.now())) {
    const std::string when = *pause == Duration::zero()
                                 ? "started again"
                                 : fmt::format("started again in {} s", to_seconds(*pause));
    say(fmt::format("{} {}; {}", who, how_it_ended(code), when));
    return true;
  }
  if (options_.restarts_max > 0)
    say(fmt::format(
        "{} {}, {} times in a row soon after its start; it is not started again; see {}", who,
        how_it_ended(code), child.short_lives(), child.output_file()));
  return false;
}

void Supervisor::child_ended(SupervisedProcess& child, int code) {
  if (restarts(child, code)) return;
  if (code != kExitDone && guilty_.empty()) {
    guilty_ = child.name();
    guilty_code_ = code;
  }
  if (&child == &coordinator()) {
    coordinator_code_ = code;
    coordinator_ended_ = runtime_.now();
    return;
  }
  if (code == kExitDone || coordinator_code_ || verdict_deadline_) return;
  if (!goes_on()) {
    verdict_deadline_ = runtime_.now() + (has_started() ? kCoordinatorVerdict : kJoinVerdict);
  } else if (options_.restarts_max == 0 || !may_pass(code)) {  // else that has been said
    say(fmt::format("{} {}; see {}", child.name(), how_it_ended(code), child.output_file()));
  }
}

void Supervisor::finish_when_peers_left() {
  const bool all_left = std::ranges::all_of(
      children_, [](const SupervisedProcess& child) { return !child.is_alive(); });
  if (!all_left && runtime_.now() < coordinator_ended_ + kPeersLeave) return;
  const int code = *coordinator_code_;
  end(is_signal(code) ? kExitFailed : code);
}

void Supervisor::poll_status() {
  if (ended_ || coordinator_code_) return;
  if (!asked_) {
    asked_ = true;
    admin_->status([this](Result<std::string> json) {
      asked_ = false;
      if (json) take_status(*json);
    });
  }
  runtime_.call_after(kStatusPeriod, [this] { poll_status(); });
}

void Supervisor::take_status(std::string_view json) {
  auto status = parse_status(json);
  if (!status) {
    error_ = std::move(status).error();
    return end(kExitFailed);
  }
  status_ = std::move(*status);
  add_page_token(status_, options_.folder);
  const bool trains =
      status_.era > 0 || (status_.state != "starting" && status_.state != "waiting");
  // It had started when the last peer ended: the coordinator knows why.
  if (trains && !std::exchange(started_, true) && verdict_deadline_)
    verdict_deadline_ = runtime_.now() + kCoordinatorVerdict;
  if (status_.refused != std::exchange(said_refused_, status_.refused) && !said_refused_.empty())
    say(said_refused_);
  show();
}

void Supervisor::show() {
  if (screen_) {
    const bool has_news = !news_.empty() && runtime_.now() < news_until_;
    const std::string note = status_.over() ? ""
                             : has_news     ? news_
                             : draining_    ? kNoteDraining
                                            : kNoteRunning;
    screen_->draw(render_screen(status_, note, terminal_style()));
    return;
  }
  plain_.show(status_, runtime_.now());
}

void Supervisor::interrupted() {
  if (draining_ || !admin_) {
    end(kExitInterrupted);
    return;
  }
  draining_ = true;
  admin_->stop(false, [this](Result<std::string> answer) {
    if (!answer && !coordinator_code_) end(kExitInterrupted);
  });
  if (!screen_) {
    std::printf("%s\n", kNoteDraining);
    std::fflush(stdout);
  }
}

void Supervisor::show_failure() {
  if (!status_.sentence.empty() && status_.state == "failed") {
    std::fprintf(stderr, "swarmline: %s\n", status_.sentence.c_str());
  }
  if (guilty_.empty()) return;
  const std::string path = options_.folder.log_of(guilty_);
  const std::string why = may_pass(guilty_code_) ? "" : last_word(path);
  if (!why.empty()) {
    std::fprintf(stderr, "swarmline: %s: %s\n", guilty_.c_str(), why.c_str());
    return;
  }
  std::fprintf(stderr, "swarmline: %s ended with code %d; the end of %s:\n", guilty_.c_str(),
               guilty_code_, path.c_str());
  std::fputs(tail_of(path).c_str(), stderr);
}

int Supervisor::conclude() {
  if (const auto json = options_.folder.final_status()) {
    if (auto status = parse_status(*json)) status_ = std::move(*status);
  }
  const bool on_screen = screen_.has_value();
  if (on_screen) show();
  screen_.reset();
  if (exit_code_ == kExitInterrupted) {
    std::printf("left at once; what was committed is in %s\n", options_.folder.path().c_str());
    return exit_code_;
  }
  if (!coordinator_code_ && (guilty_code_ == kExitUserMistake || guilty_code_ == kExitRefused))
    exit_code_ = guilty_code_;
  if (exit_code_ != kExitDone) {
    show_failure();
    return exit_code_;
  }
  if (!on_screen && !plain_.has_shown(status_.step)) show();
  if (!on_screen && !status_.sentence.empty()) std::printf("%s\n", status_.sentence.c_str());
  const bool whole = status_.step == status_.steps;
  std::fputs(summary(status_, options_.folder, whole).c_str(), stdout);
  return exit_code_;
}

Result<int> Supervisor::run() {
  SWARMLINE_TRY(start_child("coordinator", coordinator_arguments()));
  if (output_is_terminal()) screen_.emplace();
  if (screen_) show();
  runtime_.on_signals([this](int) { interrupted(); });
  runtime_.call_after(kAddressWait, [this] {
    if (admin_) return;
    error_ = Error{ErrorCode::kDeadline, "the coordinator did not begin to listen; see " +
                                             options_.folder.log_of("coordinator")};
    end(kExitFailed);
  });
  tick();
  runtime_.run();
  const int exit_code = conclude();
  if (error_) return std::unexpected(std::move(*error_));
  return exit_code;
}

}  // namespace

Result<int> supervise(SupervisorOptions options) {
  auto program = own_program_path();
  if (!program) return std::unexpected(std::move(program).error());
  return Supervisor(std::move(options), std::move(*program)).run();
}

}  // namespace swarmline
