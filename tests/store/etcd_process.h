// A real etcd of one member for a test: on ports of loopback that the system gives, its data in a
// folder that goes with it. Where no etcd is installed, missing() says what to install.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "engine/store/etcd_tls.h"
#include "tests/store/temp_folder.h"

namespace swarmline {

class EtcdProcess {
 public:
  // Waits until it answers; fails the test when it does not. `more`: flags of etcd; `tls`: it takes
  // HTTPS alone, of whom that authority has signed, with these files, which are its clients', too.
  explicit EtcdProcess(std::vector<std::string> more = {}, EtcdTlsFiles tls = {});
  ~EtcdProcess();
  EtcdProcess(const EtcdProcess&) = delete;
  EtcdProcess& operator=(const EtcdProcess&) = delete;

  // The reason to skip; empty: there is one.
  static std::string missing();

  const std::string& endpoint() const { return endpoint_; }  // HOST:PORT
  void signal(int signal) const;
  // Killed, and started again with its data on the same ports.
  void restart();

 private:
  void start();
  void stop();

  TempFolder folder_;
  std::string endpoint_;
  std::string peer_endpoint_;
  std::vector<std::string> more_;
  EtcdTlsFiles tls_;
  pid_t pid_ = -1;
};

// Three members of one cluster, each killed and started again by itself.
class EtcdCluster {
 public:
  static constexpr std::size_t kMembers = 3;

  EtcdCluster();  // waits until it answers; fails the test when it does not
  ~EtcdCluster();
  EtcdCluster(const EtcdCluster&) = delete;
  EtcdCluster& operator=(const EtcdCluster&) = delete;

  const std::string& endpoint(std::size_t member) const { return members_[member].endpoint; }
  void kill(std::size_t member);
  void start(std::size_t member);  // with its data; returns before it answers

 private:
  struct Member {
    std::string endpoint;
    std::string peer_endpoint;
    pid_t pid = -1;
  };
  TempFolder folder_;
  std::array<Member, kMembers> members_;
};

}  // namespace swarmline
