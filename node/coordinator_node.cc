#include "node/coordinator_node.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/rng.h"
#include "console/exit_codes.h"
#include "engine/config/begun_run.h"
#include "engine/config/link_security.h"
#include "engine/config/load.h"
#include "node/cache_folder.h"
#include "node/descriptors.h"
#include "node/initial_state.h"
#include "node/page_access.h"
#include "node/run_change.h"
#include "node/run_restore.h"
#include "node/run_retention.h"
#include "node/run_store.h"
#include "node/stage_table.h"
#include "node/summary.h"
#include "pipeline/coordinator/run/run_journal.h"
#include "pipeline/protocol/run_status.h"

namespace swarmline {
namespace {

// What is still queued for closing connections gets out.
constexpr Duration kCoordinatorLinger = std::chrono::milliseconds(200);
// A coordinator that reads a checkpoint is asked so often whether it is done.
constexpr Duration kBeginningLook = std::chrono::milliseconds(10);
constexpr Duration kProgressPeriod = std::chrono::seconds(10);  // between lines on how far it is
constexpr int kInviteLookupsMax = 1024;  // that wait; the next may come again

std::string make_run_id(const RunConfig& config, const Runtime& runtime) {
  const auto microseconds = static_cast<std::uint64_t>(runtime.wall_seconds() * 1e6);
  return fmt::format("{}-{}", config.run.name, hex64(mix(microseconds, config.run.seed)));
}

// What no folder of another run or another time says.
std::string make_token(const RunConfig& config, const Runtime& runtime) {
  const auto uuid = read_text_file("/proc/sys/kernel/random/uuid", 64);
  return fmt::format("{} {}", make_run_id(config, runtime), uuid.value_or("-"));
}

// Where its numbers and checkpoints go is no peer's business; a command or a URL may hold a
// password.
RunConfig for_peers(RunConfig config) {
  config.log.tensorboard = false;
  config.log.command.clear();
  config.checkpoint.store.clear();
  config.checkpoint.python = CheckpointSection().python;
  return config;
}

}  // namespace

CoordinatorNode::CoordinatorNode(AsioRuntime& runtime, CoordinatorNodeOptions options,
                                 Handlers handlers)
    : runtime_(runtime),
      options_(std::move(options)),
      handlers_(std::move(handlers)),
      folder_(options_.config.run_folder()),
      clerk_(runtime_, {.name = "invites", .queue_jobs_max = kInviteLookupsMax}),
      writer_(runtime_, {.name = "checkpoints", .queue_jobs_max = FolderSink::kJobsMax}),
      reader_(runtime_, {.name = "old checkpoints"}),
      source_(folder_.checkpoints(), reader_,
              options_.config.run.init.empty() ? std::string() : initial_folder(folder_),
              store_of(options_.config)) {}

CoordinatorNode::~CoordinatorNode() = default;

Result<void> CoordinatorNode::begin_folder(const std::function<Result<RunStart>()>& begin) {
  const auto start = begin();
  if (!start) return std::unexpected(start.error());
  nothing_to_do_ = *start == RunStart::kFinished;
  if (handlers_.on_begun) handlers_.on_begun(*start);
  return {};
}

Result<void> CoordinatorNode::open() {
  const RunConfig& config = options_.config;
  SWARMLINE_TRY(enough_descriptors(config, raise_descriptors()));
  if (options_.standby) {
    SWARMLINE_TRY(make_folders(folder_.logs()));
  } else if (!options_.prepared) {
    if (!options_.fresh) SWARMLINE_TRY(check_old_journal(config, folder_));
    auto initial = find_initial_parameters(config, folder_, options_.fresh);
    if (!initial) return std::unexpected(std::move(initial).error());
    SWARMLINE_TRY(restore_run(config, folder_, options_.fresh));
    SWARMLINE_TRY(begin_folder([&] { return folder_.prepare_or_resume(config, options_.fresh); }));
    if (nothing_to_do_) return {};
    SWARMLINE_TRY(initial->write(config, folder_));
  }
  SWARMLINE_TRY(make_network());
  SWARMLINE_TRY(open_data());
  auto store = open_control_store(runtime_, control_store_of(config, folder_));
  if (!store) return std::unexpected(std::move(store).error());
  store_ = std::move(*store);
  make_leadership();
  return options_.standby ? Result<void>() : take_the_lead();
}

Result<void> CoordinatorNode::open_data() {
  auto data = open_run_data(options_.config, true);
  if (!data) return std::unexpected(std::move(data).error());
  data_.emplace(std::move(*data));
  SWARMLINE_TRY(list_data(*data_, hashes_folder()));
  return write_text_file_atomically(folder_.data(), to_json(*data_->manifest));
}

Result<void> CoordinatorNode::make_network() {
  if (wants_keys(options_.config)) SWARMLINE_TRY(open_key());
  auto network = options_.network(runtime_, {.name = options_.standby ? "standby" : "coordinator",
                                             .slow_down = {},
                                             .guard = link_guard_});
  if (!network) return std::unexpected(std::move(network).error());
  network_ = std::move(*network);
  return {};
}

void CoordinatorNode::make_leadership() {
  leadership_.emplace(runtime_, *store_, own_name(),
                      [this](Leadership::End, const std::string& why) { lost_the_lead(why); });
}

Result<void> CoordinatorNode::take_the_lead() {
  auto journal = leadership_->try_lead();
  if (!journal) return std::unexpected(std::move(journal).error());
  if (*journal == nullptr && store_->lease_time() == Duration{}) return another_leads();
  journal_ = *journal;  // null: another has the lease, which may have died
  return {};
}

std::unexpected<Error> CoordinatorNode::another_leads() {
  const auto leader = store_->leader();
  return fail(
      ErrorCode::kUserMistake,
      fmt::format("another coordinator ({}) leads the run {}; end that one first, or give "
                  "this run another name by --name NAME",
                  leader ? leader->value_or("just gone") : "unknown", options_.config.run.name));
}

// Whoever lives renews it meanwhile.
void CoordinatorNode::wait_for_the_lease() {
  log(LogLevel::kInfo,
      "another coordinator leads the run; waiting {:.3g} s for the end of its lease",
      to_seconds(store_->lease_time()));
  const TimerId waits =
      runtime_.call_after(store_->lease_time() + 2 * kStandbyPeriod, guard_.wrap([this] {
        if (journal_ == nullptr) finish(another_leads());
      }));
  leadership_->stand_by([this, waits](Result<AsyncJournal*> journal) {
    runtime_.cancel(waits);
    if (over_) return;
    if (!journal) return finish(std::unexpected(std::move(journal).error()));
    journal_ = *journal;
    if (auto led = lead(); !led) finish(std::unexpected(std::move(led).error()));
  });
}

void CoordinatorNode::start() {
  if (nothing_to_do_) return finish(RunOutcome{});
  SWARMLINE_CHECK(leadership_.has_value());
  if (!options_.standby) {
    if (journal_ == nullptr) return wait_for_the_lease();
    if (auto led = lead(); !led) finish(std::unexpected(std::move(led).error()));
    return;
  }
  stand_by();
}

void CoordinatorNode::stand_by() {
  if (handlers_.on_standing_by) handlers_.on_standing_by();
  leadership_->stand_by(
      [this](Result<AsyncJournal*> journal) { leads_after_all(std::move(journal)); });
}

// The one who led before is gone.
void CoordinatorNode::leads_after_all(Result<AsyncJournal*> journal) {
  if (over_) return;
  const auto go_on = [&]() -> Result<void> {
    if (!journal) return std::unexpected(std::move(journal).error());
    journal_ = *journal;
    if (link_guard_)
      if (auto settled = settle_key(); !settled) {
        if (settled.error().code != ErrorCode::kUserMistake) return settled;
        wait_for_key(settled.error().what);
        return {};
      }
    const auto ended = Coordinator::has_ended(journal_->at_once());
    if (!ended) return std::unexpected(ended.error());
    nothing_to_do_ = *ended;
    if (nothing_to_do_) return {};
    SWARMLINE_TRY(keep_settings());
    // With its last checkpoint written, too: its peers have not heard of the end.
    SWARMLINE_TRY(begin_folder([this]() -> Result<RunStart> {
      const auto start = folder_.take_over(options_.config);
      return start && *start == RunStart::kFinished ? RunStart::kResumes : start;
    }));
    return lead();
  };
  if (auto led = go_on(); !led) {
    if (led.error().code != ErrorCode::kIo) return finish(std::unexpected(std::move(led).error()));
    return lost_the_lead(led.error().what);
  }
  if (nothing_to_do_) finish(RunOutcome{});
}

// Whoever led before may have gone on with other settings than this process was started with; where
// its data lies on this machine, only this process knows, unless the run has had other data.
Result<void> CoordinatorNode::keep_settings() {
  changes_run_ = false;
  const auto segments = RunJournal::segments_in(journal_->at_once());
  if (!segments) return std::unexpected(segments.error());
  if (segments->empty()) return {};
  const bool had_other_data = std::ranges::any_of(
      *segments, [](const RunSegment& segment) { return changes_data(segment.changes); });
  RunConfig kept = with_segment_of(options_.config, segments->back().config, had_other_data);
  if (kept == options_.config) return {};
  log(LogLevel::kInfo, "the run goes on as it was: {}", sentence_of(segments->back()));
  options_.config = std::move(kept);
  return open_data();
}

Result<void> CoordinatorNode::open_files() {
  auto log_file = LineFile::open_append(folder_.log());
  if (!log_file) return std::unexpected(std::move(log_file).error());
  log_.emplace(std::move(*log_file));
  SWARMLINE_TRY(open_numbers_elsewhere());
  sink_.emplace(
      folder_.checkpoints(), manifest_for(options_.config, data_->model),
      [log = folder_.log(), section = options_.config.checkpoint] {
        return retention_of(section, log);
      },
      writer_, options_.config.checkpoint.peers_write ? make_token(options_.config, runtime_) : "",
      [this](const std::string& path) {
        if (mirror_) mirror_->copy(path);
      });
  open_mirror();
  log(LogLevel::kInfo, "data: {} files, {} tokens, {} sequences to train on, {} held out",
      data_->dataset.files(), data_->dataset.tokens(), data_->dataset.train_sequences(),
      data_->dataset.held_out_sequences());
  return {};
}

void CoordinatorNode::open_mirror() {
  const RunConfig& config = options_.config;
  if (config.checkpoint.store.empty()) return;
  mirror_.emplace(
      runtime_,
      CheckpointStore::of_run(config.checkpoint.store, config.run.name, config.checkpoint.python),
      folder_.outbox(),
      [log = folder_.log(), section = config.checkpoint] { return retention_of(section, log); });
}

// A run that goes on without a page is better than none: only one that a user begins ends for it.
Result<void> CoordinatorNode::open_page() {
  auto page =
      CoordinatorPage::open(runtime_, folder_, options_.config, [this] { return status_json(); });
  if (page) {
    page_ = std::move(*page);
    return {};
  }
  if (!options_.prepared && !options_.standby) return std::unexpected(std::move(page).error());
  log(LogLevel::kWarn, "the run has no page: {}", page.error().what);
  return {};
}

std::string CoordinatorNode::page_url() const {
  return page_ ? read_page_url(folder_).value_or(page_->url()) : "";
}

Result<void> CoordinatorNode::open_numbers_elsewhere() {
  const LogSection& section = options_.config.log;
  if (section.tensorboard && !tensorboard_) {
    SWARMLINE_TRY(make_folders(folder_.tensorboard()));
    const double now = runtime_.wall_seconds();
    auto log = TensorboardLog::create(
        folder_.tensorboard() + "/" + tensorboard_file_name(now, host_name(), ::getpid()), now);
    if (!log) return std::unexpected(std::move(log).error());
    tensorboard_.emplace(std::move(*log));
  }
  if (!section.command.empty() && !log_command_)
    log_command_.emplace(runtime_,
                         LogCommand::Options{.command = section.command,
                                             .output_file = folder_.log_of("log-command")});
  return {};
}

void CoordinatorNode::take_line(const std::string& line) {
  if (auto written = log_->append(line); !written) log(LogLevel::kWarn, "{}", written.error().what);
  if (log_command_) log_command_->line(line);
  if (page_) page_->take_line(line);
}

Result<void> CoordinatorNode::lead() {
  if (link_guard_) SWARMLINE_TRY(settle_key());
  SWARMLINE_TRY(open_files());
  SWARMLINE_TRY(open_page());
  auto secret = folder_.make_admin_secret();
  if (!secret) return std::unexpected(std::move(secret).error());
  const auto newest = latest_checkpoint(folder_.checkpoints());
  if (!newest) return std::unexpected(newest.error());
  auto stage_memory = least_memory(options_.config, data_->model);
  if (!stage_memory) return std::unexpected(std::move(stage_memory).error());
  CoordinatorOptions options{
      .config = options_.config,
      .config_toml = to_toml(for_peers(options_.config)),
      .run_id = make_run_id(options_.config, runtime_),
      .run_key = to_hex(as_bytes(random_secret(kSecretBytes))),
      .admin_secret = std::move(*secret),
      .page = page_ ? page_->url() : "",
      .goes_on = newest->has_value(),
      .model = data_->model,
      .tokenizer = tokenizer_of(options_.config.data),
      .stage_memory = std::move(*stage_memory),
      .changes_run = changes_run_,
      .eval_sequences = data_->eval_sequences,
      .unigram_entropy = data_->entropy.unigram_nats,
      .bigram_entropy = data_->entropy.bigram_nats.value_or(0),
      .log_line = [this](const std::string& line) { take_line(line); },
      .log_point = {},
      .checkpoints = &source_,
      .data = data_->manifest,
  };
  if (tensorboard_)
    options.log_point = [this](const LogPoint& point) {
      if (auto written = tensorboard_->add(point); !written)
        log(LogLevel::kWarn, "{}", written.error().what);
    };
  if (link_guard_) {
    options.certify = [guard = link_guard_](const std::string& run_id, const Seat& seat,
                                            const KeyHash& key) {
      return guard->certify(run_id, seat, key);
    };
    options.certify_anew = [guard = link_guard_](const std::string& run_id, const Seat& seat,
                                                 const KeyHash& key) {
      return guard->certify_anew(run_id, seat, key);
    };
    options.is_run_key = [guard = link_guard_](const KeyHash& key) {
      return key == guard->identity().hash();
    };
  }
  coordinator_.emplace(
      runtime_, *network_, *journal_, *sink_, std::move(options),
      guard_.wrap([this](RunOutcome outcome) { coordinator_finished(std::move(outcome)); }));
  auto bound = coordinator_->start();
  if (!bound && bound.error().code == ErrorCode::kUserMistake)  // not of its address
    return std::unexpected(std::move(bound).error());
  if (!bound) {
    return fail(ErrorCode::kUserMistake,
                fmt::format("{}; give another address by --listen HOST:PORT (port 0: any free "
                            "one)",
                            bound.error().what));
  }
  look_whether_it_takes_peers(*bound);
  return {};
}

// Peers come once they are answered: the folder tells nobody the address before.
void CoordinatorNode::look_whether_it_takes_peers(const Address& bound) {
  if (over_) return;
  if (!coordinator_->takes_peers()) {
    runtime_.call_after(kBeginningLook,
                        guard_.wrap([this, bound] { look_whether_it_takes_peers(bound); }));
    return;
  }
  auto join = way_to_join(bound);
  if (!join) return finish(std::unexpected(std::move(join).error()));
  if (link_guard_ && !bound_) keep_join_string();
  bound_ = bound;
  if (auto written = folder_.write_address(bound); !written)
    return finish(std::unexpected(std::move(written).error()));
  if (handlers_.on_listening) handlers_.on_listening(bound, *join);
  tell_progress();
}

// A line now and then, so that whoever looks at its output sees that it trains.
void CoordinatorNode::tell_progress() {
  runtime_.cancel(progress_);
  progress_ = runtime_.call_after(kProgressPeriod, guard_.wrap([this] {
    if (over_ || !coordinator_) return;
    const RunStatus status = coordinator_->status();
    if (status.step != std::exchange(told_step_, status.step))
      log(LogLevel::kInfo, "{}", plain_line(status));
    if (const auto news = protection_.of(status)) log(LogLevel::kWarn, "{}", *news);
    tell_progress();
  }));
}

// By the address alone, where only this machine reaches it, or its user wants no keys.
Result<std::string> CoordinatorNode::way_to_join(const Address& bound) {
  if (link_guard_)
    return leave_join_string(folder_, options_.config, bound, runtime_.wall_seconds());
  remove_join_string(folder_);
  return to_string(reached_at(options_.config, bound).front());
}

// It leaves its peers without a word: one that leads takes them on. Where nobody does, or nobody
// can be asked, that may be this process again.
void CoordinatorNode::lost_the_lead(const std::string& why) {
  if (over_) return;
  let_go();
  if (const auto leader = store_->leader(); leader && *leader) return step_down(why);
  log(LogLevel::kWarn, "{}; standing by", why);
  make_leadership();
  stand_by();
}

void CoordinatorNode::let_go() {
  coordinator_.reset();
  page_.reset();
  if (sink_) sink_->abandon();
  mirror_.reset();
  network_->stop_listening();
  journal_ = nullptr;
  records_key_ = false;  // nobody is told any more
  leadership_.reset();
  store_->release();
}

// Another leads by now: the run is its, and so are the peers and the folder.
void CoordinatorNode::step_down(const std::string& why) {
  finish(RunOutcome{kExitRefused, why});
}

void CoordinatorNode::coordinator_finished(RunOutcome outcome) {
  if (over_) return;
  if (outcome.exit_code == kExitRefused) {  // not from inside the coordinator, which goes
    runtime_.post(guard_.wrap([this, why = outcome.sentence] { lost_the_lead(why); }));
    return;
  }
  over_ = true;
  if (auto written = write_text_file_atomically(folder_.status(), coordinator_->status_json());
      !written) {
    log(LogLevel::kWarn, "{}", written.error().what);
  }
  if (page_) page_->end();
  runtime_.call_after(kCoordinatorLinger, guard_.wrap([this, outcome = std::move(outcome)] {
    leave_finished(outcome);
  }));
}

void CoordinatorNode::leave_finished(const RunOutcome& outcome) {
  folder_.remove_address();
  if (!mirror_) return leave(outcome);
  mirror_->finish(guard_.wrap([this, outcome] {
    mirror_.reset();
    leave(outcome);
  }));
}

void CoordinatorNode::leave(const RunOutcome& outcome) {
  if (!log_command_) return handlers_.on_finished(outcome);
  log_command_->end(guard_.wrap([this, outcome] { handlers_.on_finished(outcome); }));
}

void CoordinatorNode::finish(Result<RunOutcome> outcome) {
  if (std::exchange(over_, true)) return;
  runtime_.post(
      guard_.wrap([this, outcome = std::move(outcome)] { handlers_.on_finished(outcome); }));
}

void CoordinatorNode::request_stop() {
  const bool again = std::exchange(stop_asked_, true);
  if (over_ && again && mirror_) return mirror_->give_up();
  if (coordinator_) return coordinator_->request_stop(again);
  finish(RunOutcome{});
}

}  // namespace swarmline
