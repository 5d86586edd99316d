#include <climits>
#include <cstdio>
#include <cstring>
#include <optional>
#include <signal.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "base/hash.h"
#include "base/rng.h"
#include "cli/chaos_tap.h"
#include "cli/commands.h"
#include "cli/config_flags.h"
#include "cli/exit_codes.h"
#include "cli/folder_sink.h"
#include "cli/folder_source.h"
#include "cli/run_data.h"
#include "cli/run_folder.h"
#include "cli/summary.h"
#include "engine/config/load.h"
#include "engine/device/cpu_device.h"
#include "engine/runtime/asio_runtime.h"
#include "engine/store/control_store.h"
#include "engine/store/files.h"
#include "pipeline/coordinator/coordinator.h"

namespace swarmline {
namespace {

// What is still queued for closing connections gets out.
constexpr Duration kLinger = std::chrono::milliseconds(200);
// A coordinator that reads a checkpoint is asked at least so often whether it is done.
constexpr Duration kBeginningLook = std::chrono::seconds(60);
// A standby asks so often who leads.
constexpr Duration kStandbyPeriod = std::chrono::milliseconds(500);

struct CoordinatorFlags {
  ConfigFlags config;
  bool fresh = false;
  bool prepared = false;
  bool standby = false;
  std::string chaos;
};

std::string make_run_id(const RunConfig& config, const Runtime& runtime) {
  const auto microseconds = static_cast<std::uint64_t>(runtime.wall_seconds() * 1e6);
  return fmt::format("{}-{}", config.run.name, hex64(mix(microseconds, config.run.seed)));
}

// What others see of who leads.
std::string own_name() {
  char host[HOST_NAME_MAX + 1] = {};
  if (::gethostname(host, HOST_NAME_MAX) != 0) std::strcpy(host, "?");
  return fmt::format("{}, process {}", host, ::getpid());
}

// What the coordinator command holds while a run lasts; members in the order of their dependencies.
class CoordinatorProcess {
 public:
  CoordinatorProcess(RunConfig config, RunFolder folder, const CoordinatorFlags& flags)
      : config_(std::move(config)),
        folder_(std::move(folder)),
        flags_(flags),
        source_(folder_.checkpoints(), reader_) {}

  Result<int> run();
  // Waits until nobody leads the run, and goes on with it.
  Result<int> run_as_standby();

 private:
  Result<void> open();
  Result<void> open_files();
  Result<int> lead();
  Result<void> announce(const Address& bound);
  Result<void> take_the_lead();
  Result<bool> try_lead();
  Result<bool> stand_by();
  void renew();
  void step_down(const std::string& why);
  void finished(RunOutcome outcome);
  void signalled();

