// What `status --json` and the live screen show of a reign; the members are listed in
// docs/formats/status.md.
//   Thread: control thread. Bounds: one entry a peer and a boundary.
#pragma once

#include <string>

#include "base/units.h"
#include "pipeline/coordinator/members/balance_desk.h"
#include "pipeline/coordinator/members/membership.h"
#include "pipeline/coordinator/members/refusals.h"
#include "pipeline/coordinator/members/relay_desk.h"
#include "pipeline/coordinator/members/session_table.h"
#include "pipeline/coordinator/run/cost_meter.h"
#include "pipeline/coordinator/run/event_log.h"
#include "pipeline/coordinator/run/journal_writer.h"
#include "pipeline/coordinator/run/run_identity.h"
#include "pipeline/coordinator/run/run_lifecycle.h"
#include "pipeline/coordinator/run/run_sequence.h"
#include "pipeline/coordinator/run/run_shape.h"
#include "pipeline/coordinator/run/run_stats.h"
#include "pipeline/coordinator/run/segments.h"
#include "pipeline/coordinator/states/checkpointer.h"
#include "pipeline/coordinator/states/shadow_desk.h"
#include "pipeline/coordinator/steps/boundary_board.h"
#include "pipeline/protocol/run_status.h"

namespace swarmline {

struct StatusSources {  // what it is read from
  const RunShape& shape;
  const RunIdentity& identity;
  const RunSegments& segments;
  const RunLifecycle& life;
  const JournalWriter& writer;
  const EventLog& events;
  const RunSequence& sequence;
  const RunStats& stats;
  const CostMeter& cost;
  const Refusals& refusals;
  const SessionTable& sessions;
  const Membership& members;
  const RelayDesk& relays;
  const ShadowDesk& shadows;
  const BalanceDesk& balancer;
  const BoundaryBoard& boundaries;
  const Checkpointer& checkpointer;
};

// That the parameters of `version` were trained on.
std::uint64_t trained_tokens(const StatusSources& run, std::uint64_t version);
// What the run has cost up to now, for the journal.
RunTotals run_totals(const StatusSources& run);
// `era_sentence`: why the newest era began, and where.
RunStatus status_of(const StatusSources& run, const std::string& era_sentence, Instant now);

}  // namespace swarmline
