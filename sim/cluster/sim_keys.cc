#include "sim/cluster/sim_keys.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/marks.h"
#include "node/admission/invites.h"
#include "node/admission/key_record.h"
#include "sim/doors/sim_device.h"

namespace swarmline {
namespace {

using namespace std::chrono_literals;

constexpr SimNodeId kWorldClock = std::numeric_limits<SimNodeId>::max();  // nobody's process
constexpr const char* kRunName = "simulated";
constexpr double kLongSeconds = 365.0 * 24 * 3600;
constexpr double kOverSeconds = 3600;   // since when an invite is over that is
constexpr Duration kLookAtKey = 500ms;  // as kKeyLook of node/key_watch.h
constexpr Duration kInviteLookup = 1ms;
constexpr int kInviteLookupsMax = 64;
constexpr double kStrangerPatienceSeconds = 5;  // of one that nothing else ends

std::string bytes_from(Rng& rng, std::size_t count) {
  std::string bytes;
  for (std::size_t i = 0; i < count; ++i) bytes.push_back(static_cast<char>(rng.below(256)));
  return bytes;
}

}  // namespace

struct SimKeys::Process {
  Process(SimNodeId at, AsyncJournal& its_journal, Runtime& runtime, std::uint64_t seed)
      : node(at),
        journal(its_journal),
        clerk(runtime, {.name = "invites",
                        .control = kInviteLookup,
                        .seed = seed,
                        .queue_jobs_max = kInviteLookupsMax}) {}
  SimNodeId node;
  AsyncJournal& journal;
  SimDevice clerk;
  std::shared_ptr<RunGuard> guard;
  bool records = false;  // a key that it has found
  bool over = false;
};

SimKeys::SimKeys(SimRuntime& runtime, SimNetwork& network, std::vector<Address> coordinators)
    : runtime_(runtime),
      network_(network),
      coordinators_(std::move(coordinators)),
      rng_(runtime.rng("keys")),
      key_{.identity = identity("run", 0)},
      first_key_(key_.identity.hash()),
      open_invite_(make_invite(kLongSeconds, 0)) {}

SimKeys::~SimKeys() = default;

Identity SimKeys::identity(std::string_view what, std::uint64_t number) const {
  Rng rng = runtime_.rng("identities").split(what).split(number);
  return Identity::from_private_key(bytes_from(rng, kPrivateKeyBytes));
}

double SimKeys::now() const {
  return runtime_.node(kWorldClock).wall_seconds();
}

// ---- Invites ------------------------------------------------------------------------------------

Invite SimKeys::make_invite(double life_seconds, std::uint64_t uses_max) {
  Invite invite{.id = bytes_from(rng_, kInviteIdBytes),
                .secret = bytes_from(rng_, kInviteSecretBytes),
                .scope = InviteScope::kPeer,
                .made = now() + std::min(0.0, life_seconds),
                .expires = now() + life_seconds,
                .uses_max = uses_max,
                .revoked = std::nullopt,
                .admitted = {},
                .admitted_last = 0};
  invites_ += InviteBook::line_of(invite) + "\n";
  return invite;
}

// As append_secret_line() does.
Result<void> SimKeys::add_line(const NextLine& line) {
  auto made = line(invites_);
  if (!made) return std::unexpected(std::move(made).error());
  if (!made->empty()) invites_ += *made + "\n";
  return {};
}

JoinString SimKeys::string_of(SimNodeId node, SimTicket ticket) {
  Invite invite = open_invite_;
  if (ticket == SimTicket::kExpired) invite = make_invite(-kOverSeconds, 0);
  if (ticket == SimTicket::kRevoked) {
    invite = make_invite(kLongSeconds, 0);
    invites_ += *InviteBook::parse(invites_)->line_to_revoke(invite.id, now()) + "\n";
  }
  if (ticket == SimTicket::kUsedUp) {
    invite = make_invite(kLongSeconds, 1);
    const auto another = identity("who came before", node).hash();
    invites_ += InviteBook::parse(invites_)
                    ->admit(invite.id, invite_proof(invite.secret, ""), "", another, now())
                    ->line +
                "\n";
  }
  if (ticket == SimTicket::kStolenSeat) invite.secret = bytes_from(rng_, kInviteSecretBytes);
  const bool other_run = ticket == SimTicket::kOtherRun;
  return {.run = kRunName,
          .run_key = other_run       ? identity("another run", node).hash()
                     : node % 2 == 0 ? first_key_
                                     : key(),
          .invite_id = invite.id,
          .secret = invite.secret,
          .addresses = coordinators_};
}

// ---- Processes ----------------------------------------------------------------------------------

void SimKeys::lead(SimNodeId node, AsyncJournal& journal, CoordinatorOptions& options) {
  const auto recorded = recorded_key(journal.at_once());
  SWARMLINE_CHECK(recorded.has_value());
  if (*recorded)
    SWARMLINE_CHECK_MSG(leads_to(*parse_key_hash(**recorded), key_, kRunName),
                        "the journal knows of another key than the folder's");
  if (!*recorded || **recorded != to_string(key()))
    SWARMLINE_CHECK(record_key(journal.at_once(), key_, now()).has_value());
  for (const auto& before : processes_)
    if (before->node == node) before->over = true;
  const auto process = std::make_shared<Process>(
      node, journal, runtime_.node(node), rng_.split("clerk").split(processes_.size()).seed());
  process->guard = std::make_shared<RunGuard>(
      key_, kRunName, [this](const NextLine& line) { return add_line(line); }, runtime_.node(node),
      process->clerk);
  processes_.push_back(process);
  network_.set_guard(node, process->guard);
  options.certify = [guard = process->guard](const std::string& run_id, const Seat& seat,
                                             const KeyHash& key) {
    return guard->certify(run_id, seat, key);
  };
  options.certify_anew = [guard = process->guard](const std::string& run_id, const Seat& seat,
                                                  const KeyHash& key) {
    return guard->certify_anew(run_id, seat, key);
  };
  options.is_run_key = [guard = process->guard](const KeyHash& key) {
    return key == guard->identity().hash();
  };
  look_later(process);
}

void SimKeys::join(SimNodeId node, SimTicket ticket, StagePeerOptions& options) {
  Identity own = identity("peer", node);
  if (ticket != SimTicket::kGood) {
    strangers_.insert(node);
    strange_keys_.insert(to_string(own.hash()));
    options.machine.join_patience_seconds = kStrangerPatienceSeconds;
  }
  const auto guard =
      std::make_shared<PeerGuard>(std::move(own), string_of(node, ticket), runtime_.node(node));
  if (ticket == SimTicket::kStolenSeat) guard->take_certificate(stolen_);
  options.on_certificate = [this, guard](const std::string& certificate) {
    guard->take_certificate(certificate);
    stolen_ = certificate;
  };
  network_.set_guard(node, guard);
}

// ---- The key changes ----------------------------------------------------------------------------

bool SimKeys::rotate() {
  auto next =
      rotated(key_, kRunName, now(), kKeyOverlapMaxSeconds, identity("run", rotations_ + 1));
  if (!next) return false;
  ++rotations_;
  key_ = std::move(*next);
  return true;
}

bool SimKeys::leads_with(SimNodeId node) const {
  for (const auto& process : processes_)
    if (process->node == node && !process->over)
      return process->guard->key().identity.hash() == key();
  return false;
}

void SimKeys::look_later(const std::shared_ptr<Process>& process) {
  runtime_.node(process->node).call_after(kLookAtKey, [this, process] {
    if (process->over) return;
    look(process);
    look_later(process);
  });
}

// Its peers hear of it once the journal has it: whoever leads after this one has it, too.
void SimKeys::look(const std::shared_ptr<Process>& process) {
  if (process->records || process->guard->identity().hash() == key()) return;
  process->records = true;
  process->journal.run(
      [next = key_, now = now()](Journal& journal) { return record_key(journal, next, now); },
      [process, next = key_](const Result<void>& recorded) {
        process->records = false;
        if (recorded) {
          SWARMLINE_MARK("sim_keys.another_key");
          process->guard->take_key(next);
        } else if (recorded.error().code == ErrorCode::kRefused) {
          process->over = true;  // another leads
        }
      });
}

}  // namespace swarmline
