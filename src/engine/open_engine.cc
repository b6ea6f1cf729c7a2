#include <algorithm>
#include <thread>

#include "engine/drafter_selfcheck.h"
#include "engine/engine_impl.h"
#include "engine/machine_profile.h"
#include "engine/place_model.h"
#include "engine/text_model.h"

namespace espalier {
namespace {

// eos_token_id of a config: a number, an array of numbers, or nothing.
Status add_ids(const Value& config, const char* where, std::vector<int32_t>& out) {
  const Value* v = config.find("eos_token_id");
  if (v == nullptr || v->is_null()) return {};
  const Value::Array one = v->is_array() ? v->as_array() : Value::Array{*v};
  for (const Value& id : one) {
    if (!id.is_int() || id.as_int() < 0 || id.as_int() > INT32_MAX)
      return corrupt(std::string(where) + ": eos_token_id: expected token ids, found " + id.type_name(), "eos_token_id");
    out.push_back(static_cast<int32_t>(id.as_int()));
  }
  return {};
}

Result<std::vector<int32_t>> find_end_ids(const Engine::Impl& engine) {
  std::vector<int32_t> ids = engine.tokenizer.eos_ids();
  ESPALIER_TRY(add_ids(engine.checkpoint.generation_config(), "generation_config.json", ids));
  if (!engine.checkpoint.has_gguf_metadata()) ESPALIER_TRY(add_ids(engine.checkpoint.config(), "config.json", ids));
  if (engine.chat && engine.chat->end_id() >= 0) ids.push_back(engine.chat->end_id());
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

Result<int64_t> choose_context(const OpenOptions& options, const ModelPlan& plan) {
  if (options.context < 0) return invalid("context: expected a number of tokens, found " + std::to_string(options.context), "context");
  if (options.context == 0) return int64_t{plan.context_length};
  if (options.context > plan.context_length)
    return invalid("context: " + std::to_string(options.context) + " tokens are more than the " + std::to_string(plan.context_length) +
                       " that this model was made for",
                   "context");
  return options.context;
}

void open_chat(Engine::Impl& engine) {
  auto chat = ChatFormat::make(engine.checkpoint, engine.tokenizer);
  if (chat.ok())
    engine.chat.emplace(std::move(chat).value());
  else
    engine.no_chat = chat.status().message();
}

// Messages about files begin with their paths already.
std::string at(const std::string& path, const std::string& message) { return message.starts_with(path) ? message : path + ": " + message; }

// The drafter that was named, or found; a found one that does not fit is a notice.
Result<std::unique_ptr<Drafter>> open_drafter(const OpenOptions& options, Engine::Impl& engine, const std::string& path) {
  ESPALIER_ASSIGN(std::unique_ptr<Drafter> drafter, plan_drafter_at(path, engine.plan.program));
  ESPALIER_ASSIGN(drafter->model, place_drafter(options, engine, drafter->checkpoint, drafter->plan));
  const bool same_weights = options.unit == "reference" && engine.checkpoint.kind() == CheckpointKind::hf;
  const SelfcheckBounds bounds = same_weights ? kExactBounds : kQuantisedBounds;
  ESPALIER_TRY(check_drafter(path, *engine.model, *drafter->model, drafter->plan, bounds));
  for (const std::string& n : drafter->plan.model.notices) engine.info.notices.push_back(path + ": " + n);
  return drafter;
}

// The measured times where there are some that fit; what the two ceilings say otherwise.
Result<CostCurve> cost_curve(const OpenOptions& options, Engine::Impl& engine) {
  if (options.cache) {
    auto profile = load_profile(profile_key(engine));
    if (profile.ok()) {
      if (auto path = profile_path(profile->key); path.ok()) engine.info.profile = *path;
      return fit_curve(profile->samples);
    }
    if (profile.status().code() == Code::corrupt) engine.info.notices.push_back(profile.status().message());
  }
  return measure_ceilings(*engine.model, engine.info.weight_bytes);
}

Status open_drafting(const OpenOptions& options, Engine::Impl& engine) {
  if (!engine.speculate.notice.empty()) engine.info.notices.push_back(engine.speculate.notice);
  const bool off = engine.speculate.kind == SpeculationMode::Kind::off, named = !options.drafter.empty();
  const std::string path = named ? options.drafter : off ? std::string() : find_drafter(options.model);
  std::unique_ptr<Drafter> drafter;
  if (!path.empty()) {
    auto opened = open_drafter(options, engine, path);
    if (opened.ok()) {
      drafter = std::move(opened).value();
      engine.info.drafter = path;
    } else if (named || opened.status().code() == Code::cancelled) {
      return Status(opened.status().code(), at(path, opened.status().message()), "drafter");
    } else {
      engine.info.notices.push_back("the drafter beside the model is not used: " + at(path, opened.status().message()));
    }
  }
  const auto unit = std::find_if(unit_choices().begin(), unit_choices().end(), [&](const UnitChoice& u) { return options.unit == u.name; });
  CostCurve curve = linear_curve();
  if (!off && unit->is_fast) {
    ESPALIER_ASSIGN(curve, cost_curve(options, engine));
  }
  engine.drafting = std::make_unique<SharedDrafting>(std::move(drafter), std::move(curve), engine.calls);
  return {};
}

}  // namespace

ProfileKey profile_key(const Engine::Impl& engine) {
  const EngineInfo& info = engine.info;
  return {cpu_name(), info.kernels, std::thread::hardware_concurrency(), info.threads, program_hash(engine.plan.program), info.weights, info.kv};
}

double ms_between(int64_t t0_ns, int64_t t1_ns) { return static_cast<double>(t1_ns - t0_ns) / 1e6; }

Result<std::shared_ptr<Engine::Impl>> open_engine(const OpenOptions& options) {
  const int64_t t0 = now_ns();
  if (options.model.empty()) return invalid("model: expected a folder or a .gguf file", "model");
  ESPALIER_ASSIGN(Checkpoint checkpoint, Checkpoint::open(options.model));
  ESPALIER_ASSIGN(ModelPlan plan, plan_model(checkpoint));
  ESPALIER_ASSIGN(Tokenizer tokenizer, open_tokenizer(checkpoint));
  auto engine = std::make_shared<Engine::Impl>(std::move(checkpoint), std::move(plan), std::move(tokenizer));

  ESPALIER_ASSIGN(engine->speculate, parse_speculation_mode(options.speculate));

  EngineInfo& info = engine->info;
  info.model = options.model;
  info.family = engine->plan.program.family;
  info.vocabulary = engine->plan.program.vocabulary;
  ESPALIER_ASSIGN(info.context, choose_context(options, engine->plan));
  for (const std::string& n : engine->checkpoint.notices()) info.notices.push_back(n);
  for (const std::string& n : engine->plan.notices) info.notices.push_back(n);
  open_chat(*engine);
  info.can_chat = engine->chat.has_value();
  ESPALIER_ASSIGN(engine->end_ids, find_end_ids(*engine));
  ESPALIER_TRY(place_model(options, *engine));
  ESPALIER_TRY(open_drafting(options, *engine));
  info.load_ms = ms_between(t0, now_ns());
  return engine;
}

Result<const ChatFormat*> Engine::Impl::chat_format() const {
  if (chat) return &*chat;
  return invalid(no_chat, "messages");
}

}  // namespace espalier
