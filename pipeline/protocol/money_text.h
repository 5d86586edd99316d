// An amount of money for people: "12.34 USD", "0.0123 USD". Pure.
#pragma once

#include <string>
#include <string_view>

namespace swarmline {

// Two digits after the point, or three that count of less than 1; thousands are parted by commas.
std::string money_digits(double amount);  // "12.34"
std::string money_text(double amount, std::string_view currency);

}  // namespace swarmline
