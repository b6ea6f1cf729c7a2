// From a checkpoint to a program with its weights. One file a family; the list is in families.cc.
//
// Nothing outside this room knows a family's name: everybody else sees programs.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "program/program.h"
#include "program/weight_set.h"
#include "weights/checkpoint.h"

namespace espalier {

// Where a weight's numbers lie in this checkpoint, and what must be done to its rows.
struct WeightSource {
  std::string tensor;                 // name in the checkpoint
  std::vector<uint32_t> row_order;    // empty: as they are
};

struct ModelPlan {
  Program program;
  std::vector<WeightSource> sources;  // by WeightId
  int32_t context_length = 0;         // positions that the model was made for
  std::vector<std::string> notices;   // sentences for the user: ignored keys, unused tensors
};

struct Family {
  const char* name;          // `model_type` in config.json and `general.architecture` in GGUF
  const char* architecture;  // in config.json's `architectures`
  Result<ModelPlan> (*plan)(const Checkpoint& checkpoint);
};

// Best known first; plain data.
std::span<const Family> families();

// Reads the config and builds the program. Refused: an architecture that no family claims, a key that would change the
// maths, a missing number, tensors that no weight of the program uses.
Result<ModelPlan> plan_model(const Checkpoint& checkpoint);
// The numbers of a plan; entries that another program owns stay empty. The checkpoint must outlive the set.
Result<WeightSet> bind_weights(const ModelPlan& plan, const Checkpoint& checkpoint);

}  // namespace espalier
