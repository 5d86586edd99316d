// When a seat is given another certificate.
#include "node/admission/certified_seats.h"

#include <gtest/gtest.h>

#include "engine/identity/identity.h"
#include "node/admission/run_guard.h"
#include "node/admission/seat_certificate.h"
#include "sim/doors/sim_device.h"
#include "sim/doors/sim_runtime.h"

namespace swarmline {
namespace {

constexpr double kNow = 1'790'000'000;

TEST(CertifiedSeats, AreDueBeforeTheyEndAndWhenTheKeyHasChanged) {
  const KeyHash key = Identity::make().hash(), next = Identity::make().hash();
  const Seat seat{PeerId{3}, StageId{1}, Incarnation{2}};
  CertifiedSeats seats;
  EXPECT_TRUE(seats.is_due(seat, key, kNow)) << "it was given none";
  seats.gave(seat, key, kNow + kSeatCertificateSeconds);
  EXPECT_FALSE(seats.is_due(seat, key, kNow));
  const double half = kNow + kSeatCertificateLeft * kSeatCertificateSeconds;
  EXPECT_FALSE(seats.is_due(seat, key, half - 1));
  EXPECT_TRUE(seats.is_due(seat, key, half + 1));
  EXPECT_TRUE(seats.is_due(seat, next, kNow));
  EXPECT_TRUE(seats.is_due({seat.peer, seat.stage, Incarnation{3}}, key, kNow)) << "another seat";
  seats.gave(seat, next, half + kSeatCertificateSeconds);
  EXPECT_FALSE(seats.is_due(seat, next, half + 1)) << "it has a new one";
}

// What a coordinator does with the heartbeats of a seat, for two months.
TEST(CertifiedSeats, AreGivenAnewBeforeTheyEndAsLongAsTheRunLives) {
  SimRuntime runtime(1);
  SimDevice clerk(runtime.node(1), {});
  const Identity peer = Identity::make();
  const Seat seat{PeerId{3}, StageId{1}, Incarnation{2}};
  RunGuard guard(RunKey{.identity = Identity::make()}, "run", {}, runtime.node(1), clerk);
  RunTrust mate("run", guard.identity().hash());
  ASSERT_TRUE(mate.follow(guard.identity().public_key(), "", 0));
  const std::string first = guard.certify("run-1", seat, peer.hash());
  const auto is_good = [&](const std::string& shown) {
    return check_shown_seat(shown, mate, peer.hash(), runtime.node(1).wall_seconds()).has_value();
  };
  std::string shown = first;
  int renewals = 0;
  for (int day = 0; day < 60; ++day) {
    if (std::string anew = guard.certify_anew("run-1", seat, peer.hash()); !anew.empty()) {
      shown = std::move(anew);
      ++renewals;
    }
    EXPECT_TRUE(is_good(shown)) << "day " << day;
    runtime.run_for(std::chrono::hours(24));
  }
  EXPECT_EQ(renewals, 3) << "once in fifteen days";
  EXPECT_FALSE(is_good(first));
}

}  // namespace
}  // namespace swarmline
