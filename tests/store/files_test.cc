#include "engine/store/files.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/store/temp_folder.h"

namespace swarmline {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
namespace fs = std::filesystem;

TEST(MappedFileTest, ShowsTheBytesAndOutlivesTheName) {
  const TempFolder folder;
  const std::string path = folder.write("a", "some bytes");
  const auto file = MappedFile::open(path);
  ASSERT_TRUE(file) << file.error().what;
  fs::remove(path);
  EXPECT_EQ(as_text((*file)->bytes()), "some bytes");
  EXPECT_EQ((*file)->path(), path);
}

TEST(MappedFileTest, EmptyFileIsAnEmptyView) {
  const TempFolder folder;
  const auto file = MappedFile::open(folder.write("empty", ""));
  ASSERT_TRUE(file) << file.error().what;
  EXPECT_TRUE((*file)->bytes().empty());
}

TEST(MappedFileTest, NamesWhatIsMissing) {
  const TempFolder folder;
  const auto file = MappedFile::open(folder.at("nowhere"));
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(file.error().what, HasSubstr(folder.at("nowhere")));
  EXPECT_THAT(file.error().what, HasSubstr("No such file"));
  const auto is_a_folder = MappedFile::open(folder.path());
  ASSERT_FALSE(is_a_folder);
  EXPECT_THAT(is_a_folder.error().what, HasSubstr("not a regular file"));
}

TEST(AtomicFileTest, AppearsOnlyWhenFinished) {
  const TempFolder folder;
  const std::string path = folder.write("a", "old");
  auto file = AtomicFile::create(path);
  ASSERT_TRUE(file) << file.error().what;
  ASSERT_TRUE(file->append(as_bytes("ne")));
  ASSERT_TRUE(file->append(as_bytes("w!")));
  EXPECT_EQ(slurp(path), "old");
  ASSERT_TRUE(file->finish());
  EXPECT_EQ(slurp(path), "new!");
  EXPECT_FALSE(file_exists(path + ".partial"));
}

TEST(AtomicFileTest, DroppedUnfinishedLeavesNothing) {
  const TempFolder folder;
  {
    auto file = AtomicFile::create(folder.at("a"));
    ASSERT_TRUE(file) << file.error().what;
    ASSERT_TRUE(file->append(as_bytes("half")));
    AtomicFile moved = std::move(*file);
    EXPECT_TRUE(file_exists(folder.at("a.partial")));
  }
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(AtomicFileTest, AssignedOverIsDropped) {
  const TempFolder folder;
  auto file = AtomicFile::create(folder.at("a"));
  auto other = AtomicFile::create(folder.at("b"));
  ASSERT_TRUE(file && other);
  ASSERT_TRUE(other->append(as_bytes("b")));
  *file = std::move(*other);
  EXPECT_FALSE(file_exists(folder.at("a.partial")));
  ASSERT_TRUE(file->finish());
  EXPECT_EQ(slurp(folder.at("b")), "b");
}

TEST(AtomicFileTest, PiecesGoToTheirPlacesInAnyOrder) {
  const TempFolder folder;
  auto file = AtomicFile::create(folder.at("a"));
  ASSERT_TRUE(file) << file.error().what;
  ASSERT_TRUE(file->write_at(4, as_bytes("efgh")));
  ASSERT_TRUE(file->write_at(0, as_bytes("abcd")));
  EXPECT_EQ(file->size_bytes(), 8U);
  ASSERT_TRUE(file->append(as_bytes("i")));
  ASSERT_TRUE(file->finish());
  EXPECT_EQ(slurp(folder.at("a")), "abcdefghi");
}

// More than goes to the disk behind it, in pieces that do not divide that, with a late one before.
TEST(AtomicFileTest, ALargeOneHoldsWhatWasWritten) {
  const TempFolder folder;
  std::string all(2 * AtomicFile::kWriteBehindBytes + 12'345, '\0');
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<char>(i * 31 + i / 4096);
  constexpr std::size_t kPiece = (1 << 20) + 7;
  auto file = AtomicFile::create(folder.at("a"));
  ASSERT_TRUE(file) << file.error().what;
  for (std::size_t at = kPiece; at < all.size(); at += kPiece)
    ASSERT_TRUE(file->write_at(at, as_bytes(all).subspan(at, std::min(kPiece, all.size() - at))));
  AtomicFile moved = std::move(*file);
  ASSERT_TRUE(moved.write_at(0, as_bytes(all).subspan(0, kPiece)));
  ASSERT_TRUE(moved.append(as_bytes("end")));
  ASSERT_TRUE(moved.finish());
  EXPECT_TRUE(slurp(folder.at("a")) == all + "end");
}

TEST(AtomicFileTest, NoFolderNoFile) {
  const TempFolder folder;
  const auto file = AtomicFile::create(folder.at("no/such/folder"));
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code, ErrorCode::kNotFound);
}

TEST(LineFileTest, AppendsToWhatIsThere) {
  const TempFolder folder;
  const std::string path = folder.write("log", "first\n");
  auto log = LineFile::open_append(path);
  ASSERT_TRUE(log) << log.error().what;
  auto other = LineFile::open_append(path);
  ASSERT_TRUE(other) << other.error().what;
  ASSERT_TRUE(log->append("second"));
  ASSERT_TRUE(other->append("third"));
  ASSERT_TRUE(log->append(""));
  EXPECT_EQ(slurp(path), "first\nsecond\nthird\n\n");
}

TEST(LineFileTest, FullDeviceIsAnError) {
  auto log = LineFile::open_append("/dev/full");
  ASSERT_TRUE(log) << log.error().what;
  const auto appended = log->append("x");
  ASSERT_FALSE(appended);
  EXPECT_EQ(appended.error().code, ErrorCode::kIo);
  EXPECT_THAT(appended.error().what, HasSubstr("/dev/full"));
}

TEST(TextFileTest, RoundTripAndBound) {
  const TempFolder folder;
  const std::string text(40000, 'x');
  ASSERT_TRUE(write_text_file_atomically(folder.at("t"), text));
  const auto whole = read_text_file(folder.at("t"), 40000);
  ASSERT_TRUE(whole) << whole.error().what;
  EXPECT_EQ(*whole, text);
  const auto too_long = read_text_file(folder.at("t"), 39999);
  ASSERT_FALSE(too_long);
  EXPECT_EQ(too_long.error().code, ErrorCode::kRefused);
  EXPECT_THAT(too_long.error().what, HasSubstr("39999"));
}

TEST(FolderTest, ListSizesAndRemove) {
  const TempFolder folder;
  ASSERT_TRUE(make_folders(folder.at("a/b/c")));
  ASSERT_TRUE(make_folders(folder.at("a/b/c")));  // again is fine
  folder.write("a/z", "1234");
  folder.write("a/b/y", "1");
  const auto names = list_folder(folder.at("a"));
  ASSERT_TRUE(names) << names.error().what;
  EXPECT_THAT(*names, ElementsAre("b", "z"));
  EXPECT_EQ(*file_bytes(folder.at("a/z")), 4U);
  EXPECT_TRUE(is_folder(folder.at("a")));
  EXPECT_FALSE(is_folder(folder.at("a/z")));
  ASSERT_TRUE(remove_folder(folder.at("a")));
  EXPECT_FALSE(file_exists(folder.at("a")));
  EXPECT_TRUE(remove_folder(folder.at("a")));
  EXPECT_EQ(list_folder(folder.at("a")).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(file_bytes(folder.at("a")).error().code, ErrorCode::kNotFound);
}

TEST(FolderTest, MakeFoldersSaysWhatIsInTheWay) {
  const TempFolder folder;
  const auto made = make_folders(folder.write("file", "x") + "/below");
  ASSERT_FALSE(made);
  EXPECT_THAT(made.error().what, HasSubstr("file/below"));
}

TEST(FolderTest, ReplaceMovesOrExchanges) {
  const TempFolder folder;
  folder.write("new/a", "1");
  ASSERT_TRUE(replace_folder(folder.at("new"), folder.at("kept")));
  EXPECT_EQ(slurp(folder.at("kept/a")), "1");
  folder.write("new/b", "2");
  const auto replaced = replace_folder(folder.at("new"), folder.at("kept"));
  ASSERT_TRUE(replaced) << replaced.error().what;
  EXPECT_EQ(slurp(folder.at("kept/b")), "2");
  EXPECT_FALSE(file_exists(folder.at("kept/a")));
  EXPECT_FALSE(file_exists(folder.at("new")));
}

}  // namespace
}  // namespace swarmline
