// How a path becomes a Checkpoint. Order of looking, in a folder: model.espalier (packed), then
// model.safetensors.index.json (shards), then model.safetensors; anything that leaves a choice is refused.
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <utility>

#include "base/json.h"
#include "base/sha256.h"
#include "weights/checkpoint.h"
#include "weights/config_reader.h"
#include "weights/container.h"
#include "weights/folder.h"
#include "weights/gguf.h"
#include "weights/safetensors.h"

namespace espalier {
namespace {

constexpr char kIndex[] = "model.safetensors.index.json";
constexpr char kSingle[] = "model.safetensors";
constexpr char kPacked[] = "model.espalier";
constexpr uint64_t kTemplateMax = 4u << 20;
constexpr size_t kShardsMax = 4096;
constexpr size_t kNamesShown = 3;

// "a, b, c and 5 more"
std::string some_of(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kNamesShown); ++i) text += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > kNamesShown) text += " and " + std::to_string(names.size() - kNamesShown) + " more";
  return text;
}

void keep(FileMap map, const std::string& name, uint64_t header_bytes, CheckpointParts* parts) {
  SourceFile file{name, map.path(), map.size(), map.mtime_ns(), map.bytes(), map.bytes().first(header_bytes)};
  parts->files.push_back(std::move(file));
  parts->maps.push_back(std::move(map));
}

Result<Safetensors> parse_file(const FileMap& map) {
  Result<Safetensors> parsed = parse_safetensors(map.bytes());
  if (!parsed.ok()) return std::move(parsed).status().with_context(map.path());
  return parsed;
}

bool says_mlx(const Safetensors& parsed) {
  return std::ranges::any_of(parsed.metadata, [](const auto& m) { return m.first == "format" && m.second == "mlx"; });
}

// ---- safetensors, one file or shards ----

struct Index {
  std::vector<std::string> files;                  // in name order
  std::vector<std::pair<std::string, std::string>> tensors;  // tensor, file; sorted
};

Result<Index> read_index(const ModelFolder& folder) {
  ESPALIER_ASSIGN(const Value json, folder.json_object(kIndex));
  const std::string where = folder.path() + "/" + kIndex;
  const Value* map = json.find("weight_map");
  if (map == nullptr || !map->is_object()) return corrupt(where + ": expected an object weight_map");
  Index index;
  std::set<std::string> files;
  for (const Value::Member& m : map->as_object()) {
    if (!m.second.is_string()) return corrupt(where + ": " + m.first + ": expected a file name, found " + kind_of(m.second));
    const std::string& file = m.second.as_string();
    ESPALIER_TRY(check_plain_name(file).with_context(where + ": " + m.first));
    if (!file.ends_with(".safetensors")) return corrupt(where + ": " + m.first + ": \"" + file + "\" is no .safetensors file", file);
    files.insert(file);
    index.tensors.emplace_back(m.first, file);
  }
  if (files.empty()) return corrupt(where + ": no weights found: weight_map is empty");
  if (files.size() > kShardsMax) return corrupt(where + ": expected at most " + std::to_string(kShardsMax) + " files, found " + std::to_string(files.size()));
  index.files.assign(files.begin(), files.end());
  std::sort(index.tensors.begin(), index.tensors.end());
  return index;
}

// The index and a shard must agree in both directions.
Status check_shard(const Index& index, const std::string& file, const Safetensors& parsed) {
  std::vector<std::string> promised, found, missing, extra;
  for (const auto& [tensor, where] : index.tensors)
    if (where == file) promised.push_back(tensor);
  for (const TensorView& t : parsed.tensors) found.push_back(t.name);
  std::sort(found.begin(), found.end());
  std::set_difference(promised.begin(), promised.end(), found.begin(), found.end(), std::back_inserter(missing));
  std::set_difference(found.begin(), found.end(), promised.begin(), promised.end(), std::back_inserter(extra));
  if (!missing.empty()) return corrupt(std::string(kIndex) + " promises tensor " + some_of(missing) + " in " + file + ", and it is not there", missing[0]);
  if (!extra.empty()) return corrupt(file + " holds tensor " + some_of(extra) + ", which " + kIndex + " does not place there", extra[0]);
  return {};
}

