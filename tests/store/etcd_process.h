// A real etcd of one member for a test: on ports of loopback that the system gives, its data in a
// folder that goes with it. Where no etcd is installed, missing() says what to install.
#pragma once

#include <optional>
#include <string>
#include <sys/types.h>

#include "tests/store/temp_folder.h"

namespace swarmline {

class EtcdProcess {
 public:
  EtcdProcess();  // waits until it answers; fails the test when it does not
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
  pid_t pid_ = -1;
};

}  // namespace swarmline
