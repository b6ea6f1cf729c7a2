#include "convert/cache.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "base/file_map.h"
#include "base/json.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFolder = "weights";
constexpr const char* kSuffix = ".espalier";

uint64_t fnv(std::string_view text) {
  uint64_t h = 0xcbf29ce484222325ull;
  for (char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return h;
}

// "<stem>-<hash of absolute path and form>.espalier": one place for a model and a form.
std::string file_name(const std::string& model, WeightsForm form) {
  std::error_code error;
  const fs::path absolute = fs::weakly_canonical(model, error);
  std::string stem;
  for (char c : (absolute.has_filename() ? absolute.filename() : absolute.parent_path().filename()).string())
    stem += std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '.' ? c : '_';
  char hash[17];
  std::snprintf(hash, sizeof hash, "%016llx", static_cast<unsigned long long>(fnv(absolute.string() + '\n' + weights_form_name(form))));
  return stem.substr(0, 80) + "-" + hash + kSuffix;
}

std::string identity_text(const Checkpoint& checkpoint) {
  Value v = Value::object();
  std::error_code error;
  v.set("path", fs::weakly_canonical(checkpoint.path(), error).string());
  v.set("files", source_identity(checkpoint));
  return to_json(v);
}

// A packed file of this program, source and form with sound checksums; anything else is a status that says why not.
Result<PackedWeights> take(const std::string& path, const Program& program, WeightsForm form, const std::string& identity) {
  ESPALIER_ASSIGN(FileMap opened, FileMap::open(path));
  auto map = std::make_shared<FileMap>(std::move(opened));
  ESPALIER_ASSIGN(const Container container, parse_container(map->bytes()));
  if (metadata_value(container.metadata, "espalier.weights") != weights_form_name(form)) return corrupt("it has another form");
  if (metadata_value(container.metadata, "espalier.source") != identity) return corrupt("the model's files have changed");
  ESPALIER_TRY(verify_container(map->bytes()));
  return read_packed(program, container.tensors, container.metadata, map);
}

Result<PackedModel> pack_in_memory(const Checkpoint& checkpoint, const ModelPlan& plan, WeightsForm form, ThreadTeam& team, const PackProgress& progress) {
  ESPALIER_ASSIGN(const WeightSet weights, bind_weights(plan, checkpoint));
  PackedModel out;
  ESPALIER_ASSIGN(out.weights, pack_weights(plan.program, weights, {form}, team, progress));
  return out;
}

// Refusals of the model or of the user; what else can go wrong while writing is the cache's own trouble.
bool is_cache_trouble(const Status& s) { return s.code() == Code::io || s.code() == Code::not_found; }

Result<PackedModel> make(const std::string& path, const Checkpoint& checkpoint, const ModelPlan& plan, WeightsForm form, const std::string& identity,
                         ThreadTeam& team, const PackProgress& progress) {
  std::error_code error;
  fs::create_directories(fs::path(path).parent_path(), error);
  if (error) return Status(Code::io, fs::path(path).parent_path().string() + ": " + error.message());
  ESPALIER_ASSIGN(FileLock lock, FileLock::acquire(path));
  PackedModel out;
  if (Result<PackedWeights> made = take(path, plan.program, form, identity); made.ok()) {  // by whoever held the lock
    out.weights = std::move(made).value();
    out.from_cache = true;
    return out;
  }
  ESPALIER_ASSIGN(const WeightSet weights, bind_weights(plan, checkpoint));
  ESPALIER_TRY(write_packed(std::move(lock), plan.program, weights, form, identity, team, progress));
  ESPALIER_ASSIGN(out.weights, take(path, plan.program, form, identity));
  return out;
}

Result<PackedModel> cached(const Checkpoint& checkpoint, const ModelPlan& plan, WeightsForm form, ThreadTeam& team, const PackProgress& progress) {
  ESPALIER_ASSIGN(const std::string root, cache_root());
  const std::string path = (fs::path(root) / kFolder / file_name(checkpoint.path(), form)).string();
  const std::string identity = identity_text(checkpoint);
  Result<PackedWeights> found = take(path, plan.program, form, identity);
  PackedModel out;
  if (found.ok()) {
    out.weights = std::move(found).value();
    out.from_cache = true;
    return out;
  }
  std::string why;
  if (found.status().code() != Code::not_found) why = path + " is made again: " + found.status().message();
  ESPALIER_ASSIGN(out, make(path, checkpoint, plan, form, identity, team, progress));
  if (!why.empty()) out.notices.push_back(why);
  return out;
}

// A converted folder has the form that it has.
Result<PackedModel> from_folder(const Checkpoint& checkpoint, const ModelPlan& plan, WeightsForm form) {
  const std::string_view has = metadata_value(checkpoint.container_metadata(), "espalier.weights");
  if (form != WeightsForm::automatic && has != weights_form_name(form))
    return invalid(checkpoint.path() + " was converted with --weights " + std::string(has) + ": convert the original again for " + weights_form_name(form), "weights");
  PackedModel out;
  out.from_cache = true;
  // The checkpoint keeps its files mapped and outlives every model made from it.
  ESPALIER_ASSIGN(out.weights, read_packed(plan.program, checkpoint.tensors(), checkpoint.container_metadata(), nullptr));
  return out;
}

std::vector<CacheEntry> entries_in(const fs::path& root, const char* kind) {
  std::vector<CacheEntry> out;
  std::error_code error;
  for (const auto& file : fs::directory_iterator(root / kind, error)) {
    if (!file.is_regular_file(error)) continue;
    CacheEntry e{file.path().string(), kind, {}, file.file_size(error)};
    if (Result<FileMap> map = FileMap::open(e.path); map.ok())
      if (Result<Container> c = parse_container(map->bytes()); c.ok())
        if (Result<Value> v = parse_json(metadata_value(c->metadata, "espalier.source")); v.ok())
          if (const Value* path = v->find("path"); path != nullptr && path->is_string()) e.source = path->as_string();
    out.push_back(std::move(e));
  }
  return out;
}

}  // namespace