  RunConfig config_;
  RunFolder folder_;
  const CoordinatorFlags& flags_;
  AsioRuntime runtime_;
  std::unique_ptr<Network> network_;
  std::unique_ptr<ControlStore> store_;
  Journal* journal_ = nullptr;  // of store_
  std::optional<LineFile> log_;
  std::optional<FolderSink> sink_;
  CpuDevice reader_{runtime_, {.name = "checkpoints"}};
  FolderSource source_;
  std::optional<RunData> data_;
  std::optional<Coordinator> coordinator_;
  RunOutcome outcome_;
  bool stop_asked_ = false;
  bool over_ = false;
  bool deposed_ = false;  // another leads: the folder is its
};

Result<void> CoordinatorProcess::open() {
  auto network = open_network(runtime_, flags_.chaos, flags_.standby ? "standby" : "coordinator",
                              [](double) {});
  if (!network) return std::unexpected(std::move(network).error());
  network_ = std::move(*network);
  auto data = open_run_data(config_, true);
  if (!data) return std::unexpected(std::move(data).error());
  data_.emplace(std::move(*data));
  store_ = open_control_store({.etcd = config_.run.etcd,
                               .run_folder = folder_.path(),
                               .run = config_.run.name,
                               .lease = from_seconds(config_.run.etcd_lease_seconds)});
  return {};
}

Result<void> CoordinatorProcess::open_files() {
  auto log_file = LineFile::open_append(folder_.log());
  if (!log_file) return std::unexpected(std::move(log_file).error());
  log_.emplace(std::move(*log_file));
  sink_.emplace(folder_.checkpoints(), manifest_for(config_, data_->model),
                config_.checkpoint.keep);
  log(LogLevel::kInfo, "data: {} files, {} tokens, {} sequences to train on, {} held out",
      data_->dataset.files(), data_->dataset.tokens(), data_->dataset.train_sequences(),
      data_->dataset.held_out_sequences());
  return {};
}

Result<void> CoordinatorProcess::take_the_lead() {
  auto leads = try_lead();
  if (!leads) return std::unexpected(std::move(leads).error());
  if (!*leads) {
    const auto leader = store_->leader();
    return fail(
        ErrorCode::kUserMistake,
        fmt::format("another coordinator ({}) leads the run {}; end that one first, or give "
                    "this run another name by --name NAME",
                    leader ? leader->value_or("just gone") : "unknown", config_.run.name));
  }
  return {};
}

Result<bool> CoordinatorProcess::try_lead() {
  auto leads = store_->try_lead(own_name());
  if (!leads || !*leads) return leads;
  auto journal = store_->journal();
  if (!journal) return std::unexpected(std::move(journal).error());
  journal_ = *journal;
  renew();
  return true;
}

// False: the run is over, or this process is to end, before it leads.
Result<bool> CoordinatorProcess::stand_by() {
  runtime_.on_signals([this](int) { signalled(); });
  std::printf("standing by for %s\n", config_.run.name.c_str());
  std::fflush(stdout);
  for (;;) {
    const auto leads = try_lead();
    if (!leads && leads.error().code != ErrorCode::kIo) return leads;
    if (!leads) log(LogLevel::kWarn, "{}", leads.error().what);
    if (leads && *leads) break;
    if (runtime_.run_until([this] { return stop_asked_; }, kStandbyPeriod)) return false;
  }
  auto ended = Coordinator::has_ended(*journal_);
  if (!ended) return std::unexpected(std::move(ended).error());
  return !*ended;
}

void CoordinatorProcess::renew() {
  const Duration period = store_->renewal_period();
  if (period <= Duration{}) return;
  runtime_.call_after(period, [this] {
    const auto renewed = store_->renew();
    if (!renewed) log(LogLevel::kWarn, "{}", renewed.error().what);
    if (!renewed && renewed.error().code == ErrorCode::kRefused)
      return step_down(renewed.error().what);
    renew();
  });
}

// Another leads by now: the run is its, and so are the peers.
void CoordinatorProcess::step_down(const std::string& why) {
  outcome_ = {kExitRefused, why};
  over_ = deposed_ = true;
  runtime_.request_stop();
}

void CoordinatorProcess::finished(RunOutcome outcome) {
  if (outcome.exit_code == kExitRefused) return step_down(outcome.sentence);
  outcome_ = std::move(outcome);
  over_ = true;
  if (auto written = write_text_file_atomically(folder_.status(), coordinator_->status_json());
      !written) {
    log(LogLevel::kWarn, "{}", written.error().what);
  }
  runtime_.call_after(kLinger, [this] { runtime_.request_stop(); });
}

void CoordinatorProcess::signalled() {
  if (coordinator_) coordinator_->request_stop(stop_asked_);
  stop_asked_ = true;
}

Result<int> CoordinatorProcess::run() {
  SWARMLINE_TRY(open());
  SWARMLINE_TRY(take_the_lead());
  return lead();
}

Result<int> CoordinatorProcess::run_as_standby() {
  SWARMLINE_TRY(make_folders(folder_.logs()));
  SWARMLINE_TRY(open());
  const auto leads = stand_by();
  if (!leads) return std::unexpected(leads.error());
  if (!*leads) {
    std::printf("not needed\n");
    return kExitDone;
  }
  const auto start = folder_.take_over(config_);
  if (!start) return std::unexpected(start.error());
  std::printf("%s", describe_start(*start, folder_, config_).c_str());
  return *start == RunStart::kFinished ? Result<int>(kExitDone) : lead();
}

Result<int> CoordinatorProcess::lead() {
  SWARMLINE_TRY(open_files());
  CoordinatorOptions options{
      .config = config_,
      .config_toml = to_toml(config_),
      .run_id = make_run_id(config_, runtime_),
      .model = data_->model,
      .eval_sequences = data_->eval_sequences,
      .unigram_entropy = data_->entropy.unigram_nats,
      .bigram_entropy = data_->entropy.bigram_nats.value_or(0),
      .log_line =
          [this](const std::string& line) {
            if (auto written = log_->append(line); !written) {
              log(LogLevel::kWarn, "{}", written.error().what);
            }
          },
      .checkpoints = &source_,
  };
  coordinator_.emplace(runtime_, *network_, *journal_, *sink_, std::move(options),
                       [this](RunOutcome outcome) { finished(std::move(outcome)); });
  auto bound = coordinator_->start();
  if (!bound) {
    return fail(ErrorCode::kUserMistake,
                fmt::format("{}; give another address by --set net.listen=HOST:PORT (port 0: any "
                            "free one)",
                            bound.error().what));
  }
  runtime_.on_signals([this](int) { signalled(); });
  // Peers come once they are answered.
  while (!runtime_.run_until([this] { return over_ || coordinator_->takes_peers(); },
                             kBeginningLook)) {
  }
  if (!over_) SWARMLINE_TRY(announce(*bound));
  runtime_.run();
  if (!deposed_) folder_.remove_address();
  std::printf("%s\n", outcome_.sentence.c_str());
  return outcome_.exit_code;
}

Result<void> CoordinatorProcess::announce(const Address& bound) {
  SWARMLINE_TRY(folder_.write_address(bound));
  std::printf("coordinator of %s listens on %s\n", config_.run.name.c_str(),
              to_string(bound).c_str());
  std::printf("a machine joins by: swarmline peer --join %s\n", to_string(bound).c_str());
  std::fflush(stdout);
  return {};
}

Result<int> run_coordinator(const CoordinatorFlags& flags) {
  auto config = load_config(flags.config);
  if (!config) return std::unexpected(std::move(config).error());
  init_log({.level = log_level_of(config->log.level), .file = {}, .prefix = "coordinator"});
  RunFolder folder(config->run_folder());
  if (flags.standby)
    return CoordinatorProcess(std::move(*config), std::move(folder), flags).run_as_standby();
  if (!flags.prepared) {
    const auto start = folder.prepare_or_resume(*config, flags.fresh);
    if (!start) return std::unexpected(start.error());
    std::printf("%s", describe_start(*start, folder, *config).c_str());
    if (*start == RunStart::kFinished) return kExitDone;
  }
  return CoordinatorProcess(std::move(*config), std::move(folder), flags).run();
}

}  // namespace

void add_coordinator_command(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<CoordinatorFlags>();
  CLI::App* command =
      app.add_subcommand("coordinator", "Run only the control process of a run; peers join it");
  add_config_flags(*command, flags->config);
  command->add_flag("--fresh", flags->fresh, "Move an older run of this name aside to NAME.1");
  command->add_flag("--prepared", flags->prepared, "The run folder was made by launch")->group("");
  command
      ->add_flag("--standby", flags->standby,
                 "Wait until no coordinator leads this run, then go on with it")
      ->excludes("--fresh");
  command->add_option("--chaos", flags->chaos)->group("");  // by swarmline chaos
  command->footer(
      "It writes its address to coordinator.address in the run folder. SIGINT or SIGTERM ends the\n"
      "run after the open step with a checkpoint; a second one at once. The same command goes on "
      "from\nthe newest checkpoint. One that ended in any other way goes on with its peers, which "
      "keep what\nthey hold meanwhile.\n"
      "Example: swarmline coordinator run.toml --set net.listen=127.0.0.1:7400");
  command->callback([flags, &exit_code] {
    auto code = run_coordinator(*flags);
    exit_code = code ? *code : report_error(code.error());
  });
}

}  // namespace swarmline
