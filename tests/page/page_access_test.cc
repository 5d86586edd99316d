// How the owner of a run gets at its page: token, URL and certificate, in files of the owner alone.
#include "node/page_access.h"

#include <filesystem>
#include <sys/stat.h>

#include <gtest/gtest.h>

#include "engine/identity/web_certificate.h"
#include "engine/net/http/http_server.h"
#include "engine/runtime/asio_runtime.h"
#include "tests/store/temp_folder.h"

namespace swarmline {
namespace {

constexpr double kNow = 1.8e9;

int mode_of(const std::string& path) {
  struct stat info{};
  EXPECT_EQ(::stat(path.c_str(), &info), 0) << path;
  return static_cast<int>(info.st_mode & 0777);
}

class PageAccess : public ::testing::Test {
 protected:
  PageAccess() { std::filesystem::create_directories(folder_.path()); }
  TempFolder temp_;
  RunFolder folder_{temp_.at("runs/a")};
  RunConfig config_;
};

TEST_F(PageAccess, ATokenIsMadeOnceAndForItsOwner) {
  const auto token = page_token(folder_);
  ASSERT_TRUE(token) << token.error().what;
  EXPECT_EQ(token->size(), 2 * kPageTokenBytes);
  EXPECT_EQ(page_token(folder_), *token);
  EXPECT_EQ(mode_of(folder_.page_token()), 0600);
  std::filesystem::permissions(folder_.page_token(), std::filesystem::perms::others_read,
                               std::filesystem::perm_options::add);
  const auto open = page_token(folder_);
  ASSERT_FALSE(open) << "others may have read it";
  EXPECT_EQ(open.error().code, ErrorCode::kUserMistake);
  std::filesystem::remove(folder_.page_token());
  EXPECT_NE(page_token(folder_), *token);
}

TEST_F(PageAccess, ATokenThatIsNoneIsSaidSo) {
  std::ofstream(folder_.page_token()) << "short\n";
  std::filesystem::permissions(folder_.page_token(), std::filesystem::perms(0600));
  const auto token = page_token(folder_);
  ASSERT_FALSE(token);
  EXPECT_NE(token.error().what.find("page.token: expected 32 hex digits"), std::string::npos)
      << token.error().what;
}

TEST_F(PageAccess, TheOwnersStatusHasTheToken) {
  RunStatus status;
  ASSERT_TRUE(leave_page_url(folder_, "http://127.0.0.1:1234/?token=abc"));
  EXPECT_EQ(mode_of(folder_.page_url()), 0600);
  add_page_token(status, folder_);
  EXPECT_EQ(status.page, "") << "it has no page any more";
  status.page = "http://127.0.0.1:9/";
  add_page_token(status, folder_);
  EXPECT_EQ(status.page, "http://127.0.0.1:9/") << "of another coordinator";
  status.page = "http://127.0.0.1:1234/";
  add_page_token(status, folder_);
  EXPECT_EQ(status.page, "http://127.0.0.1:1234/?token=abc");
  remove_page_url(folder_);
  EXPECT_FALSE(read_page_url(folder_));
}

TEST_F(PageAccess, ACertificateStaysUntilItIsAboutToExpire) {
  config_.net.page = "0.0.0.0:8080";
  const auto pem = page_certificate(folder_, config_, {"0.0.0.0", 8080}, kNow);
  ASSERT_TRUE(pem) << pem.error().what;
  EXPECT_EQ(mode_of(folder_.page_pem()), 0600);
  EXPECT_EQ(page_certificate(folder_, config_, {"0.0.0.0", 8080}, kNow + 86400.0 * 300), *pem);
  const auto later = page_certificate(folder_, config_, {"0.0.0.0", 8080}, kNow + 86400.0 * 380);
  ASSERT_TRUE(later);
  EXPECT_NE(*later, *pem);
  EXPECT_GT(read_web_certificate(*later, "")->expires, read_web_certificate(*pem, "")->expires);
}

TEST_F(PageAccess, TheUrlIsWhatOthersOpen) {
  EXPECT_EQ(page_url(config_, {"127.0.0.1", 1234}, false), "http://127.0.0.1:1234/");
  EXPECT_EQ(page_url(config_, {"::1", 1234}, false), "http://[::1]:1234/");
  EXPECT_EQ(page_url(config_, {"192.0.2.7", 1234}, true), "https://192.0.2.7:1234/");
  config_.net.advertise = "node-1.example:7400";
  EXPECT_EQ(page_url(config_, {"0.0.0.0", 1234}, true), "https://node-1.example:1234/");
  EXPECT_EQ(page_url(config_, {"127.0.0.1", 1234}, false), "http://127.0.0.1:1234/");
}

TEST_F(PageAccess, AnAddressThatIsTakenIsSaidSoBeforeTheRun) {
  EXPECT_TRUE(check_page_address(config_));
  AsioRuntime runtime;
  HttpServer other(runtime, {}, [](const HttpRequest&) { return HttpAnswer(); });
  const auto bound = other.listen({"127.0.0.1", 0});
  ASSERT_TRUE(bound);
  config_.net.page = to_string(*bound);
  const auto taken = check_page_address(config_);
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code, ErrorCode::kUserMistake);
  EXPECT_NE(taken.error().what.find("--set net.page=none"), std::string::npos)
      << taken.error().what;
  config_.net.page = "none";
  EXPECT_TRUE(check_page_address(config_));
}

}  // namespace
}  // namespace swarmline