Status add_safetensors(const ModelFolder& folder, const std::string& name, const Index* index, bool* mlx, CheckpointParts* parts) {
  Result<FileMap> map = folder.map(name);
  if (!map.ok()) {
    if (index == nullptr || map.status().code() != Code::not_found) return std::move(map).status();
    return {Code::not_found, folder.path() + ": shard " + name + " is missing: " + kIndex + " names it", name};
  }
  ESPALIER_ASSIGN(Safetensors parsed, parse_file(*map));
  if (index != nullptr) ESPALIER_TRY(check_shard(*index, name, parsed).with_context(folder.path()));
  *mlx = *mlx || says_mlx(parsed);
  std::move(parsed.tensors.begin(), parsed.tensors.end(), std::back_inserter(parts->tensors));
  keep(std::move(*map), name, parsed.header_bytes, parts);
  return {};
}

Status no_weights(const ModelFolder& folder) {
  std::vector<std::string> gguf, torch, adapters, safetensors;
  for (const std::string& name : folder.list()) {
    if (name.ends_with(".gguf")) gguf.push_back(name);
    if (name.ends_with(".bin") || name.ends_with(".pt") || name.ends_with(".pth")) torch.push_back(name);
    if (name.starts_with("adapter_")) adapters.push_back(name);
    if (name.ends_with(".safetensors")) safetensors.push_back(name);
  }
  const std::string where = folder.path() + ": ";
  if (!adapters.empty()) return unsupported(where + "this is a LoRA adapter (" + some_of(adapters) + "), not a model; merge it into its base model first");
  if (!gguf.empty()) return invalid(where + "no weights of a folder found, but GGUF files (" + some_of(gguf) + "): name the file itself");
  if (!torch.empty()) return unsupported(where + "weights in pickle files (" + some_of(torch) + ") are never read; convert them to safetensors");
  const std::string others = safetensors.empty() ? "" : "; " + some_of(safetensors) + " is not a name that says that it is the model";
  return {Code::not_found, where + "no weights found: expected " + kSingle + ", " + kIndex + " or " + kPacked + others};
}

Status add_weights(const ModelFolder& folder, CheckpointParts* parts) {
  bool mlx = parts->config.find("quantization") != nullptr;
  if (folder.has(kIndex)) {
    ESPALIER_ASSIGN(const Index index, read_index(folder));
    if (folder.has(kSingle) && std::ranges::find(index.files, kSingle) == index.files.end())
      return corrupt(folder.path() + ": holds both " + kSingle + " and shards that " + kIndex + " names; remove one of them");
    for (const std::string& file : index.files) ESPALIER_TRY(add_safetensors(folder, file, &index, &mlx, parts));
  } else if (folder.has(kSingle)) {
    ESPALIER_TRY(add_safetensors(folder, kSingle, nullptr, &mlx, parts));
  } else {
    return no_weights(folder);
  }
  parts->kind = mlx ? CheckpointKind::mlx : CheckpointKind::hf;
  return {};
}

Status add_packed(const ModelFolder& folder, CheckpointParts* parts) {
  if (folder.has(kSingle) || folder.has(kIndex))
    return corrupt(folder.path() + ": holds both " + kPacked + " and safetensors weights; remove one of them");
  ESPALIER_ASSIGN(FileMap map, folder.map(kPacked));
  Result<Container> parsed = parse_container(map.bytes());
  if (!parsed.ok()) return std::move(parsed).status().with_context(map.path());
  const auto says = [&](std::string_view key, std::string_view value) {
    return std::ranges::any_of(parsed->metadata, [&](const auto& m) { return m.first == key && m.second == value; });
  };
  parts->kind = says("espalier.for", "npu") ? CheckpointKind::npu : CheckpointKind::packed;
  if (parts->kind == CheckpointKind::npu && !says("espalier.format", kNpuFormat))
    return unsupported(map.path() + ": a format of converted weights that this build does not read: convert the model again");
  parts->tensors = std::move(parsed->tensors);
  parts->container_metadata = std::move(parsed->metadata);
  keep(std::move(map), kPacked, parsed->header_bytes, parts);
  return {};
}

