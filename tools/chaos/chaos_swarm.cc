#include "tools/chaos/chaos_swarm.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>
#include <fmt/format.h>

#include "base/check.h"
#include "base/log.h"
#include "console/words.h"
#include "engine/net/tcp/acceptor.h"
#include "engine/runtime/asio_access.h"
#include "tools/chaos/chaos_tap.h"
#include "tools/chaos/disk_faults.h"

namespace swarmline {
namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {
constexpr Duration kDutyPeriod = std::chrono::milliseconds(100);
constexpr Duration kJournalPeriod = std::chrono::milliseconds(500);
}  // namespace

struct ChaosSwarm::Line {
  explicit Line(tcp::socket s) : socket(std::move(s)) {}
  tcp::socket socket;
  std::string input;
  std::string name;  // once it has said hello
};

struct ChaosSwarm::Server : std::enable_shared_from_this<Server> {
  using OnLine = std::function<void(const std::shared_ptr<Line>&, const std::string&)>;

  Server(AsioRuntime& r, std::weak_ptr<const char> w, OnLine handler)
      : runtime(r), swarm(std::move(w)), on_line(std::move(handler)), acceptor(io_context_of(r)) {}

  void accept_next() {
    acceptor.async_accept([self = shared_from_this()](const error_code& error, tcp::socket socket) {
      if (!self->acceptor.is_open()) return;
      HandlerScope scope(self->runtime);
      if (!error) self->read(std::make_shared<Line>(std::move(socket)));
      self->accept_next();
    });
  }
  void read(const std::shared_ptr<Line>& line) {
    asio::async_read_until(
        line->socket, asio::dynamic_buffer(line->input, kTapLineBytesMax), '\n',
        [self = shared_from_this(), line](const error_code& error, std::size_t bytes) {
          if (error || self->swarm.expired()) return;
          HandlerScope scope(self->runtime);
          const std::string text = line->input.substr(0, bytes - 1);
          line->input.erase(0, bytes);
          self->on_line(line, text);
          self->read(line);
        });
  }

