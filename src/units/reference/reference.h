// The reference unit: programs in fp32 by plain loops. The oracle for every other unit, not a fast one.
//
// Numerics   fp32 weights (dequantised at compile), K/V and frames in fp32; dot products, norms, scores and softmax sums in
//            double, rounded to fp32 once. A row's result does not depend on the other rows of the call.
// Memory     4 bytes a weight.
#pragma once

#include <memory>

#include "units/unit.h"

namespace espalier {

// Threads split rows of weight matrices; they change no bit.
std::unique_ptr<Unit> make_reference_unit(int threads = 1);

}  // namespace espalier
