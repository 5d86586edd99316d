#include "tests/store/etcd_process.h"

#include <array>
#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/store/etcd_client.h"
#include "tests/net/own_port.h"

extern char** environ;

namespace swarmline {

namespace {

constexpr int kStartsMax = 5;  // somebody else may take a port in between
constexpr int kAnswerTries = 100;
constexpr auto kAnswerPause = std::chrono::milliseconds(100);

// The one that scripts/bootstrap unpacked, or the system's.
std::string program() {
  const std::string ours = std::string(SWARMLINE_SOURCE_DIR) + "/.deps/etcd/usr/bin/etcd";
  for (const std::string& path : {ours, std::string("/usr/bin/etcd")})
    if (::access(path.c_str(), X_OK) == 0) return path;
  return {};
}

struct Place {
  std::string name;
  std::string endpoint;
  std::string peer_endpoint;
  std::string cluster;
  std::vector<std::string> more = {};
  EtcdTlsFiles tls = {};
};

// Its data and its log are in the folder, under its name. -1: it can't be started.
pid_t spawn(const Place& place, const TempFolder& folder) {
  const bool sealed = !place.tls.authority.empty();
  const std::string client = (sealed ? "https://" : "http://") + place.endpoint,
                    peer = "http://" + place.peer_endpoint;
  std::vector<std::string> arguments = {program(),
                                        "--name=" + place.name,
                                        "--data-dir=" + folder.at(place.name + "-data"),
                                        "--listen-client-urls=" + client,
                                        "--advertise-client-urls=" + client,
                                        "--listen-peer-urls=" + peer,
                                        "--initial-advertise-peer-urls=" + peer,
                                        "--initial-cluster=" + place.cluster};
  arguments.insert(arguments.end(), place.more.begin(), place.more.end());
  if (sealed)
    arguments.insert(arguments.end(),
                     {"--cert-file=" + place.tls.certificate, "--key-file=" + place.tls.key,
                      "--client-cert-auth", "--trusted-ca-file=" + place.tls.authority});
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  const std::string log = folder.at(place.name + ".log");
  posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  pid_t pid = -1;
  if (::posix_spawn(&pid, pointers[0], &actions, nullptr, pointers.data(), environ) != 0) pid = -1;
  posix_spawn_file_actions_destroy(&actions);
  return pid;
}

void end(pid_t& pid) {
  if (pid < 0) return;
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  pid = -1;
}

bool answers(const std::string& endpoint, const EtcdTlsFiles& files = {}) {
  const auto tls = load_etcd_tls(files);
  if (!tls) return false;
  EtcdClient client({{"127.0.0.1", endpoint.substr(endpoint.find(':') + 1)}},
                    std::chrono::seconds(1), *tls);
  return client.range("/", "", 1).has_value();
}

}  // namespace

std::string EtcdProcess::missing() {
  return program().empty() ? "no etcd is installed: scripts/bootstrap --tests fetches one" : "";
}

EtcdProcess::EtcdProcess(std::vector<std::string> more, EtcdTlsFiles tls)
    : more_(std::move(more)), tls_(std::move(tls)) {
  for (int i = 0; i < kStartsMax && pid_ < 0; ++i) {
    endpoint_ = free_address();
    peer_endpoint_ = free_address();
    start();
  }
  if (pid_ < 0) ADD_FAILURE() << "etcd does not start: " << slurp(folder_.at("test.log"));
}

EtcdProcess::~EtcdProcess() {
  stop();
}

void EtcdProcess::start() {
  pid_ = spawn({.name = "test",
                .endpoint = endpoint_,
                .peer_endpoint = peer_endpoint_,
                .cluster = "test=http://" + peer_endpoint_,
                .more = more_,
                .tls = tls_},
               folder_);
  for (int i = 0; i < kAnswerTries && pid_ > 0; ++i) {
    if (answers(endpoint_, tls_)) return;
    if (::waitpid(pid_, nullptr, WNOHANG) == pid_) pid_ = -1;
    std::this_thread::sleep_for(kAnswerPause);
  }
  stop();
}

void EtcdProcess::stop() {
  end(pid_);
}

void EtcdProcess::signal(int signal) const {
  ::kill(pid_, signal);
}

void EtcdProcess::restart() {
  stop();
  start();
  if (pid_ < 0) ADD_FAILURE() << "etcd does not start again: " << slurp(folder_.at("test.log"));
}

EtcdCluster::EtcdCluster() {
  for (Member& member : members_) {
    member.endpoint = free_address();
    member.peer_endpoint = free_address();
  }
  for (std::size_t i = 0; i < kMembers; ++i) start(i);
  for (int tries = 0; tries < kAnswerTries; ++tries) {
    if (answers(endpoint(0))) return;
    std::this_thread::sleep_for(kAnswerPause);
  }
  ADD_FAILURE() << "etcd does not start: " << slurp(folder_.at("member0.log"));
}

EtcdCluster::~EtcdCluster() {
  for (Member& member : members_) end(member.pid);
}

void EtcdCluster::kill(std::size_t member) {
  end(members_[member].pid);
}

void EtcdCluster::start(std::size_t member) {
  std::string cluster;
  for (std::size_t i = 0; i < kMembers; ++i)
    cluster += (i > 0 ? "," : "") + ("member" + std::to_string(i)) + "=http://" +
               members_[i].peer_endpoint;
  members_[member].pid = spawn({.name = "member" + std::to_string(member),
                                .endpoint = members_[member].endpoint,
                                .peer_endpoint = members_[member].peer_endpoint,
                                .cluster = cluster},
                               folder_);
}

}  // namespace swarmline
