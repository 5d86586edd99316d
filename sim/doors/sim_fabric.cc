#include "sim/doors/sim_fabric.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/byte_ops.h"
#include "base/callback_guard.h"
#include "base/check.h"
#include "base/marks.h"
#include "engine/fabric/fabric_turns.h"

namespace swarmline {
namespace {

// What moves on a host belongs to no process: it goes on while both ends are frozen.
constexpr SimNodeId kLinesNode = 0xFFFF'FFFF;
constexpr std::byte kNoNumber{0xFF};
constexpr std::uint64_t kStallTurns = 4;  // a group that stalls does so in one of its first ones

// An id's word.
struct Word {
  std::array<char, 8> magic{'S', 'i', 'm', 'F', 'a', 'b', 'r', 'c'};
  std::uint64_t id = 0;
};

Buffer to_bytes(const Word& word) {
  Buffer bytes(sizeof word);
  std::memcpy(bytes.data(), &word, sizeof word);
  return bytes;
}

std::optional<std::uint64_t> id_in(BytesView bytes) {
  Word word;
  if (bytes.size() != sizeof word) return std::nullopt;
  std::memcpy(&word, bytes.data(), sizeof word);
  return word.magic == Word().magic ? std::optional(word.id) : std::nullopt;
}

}  // namespace

struct SimFabrics::World {
  World(SimRuntime& of_runtime, SimFabricOptions of_options)
      : runtime(of_runtime),
        options(of_options),
        rng(runtime.rng("fabric")),
        first_id(rng.next_u64()),
        next_id(first_id) {}

  bool is_known(std::uint64_t id) const { return id - first_id < next_id - first_id; }

  SimRuntime& runtime;
  SimFabricOptions options;
  Rng rng;
  const std::uint64_t first_id;  // ids follow each other
  std::uint64_t next_id;
  std::map<std::uint64_t, std::weak_ptr<Meeting>> meetings;  // by id
  std::map<SimNodeId, SimFabricPlace> places;
  std::map<std::string, Instant> lines_free_at;  // by host
  std::vector<Member*> members;                  // in the order of their opening
  Counters counters;
};

// Members that have found each other, or will.
struct SimFabrics::Meeting : std::enable_shared_from_this<Meeting> {
  Meeting(std::shared_ptr<World> of_world, FabricKind of_kind, std::uint32_t ranks,
          std::string on_host)
      : world(std::move(of_world)),
        id(world->next_id++),
        kind(of_kind),
        host(std::move(on_host)),
        members(ranks),
        came(ranks) {}
  ~Meeting() { world->meetings.erase(id); }

  bool is_here(std::uint32_t rank) const;
  void take(std::uint32_t rank, Member* member);
  void connect();
  void match(std::uint32_t a, std::uint32_t b);
  void stall();

  std::shared_ptr<World> world;
  const std::uint64_t id;
  const FabricKind kind;
  const std::string host;
  std::vector<Member*> members;  // by rank; null: has not come, or is gone
  std::vector<bool> came;
  bool connected = false, stalled = false;
  std::optional<std::uint64_t> stalls_at;  // turn
};

class SimFabrics::Member final : public FabricGroup {
 public:
  Member(std::shared_ptr<World> world, SimNodeId node, FabricKind kind, std::uint32_t rank,
         std::uint32_t ranks, Fabric::SendWord send_word)
      : world_(std::move(world)),
        node_(node),
        deaths_(world_->runtime.deaths(node)),
        place_(world_->places[node]),
        kind_(kind),
        rank_(rank),
        ranks_(ranks),
        paired_(ranks),
        turns_(world_->runtime.node(node), rank, ranks, world_->options.patience,
               {.begin = [this](const auto& transfers) { begin(transfers); },
                .give_up = [this] { leave(); }}) {
    world_->members.push_back(this);
    if (rank > 0) return;
    meeting_ = std::make_shared<Meeting>(world_, kind, ranks, place_.host);
    world_->meetings.emplace(meeting_->id, meeting_);
    meeting_->take(0, this);
    for (std::uint32_t to = 1; to < ranks; ++to) send_word(to, to_bytes({.id = meeting_->id}));
  }

