// What a peer shows of its seat: nothing else than what the run's key has signed for its own key.
#include "node/admission/seat_certificate.h"

#include <gtest/gtest.h>

#include "node/admission/invites.h"

namespace swarmline {
namespace {

constexpr double kNow = 1'790'000'000;

class SeatCertificates : public ::testing::Test {
 protected:
  SeatCertificate certificate() const {
    return {.run_id = "quickstart-0123456789abcdef",
            .seat = {PeerId{7}, StageId{3}, Incarnation{2}},
            .key = peer_.hash(),
            .expires = kNow + 100};
  }
  Result<SeatCertificate> check(const std::string& text, double now = kNow) const {
    return check_seat_certificate(text, run_.public_key(), peer_.hash(), now);
  }
  Identity run_ = Identity::make(), peer_ = Identity::make();
};

TEST_F(SeatCertificates, AreReadAsTheyWereSigned) {
  const auto read = check(to_text(certificate(), run_));
  ASSERT_TRUE(read.has_value()) << read.error().what;
  EXPECT_EQ(*read, certificate());
}

TEST_F(SeatCertificates, OfAnotherRunKeyOrForAnotherKeyAreRefused) {
  const Identity other = Identity::make();
  EXPECT_FALSE(check(to_text(certificate(), other)));
  EXPECT_FALSE(check(to_text(certificate(), peer_))) << "signed by itself";
  EXPECT_FALSE(
      check_seat_certificate(to_text(certificate(), run_), run_.public_key(), other.hash(), kNow))
      << "shown by another";
  EXPECT_FALSE(check_seat_certificate(to_text(certificate(), run_), "", peer_.hash(), kNow));
}

TEST_F(SeatCertificates, Expire) {
  const std::string text = to_text(certificate(), run_);
  EXPECT_TRUE(check(text, kNow + 100 + kClockSkewSeconds));
  EXPECT_FALSE(check(text, kNow + 101 + kClockSkewSeconds));
}

TEST_F(SeatCertificates, ChangedOnesAreRefused) {
  const std::string text = to_text(certificate(), run_);
  for (std::size_t at = 0; at < text.size(); ++at) {
    for (const char byte : {'0', '1', ' ', '\n', 'x', '\0'}) {
      std::string changed = text;
      changed[at] = byte;
      EXPECT_TRUE(changed == text || !check(changed)) << changed;
    }
    EXPECT_FALSE(check(text.substr(0, at)));
    EXPECT_FALSE(check(text.substr(at + 1)));
  }
  EXPECT_FALSE(check(text + "\n"));
  EXPECT_FALSE(check(text + "00"));
}

}  // namespace
}  // namespace swarmline