Result<std::string> cache_root() {
  const auto from = [](const char* name) -> std::string {
    const char* v = std::getenv(name);
    return v == nullptr ? std::string() : std::string(v);
  };
  std::string root = from("ESPALIER_CACHE");
  if (root.empty() && !from("XDG_CACHE_HOME").empty()) root = from("XDG_CACHE_HOME") + "/espalier";
  if (root.empty() && !from("HOME").empty()) root = from("HOME") + "/.cache/espalier";
  if (root.empty()) return Status(Code::io, "no cache folder: set ESPALIER_CACHE (HOME is not set either)");
  if (root[0] != '/') return Status(Code::io, "the cache folder must be an absolute path, found '" + root + "' (ESPALIER_CACHE or XDG_CACHE_HOME)");
  return root;
}

Result<std::vector<CacheEntry>> list_cache() {
  ESPALIER_ASSIGN(const std::string root, cache_root());
  std::vector<CacheEntry> out = entries_in(root, kFolder);
  for (CacheEntry& e : entries_in(root, "profile")) out.push_back(std::move(e));
  std::sort(out.begin(), out.end(), [](const CacheEntry& a, const CacheEntry& b) { return a.bytes != b.bytes ? a.bytes > b.bytes : a.path < b.path; });
  return out;
}

Result<std::vector<CacheEntry>> clear_cache() {
  ESPALIER_ASSIGN(std::vector<CacheEntry> all, list_cache());
  std::vector<CacheEntry> removed;
  for (CacheEntry& e : all) {
    if (!e.path.ends_with(".lock")) {
      ESPALIER_ASSIGN(const std::optional<FileLock> lock, FileLock::try_acquire(e.path));
      if (!lock) continue;
      std::error_code error;
      if (fs::remove(e.path, error)) removed.push_back(std::move(e));
      if (error) return Status(Code::io, e.path + ": " + error.message());
    }
  }
  return removed;
}

Result<PackedModel> packed_model(const Checkpoint& checkpoint, const ModelPlan& plan, WeightsForm form, ThreadTeam& team, const PackProgress& progress, bool use_cache) {
  if (checkpoint.kind() == CheckpointKind::packed) return from_folder(checkpoint, plan, form);
  if (!use_cache) return pack_in_memory(checkpoint, plan, form, team, progress);
  Result<PackedModel> out = cached(checkpoint, plan, form, team, progress);
  if (out.ok() || !is_cache_trouble(out.status())) return out;
  const std::string why = "the cache cannot be used (" + out.status().message() + "); the weights are packed in memory, and will be again at the next start";
  ESPALIER_ASSIGN(PackedModel packed, pack_in_memory(checkpoint, plan, form, team, progress));
  packed.notices.push_back(why);
  return packed;
}

Result<PackedModel> packed_drafter(const Checkpoint& drafter, const DrafterPlan& plan, const Program& target, const PackedWeights& target_weights,
                                   WeightsForm form, ThreadTeam& team, const PackProgress& progress, bool use_cache) {
  if (form == WeightsForm::file) form = WeightsForm::automatic;
  ESPALIER_ASSIGN(PackedModel out, packed_model(drafter, plan.model, form, team, progress, use_cache));
  ESPALIER_TRY(share_packed(plan.model.program, target, target_weights, out.weights));
  return out;
}

Result<WeightSet> float_weights(const ModelPlan& plan, const Checkpoint& checkpoint) {
  if (checkpoint.kind() != CheckpointKind::packed) return bind_weights(plan, checkpoint);
  ESPALIER_ASSIGN(const PackedWeights packed, read_packed(plan.program, checkpoint.tensors(), checkpoint.container_metadata(), nullptr));
  return dequantized(plan.program, packed);
}

}  // namespace espalier
