// Apple's Core AI runtime as the back end of a static unit: the lowered functions as one .aimodel, run by the Python package
// coreai-core in a child process (tools/aimodel.py, of which the library holds a copy).
//
// Arithmetic  the evaluator's `coreai` mode, to the bit (docs/static-programs.md says what was compared).
// Cost        loading prints, packs and loads the program; a call sends inputs and states and gets outputs and states back.
// Here        the processor's runtime on Linux, the only one that the package has there. Nothing of it is fast.
#pragma once

#include "units/static/backend.h"

namespace espalier {

// The Python that has the package, from ESPALIER_COREAI_PYTHON; checked by running it. Not ok: why Core AI is not there, and what to do.
Result<std::string> coreai_python();

// The lowered program as an .aimodel at `out`, which ends so.
Status write_aimodel(const LoweredProgram& lowered, const Program& program, const WeightSet& weights, const std::string& out);

MakeBackend coreai_backend(std::string python);

}  // namespace espalier
