// A state that holds a long text without having read it: what a call costs depends on how much is held, not on what it says.
#pragma once

#include "units/unit.h"

namespace espalier {

// Token i of the text that synthetic states hold.
int32_t synthetic_token(int32_t i, int32_t vocabulary);
// Makes `state` hold that many rows: made-up K, V and frames of ordinary size, imported as a saved state is. The text's first
// tokens are the same whatever the length. Takes 4 bytes a held number while it runs.
Status hold_synthetic(const Program& program, State& state, int32_t length, int32_t vocabulary);

}  // namespace espalier
