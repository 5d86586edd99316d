// The folder of a run, DIR/NAME: config.toml, journal.sqlite, log.jsonl, coordinator.address,
// status.json, admin.key (the secret of who may steer the run, for its user alone), page.token and
// page.url (of its web page, for its user alone), checkpoints/, logs/, and keys/ where its links
// are authenticated. Never written over: one folder is one run, which the same config goes on with.
//   Errors: kUserMistake when another run is there already; kIo.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/config/run_config.h"
#include "engine/identity/shared_secret.h"
#include "engine/net/link_guard.h"
#include "engine/net/network.h"

namespace swarmline {

// What a run begins with: nothing, what an earlier process left of it, or no step left to do.
enum class RunStart : std::uint8_t { kNew, kResumes, kFinished };

class RunFolder {
 public:
  explicit RunFolder(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  std::string config() const { return path_ + "/config.toml"; }
  std::string data() const { return path_ + "/data.json"; }  // what the run's data is
  std::string journal() const { return path_ + "/journal.sqlite"; }
  std::string log() const { return path_ + "/log.jsonl"; }
  std::string tensorboard() const { return path_ + "/tensorboard"; }
  std::string address() const { return path_ + "/coordinator.address"; }
  std::string admin_key() const { return path_ + "/admin.key"; }
  // What the run's web page asks for, and its URL with that; for its owner alone.
  std::string page_token() const { return path_ + "/page.token"; }
  std::string page_url() const { return path_ + "/page.url"; }
  std::string status() const { return path_ + "/status.json"; }
  std::string checkpoints() const { return path_ + "/checkpoints"; }
  // What is on its way into object storage.
  std::string outbox() const { return path_ + "/outbox"; }
  std::string logs() const { return path_ + "/logs"; }
  // What only its owner may read: the run's key, its invites, the string that joins it now.
  std::string keys() const { return path_ + "/keys"; }
  std::string run_key() const { return keys() + "/run.key"; }
  std::string invites() const { return keys() + "/invites.jsonl"; }
  std::string join_string() const { return keys() + "/join"; }
  std::string page_pem() const { return keys() + "/page.pem"; }
  std::string log_of(std::string_view process) const {
    return path_ + "/logs/" + std::string(process) + ".log";
  }

  bool holds_a_run() const;
  // Makes the folder and writes the resolved config. A run that is there already is refused, or
  // moved aside to PATH.1 (.2, ...) with `fresh`; a running one is refused in any case.
  Result<void> prepare(std::string_view config_toml, bool fresh) const;
  // The same, but a run that is there already goes on when the config fits it (fixed_difference)
  // and its checkpoints hold all that takes. Its config is then the new one.
  Result<RunStart> prepare_or_resume(const RunConfig& config, bool fresh) const;
  // The same for who leads the run already: whoever listens at its address does not any more.
  Result<RunStart> take_over(const RunConfig& config) const;

  // Where the coordinator of this run listens; kNotFound with a sentence when it is not running.
  Result<Address> read_address() const;
  Result<void> write_address(const Address& address) const;
  // What proves that one may steer the run (pipeline/protocol/admin_proof.h); made by whoever leads
  // it. Reading: kNotFound, or kUserMistake for another user.
  Result<std::string> make_admin_secret() const { return make_shared_secret(admin_key()); }
  Result<std::string> admin_secret() const { return read_shared_secret(admin_key()); }
  // Nobody listens any more.
  void remove_address() const;
  // What a tool on this machine shows the coordinator; null: its links are plain.
  Result<std::shared_ptr<LinkGuard>> owner_guard() const;
  // What the run's status was when it ended, if it has.
  std::optional<std::string> final_status() const;

 private:
  Result<void> refuse_running() const;
  Result<RunStart> resume(const RunConfig& config) const;
  std::string path_;
};

// "HOST:PORT", a join string, a run folder, or nothing: the run under runs/ that started last.
struct RunTarget {
  std::optional<Address> address;
  std::optional<RunFolder> folder;
  std::shared_ptr<LinkGuard> guard = nullptr;  // of a join string
};
Result<RunTarget> find_run(const std::string& text);
// For what only the run's own machine can do: a run folder, or nothing. kUserMistake for the rest.
Result<RunFolder> find_run_folder(const std::string& text);
// What it takes to steer a run.
struct AdminDoor {
  Address address;
  std::shared_ptr<LinkGuard> guard;  // null: its links are plain
  // Empty where the run was named by its address: it is another user's or another machine's, and
  // its coordinator says what it takes.
  std::string secret;
};
Result<AdminDoor> admin_door(const RunTarget& target);
// The address of a run that is there to answer.
Result<Address> live_address(const RunTarget& target);
// What is shown to whoever answers there; null: nothing, its links are plain.
Result<std::shared_ptr<LinkGuard>> guard_of(const RunTarget& target);

}  // namespace swarmline
