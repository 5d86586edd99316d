#include "node/coordinator_page.h"

#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"
#include "engine/config/link_security.h"
#include "engine/identity/web_certificate.h"
#include "node/page/log_tail.h"
#include "node/page_access.h"
#include "node/run_access.h"

namespace swarmline {
namespace {

std::optional<std::uint16_t> port_of(const std::string& url) {
  const std::size_t begin = url.find("://");
  if (begin == url.npos) return std::nullopt;
  const std::string rest = url.substr(begin + 3);
  const auto address = parse_address(rest.substr(0, rest.find('/')));
  return address ? std::optional(address->port) : std::nullopt;
}

}  // namespace

CoordinatorPage::CoordinatorPage(AsioRuntime& runtime, const RunFolder& folder, HttpOptions options,
                                 PageGuard guard, std::function<std::string()> status_json)
    : runtime_(runtime),
      folder_(folder),
      page_(runtime, std::move(options), std::move(guard), std::move(status_json)),
      reader_(runtime, {.name = "page"}) {}

CoordinatorPage::~CoordinatorPage() {
  stop_->store(true);
  // Another coordinator may lead by now, and serve it elsewhere.
  if (read_page_url(folder_) == left_) remove_page_url(folder_);
}

Result<std::unique_ptr<CoordinatorPage>> CoordinatorPage::open(
    AsioRuntime& runtime, const RunFolder& folder, const RunConfig& config,
    std::function<std::string()> status_json) {
  if (config.net.page == "none") return nullptr;
  auto address = parse_address(config.net.page);
  if (!address) return std::unexpected(std::move(address).error());
  auto token = swarmline::page_token(folder);
  if (!token) return std::unexpected(std::move(token).error());
  const bool loopback = is_loopback(address->host);
  const bool tls = !loopback && wants_keys(config);
  HttpOptions options;
  if (tls) {
    auto pem = page_certificate(folder, config, *address, runtime.wall_seconds());
    if (!pem) return std::unexpected(std::move(pem).error());
    options.tls_pem = std::move(*pem);
  }
  const std::string pem = options.tls_pem;
  std::unique_ptr<CoordinatorPage> page(new CoordinatorPage(
      runtime, folder, std::move(options), PageGuard(loopback, *token), std::move(status_json)));
  const auto bound = page->listen(*address);
  if (!bound) return fail(ErrorCode::kUserMistake, fmt::format("net.page: {}", bound.error().what));
  page->url_ = swarmline::page_url(config, *bound, tls);
  page->left_ = with_token(page->url_, *token);
  SWARMLINE_TRY(leave_page_url(folder, page->left_));
  log(LogLevel::kInfo, "the run's page is {}", page->url_);
  if (tls)
    if (const auto certificate = read_web_certificate(pem, folder.page_pem()))
      log(LogLevel::kInfo, "the page's certificate has the SHA-256 fingerprint {}",
          certificate->fingerprint);
  page->read_history();
  if (!loopback) page->read_invites_again();
  return page;
}

// One that takes any port takes the one that a coordinator before it had when it died: pages that
// are open go on.
Result<Address> CoordinatorPage::listen(const Address& address) {
  if (address.port == 0)
    if (const auto before = port_of(read_page_url(folder_).value_or("")))
      if (auto bound = page_.listen({address.host, *before})) return bound;
  return page_.listen(address);
}

// What its log says of the run before this process; the lines that come meanwhile are in it, too.
void CoordinatorPage::read_history() {
  const auto series = std::make_shared<RunSeries>();
  const auto read = [series, path = folder_.log(), stop = stop_]() -> Result<void> {
    LogTail tail(path);
    const auto done = tail.read(
        [&](std::string_view line) {
          if (const auto entry = read_log_line(line)) series->add(*entry);
        },
        stop.get());
    if (!done && done.error().code != ErrorCode::kNotFound) return std::unexpected(done.error());
    return {};
  };
  const auto asked =
      reader_.submit({.body = read}, callbacks_.wrap([this, series](JobReport report) {
        if (!report.result) log(LogLevel::kWarn, "page: {}", report.result.error().what);
        page_.take_history(std::move(*series));
      }));
  if (!asked) log(LogLevel::kWarn, "page: {}", asked.error().what);
}

void CoordinatorPage::read_invites_again() {
  const auto invites = std::make_shared<std::optional<InviteBook>>();
  const auto read = [invites, folder = folder_]() -> Result<void> {
    auto book = read_invites(folder);
    if (!book) return std::unexpected(std::move(book).error());
    *invites = std::move(*book);
    return {};
  };
  const auto asked =
      reader_.submit({.body = read}, callbacks_.wrap([this, invites](const JobReport& report) {
        if (!report.result) log(LogLevel::kWarn, "page: {}", report.result.error().what);
        if (*invites) page_.take_invites(std::move(**invites));
      }));
  if (!asked) log(LogLevel::kWarn, "page: {}", asked.error().what);
  runtime_.call_after(kInvitesLook, callbacks_.wrap([this] { read_invites_again(); }));
}

}  // namespace swarmline
