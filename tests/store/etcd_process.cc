#include "tests/store/etcd_process.h"

#include <array>
#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
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

bool answers(const std::string& endpoint) {
  EtcdClient client({{"127.0.0.1", endpoint.substr(endpoint.find(':') + 1)}},
                    std::chrono::seconds(1));
  return client.range("/", "", 1).has_value();
}

}  // namespace

std::string EtcdProcess::missing() {
  return program().empty() ? "no etcd is installed: scripts/bootstrap --tests fetches one" : "";
}

EtcdProcess::EtcdProcess() {
  for (int i = 0; i < kStartsMax && pid_ < 0; ++i) {
    endpoint_ = free_address();
    peer_endpoint_ = free_address();
    start();
  }
  if (pid_ < 0) ADD_FAILURE() << "etcd does not start: " << slurp(folder_.at("etcd.log"));
}

EtcdProcess::~EtcdProcess() {
  stop();
}

void EtcdProcess::start() {
  const std::string client = "http://" + endpoint_, peer = "http://" + peer_endpoint_;
  std::vector<std::string> arguments = {program(),
                                        "--name=test",
                                        "--data-dir=" + folder_.at("data"),
                                        "--listen-client-urls=" + client,
                                        "--advertise-client-urls=" + client,
                                        "--listen-peer-urls=" + peer,
                                        "--initial-advertise-peer-urls=" + peer,
                                        "--initial-cluster=test=" + peer};
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  const std::string log = folder_.at("etcd.log");
  posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  if (::posix_spawn(&pid_, pointers[0], &actions, nullptr, pointers.data(), environ) != 0)
    pid_ = -1;
  posix_spawn_file_actions_destroy(&actions);
  for (int i = 0; i < kAnswerTries && pid_ > 0; ++i) {
    if (answers(endpoint_)) return;
    if (::waitpid(pid_, nullptr, WNOHANG) == pid_) pid_ = -1;
    std::this_thread::sleep_for(kAnswerPause);
  }
  stop();
}

void EtcdProcess::stop() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

void EtcdProcess::signal(int signal) const {
  ::kill(pid_, signal);
}

void EtcdProcess::restart() {
  stop();
  start();
  if (pid_ < 0) ADD_FAILURE() << "etcd does not start again: " << slurp(folder_.at("etcd.log"));
}

}  // namespace swarmline