  ~Member() override {
    std::erase(world_->members, this);
    leave();
  }

  void exchange(std::vector<FabricTransfer> transfers, Done done) override {
    turns_.exchange(std::move(transfers), std::move(done));
  }

  Result<void> on_word(std::uint32_t from, BytesView word) override {
    const auto id = id_in(word);
    if (from != 0 || rank_ == 0 || !id || !world_->is_known(*id) || has_id_)
      return fail(ErrorCode::kCorrupt, "it is no word of this fabric's group");
    const auto found = world_->meetings.find(*id);
    const auto meeting = found == world_->meetings.end() ? nullptr : found->second.lock();
    if (meeting &&
        (meeting->kind != kind_ || meeting->came.size() != ranks_ || meeting->came[rank_]))
      return fail(ErrorCode::kCorrupt, "it is a word of another group of the fabric");
    has_id_ = true;
    if (!meeting || turns_.failure()) return {};  // nobody else comes there, or this one does not
    if (meeting->host != place_.host) {
      break_off(fmt::format("rank 0 of the fabric's group is on {}, rank {} on {}", meeting->host,
                            rank_, place_.host));
      return {};
    }
    meeting_ = meeting;
    meeting_->take(rank_, this);
    return {};
  }

  bool is_alive() const { return world_->runtime.deaths(node_) == deaths_; }
  SimNodeId node() const { return node_; }
  std::uint32_t card() const { return place_.card; }
  void stall() {
    if (meeting_) meeting_->stall();
  }
  void fail_exchange() {
    if (!turns_.has_turn()) {
      fails_next_ = true;
      return;
    }
    ++world_->counters.failed;
    break_off(fmt::format("an error in exchange {}", turns_.turn() + 1));
  }
  // In an event of its own.
  void break_off(std::string sentence) {
    world_->runtime.schedule(
        node_, world_->runtime.now(), guard_.wrap([this, sentence = std::move(sentence)] {
          turns_.fail({ErrorCode::kDevice, "the simulated fabric: " + sentence});
        }),
        kSimPosted);
  }

 private:
  friend struct Meeting;

  // A transfer of the exchange under way. Both ends have what moves.
  struct Move {
    FabricTransfer transfer;
    std::shared_ptr<const Buffer> bytes = {};  // null: not there yet, of one that is received
  };

  void begin(const std::vector<FabricTransfer>& transfers) {
    pending_ = transfers.size();
    for (const FabricTransfer& transfer : transfers) {
      const MutableBytes memory{transfer.memory, transfer.bytes};
      Move& move = moves_.emplace_back(Move{transfer});
      if (transfer.way == FabricTransfer::Way::kSend)
        move.bytes = std::make_shared<const Buffer>(Buffer::copy_of(memory));
      else
        fill_bytes(memory, kNoNumber);
    }
    const SimFabricOptions& options = world_->options;
    if (std::exchange(fails_next_, false) ||
        (options.errors > 0 && world_->rng.uniform() < options.errors)) {
      SWARMLINE_MARK("sim_fabric.error");
      ++world_->counters.failed;
      return break_off(fmt::format("an error in exchange {}", turns_.turn() + 1));
    }
    for (std::uint32_t other = 0; meeting_ && other < ranks_; ++other)
      if (other != rank_) meeting_->match(rank_, other);
  }

  std::vector<Move*> moves_with(std::uint32_t other, FabricTransfer::Way way) {
    std::vector<Move*> found;
    for (Move& move : moves_)
      if (move.transfer.with == other && move.transfer.way == way) found.push_back(&move);
    return found;
  }

  // A transfer of that turn is over.
  void moved(std::uint64_t turn) {
    world_->runtime.schedule(node_, world_->runtime.now(), guard_.wrap([this, turn] {
      if (turns_.failure() || turns_.turn() != turn || --pending_ > 0) return;
      check_memory();
      for (const Move& move : moves_)
        if (move.transfer.way == FabricTransfer::Way::kReceive)
          copy_bytes(move.bytes->bytes(), {move.transfer.memory, move.transfer.bytes});
      moves_.clear();
      turns_.end_turn();
    }),
                             kSimPosted);
  }

