// Inside src/engine: what the public handles point at.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/chat_format.h"
#include "engine/machine_profile.h"
#include "engine/prefill_pace.h"
#include "engine/speculation.h"
#include "espalier/engine.h"
#include "models/model.h"
#include "text/tokenizer.h"
#include "units/unit.h"
#include "weights/checkpoint.h"

namespace espalier {

struct Engine::Impl {
  Impl(Checkpoint c, ModelPlan p, Tokenizer t) : checkpoint(std::move(c)), plan(std::move(p)), tokenizer(std::move(t)) {}

  Checkpoint checkpoint;
  ModelPlan plan;
  Tokenizer tokenizer;
  std::optional<ChatFormat> chat;
  std::string no_chat;           // why chat is refused, where it is
  std::vector<int32_t> end_ids;  // sorted: tokens that end an answer
  std::unique_ptr<Unit> unit;
  std::unique_ptr<Model> model;
  SpeculationMode speculate;                 // of requests that say nothing of it
  std::unique_ptr<SharedDrafting> drafting;  // for requests that draft
  EngineInfo info;
  PrefillPace pace;
  std::mutex calls;  // held while a model of the unit runs

  int64_t context() const { return info.context; }
  // The chat format, or why there is none.
  Result<const ChatFormat*> chat_format() const;
};

// Opens the checkpoint, compiles the program on the unit, finds tokenizer, template and end tokens.
Result<std::shared_ptr<Engine::Impl>> open_engine(const OpenOptions& options);

// What a profile of this engine's calls is kept under.
ProfileKey profile_key(const Engine::Impl& engine);

double ms_between(int64_t t0_ns, int64_t t1_ns);

}  // namespace espalier
