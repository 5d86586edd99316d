#include "engine/data/data_manifest.h"

#include <gtest/gtest.h>

#include "engine/checkpoint/sha256.h"
#include "tests/data/token_bytes.h"
#include "tests/store/temp_folder.h"

namespace swarmline {
namespace {

class Manifest : public testing::Test {
 protected:
  // Two files below a folder of that name.
  void write(const std::string& folder, const std::string& one, const std::string& other) {
    ASSERT_TRUE(make_folders(temp_.at(folder)));
    temp_.write(folder + "/a.txt", one);
    temp_.write(folder + "/b.txt", other);
  }
  TokenDataset open(std::vector<std::string> files, std::uint64_t bytes_max = 0) {
    DatasetOptions options{.sequence = 2, .seed = 5};
    options.data.files = std::move(files);
    options.data.held_out = 0;
    options.data.bytes_max = bytes_max;
    auto dataset = TokenDataset::open(options);
    EXPECT_TRUE(dataset) << dataset.error().what;
    return std::move(*dataset);
  }
  DataManifest manifest(std::vector<std::string> files, std::uint64_t bytes_max = 0) {
    auto made = manifest_of(open(std::move(files), bytes_max), hashes_);
    EXPECT_TRUE(made) << made.error().what;
    EXPECT_TRUE(check_manifest(*made));
    return std::move(*made);
  }
  HeldData held(const DataManifest& manifest, const std::string& folder) {
    return compare_data(manifest, {.folder = temp_.at(folder), .root = temp_.at(folder)}, hashes_);
  }

