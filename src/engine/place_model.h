// Puts a planned model on the unit that was asked for. The one list of units is in place_model.cc.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "engine/engine_impl.h"
#include "kernels/attention/kv_page.h"
#include "models/dspark.h"
#include "units/cpu/pack_weights.h"

namespace espalier {

// The values of --weights and --kv.
Result<WeightsForm> weights_form(const std::string& name);
Result<KvType> kv_type(const std::string& name);

// Fills in unit, model and what `info` says of them. Refused: an unknown unit, form or K/V type; a model that would not fit
// into free memory (both numbers).
Status place_model(const OpenOptions& options, Engine::Impl& engine);

// Puts a drafter on the unit of its target, which is placed; what the target owns is shared.
Result<std::unique_ptr<Model>> place_drafter(const OpenOptions& options, Engine::Impl& engine, const Checkpoint& checkpoint, const DrafterPlan& plan);

// A unit by name, and whether this machine has it.
struct UnitChoice {
  const char* name;
  Status (*place)(const OpenOptions& options, Engine::Impl& engine);
  Result<std::unique_ptr<Model>> (*place_drafter)(const OpenOptions& options, Engine::Impl& engine, const Checkpoint& checkpoint, const DrafterPlan& plan);
  bool is_fast;                    // made for speed: its ceilings are measured before it drafts
  Result<UnitInfo> (*describe)();  // or why it is not there
};
std::span<const UnitChoice> unit_choices();

}  // namespace espalier
