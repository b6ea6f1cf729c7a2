// The one JSON form of an answer (docs/json.md), for every front end.
#pragma once

#include "base/value.h"
#include "espalier/engine.h"

namespace espalier {

Value to_json_value(const Answer& answer, const EngineInfo& info);
Value to_json_value(const TokenLogprob& entry);
// {"error": {"message", "field"}}; field is null where there is none.
Value error_json(const Status& status);

}  // namespace espalier
