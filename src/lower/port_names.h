// What ports of a lowered function are called in a vendor's file: letters, digits and "_" only, as those want, and no name twice.
#pragma once

#include "lower/lowered.h"

namespace espalier {

// "layer.0.kv.k" -> "layer_0_kv_k": of inputs and states.
std::string port_name(const std::string& name);
// Of outputs: with "_new" behind it where a state has the name (form delta).
std::string output_name(const LoweredProgram& program, const LoweredPort& port);

// States that a function reads or writes, ascending.
std::vector<int32_t> states_of(const LoweredFunction& function);
// It gives something or has states; others are never run, and are left out of files.
bool is_exported(const LoweredFunction& function);

}  // namespace espalier
