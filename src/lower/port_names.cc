#include "lower/port_names.h"

#include <algorithm>

namespace espalier {

std::string port_name(const std::string& name) {
  std::string out = name;
  for (char& c : out)
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'))) c = '_';
  return out;
}

std::string output_name(const LoweredProgram& program, const LoweredPort& port) {
  const bool is_taken = std::any_of(program.states.begin(), program.states.end(), [&](const LoweredState& s) { return s.name == port.name; });
  return port_name(port.name) + (is_taken ? "_new" : "");
}

std::vector<int32_t> states_of(const LoweredFunction& function) {
  std::vector<int32_t> out;
  for (const PrimitiveOp& op : function.ops)
    if (op.kind == Primitive::read_state || op.kind == Primitive::write_state) out.push_back(op.index);
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

bool is_exported(const LoweredFunction& function) { return !function.outputs.empty() || !states_of(function).empty(); }

}  // namespace espalier