  TempFolder temp_;
  FileHashes hashes_{""};
};

TEST_F(Manifest, NamesSizesAndContentsAreCompared) {
  write("run", "abcdef", "ghijkl");
  const DataManifest run = manifest({temp_.at("run/*.txt")});
  ASSERT_EQ(run.files.size(), 2U);
  EXPECT_EQ(run.folder, temp_.at("run"));
  EXPECT_EQ(run.files[1].name, "b.txt");

  write("same", "abcdef", "ghijkl");
  const HeldData same = held(run, "same");
  EXPECT_EQ(same.lacks + same.differs, "");
  EXPECT_EQ(same.fingerprint, run.fingerprint());
  EXPECT_EQ(same.paths, (std::vector<std::string>{temp_.at("same/a.txt"), temp_.at("same/b.txt")}));

  write("longer", "abcdef", "ghijklm");
  EXPECT_TRUE(held(run, "longer").differs.starts_with("b.txt has another size: "));
  write("other", "abcdeX", "ghijkl");
  EXPECT_TRUE(held(run, "other").differs.starts_with("a.txt has another content: "))
      << held(run, "other").differs;
  EXPECT_EQ(held(run, "other").lacks, "");

  ASSERT_TRUE(make_folders(temp_.at("some")));
  temp_.write("some/a.txt", "abcdef");
  EXPECT_NE(held(run, "some").lacks.find("there is no file"), std::string::npos);
  EXPECT_EQ(held(run, "some").differs, "");
}

TEST_F(Manifest, WhatIsNotReadIsNotCompared) {
  write("run", "abcdef", "ghijkl");
  write("same", "abcdef", "ghXXXX");
  EXPECT_EQ(held(manifest({temp_.at("run/*.txt")}, 8), "same").differs, "");
  EXPECT_NE(held(manifest({temp_.at("run/*.txt")}, 9), "same").differs, "");
  EXPECT_EQ(manifest({temp_.at("run/*.txt")}, 6).files.size(), 1U);
}

TEST_F(Manifest, NothingOutsideOfTheRootIsLookedAt) {
  write("run", "abcdef", "ghijkl");
  write("elsewhere", "abcdef", "ghijkl");
  const DataManifest run = manifest({temp_.at("run/*.txt")});
  const HeldData there = compare_data(run, {.folder = "", .root = temp_.at("elsewhere")}, hashes_);
  EXPECT_NE(there.lacks.find("does not lie below this peer's data root"), std::string::npos)
      << there.lacks;
  const HeldData here = compare_data(run, {.folder = "", .root = temp_.at("run")}, hashes_);
  EXPECT_EQ(here.lacks + here.differs, "");
}

TEST_F(Manifest, FilesAreNamedBelowTheFolderThatTheyHaveInCommon) {
  ASSERT_TRUE(make_folders(temp_.at("x/one")) && make_folders(temp_.at("x/two")));
  const std::string a = temp_.write("x/one/a", "abcdef"), b = temp_.write("x/two/a", "abcdef");
  const DataManifest both = manifest({b, a});
  EXPECT_EQ(both.folder, temp_.at("x"));
  EXPECT_EQ(both.files[0].name, "two/a") << "in the order of the stream";
  EXPECT_EQ(manifest({a}).files[0].name, "a");
  EXPECT_NE(both.fingerprint(), manifest({a, b}).fingerprint()) << "another stream";
}

TEST_F(Manifest, WhatAnotherProcessSaysIsChecked) {
  const std::string hash(64, '0');
  const auto is_taken = [&](const DataFile& file) {
    return check_manifest({.folder = "data", .files = {file}}).has_value();
  };
  EXPECT_TRUE(is_taken({.name = "a/b", .bytes = 3, .used = 3, .sha256 = hash}));
  EXPECT_FALSE(is_taken({.name = "../b", .bytes = 3, .used = 3, .sha256 = hash}));
  EXPECT_FALSE(is_taken({.name = "/etc/passwd", .bytes = 3, .used = 3, .sha256 = hash}));
  EXPECT_FALSE(is_taken({.name = "", .bytes = 3, .used = 3, .sha256 = hash}));
  EXPECT_FALSE(is_taken({.name = "a", .bytes = 3, .used = 4, .sha256 = hash}));
  EXPECT_FALSE(is_taken({.name = "a", .bytes = 3, .used = 3, .sha256 = "00"}));
  EXPECT_FALSE(check_manifest({.folder = "data", .files = {}}));
}

// ---- Hashes -------------------------------------------------------------------------------------

TEST_F(Manifest, ALargeFilesHashIsRememberedUntilItIsChanged) {
  const std::string cache = temp_.at("cache");
  std::string text(FileHashes::kRememberedBytesMin, 'x');
  const std::string large = temp_.write("large", text), small = temp_.write("small", "x");
  const FileHashes hashes(cache);
  const auto first = hashes.of(large, text.size());
  ASSERT_TRUE(first && hashes.of(small, 1));
  const auto entries = list_folder(cache);
  ASSERT_TRUE(entries);
  ASSERT_EQ(entries->size(), 1U) << "the small one is read again";
  // What is remembered is what is said.
  const std::string said(64, 'a');
  temp_.write("cache/" + entries->front(), said);
  EXPECT_EQ(hashes.of(large, text.size()), said);
  temp_.write("cache/" + entries->front(), "nonsense");
  EXPECT_EQ(hashes.of(large, text.size()), *first);
  EXPECT_NE(hashes.of(large, text.size() - 1), *first);
  text.back() = 'y';
  temp_.write("large", text);
  const auto changed = hashes.of(large, text.size());
  ASSERT_TRUE(changed);
  EXPECT_NE(*changed, *first) << "of the same size, at the same path";
  EXPECT_FALSE(hashes.of(small, 2)) << "it has fewer bytes";
  EXPECT_FALSE(hashes.of(temp_.at("nowhere"), 1));
}

TEST_F(Manifest, PiecesAreHashedInTheSameReadingAndRemembered) {
  const std::string cache = temp_.at("cache");
  std::string text(FileHashes::kRememberedBytesMin + 10, 'x');
  text.back() = 'y';
  const std::string large = temp_.write("large", text);
  const FileHashes hashes(cache);
  const auto hashed = hashes.with_pieces(large, text.size(), kDataPieceBytes);
  ASSERT_TRUE(hashed);
  EXPECT_EQ(hashed->sha256, *hashes.of(large, text.size()));
  ASSERT_EQ(hashed->pieces.size(), 64 * (FileHashes::kRememberedBytesMin / kDataPieceBytes + 1));
  EXPECT_EQ(hashed->pieces.substr(0, 64), sha256_hex(as_bytes(text.substr(0, kDataPieceBytes))));
  EXPECT_EQ(hashed->pieces.substr(hashed->pieces.size() - 64),
            sha256_hex(as_bytes(text.substr(FileHashes::kRememberedBytesMin))));
  const auto again = hashes.with_pieces(large, text.size(), kDataPieceBytes);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->pieces, hashed->pieces);
  EXPECT_EQ(again->sha256, hashed->sha256);
}

TEST_F(Manifest, ItsJsonHasTheHashesOfAllPieces) {
  write("run", "abcdef", std::string(kDataPieceBytes + 1, 'g'));
  const DataManifest run = manifest({temp_.at("run/*.txt")});
  ASSERT_EQ(run.files[1].pieces.size(), 128U);
  const std::string json = to_json(run);
  for (const std::string& text :
       {run.fingerprint(), run.files[0].pieces, run.files[1].pieces.substr(64)})
    EXPECT_NE(json.find('"' + text + '"'), std::string::npos) << json;
}

}  // namespace
}  // namespace swarmline
