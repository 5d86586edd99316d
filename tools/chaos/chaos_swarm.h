// The processes of a chaos run: a coordinator and peers as children, each with a line to this
// process (chaos_tap.h), each connection that one of them dials through a link of its own when
// links are to be hurt. Does to them what it is told; decides nothing.
//   Names:     "coordinator", "standby", "peer-1", "peer-2", ... in the order of their first start.
//   Ownership: the runtime outlives it. Destroying it kills what runs. Thread: control thread.
//   Errors:    kIo when a process can't be started. What is told to a process that has ended does
//              nothing.
//   Bounds:    kSwarmProcessesMax processes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/callback_guard.h"
#include "engine/runtime/asio_runtime.h"
#include "engine/store/journal_lock.h"
#include "node/child_process.h"
#include "node/run_folder.h"
#include "pipeline/protocol/message_kinds.h"
#include "tools/link_proxy/link_proxy.h"

namespace swarmline {

inline constexpr std::size_t kSwarmProcessesMax = 1024;
inline constexpr const char* kCoordinatorName = "coordinator";
inline constexpr const char* kStandbyName = "standby";

// Where a process can be held: about to send or to handle a message.
struct ChaosPoint {
  MessageKind kind = MessageKind::kForward;
  bool sent = false;
  bool operator==(const ChaosPoint&) const = default;
};

struct ChaosSeat {
  std::uint32_t peer = 0;
  std::uint32_t stage = 0;
  bool operator==(const ChaosSeat&) const = default;
};

class ChaosSwarm {
 public:
  struct Options {
    std::string program;
    RunFolder folder;                         // prepared
    std::vector<std::string> peer_arguments;  // for every peer
    bool links = false;                       // connections pass through links
  };
  struct Handlers {
    // The process is held until this returns.
    std::function<void(const std::string& process, std::uint64_t watch, std::uint64_t step)>
        on_reached;
    std::function<void(const std::string& process)> on_started;  // it may be given watches now
  };

  ChaosSwarm(AsioRuntime& runtime, Options options, Handlers handlers);
  ~ChaosSwarm();
  ChaosSwarm(const ChaosSwarm&) = delete;
  ChaosSwarm& operator=(const ChaosSwarm&) = delete;

  Result<void> start_coordinator();
  // A second coordinator that leads at `listen` when the first one is gone.
  Result<void> start_standby(const std::string& listen);
  // The coordinator's address must be in the run folder. Not `let_in`: it does nothing until that
  // is called, so that it is there at once when it is to join.
  Result<std::string> start_peer(bool let_in);
  void let_in(const std::string& name);
  // The same command again. The process must have ended.
  Result<void> start_again(const std::string& name);

  void kill(const std::string& name);
  void stop(const std::string& name);
  void go_on(const std::string& name);
  // 1: as fast as it is. A peer's device takes `factor` times as long; the coordinator, which has
  // none, runs a share of 1/factor of each kDutyPeriod.
  void set_slow(const std::string& name, double factor);
  // Nothing passes between it and anybody else, and nobody is told.
  void cut(const std::string& name);
  // Others see the links between end; it hears nothing over its own until it heals. New ones work.
  void half_open(const std::string& name);
  // Its links end, and new ones reach nobody.
  void isolate(const std::string& name);
  void heal(const std::string& name);
  // Of what passes between it and others, each byte has one bit flipped with that probability.
  void corrupt(const std::string& name, double probability);

  // Files that it has and makes can't be written.
  void set_disk_full(const std::string& name, bool full);
  // The run's journal can't be written for that share of each kJournalPeriod; 0: it can.
  void lock_journal(double share);

  void watch(const std::string& name, std::uint64_t id, const ChaosPoint& point,
             std::uint64_t step);
  void unwatch(std::uint64_t id);  // everywhere

  std::vector<std::string> names() const;  // of all that were started
  std::vector<std::string> peers() const;  // the same without coordinators
  bool runs(const std::string& name);
  // The exit code (128 + signal) of the last time it ended.
  std::optional<int> ended_with(const std::string& name);
  std::optional<ChaosSeat> seat_of(const std::string& name) const;  // the newest
  void kill_all();

 private:
  struct Line;
  struct Process {
    std::string name;
    std::vector<std::string> arguments;
    std::optional<ChildProcess> child;
    std::optional<ChaosSeat> seat;
    std::optional<Address> address;  // where it listens
    std::shared_ptr<Line> line;
    bool let_in = true;
    double slow = 1;
    bool duty = false;  // its turns are timed
  };
  struct Hurt {
    bool cut = false;
    double corrupt = 0;
  };
  struct Link {
    std::string from;
    Address to;
    Address at;
    std::unique_ptr<LinkProxy> proxy;
  };
  struct Server;

  Result<void> add(const std::string& name, std::vector<std::string> arguments, bool let_in = true);
  Result<void> start(Process& process);
  Process* find(const std::string& name);
  const Process* find(const std::string& name) const;
  void on_line(const std::shared_ptr<Line>& line, std::string_view text);
  void say(const Process& process, const std::string& text);
  void greet(const Process& process);
  std::optional<Address> link(const std::string& from, const Address& to);
  void shape(Link& link);
  void shape_all();
  void duty_cycle(const std::string& name);
  void journal_cycle();
  bool concerns(const Link& link, const std::string& name) const;

  AsioRuntime& runtime_;
  Options options_;
  Handlers handlers_;
  std::shared_ptr<Server> server_;
  std::vector<std::unique_ptr<Process>> processes_;
  std::size_t peers_ = 0;  // of them
  std::vector<Link> links_;
  std::map<std::string, Hurt> hurt_;
  double journal_share_ = 0;
  bool journal_cycles_ = false;
  std::optional<JournalLock> journal_lock_;
  CallbackGuard guard_;
};

}  // namespace swarmline
