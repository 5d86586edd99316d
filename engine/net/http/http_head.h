// The heads of requests and answers as text. Pure; for the files of this folder.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/message.hpp>

#include "engine/net/http/http_message.h"

namespace swarmline {

using BeastRequest = boost::beast::http::request<boost::beast::http::empty_body>;

HttpRequest request_of(const BeastRequest& message);
// Why it is not one that this server answers; none: it is.
std::optional<HttpAnswer> refusal_of(const BeastRequest& message);
// With the empty line behind it. `keeps`: the connection stays for another request.
std::string head_of(const HttpAnswer& answer, bool keeps);

}  // namespace swarmline