// ---- chat templates ----

void put_template(const std::string& name, std::string text, const std::string& source, CheckpointParts* parts) {
  for (TemplateFile& t : parts->chat_templates) {
    if (t.name == name) return;  // the first place that names it wins: callers go from the strongest to the weakest
  }
  parts->chat_templates.push_back({name, std::move(text), source});
}

Status put_template_value(const Value& value, const std::string& source, CheckpointParts* parts) {
  if (value.is_null()) return {};
  if (value.is_string()) {
    put_template("default", value.as_string(), source, parts);
    return {};
  }
  if (!value.is_array()) return corrupt(source + ": chat_template: expected a string or a list, found " + kind_of(value));
  for (const Value& entry : value.as_array()) {
    const Value* name = entry.find("name");
    const Value* text = entry.find("template");
    if (name == nullptr || !name->is_string() || text == nullptr || !text->is_string())
      return corrupt(source + ": chat_template: expected entries with a name and a template");
    put_template(name->as_string(), text->as_string(), source, parts);
  }
  return {};
}

// chat_template.jinja and additional_chat_templates/*.jinja, then chat_template.json, then tokenizer_config.json.
Status add_folder_templates(const ModelFolder& folder, CheckpointParts* parts) {
  if (folder.has("chat_template.jinja")) {
    ESPALIER_ASSIGN(std::string text, folder.text("chat_template.jinja", kTemplateMax));
    put_template("default", std::move(text), "chat_template.jinja", parts);
  }
  constexpr char kMore[] = "additional_chat_templates";
  constexpr std::string_view kEnd = ".jinja";
  if (folder.has(kMore)) {
    ESPALIER_ASSIGN(const ModelFolder more, folder.inner(kMore));
    for (const std::string& name : more.list()) {
      if (!name.ends_with(kEnd)) continue;
      ESPALIER_ASSIGN(std::string text, more.text(name, kTemplateMax));
      put_template(name.substr(0, name.size() - kEnd.size()), std::move(text), std::string(kMore) + "/" + name, parts);
    }
  }
  ESPALIER_ASSIGN(const Value old, folder.json_object("chat_template.json"));
  if (const Value* t = old.find("chat_template")) ESPALIER_TRY(put_template_value(*t, "chat_template.json", parts));
  if (const Value* t = parts->tokenizer_config.find("chat_template"))
    ESPALIER_TRY(put_template_value(*t, "tokenizer_config.json", parts));
  return {};
}

// ---- metadata of GGUF ----

void add_gguf_templates(CheckpointParts* parts) {
  constexpr std::string_view kKey = "tokenizer.chat_template";
  if (!parts->config.is_object()) return;
  for (const Value::Member& m : parts->config.as_object()) {
    if (!m.second.is_string() || !m.first.starts_with(kKey)) continue;
    if (m.first == kKey)
      put_template("default", m.second.as_string(), m.first, parts);
    else if (m.first[kKey.size()] == '.' && m.first.size() > kKey.size() + 1)
      put_template(m.first.substr(kKey.size() + 1), m.second.as_string(), m.first, parts);
  }
}

Value gguf_generation_config(const Value& metadata) {
  constexpr std::pair<const char*, const char*> kNames[] = {
      {"general.sampling.temp", "temperature"},   {"general.sampling.top_k", "top_k"},
      {"general.sampling.top_p", "top_p"},        {"general.sampling.min_p", "min_p"},
      {"general.sampling.penalty_repeat", "repetition_penalty"},
      {"tokenizer.ggml.bos_token_id", "bos_token_id"}, {"tokenizer.ggml.padding_token_id", "pad_token_id"}};
  Value out = Value::object();
  for (const auto& [from, to] : kNames)
    if (const Value* v = metadata.find(from); v != nullptr && v->is_number()) out.set(to, *v);
  Value ends = Value::array();
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    const Value* v = metadata.find(key);
    if (v != nullptr && v->is_int() && std::ranges::find(ends.as_array(), *v) == ends.as_array().end()) ends.push(*v);
  }
  if (!ends.as_array().empty()) out.set("eos_token_id", std::move(ends));
  return out;
}

// ---- folders ----

