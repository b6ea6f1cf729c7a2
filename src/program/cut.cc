#include "program/cut.h"

#include <algorithm>

namespace espalier {
namespace {

std::string edge_name(const Function& f, ValueId v) { return "edge." + std::to_string(v) + "." + f.values[static_cast<size_t>(v)].name; }

bool has_port(const std::vector<Port>& ports, ValueId v, int32_t segment, const std::string& name) {
  return std::any_of(ports.begin(), ports.end(), [&](const Port& p) { return p.value == v && p.segment == segment && p.name == name; });
}

// Adds the edges that the segment numbers ask for, and moves function inputs and taps to the segments of their users.
void connect(Function& f) {
  std::vector<int32_t> writer(f.values.size(), kNone);
  std::vector<Port> inputs;
  for (const Op& op : f.ops) {
    for (ValueId v : op.in) {
      if (v == kNone) continue;
      const int32_t from = writer[static_cast<size_t>(v)];
      if (from == op.segment) continue;
      if (from == kNone) {  // an input of the function
        const auto port = std::find_if(f.inputs.begin(), f.inputs.end(), [&](const Port& p) { return p.value == v; });
        if (port != f.inputs.end() && !has_port(inputs, v, op.segment, port->name)) inputs.push_back({port->name, v, op.segment});
        continue;
      }
      const std::string name = edge_name(f, v);
      if (!has_port(inputs, v, op.segment, name)) inputs.push_back({name, v, op.segment});
      if (!has_port(f.outputs, v, from, name)) f.outputs.push_back({name, v, from});
    }
    for (ValueId v : op.out)
      if (v != kNone) writer[static_cast<size_t>(v)] = op.segment;
  }
  f.inputs = std::move(inputs);
  for (Port& out : f.outputs) out.segment = writer[static_cast<size_t>(out.value)];
}

Status refuse_cut(const Program& p) {
  for (const Function& f : p.functions)
    if (f.segment_count != 1) return invalid("program " + p.family + " is cut already");
  return {};
}

}  // namespace

Result<Program> cut_after_layers(Program program, std::span<const int32_t> layers) {
  ESPALIER_TRY(refuse_cut(program));
  for (size_t i = 0; i < layers.size(); ++i)
    if (layers[i] < 0 || layers[i] >= program.layer_count - 1 || (i > 0 && layers[i] <= layers[i - 1]))
      return invalid("a cut after layer " + std::to_string(layers[i]) + ": expected ascending layers from 0 to " +
                     std::to_string(program.layer_count - 2));
  for (Function& f : program.functions) {
    int32_t segment = 0;
    for (Op& op : f.ops) {
      if (op.layer != kNone)
        segment = static_cast<int32_t>(std::lower_bound(layers.begin(), layers.end(), op.layer) - layers.begin());
      op.segment = segment;
    }
    f.segment_count = static_cast<int32_t>(layers.size()) + 1;
    connect(f);
  }
  ESPALIER_TRY(verify(program));
  return program;
}

Result<Program> cut_round_attention(Program program) {
  ESPALIER_TRY(refuse_cut(program));
  for (Function& f : program.functions) {
    int32_t segment = 0;
    for (Op& op : f.ops) {
      if (op.kind() == OpKind::attention)
        op.segment = ++segment, ++segment;
      else
        op.segment = segment;
    }
    f.segment_count = segment + 1;
    connect(f);
  }
  ESPALIER_TRY(verify(program));
  return program;
}

}  // namespace espalier
