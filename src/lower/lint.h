// Rules that a lowered program must keep to run well, or at all, on a neural engine. A finding names the rule and the op.
//
// Sources: Apple's neural engine rules (coreai-models), measurements of the silicon below the framework (arXiv 2606.22283), open reports
// of compiler faults. The verifier says whether a program is right; the lint says whether it is fit.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "lower/lowered.h"

namespace espalier {

struct LintOptions {
  int32_t axis_limit = 16384;   // 65,536 from A16 and M2 on
  int32_t subrange_limit = 2000;
  bool native_argmax = true;    // false on M1 and M2
  bool exact_last_axis_slices = true;  // false on M1 and M2, where such a slice turns values above 4,094 into infinity
  int32_t sequences = 1;        // in one window
};

struct LintFinding {
  const char* rule;      // a name of lint_rules()
  std::string function;  // empty: the program
  std::string op;        // "op 12 conv1x1 (layer 3 linear)", or the port, weight or state
  std::string what;
};

struct LintRule {
  const char* name;
  const char* says;
};
std::span<const LintRule> lint_rules();

// Requires: a verified program. In order of the functions and ops.
std::vector<LintFinding> lint(const LoweredProgram& program, const LintOptions& options = {});
std::string text(const LintFinding& finding);

}  // namespace espalier