bool is_attribution(std::string name) {
  for (char& c : name) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
  return name.starts_with("LICENSE") || name.starts_with("LICENCE") || name.starts_with("NOTICE") || name.starts_with("COPYING");
}

// Everything but the weights.
Status add_small_files(const ModelFolder& folder, CheckpointParts* parts) {
  ESPALIER_ASSIGN(parts->config, folder.json_object("config.json"));
  ESPALIER_ASSIGN(parts->generation_config, folder.json_object("generation_config.json"));
  ESPALIER_ASSIGN(parts->tokenizer, folder.json_object("tokenizer.json"));
  ESPALIER_ASSIGN(parts->tokenizer_config, folder.json_object("tokenizer_config.json"));
  ESPALIER_TRY(add_folder_templates(folder, parts));
  if (parts->config.find("general.architecture") != nullptr) {
    add_gguf_templates(parts);
    if (parts->generation_config.is_null()) parts->generation_config = gguf_generation_config(parts->config);
  }
  if (folder.has("config.json")) {
    ESPALIER_ASSIGN(FileMap map, folder.map("config.json"));
    const uint64_t all = map.size();
    keep(std::move(map), "config.json", all, parts);
  }
  for (const std::string& name : folder.list()) {
    if (!is_attribution(name)) continue;
    if (Result<std::string> path = folder.resolve(name); path.ok()) parts->attribution_files.push_back(*path);
  }
  return {};
}

Result<Checkpoint> open_folder(const std::string& path, bool only_tokenizer) {
  CheckpointParts parts;
  ESPALIER_ASSIGN(const ModelFolder folder, ModelFolder::open(path));
  parts.path = path;
  ESPALIER_TRY(add_small_files(folder, &parts));
  if (only_tokenizer) {
    parts.kind = CheckpointKind::tokenizer_only;
    if (parts.tokenizer.is_null() && parts.config.find("tokenizer.ggml.model") == nullptr)
      return Status(Code::not_found, path + ": no tokenizer found: expected tokenizer.json");
  } else if (folder.has(kPacked)) {
    ESPALIER_TRY(add_packed(folder, &parts));
  } else {
    ESPALIER_TRY(add_weights(folder, &parts));
  }
  if (!only_tokenizer && parts.config.is_null()) return Status(Code::not_found, path + ": config.json is missing beside the weights");
  const Value* method = parts.config.find_path("quantization_config.quant_method");
  if (!only_tokenizer && method != nullptr && method->is_string())
    return unsupported(path + ": quantisation by " + method->as_string() + " is not read; use a float, MLX or GGUF version", "quantization_config");
  Result<Checkpoint> made = Checkpoint::make(std::move(parts));
  if (!made.ok()) return std::move(made).status().with_context(path);
  return made;
}

// ---- .gguf files ----

uint64_t count_of(const Value& metadata, std::string_view key, uint64_t otherwise) {
  const Value* v = metadata.find(key);
  return v != nullptr && v->is_int() && v->as_int() >= 0 ? static_cast<uint64_t>(v->as_int()) : otherwise;
}

Result<Gguf> add_gguf(FileMap map, const std::string& name, CheckpointParts* parts) {
  Result<Gguf> parsed = parse_gguf(map.bytes());
  if (!parsed.ok()) return std::move(parsed).status().with_context(map.path());
  std::move(parsed->tensors.begin(), parsed->tensors.end(), std::back_inserter(parts->tensors));
  keep(std::move(map), name, parsed->header_bytes, parts);
  return parsed;
}

