// How a run's page is reached: its token, its URL and its certificate, in the run folder, for its
// owner alone.
//   Thread: any; blocking (small files). Errors: kUserMistake, kIo, as sentences.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "engine/config/run_config.h"
#include "engine/net/network.h"
#include "node/run_folder.h"
#include "pipeline/protocol/run_status.h"

namespace swarmline {

inline constexpr std::size_t kPageTokenBytes = 16;  // random; as hex it fits a line of a terminal

// page.token; made where there is none.
Result<std::string> page_token(const RunFolder& folder);
// keys/page.pem of a page that other machines reach; made where there is none, or where it is about
// to expire.
Result<std::string> page_certificate(const RunFolder& folder, const RunConfig& config,
                                     const Address& address, double now);
// Without a token: what other machines open, where they reach it.
std::string page_url(const RunConfig& config, const Address& bound, bool tls);
std::string with_token(const std::string& url, const std::string& token);

// page.url: what the owner opens, token included. None: no page is served, or it is not the user's.
Result<void> leave_page_url(const RunFolder& folder, const std::string& url);
void remove_page_url(const RunFolder& folder);
std::optional<std::string> read_page_url(const RunFolder& folder);
// A status of a run that has a page names it with its token, where the user may read that.
void add_page_token(RunStatus& status, const RunFolder& folder);

// What a user can have got wrong: the address can't be had. Nothing stays open.
Result<void> check_page_address(const RunConfig& config);

}  // namespace swarmline
