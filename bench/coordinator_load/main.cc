// Plays a swarm of peers that compute nothing to a coordinator that is real: coordinator_load.py
// starts both, times them, and says what comes of it.
#include <memory>

#include <CLI/CLI.hpp>

#include "base/log.h"
#include "bench/coordinator_load/load_swarm.h"
#include "engine/net/tcp/tcp_network.h"
#include "engine/runtime/asio_runtime.h"

int main(int argc, char** argv) {
  using namespace swarmline;
  LoadOptions options;
  CLI::App app("Plays peers to a coordinator");
  app.add_option("--address-file", options.address_file)->required();
  app.add_option("--stages", options.stages);
  app.add_option("--peers-per-stage", options.peers_per_stage);
  app.add_option("--microbatches", options.microbatches);
  app.add_option("--steps", options.steps);
  app.add_option("--rate", options.rate);
  CLI11_PARSE(app, argc, argv);
  init_log({.level = LogLevel::kWarn, .file = {}, .prefix = "load"});
  AsioRuntime runtime;
  TcpNetwork network(runtime, {});
  int exit_code = 1;
  LoadSwarm swarm(runtime, network, options, [&](int code) {
    exit_code = code;
    runtime.request_stop();
  });
  swarm.start();
  runtime.run();
  swarm.stop();
  // Ten thousand connections need not be closed one by one.
  std::fflush(nullptr);
  std::_Exit(exit_code);
}