  AsioRuntime& runtime;
  std::weak_ptr<const char> swarm;  // expired: its lines are read no more
  OnLine on_line;
  tcp::acceptor acceptor;
  std::optional<Address> address;
};

ChaosSwarm::ChaosSwarm(AsioRuntime& runtime, Options options, Handlers handlers)
    : runtime_(runtime), options_(std::move(options)), handlers_(std::move(handlers)) {
  server_ = std::make_shared<Server>(
      runtime_, guard_.watch(),
      guard_.wrap([this](const std::shared_ptr<Line>& line, const std::string& text) {
        on_line(line, text);
      }));
}

ChaosSwarm::~ChaosSwarm() {
  guard_.drop_callbacks();
  error_code ignored;
  server_->acceptor.close(ignored);
  kill_all();
}

Result<void> ChaosSwarm::start(Process& process) {
  if (!server_->address) {
    auto bound = bind_acceptor(server_->acceptor, {"127.0.0.1", 0});
    if (!bound) return std::unexpected(std::move(bound).error());
    server_->address = *bound;
    server_->accept_next();
  }
  std::vector<std::string> arguments{"tapped", "--parent", to_string(*server_->address)};
  arguments.insert(arguments.end(), process.arguments.begin(), process.arguments.end());
  auto child = ChildProcess::start({.program = options_.program,
                                    .arguments = std::move(arguments),
                                    .output_file = options_.folder.log_of(process.name)});
  if (!child) return std::unexpected(std::move(child).error());
  process.child = std::move(*child);
  process.line.reset();
  process.seat.reset();
  process.address.reset();
  process.slow = 1;
  return {};
}

Result<void> ChaosSwarm::add(const std::string& name, std::vector<std::string> arguments,
                             bool let_in) {
  if (processes_.size() >= kSwarmProcessesMax)
    return fail(ErrorCode::kRefused,
                fmt::format("a chaos run has at most {} processes", kSwarmProcessesMax));
  auto process = std::make_unique<Process>();
  process->name = name;
  process->arguments = std::move(arguments);
  process->let_in = let_in;
  processes_.push_back(std::move(process));
  return start(*processes_.back());
}

Result<void> ChaosSwarm::start_coordinator() {
  SWARMLINE_CHECK(processes_.empty());
  return add(kCoordinatorName, {"coordinator", options_.folder.config(), "--prepared"});
}

Result<void> ChaosSwarm::start_standby(const std::string& listen) {
  return add(kStandbyName, {"coordinator", options_.folder.config(), "--standby", "--set",
                            fmt::format("net.listen=\"{}\"", listen)});
}

Result<std::string> ChaosSwarm::start_peer(bool let_in) {
  const auto coordinator = options_.folder.read_address();
  if (!coordinator) return std::unexpected(coordinator.error());
  std::string name = fmt::format("peer-{}", ++peers_);
  std::vector<std::string> arguments{"peer", "--join", to_string(*coordinator), "--name", name};
  arguments.insert(arguments.end(), options_.peer_arguments.begin(), options_.peer_arguments.end());
  SWARMLINE_TRY(add(name, std::move(arguments), let_in));
  return name;
}

Result<void> ChaosSwarm::start_again(const std::string& name) {
  Process* process = find(name);
  SWARMLINE_CHECK(process != nullptr && !runs(name));
  return start(*process);
}

// ---- What is done to them -----------------------------------------------------------------------

void ChaosSwarm::kill(const std::string& name) {
  if (Process* process = find(name); process != nullptr && process->child)
    process->child->kill_and_wait();
}

void ChaosSwarm::stop(const std::string& name) {
  if (Process* process = find(name); process != nullptr && process->child)
    process->child->send_signal(SIGSTOP);
}

void ChaosSwarm::go_on(const std::string& name) {
  if (Process* process = find(name); process != nullptr && process->child)
    process->child->send_signal(SIGCONT);
}

void ChaosSwarm::set_slow(const std::string& name, double factor) {
  Process* process = find(name);
  if (process == nullptr) return;
  process->slow = factor;
  if (name != kCoordinatorName) return say(*process, fmt::format("slow {}", factor));
  if (!std::exchange(process->duty, true)) duty_cycle(name);
}

// Stopped for the rest of each period.
void ChaosSwarm::duty_cycle(const std::string& name) {
  Process* process = find(name);
  const double share = 1 / process->slow;
  if (share >= 1 || !runs(name)) {
    process->duty = false;
    return;
  }
  stop(name);
  runtime_.call_after(from_seconds(to_seconds(kDutyPeriod) * (1 - share)),
                      guard_.wrap([this, name] { go_on(name); }));
  runtime_.call_after(kDutyPeriod, guard_.wrap([this, name] { duty_cycle(name); }));
}

void ChaosSwarm::cut(const std::string& name) {
  hurt_[name].cut = true;
  shape_all();
}

void ChaosSwarm::half_open(const std::string& name) {
  for (Link& link : links_)
    if (concerns(link, name))
      link.proxy->half_open(link.from == name ? LinkEnd::kFar : LinkEnd::kNear);
}

void ChaosSwarm::isolate(const std::string& name) {
  cut(name);
  for (Link& link : links_)
    if (concerns(link, name)) link.proxy->reset();
}

void ChaosSwarm::heal(const std::string& name) {
  hurt_[name].cut = false;
  shape_all();
}

void ChaosSwarm::set_disk_full(const std::string& name, bool full) {
  if (!runs(name)) return;
  if (const auto set = swarmline::set_disk_full(find(name)->child->pid(), full); !set)
    log(LogLevel::kWarn, "{}", set.error().what);
}

void ChaosSwarm::lock_journal(double share) {
  journal_share_ = share;
  if (share <= 0) return journal_lock_.reset();
  if (!std::exchange(journal_cycles_, true)) journal_cycle();
}

// Tried again in the next period where somebody else holds it just then.
void ChaosSwarm::journal_cycle() {
  if (journal_share_ <= 0) {
    journal_cycles_ = false;
    return;
  }
  if (!journal_lock_)
    if (auto taken = JournalLock::take(options_.folder.journal()))
      journal_lock_ = std::move(*taken);
  if (journal_share_ < 1)
    runtime_.call_after(from_seconds(to_seconds(kJournalPeriod) * journal_share_),
                        guard_.wrap([this] { journal_lock_.reset(); }));
  runtime_.call_after(kJournalPeriod, guard_.wrap([this] { journal_cycle(); }));
}

void ChaosSwarm::corrupt(const std::string& name, double probability) {
  hurt_[name].corrupt = probability;
  shape_all();
}

bool ChaosSwarm::concerns(const Link& link, const std::string& name) const {
  const Process* process = find(name);
  return link.from == name || (process != nullptr && process->address == link.to);
}

void ChaosSwarm::shape(Link& link) {
  bool cut = false;
  double corrupt = 0;
  for (const auto& [name, hurt] : hurt_) {
    if (!concerns(link, name)) continue;
    cut = cut || hurt.cut;
    corrupt = std::max(corrupt, hurt.corrupt);
  }
  for (const LinkWay way : {LinkWay::kForward, LinkWay::kBackward}) {
    LinkShape shape = link.proxy->shape(way);
    shape.corrupt = corrupt;
    link.proxy->set(way, shape);
  }
  if (cut)
    link.proxy->cut();
  else
    link.proxy->heal();
}

void ChaosSwarm::shape_all() {
  SWARMLINE_CHECK(options_.links);
  for (Link& link : links_) shape(link);
}

std::optional<Address> ChaosSwarm::link(const std::string& from, const Address& to) {
  for (const Link& known : links_)
    if (known.from == from && known.to == to) return known.at;
  Link made{.from = from, .to = to, .at = {}, .proxy = nullptr};
  made.proxy = std::make_unique<LinkProxy>(
      runtime_, LinkProxyOptions{.to = to, .seed = std::uint64_t{links_.size() + 1}});
  const auto at = made.proxy->start();
  if (!at) return std::nullopt;
  made.at = *at;
  shape(made);
  links_.push_back(std::move(made));
  return *at;
}

// ---- Lines --------------------------------------------------------------------------------------

void ChaosSwarm::say(const Process& process, const std::string& text) {
  if (!process.line) return;
  error_code gone;  // its end is seen elsewhere
  asio::write(process.line->socket, asio::buffer(text + "\n"), gone);
}

void ChaosSwarm::greet(const Process& process) {
  say(process, options_.links ? "links on" : "links off");
  handlers_.on_started(process.name);
}

void ChaosSwarm::let_in(const std::string& name) {
  Process* process = find(name);
  if (process == nullptr || std::exchange(process->let_in, true)) return;
  if (process->line) greet(*process);
}

void ChaosSwarm::on_line(const std::shared_ptr<Line>& line, std::string_view text) {
  const std::string_view word = next_word(text);
  if (word == "hello") line->name = next_word(text);
  Process* process = find(line->name);
  if (process == nullptr) return;
  if (word == "hello") {
    process->line = line;
    if (process->let_in) greet(*process);
  } else if (process->line != line) {
    return;  // of a process that ended meanwhile
  } else if (word == "listens") {
    if (const auto address = parse_address(next_word(text))) process->address = *address;
  } else if (word == "seat") {
    ChaosSeat seat;
    if (take_value(text, seat.peer) && take_value(text, seat.stage)) process->seat = seat;
  } else if (word == "route") {
    const std::string_view to = next_word(text);
    const auto address = parse_address(to);
    const auto via = address ? link(process->name, *address) : std::nullopt;
    say(*process, "via " + (via ? to_string(*via) : std::string(to)));
  } else if (word == "at") {
    std::uint64_t id = 0, step = 0;
    if (take_value(text, id) && take_value(text, step))
      handlers_.on_reached(process->name, id, step);
    if (process->line == line) say(*process, "go");
  }
}

void ChaosSwarm::watch(const std::string& name, std::uint64_t id, const ChaosPoint& point,
                       std::uint64_t step) {
  if (const Process* process = find(name))
    say(*process, fmt::format("watch {} {} {} {}", id, static_cast<unsigned>(point.kind),
                              point.sent ? "sent" : "received", step));
}

void ChaosSwarm::unwatch(std::uint64_t id) {
  for (const auto& process : processes_) say(*process, fmt::format("unwatch {}", id));
}

// ---- Who is there -------------------------------------------------------------------------------

ChaosSwarm::Process* ChaosSwarm::find(const std::string& name) {
  return const_cast<Process*>(std::as_const(*this).find(name));
}

const ChaosSwarm::Process* ChaosSwarm::find(const std::string& name) const {
  const auto found =
      std::ranges::find(processes_, name, [](const auto& process) { return process->name; });
  return found == processes_.end() ? nullptr : found->get();
}

std::vector<std::string> ChaosSwarm::names() const {
  std::vector<std::string> names;
  for (const auto& process : processes_) names.push_back(process->name);
  return names;
}

std::vector<std::string> ChaosSwarm::peers() const {
  std::vector<std::string> peers = names();
  std::erase_if(peers, [](const std::string& name) { return !name.starts_with("peer-"); });
  return peers;
}

bool ChaosSwarm::runs(const std::string& name) {
  Process* process = find(name);
  return process != nullptr && process->child && !process->child->poll();
}

std::optional<int> ChaosSwarm::ended_with(const std::string& name) {
  Process* process = find(name);
  return process != nullptr && process->child ? process->child->poll() : std::nullopt;
}

std::optional<ChaosSeat> ChaosSwarm::seat_of(const std::string& name) const {
  const Process* process = find(name);
  return process != nullptr ? process->seat : std::nullopt;
}

void ChaosSwarm::kill_all() {
  for (const auto& process : processes_)
    if (process->child) process->child->kill_and_wait();
}

}  // namespace swarmline
