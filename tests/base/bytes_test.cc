#include "base/bytes.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "base/byte_ops.h"
#include "base/hash.h"

namespace swarmline {
namespace {

std::vector<std::byte> numbered(std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 131 >> 3);
  return bytes;
}

TEST(SharedBytes, WhatIsLentIsNotCopiedUntilSomebodyKeepsIt) {
  std::vector<std::byte> bytes = numbered(1000);
  const std::vector<std::byte> before = bytes;
  const SharedBytes lent = SharedBytes::lent(bytes);
  EXPECT_TRUE(lent.is_lent());
  EXPECT_EQ(lent.data(), bytes.data());
  const SharedBytes kept = lent.kept();
  EXPECT_FALSE(kept.is_lent());
  std::ranges::fill(bytes, std::byte{0});
  EXPECT_TRUE(same_bytes(kept.view(), before));
}

TEST(SharedBytes, AllThatKeepTheSameLoanShareOneCopy) {
  const std::vector<std::byte> bytes = numbered(100);
  const SharedBytes lent = SharedBytes::lent(bytes);
  const SharedBytes another = lent;
  EXPECT_EQ(lent.kept().data(), another.kept().data());
  EXPECT_NE(lent.kept().data(), SharedBytes::lent(bytes).kept().data());
}

TEST(SharedBytes, APartOfALoanIsALoan) {
  const std::vector<std::byte> bytes = numbered(100);
  const SharedBytes part = SharedBytes::lent(bytes).slice(10, 20);
  EXPECT_TRUE(part.is_lent());
  EXPECT_EQ(part.data(), bytes.data() + 10);
  EXPECT_TRUE(same_bytes(part.kept().view(), BytesView(bytes).subspan(10, 20)));
}

TEST(Lender, WhatIsLentIsReadWhereItLiesUntilItIsTakenBack) {
  std::vector<std::byte> bytes = numbered(1000);
  const std::vector<std::byte> before = bytes;
  Lender lender;
  const SharedBytes lent = SharedBytes::lent(bytes);
  lender.lend(lent);
  const SharedBytes part = lent.slice(300, 50);
  EXPECT_EQ(lent.held().data(), bytes.data());
  EXPECT_EQ(part.held().data(), bytes.data() + 300);
  lender.take_back();
  std::ranges::fill(bytes, std::byte{0});
  EXPECT_TRUE(same_bytes(lent.view(), before));
  EXPECT_TRUE(same_bytes(part.view(), BytesView(before).subspan(300, 50)));
  EXPECT_EQ(part.data(), lent.data() + 300) << "one copy for all";
  EXPECT_EQ(part.kept().data(), part.data());
}

TEST(Lender, WhoIsGoneHasTakenEverythingBack) {
  std::vector<std::byte> bytes = numbered(100);
  const std::vector<std::byte> before = bytes;
  const SharedBytes lent = SharedBytes::lent(bytes);
  {
    Lender lender;
    lender.lend(lent);
    for (int i = 0; i < 1000; ++i) lender.lend(SharedBytes::lent(bytes));  // nobody has those
  }
  std::ranges::fill(bytes, std::byte{0});
  EXPECT_TRUE(same_bytes(lent.view(), before));
}

TEST(Lender, WithoutOneWhatIsHeldIsACopy) {
  std::vector<std::byte> bytes = numbered(100);
  const SharedBytes held = SharedBytes::lent(bytes).held();
  EXPECT_FALSE(held.is_lent());
  EXPECT_NE(held.data(), bytes.data());
  Lender lender;
  const SharedBytes own(Buffer::copy_of(bytes));
  lender.lend(own);
  lender.take_back();
  EXPECT_EQ(own.held().data(), own.data());
}

TEST(SharedBytes, OwnBytesAndNoneAreKeptAlready) {
  const SharedBytes own(Buffer::copy_of(numbered(10)));
  EXPECT_FALSE(own.is_lent());
  EXPECT_EQ(own.kept().data(), own.data());
  EXPECT_FALSE(SharedBytes().is_lent());
  EXPECT_FALSE(SharedBytes::lent({}).is_lent());
  EXPECT_TRUE(SharedBytes::lent({}).kept().empty());
}

// Its long inputs are hashed in stripes of 64 bytes and blocks of 1024.
TEST(Hash, OfTwoPartsIsThatOfTheWhole) {
  for (const std::size_t size : {0, 1, 16, 17, 128, 240, 241, 1024, 1025, 300'000}) {
    const std::vector<std::byte> bytes = numbered(size);
    for (const std::size_t cut : {std::size_t{0}, size / 3, size - std::min<std::size_t>(size, 1)})
      EXPECT_EQ(xxh3_of_both(BytesView(bytes).first(cut), BytesView(bytes).subspan(cut)),
                xxh3(bytes))
          << size << ", " << cut;
  }
}

// Fixed for ever: checksums travel and lie in files, whatever instructions a machine has.
TEST(Hash, IsXxh3) {
  EXPECT_EQ(xxh3({}), 0x2D06800538D394C2U);
  EXPECT_EQ(hex64(xxh3(numbered(300'000))), "18b2f654c557bbff");
}

}  // namespace
}  // namespace swarmline