  void check_memory() const {
    for (const Move& move : moves_) {
      const BytesView memory{move.transfer.memory, move.transfer.bytes};
      if (move.transfer.way == FabricTransfer::Way::kSend)
        SWARMLINE_CHECK_MSG(same_bytes(memory, move.bytes->bytes()),
                            fmt::format("rank {} writes to what it sends to rank {} in exchange {}",
                                        rank_, move.transfer.with, turns_.turn() + 1));
      else
        SWARMLINE_CHECK_MSG(
            std::ranges::all_of(memory, [](std::byte byte) { return byte == kNoNumber; }),
            fmt::format("rank {} writes to what it receives from rank {} in exchange {}", rank_,
                        move.transfer.with, turns_.turn() + 1));
    }
  }

  void leave() {
    check_memory();
    moves_.clear();
    if (meeting_) meeting_->members[rank_] = nullptr;
    meeting_ = nullptr;
  }

  std::shared_ptr<World> world_;
  const SimNodeId node_;
  const std::uint64_t deaths_;  // of the node's processes, when this one opened it
  const SimFabricPlace place_;
  const FabricKind kind_;
  const std::uint32_t rank_, ranks_;
  std::shared_ptr<Meeting> meeting_;  // null: it waits for the id, or has left
  bool has_id_ = false;
  std::vector<Move> moves_;  // of the exchange under way
  std::size_t pending_ = 0;
  std::vector<std::uint64_t> paired_;  // by rank: turns that have been matched with it
  bool fails_next_ = false;
  FabricTurns turns_;
  CallbackGuard guard_;
};

bool SimFabrics::Meeting::is_here(std::uint32_t rank) const {
  return members[rank] != nullptr && members[rank]->is_alive();
}

void SimFabrics::Meeting::take(std::uint32_t rank, Member* member) {
  members[rank] = member;
  came[rank] = true;
  if (!std::ranges::all_of(came, [](bool has_come) { return has_come; })) return;
  ++world->counters.met;
  if (world->options.stalls > 0 && world->rng.uniform() < world->options.stalls)
    stalls_at = world->rng.below(kStallTurns);
  world->runtime.schedule(kLinesNode, world->runtime.now() + world->options.setup,
                          [self = shared_from_this()] { self->connect(); });
}

void SimFabrics::Meeting::connect() {
  const auto ranks = static_cast<std::uint32_t>(members.size());
  for (std::uint32_t rank = 0; rank < ranks; ++rank)
    if (!is_here(rank)) return;  // the others wait for it in vain
  std::map<std::uint32_t, std::uint32_t> by_card;
  for (std::uint32_t rank = 0; kind == FabricKind::kNccl && rank < ranks; ++rank) {
    const auto [first, is_new] = by_card.emplace(members[rank]->card(), rank);
    if (is_new) continue;
    for (Member* member : members)
      member->break_off(fmt::format("ranks {} and {} share a card", first->second, rank));
    return;
  }
  connected = true;
  for (std::uint32_t a = 0; a < ranks; ++a)
    for (std::uint32_t b = a + 1; b < ranks; ++b) match(a, b);
}

void SimFabrics::Meeting::match(std::uint32_t a, std::uint32_t b) {
  if (!connected || !is_here(a) || !is_here(b)) return;
  Member* const behind =
      members[a]->turns_.turn() <= members[b]->turns_.turn() ? members[a] : members[b];
  Member* const ahead = behind == members[a] ? members[b] : members[a];
  if (!behind->turns_.has_turn()) return;
  const std::uint64_t turn = behind->turns_.turn();
  const bool together = ahead->turns_.turn() == turn;
  if (together && !ahead->turns_.has_turn()) return;
  if (behind->paired_[ahead->rank_] > turn) return;
  if (stalls_at && *stalls_at <= turn) stall();
  using enum FabricTransfer::Way;
  for (const auto& [from, to] : {std::pair(behind, ahead), std::pair(ahead, behind)}) {
    // Who is ahead has had that turn without naming the other one.
    const auto sends = together || from == behind ? from->moves_with(to->rank_, kSend)
                                                  : std::vector<Member::Move*>();
    const auto receives = together || to == behind ? to->moves_with(from->rank_, kReceive)
                                                   : std::vector<Member::Move*>();
    const auto same = [](const Member::Move* sent, const Member::Move* received) {
      return sent->transfer.bytes == received->transfer.bytes;
    };
    if (!std::ranges::equal(sends, receives, same)) {
      const std::string differ = fmt::format(
          "exchange {}: rank {} sends {} transfers to rank {}, which receives {}, or of other "
          "lengths",
          turn + 1, from->rank_, sends.size(), to->rank_, receives.size());
      SWARMLINE_CHECK_MSG(world->options.ends_may_differ, differ);
      for (Member* end : {from, to}) end->break_off(differ);
      return;
    }
    for (std::size_t i = 0; i < sends.size(); ++i) {
      receives[i]->bytes = sends[i]->bytes;
      const std::uint64_t bytes = sends[i]->transfer.bytes;
      Instant& free_at = world->lines_free_at[host];
      free_at = std::max(free_at, world->runtime.now()) +
                from_seconds(static_cast<double>(bytes) / world->options.bytes_per_second);
      world->runtime.schedule(
          kLinesNode, free_at + world->options.latency,
          [self = shared_from_this(), sender = from->rank_, receiver = to->rank_, turn, bytes] {
            if (self->stalled || !self->is_here(sender) || !self->is_here(receiver)) return;
            ++self->world->counters.transfers;
            self->world->counters.bytes += bytes;
            self->members[sender]->moved(turn);
            self->members[receiver]->moved(turn);
          });
    }
  }
  behind->paired_[ahead->rank_] = turn + 1;
  if (together) ahead->paired_[behind->rank_] = turn + 1;
}

void SimFabrics::Meeting::stall() {
  if (std::exchange(stalled, true)) return;
  SWARMLINE_MARK("sim_fabric.stalled");
  ++world->counters.stalled;
}

class SimFabrics::Door final : public Fabric {
 public:
  Door(std::shared_ptr<World> world, SimNodeId node) : world_(std::move(world)), node_(node) {}

