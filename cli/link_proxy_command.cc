#include <cstdio>
#include <optional>

#include <fmt/format.h>

#include "cli/commands.h"
#include "console/exit_codes.h"
#include "tools/link_proxy/link_control.h"
#include "tools/link_proxy/link_proxy.h"

namespace swarmline {
namespace {

struct LinkProxyFlags {
  std::string listen = "127.0.0.1:0";
  std::string to;
  std::string both, forward, backward;
  std::string control;
  std::uint64_t seed = 1;
};

Result<Address> address_flag(const std::string& flag, const std::string& text) {
  auto address = parse_address(text);
  if (address) return address;
  return fail(ErrorCode::kUserMistake,
              fmt::format("{} {}: expected HOST:PORT, e.g. 127.0.0.1:7400", flag, text));
}

Result<LinkShape> shape_flag(const std::string& flag, const std::string& text,
                             const LinkShape& base) {
  auto shape = parse_link_shape(text, base);
  if (shape) return shape;
  return fail(ErrorCode::kUserMistake, fmt::format("{} {}", flag, shape.error().what));
}

Result<LinkProxyOptions> proxy_options(const LinkProxyFlags& flags) {
  auto listen = address_flag("--listen", flags.listen);
  if (!listen) return std::unexpected(std::move(listen).error());
  auto to = address_flag("--to", flags.to);
  if (!to) return std::unexpected(std::move(to).error());
  auto both = shape_flag("--both", flags.both, {});
  if (!both) return std::unexpected(std::move(both).error());
  auto forward = shape_flag("--forward", flags.forward, *both);
  if (!forward) return std::unexpected(std::move(forward).error());
  auto backward = shape_flag("--backward", flags.backward, *both);
  if (!backward) return std::unexpected(std::move(backward).error());
  return LinkProxyOptions{
      .listen = *listen, .to = *to, .forward = *forward, .backward = *backward, .seed = flags.seed};
}

// Listens where --control says; nothing without it.
Result<std::optional<Address>> open_control(const LinkProxyFlags& flags, LinkControl& control) {
  if (flags.control.empty()) return std::nullopt;
  auto wanted = address_flag("--control", flags.control);
  if (!wanted) return std::unexpected(std::move(wanted).error());
  auto bound = control.listen(*wanted);
  if (!bound) return std::unexpected(std::move(bound).error());
  return *bound;
}

// One line for people and scripts: where to connect.
void say_where(const LinkProxyOptions& options, const Address& bound,
               const std::optional<Address>& control) {
  std::printf("link: %s -> %s, forward %s, backward %s%s\n", to_string(bound).c_str(),
              to_string(options.to).c_str(), to_string(options.forward).c_str(),
              to_string(options.backward).c_str(),
              control ? (", control " + to_string(*control)).c_str() : "");
  std::fflush(stdout);
}

Result<void> run_link_proxy(const LinkProxyFlags& flags) {
  const auto options = proxy_options(flags);
  if (!options) return std::unexpected(options.error());
  AsioRuntime runtime;
  LinkProxy proxy(runtime, *options);
  LinkControl control(runtime, proxy);
  const auto bound = proxy.start();
  if (!bound) return std::unexpected(bound.error());
  const auto control_bound = open_control(flags, control);
  if (!control_bound) return std::unexpected(control_bound.error());
  runtime.on_signals([&](int) { runtime.request_stop(); });
  say_where(*options, *bound, *control_bound);
  runtime.run();
  std::printf("%s\n", steer_link(proxy, "show").substr(3).c_str());
  return {};
}

}  // namespace

void add_link_proxy_command(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<LinkProxyFlags>();
  CLI::App* command =
      app.add_subcommand("link-proxy", "Emulate a bad link: rate, delay, jitter, corruption");
  command->add_option("--to", flags->to, "Address the link leads to")
      ->required()
      ->type_name("HOST:PORT");
  command->add_option("--listen", flags->listen, "Address to listen on; port 0: any free port")
      ->type_name("HOST:PORT");
  command
      ->add_option("--both", flags->both,
                   "Shape of both directions, e.g. \"rate=100M delay=20ms jitter=5ms\"")
      ->type_name("SHAPE");
  command->add_option("--forward", flags->forward, "Shape towards --to, on top of --both")
      ->type_name("SHAPE");
  command->add_option("--backward", flags->backward, "Shape of the way back, on top of --both")
      ->type_name("SHAPE");
  command
      ->add_option("--control", flags->control,
                   "Port that takes commands, a line each: set, cut, heal, ...")
      ->type_name("HOST:PORT");
  command->add_option("--seed", flags->seed, "Random seed of jitter and corruption");
  command->footer(
      "SHAPE: rate=BITS (K, M, G a second; 0: no limit), delay=20ms, jitter=5ms, corrupt=1e-6\n"
      "(flipped bits per byte). The control port's lines: \"set forward|backward|both SHAPE\",\n"
      "\"cut\" (the cable is pulled), \"heal\", \"reset\" (every connection), \"show\".\n"
      "A peer behind it: swarmline peer --join HOST:PORT --listen 127.0.0.1:7501 \\\n"
      "  --advertise 127.0.0.1:7601, with link-proxy --listen 127.0.0.1:7601 --to 127.0.0.1:7501");
  command->callback([flags, &exit_code] {
    auto done = run_link_proxy(*flags);
    exit_code = done ? kExitDone : report_error(done.error());
  });
}

}  // namespace swarmline
