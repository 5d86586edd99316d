// The keys of a machine: [peer] of a peer.toml, and the flags of `swarmline peer`.
#include <array>

#include "engine/config/schema.h"

namespace swarmline {
namespace {

using namespace key_kinds;

constexpr Choice kNoticeSources[] = {{"auto", static_cast<int>(NoticeSource::kAuto)},
                                     {"aws", static_cast<int>(NoticeSource::kAws)},
                                     {"gcp", static_cast<int>(NoticeSource::kGcp)},
                                     {"azure", static_cast<int>(NoticeSource::kAzure)},
                                     {"command", static_cast<int>(NoticeSource::kCommand)},
                                     {"none", static_cast<int>(NoticeSource::kNone)}};

// Key and field of a row.
#define PEER(key, member) "peer", key, [](Roots roots) -> Field { return &roots.peer->member; }

// clang-format off: a key a row, its sentence below it
constexpr auto kPeerKeys = std::to_array<KeySpec>({
  {PEER("device", device), text(),
   "Compute device: `cpu`, `cuda` or `cuda:N`. `cuda` is the first GPU; `launch` gives its peers "
   "the machine's GPUs in turns."},
  {PEER("threads", threads), ints(1, 1024),
   "Number of compute threads."},
  {PEER("memory_bytes", memory_bytes), bytes(),
   "Memory that the peer may use, in bytes: it serves no stage that needs more. 0: no limit.",
   "\"16G\""},
  {PEER("shadow_memory_bytes", shadow_memory_bytes), bytes(),
   "Limit, in bytes, on the host memory for the stages that the peer follows as a shadow, and for "
   "the copy of its own stage's state that it keeps when it loses its seat. 0: no limit.",
   "\"16G\""},
  {PEER("listen", listen), text(),
   "HOST:PORT to listen on for other peers; port 0: chosen by the system."},
  {PEER("advertise", advertise), text(),
   "HOST:PORT at which others reach this peer. Empty: what listen bound.", "\"192.0.2.7:4700\""},
  {PEER("data", data), text(),
   "Folder with the run's data on this machine; below it the files have the names that they have "
   "below the folder common to all of them at the coordinator. Empty: the paths are the same.",
   "\"/mnt/ssd/corpus\""},
  {PEER("data_root", data_root), text(),
   "Folder below which the peer reads data, whatever the run's config says; links that lead out "
   "of it do not count. Empty: `data`, else the current folder.", "\"/srv/data\""},
  {PEER("fetch_data", fetch_data), flag(),
   "Whether a peer whose data is missing or different fetches what it reads from peers that have "
   "it."},
  {PEER("fetch_data_folder", fetch_data_folder), text(),
   "Folder that keeps fetched pieces. Empty: `$XDG_CACHE_HOME/swarmline/data`, else "
   "`$HOME/.cache/swarmline/data`.", "\"/mnt/ssd/pieces\""},
  {PEER("fetch_data_cache_mb", fetch_data_cache_mb), mebibytes(16, 1 << 30),
   "Limit on the fetched pieces that stay on the disk, in MiB; the least recently used go first.",
   "\"4G\""},
  {PEER("join_patience_seconds", join_patience_seconds), reals(0, 365 * kDaySeconds),
   "How long a newcomer keeps trying while no coordinator answers; then it ends."},
  {PEER("zone", zone), text(),
   "Where the machine is. Machines in one zone tend to vanish together: a stage's peers and "
   "shadows are spread over zones."},
  {PEER("price", price), from_zero(),
   "Price of this machine per hour, in the currency of the run's `money.currency`."},
  {PEER("egress_price", egress_price), from_zero(),
   "Price of a gigabyte (10^9 bytes) that it sends to other machines. 0: what the run's "
   "`money.egress_price` says."},
  {PEER("bandwidth", bandwidth), bits_per_second(),
   "Network bandwidth in bits per second, each way. Of three or more peers that average, who has "
   "less sums less. 0: as much as most of its mates say.", "\"100M\""},
  {PEER("insecure", insecure), flag(),
   "true: the peer joins a run beyond this machine by HOST:PORT, although its links are neither "
   "authenticated nor encrypted."},
  {PEER("key", key), text(),
   "File of the peer's own key, by which the run recognises it later; created if missing. Empty: "
   "a new key at each start.", "\"/var/lib/swarmline/peer.key\""},
  {PEER("notices", notices), one_of(kNoticeSources),
   "Who says that this machine will be taken away: the metadata server of EC2, Compute Engine or "
   "Azure, or `notice_command`. `auto`: the cloud that the machine's firmware names, else nobody. "
   "A notice makes the peer hand in its work and leave in time."},
  {PEER("notice_command", notice_command), text(),
   "For `notices = \"command\"`: a shell command that waits for the notice. Exit code 0: the "
   "machine is taken, in as many seconds as the first number it printed (30 without one); 10: it "
   "may be taken soon; anything else: it failed and is started again.",
   "\"/usr/local/bin/wait-for-notice\""},
  {PEER("notice_url", notice_url), text(),
   "Where the metadata server is. Empty: http://169.254.169.254.", "\"http://127.0.0.1:8169\""},
  {PEER("emulate.forward_ms", emulate_forward_ms), reals(0, 3.6e6),
   "Time that a forward pass holds the device, whatever it really takes. 0: off."},
  {PEER("emulate.backward_ms", emulate_backward_ms), reals(0, 3.6e6),
   "Time that a backward pass holds the device, whatever it really takes. 0: off."},
  {PEER("emulate.jitter", emulate_jitter), share(),
   "Range of a uniform draw from [1 - jitter, 1 + jitter] that multiplies each emulated time."},
});
// clang-format on

#undef PEER

}  // namespace

std::span<const KeySpec> peer_keys() {
  return kPeerKeys;
}

}  // namespace swarmline
