// One TOML value into one field, checked against the field's row of the table.
#pragma once

#include "base/result.h"
#include "engine/config/raw_toml.h"
#include "engine/config/schema.h"

namespace swarmline {

// kUserMistake: "found ..., expected ...; did you mean ... / write for example ...", without place
// and key. The field is then unchanged.
Result<void> assign(const KeySpec& spec, const RawValue& value, Roots roots);

}  // namespace swarmline
