#include "tools/doctor/machine_facts.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <fmt/format.h>

#include "base/bytes.h"
#include "engine/config/link_security.h"
#include "engine/net/tcp/tcp_network.h"
#include "engine/runtime/asio_runtime.h"
#include "engine/store/files.h"
#include "kernels/cpu/quant_path.h"
#include "tools/measure/bench_machine.h"

namespace swarmline {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kGroupFileBytesMax = 64;

// The first line of what the driver's tool says of a GPU; empty: it is not there, or says nothing.
std::string ask_driver(const std::string& question, const std::string& device) {
  const std::string number = device.starts_with("cuda:") ? device.substr(5) : "0";
  if (number.empty() || number.find_first_not_of("0123456789") != std::string::npos) return {};
  const std::string command = fmt::format(
      "timeout {} nvidia-smi --id={} --query-gpu={} --format=csv,noheader,nounits "
      "2>/dev/null",
      kDriverToolSeconds, number, question);
  std::FILE* const tool = ::popen(command.c_str(), "r");
  if (tool == nullptr) return {};
  std::array<char, 256> line{};
  const bool said = std::fgets(line.data(), line.size(), tool) != nullptr;
  const bool well = ::pclose(tool) == 0;
  std::string text = said && well ? line.data() : "";
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

std::uint64_t megabytes_of_gpu(const std::string& question, const std::string& device) {
  return std::strtoull(ask_driver(question, device).c_str(), nullptr, 10) * kMiB;
}

// A container's own bound on memory, or what it uses; 0: there is none.
std::uint64_t number_in(const std::string& path) {
  const auto text = read_text_file(path, kGroupFileBytesMax);
  return text ? std::strtoull(text->c_str(), nullptr, 10) : 0;
}

std::string nearest_folder(const std::string& folder) {
  std::error_code error;
  fs::path at = fs::absolute(folder, error).lexically_normal();
  if (!at.has_filename()) at = at.parent_path();
  while (!at.empty() && at != at.root_path() && !fs::is_directory(at, error)) at = at.parent_path();
  return at.string();
}

// Why a file of kTrialFileBytes can't be written and synced there; empty: it can.
std::string write_and_sync(const std::string& path) {
  const auto write = [&]() -> Result<void> {
    auto file = AtomicFile::create(path);
    if (!file) return std::unexpected(std::move(file).error());
    const Buffer bytes = Buffer::zeroed(kTrialFileBytes);
    SWARMLINE_TRY(file->append(bytes.bytes()));
    return file->finish();
  };
  const auto written = write();
  std::error_code ignored;  // it may never have been there
  fs::remove(path, ignored);
  return written ? std::string() : written.error().what;
}

}  // namespace

PortFacts look_at_port(const std::string& key, const std::string& address) {
  PortFacts facts{.key = key, .address = address};
  const auto parsed = parse_address(address);
  if (!parsed) {
    facts.reason = parsed.error().what;
    return facts;
  }
  facts.is_loopback = is_loopback(parsed->host);
  AsioRuntime runtime;
  TcpNetwork network(runtime, {});
  const auto bound = network.listen(*parsed, [](const std::shared_ptr<Connection>&) {});
  if (bound)
    facts.bound = to_string(*bound);
  else
    facts.reason = bound.error().what;
  return facts;
}

DescriptorFacts look_at_descriptors() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return {};
  return {.soft = limit.rlim_cur, .hard = limit.rlim_max, .needed = 0, .what_for = {}};
}

DiskFacts look_at_disk(const std::string& folder) {
  DiskFacts facts{.folder = nearest_folder(folder)};
  struct statvfs system{};
  if (::statvfs(facts.folder.c_str(), &system) != 0) {
    facts.reason = std::strerror(errno);
    return facts;
  }
  facts.free_bytes = std::uint64_t{system.f_bavail} * system.f_frsize;
  AsioRuntime runtime;
  const Instant begin = runtime.now();
  facts.reason = write_and_sync(fmt::format("{}/.swarmline-doctor-{}", facts.folder, ::getpid()));
  facts.sync_seconds = to_seconds(runtime.now() - begin);
  return facts;
}

MemoryFacts look_at_memory(const std::string& device) {
  MemoryFacts facts;
  if (device.starts_with("cuda")) {
    facts.of = device;
    facts.free_bytes = megabytes_of_gpu("memory.free", device);
    facts.total_bytes = megabytes_of_gpu("memory.total", device);
    return facts;
  }
  facts.of = "this machine";
  facts.free_bytes = free_memory_bytes();
  facts.total_bytes = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                      static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t bound = number_in("/sys/fs/cgroup/memory.max");
  if (bound == 0 || bound >= facts.total_bytes) return facts;
  const std::uint64_t used = number_in("/sys/fs/cgroup/memory.current");
  facts.of = "this container";
  facts.total_bytes = bound;
  facts.free_bytes = std::min(facts.free_bytes, bound - std::min(used, bound));
  return facts;
}

ComputeFacts look_at_cpu() {
  ComputeFacts facts;
  facts.cpu = processor_name();
  facts.cores = static_cast<std::uint32_t>(processor_cores());
  facts.kernels = kernels::quant_path().name;
  return facts;
}

DriverFacts look_at_driver(const std::string& device) {
  DriverFacts facts{.wanted = device.starts_with("cuda"), .driver = {}, .gpu = {}};
  if (!facts.wanted) return facts;
  facts.driver = ask_driver("driver_version", device);
  facts.gpu = ask_driver("name", device);
  return facts;
}

}  // namespace swarmline
