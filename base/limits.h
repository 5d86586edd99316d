// Every bound of the engine that guards memory or time against other people's bytes or one's own
// load, with its unit.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/units.h"

namespace swarmline {

struct Limits {
  // Frames
  // A hundred bytes for each piece of the largest state, or microbatch of the largest step.
  static constexpr std::uint64_t frame_meta_bytes_max = 128 * kMiB;
  static constexpr std::uint64_t frame_meta_ahead_bytes_max = 1 * kMiB;  // held before it came
  static constexpr std::uint64_t frame_payload_bytes_max = 1 * kGiB;
  static constexpr std::uint64_t connection_queue_bytes_max = 4 * kGiB;
  static constexpr int accept_backlog_max = 4096;
  static constexpr std::uint64_t arrival_bytes_min = 1 * kMiB;  // payloads reported as they arrive
  // Before the other end has said who it is: a stranger
  static constexpr std::uint64_t stranger_meta_bytes_max = 64 * kKiB;
  // 32 bytes of what it holds for each microbatch of the largest step.
  static constexpr std::uint64_t hello_meta_bytes_max = 32 * kMiB;
  static constexpr std::size_t strangers_max = 2048;                    // connections of a process
  static constexpr std::size_t strangers_of_host_max = 512;             // from one address
  static constexpr std::uint64_t strangers_held_bytes_max = 64 * kMiB;  // beyond 64 KiB of each
  static constexpr std::uint64_t stranger_unsent_bytes_max = 16 * kMiB;
  static constexpr std::uint64_t strangers_unsent_bytes_max = 128 * kMiB;      // of all
  static constexpr Duration stranger_patience = std::chrono::seconds(10);      // between its frames
  static constexpr Duration nobodys_link_idle_max = std::chrono::seconds(30);  // without a seat
  // After it has
  static constexpr std::uint64_t control_meta_bytes_max = 64 * kKiB;  // of what never says a list
  static constexpr std::uint64_t control_unsent_bytes_max = 256 * kMiB;  // to a peer, by its
                                                                         // coordinator
  static constexpr std::uint64_t hellos_held_bytes_max = 256 * kMiB;     // that wait, of all
  static constexpr std::uint64_t messages_held_bytes_max = 256 * kMiB;   // while collecting
  static constexpr std::uint64_t pieces_unsent_bytes_max = 1 * kGiB;     // beyond: no piece
  static constexpr std::uint64_t status_bytes_max = 16 * kMiB;
  // What others call themselves, and say for people
  static constexpr std::size_t name_bytes_max = 128;
  static constexpr std::size_t address_bytes_max = 300;  // a DNS name has 253
  static constexpr std::size_t reason_bytes_max = 1024;
  // Swarm
  static constexpr int stages_max = 1024;
  static constexpr int peers_max = 16384;         // at a time
  static constexpr int stage_peers_max = 1024;    // that average together
  static constexpr int next_candidates_max = 16;  // peers of the next stage one sender knows
  static constexpr std::uint32_t microbatches_per_step_max = 1U << 20;
  static constexpr int attempts_in_quick_succession = 8;  // of one microbatch, from a peer
  static constexpr int failures_per_microbatch_max = 3;   // then the run stops and names it
  // Stage peer
  static constexpr int device_queue_jobs_max = 4;  // jobs handed to the device ahead of time
  static constexpr int in_flight_per_next_peer_max = 64;
  // Collective
  static constexpr std::size_t reduce_chunk_bytes = 512 * kKiB;
  // State between peers
  static constexpr std::uint64_t state_piece_bytes = 1 * kMiB;
  // Files
  static constexpr std::uint64_t safetensors_header_bytes_max = 100'000'000;
  static constexpr std::uint64_t checkpoint_piece_bytes = 4 * kMiB;
  static constexpr std::uint64_t config_file_bytes_max = 1 * kMiB;
  // Rpc and membership
  static constexpr Duration rpc_deadline = std::chrono::seconds(30);
  static constexpr Duration heartbeat_period = std::chrono::milliseconds(500);
};

}  // namespace swarmline
