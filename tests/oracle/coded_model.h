// A model for the reference that is cut as a swarm cuts it, in one process: what crosses a cut goes
// through the swarm's codecs, forward and back. Codecs that round to nearest make of the same
// values the same bytes, so such a reference and a swarm differ by the order of sums alone.
//   Shapes:    that of the whole model, one arena; tied embeddings are one tensor of it, and get
//              the gradients of both their stages.
//   Bounds:    one accumulator at a time; no gradients added later; one version of the parameters.
//              CHECKed.
//   Thread:    one. Errors: the models' and the codecs'.
#pragma once

#include "tests/oracle/oracle_case.h"

namespace swarmline::oracle {

// For ReferenceOptions::make_model. Of the config: stages, [pipeline] layers, codecs.
decltype(ReferenceOptions::make_model) make_coded_model(const RunConfig& config);

}  // namespace swarmline::oracle