  bool offers(FabricKind kind) const override {
    const auto place = world_->places.find(node_);
    if (place == world_->places.end() || place->second.host.empty()) return false;
    return (kind == FabricKind::kNccl && place->second.nccl) ||
           (kind == FabricKind::kIpc && place->second.ipc);
  }

  std::unique_ptr<FabricGroup> open(FabricKind kind, std::uint32_t rank, std::uint32_t ranks,
                                    SendWord send_word) override {
    SWARMLINE_CHECK(offers(kind));
    return std::make_unique<Member>(world_, node_, kind, rank, ranks, std::move(send_word));
  }

 private:
  std::shared_ptr<World> world_;
  const SimNodeId node_;
};

SimFabrics::SimFabrics(SimRuntime& runtime, SimFabricOptions options) {
  SWARMLINE_CHECK(options.bytes_per_second > 0);
  world_ = std::make_shared<World>(runtime, options);
}

SimFabrics::~SimFabrics() = default;

Fabric& SimFabrics::node(SimNodeId node) {
  std::unique_ptr<Door>& made = doors_[node];
  if (!made) made = std::make_unique<Door>(world_, node);
  return *made;
}

void SimFabrics::set_place(SimNodeId node, SimFabricPlace place) {
  world_->places.insert_or_assign(node, std::move(place));
}

void SimFabrics::stall(SimNodeId node) {
  world_->runtime.hurts(node);
  for (Member* member : world_->members)
    if (member->node() == node) member->stall();
}

void SimFabrics::break_exchange(SimNodeId node) {
  world_->runtime.hurts(node);
  for (Member* member : world_->members)
    if (member->node() == node) member->fail_exchange();
}

const SimFabrics::Counters& SimFabrics::counters() const {
  return world_->counters;
}

}  // namespace swarmline