// All parts of a split set; the first carries the metadata.
Status add_split(const std::string& path, const ModelFolder& folder, const GgufSplitName& split, CheckpointParts* parts) {
  if (split.count > kShardsMax) return corrupt(path + ": expected at most " + std::to_string(kShardsMax) + " parts, found " + std::to_string(split.count));
  uint64_t promised = 0;
  for (uint32_t number = 1; number <= split.count; ++number) {
    const std::string name = split_name(split.base, number, split.count);
    Result<FileMap> map = folder.map(name);
    if (!map.ok()) {
      if (map.status().code() != Code::not_found) return std::move(map).status();
      return {Code::not_found, folder.path() + ": part " + name + " is missing: " + std::to_string(split.count) + " parts belong together", name};
    }
    ESPALIER_ASSIGN(Gguf part, add_gguf(std::move(*map), name, parts));
    const uint64_t count = count_of(part.metadata, "split.count", split.count), no = count_of(part.metadata, "split.no", number - 1);
    if (count != split.count || no != number - 1) {
      return corrupt(folder.path() + "/" + name + ": says that it is part " + std::to_string(no + 1) + " of " + std::to_string(count), name);
    }
    if (number == 1) {
      promised = count_of(part.metadata, "split.tensors.count", 0);
      parts->config = std::move(part.metadata);
    }
  }
  if (promised != 0 && promised != parts->tensors.size()) {
    return corrupt(path + ": expected " + std::to_string(promised) + " tensors in all parts, found " + std::to_string(parts->tensors.size()));
  }
  return {};
}

std::string folder_part(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

Result<Checkpoint> open_gguf(const std::string& path) {
  CheckpointParts parts;
  parts.kind = CheckpointKind::gguf;
  parts.path = path;
  const std::string name = path.substr(path.rfind('/') + 1);
  GgufSplitName split;
  if (parse_split_name(name, &split)) {
    ESPALIER_ASSIGN(const ModelFolder folder, ModelFolder::open(folder_part(path)));
    ESPALIER_TRY(add_split(path, folder, split, &parts));
  } else {
    ESPALIER_ASSIGN(FileMap map, FileMap::open(path));  // the user named it: a link is followed
    ESPALIER_ASSIGN(Gguf parsed, add_gguf(std::move(map), name, &parts));
    const uint64_t count = count_of(parsed.metadata, "split.count", 1);
    if (count > 1) {
      return corrupt(path + ": says that it is one of " + std::to_string(count) + " parts; their names must end in " +
                     split_name("", 1, static_cast<uint32_t>(std::min<uint64_t>(count, 99999))));
    }
    parts.config = std::move(parsed.metadata);
  }
  add_gguf_templates(&parts);
  parts.generation_config = gguf_generation_config(parts.config);
  Result<Checkpoint> made = Checkpoint::make(std::move(parts));
  if (!made.ok()) return std::move(made).status().with_context(path);
  return made;
}

Result<Checkpoint> open_path(const std::string& path, bool only_tokenizer) {
  struct stat st;
  if (::stat(path.c_str(), &st) != 0) {
    const int error = errno;
    return Status(error == ENOENT || error == ENOTDIR ? Code::not_found : Code::io,
                  path + ": cannot be opened: " + std::strerror(error) + "; expected a model folder or a .gguf file");
  }
  if (S_ISDIR(st.st_mode)) return open_folder(path, only_tokenizer);
  if (path.ends_with(".safetensors") || path.ends_with(".espalier") || path.ends_with(".json"))
    return invalid(path + ": expected a model folder or a .gguf file; name the folder that holds this file");
  ESPALIER_ASSIGN(Checkpoint opened, open_gguf(path));
  if (!only_tokenizer && opened.tensors().empty()) return corrupt(path + ": no weights found: the file holds metadata and no tensor");
  return opened;
}

}  // namespace

Result<Checkpoint> Checkpoint::open(const std::string& path) { return open_path(path, false); }

Result<Checkpoint> Checkpoint::open_tokenizer_only(const std::string& path) { return open_path(path, true); }

Value source_identity(const Checkpoint& checkpoint) {
  Value out = Value::array();
  for (const SourceFile& file : checkpoint.files()) {
    Value entry = Value::object();
    entry.set("name", Value(file.name));
    entry.set("size", Value(file.size));
    entry.set("mtime_ns", Value(file.mtime_ns));
    entry.set("header_sha256", Value(sha256_hex(file.header)));
    out.push(std::move(entry));
  }
  return out;
}

Value content_hashes(const Checkpoint& checkpoint) {
  Value out = Value::array();
  for (const SourceFile& file : checkpoint.files()) {
    Value entry = Value::object();
    entry.set("name", Value(file.name));
    entry.set("sha256", Value(sha256_hex(file.contents)));
    out.push(std::move(entry));
  }
  return out;
}

}  // namespace espalier
