#include "weights/checkpoint.h"

#include <gtest/gtest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/json.h"
#include "base/sha256.h"
#include "weights/container.h"
#include "weights/test_files.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;
using test::GgufBytes;
using test::raw;
using test::small_safetensors;
using test::TempFolder;

const std::string kModels = std::string(ESPALIER_SOURCE_DIR) + "/tests/fixtures/models/";

#define EXPECT_SAYS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

Status failure(const std::string& path) {
  Result<Checkpoint> opened = Checkpoint::open(path);
  return opened.ok() ? Status() : opened.status();
}

// ---- real files, as transformers, mlx-lm and the gguf package write them ----

TEST(Checkpoint, opens_every_tiny_model_and_reads_every_tensor) {
  int opened_count = 0;
  for (const auto& entry : fs::directory_iterator(kModels)) {
    const std::string path = entry.path().string();
    const bool shard = path.find("-of-") != std::string::npos && path.find("-00001-of-") == std::string::npos;
    if (shard || (!entry.is_directory() && !path.ends_with(".gguf"))) continue;
    Result<Checkpoint> c = Checkpoint::open(path);
    ASSERT_TRUE(c.ok()) << c.status().message();
    ++opened_count;
    EXPECT_FALSE(c->tokenizer().is_null()) << path;
    EXPECT_FALSE(c->generation_config().is_null()) << path;
    std::vector<std::string> claimed;
    for (const TensorView& t : c->tensors()) {
      if (t.name.ends_with(".scales") || t.name.ends_with(".biases")) continue;
      claimed.push_back(t.name);
      if (t.shape.size() != 2) continue;
      Result<std::pair<uint64_t, uint64_t>> shape = c->matrix_shape(t.name);
      ASSERT_TRUE(shape.ok()) << shape.status().message();
      Result<SourceMatrix> m = c->matrix(t.name, shape->first, shape->second);
      ASSERT_TRUE(m.ok()) << m.status().message();
      std::vector<float> values(m->rows() * m->cols());
      m->dequantize(0, m->rows(), values.data());
      const auto [low, high] = std::minmax_element(values.begin(), values.end());
      EXPECT_TRUE(*high - *low > 0 && *high < 100 && *low > -100) << path << " " << t.name << " " << *low << " " << *high;
    }
    EXPECT_TRUE(c->unclaimed(claimed).empty()) << path << ": " << c->unclaimed(claimed)[0];
  }
  EXPECT_GE(opened_count, 25);
}

Checkpoint model(const std::string& name) {
  Result<Checkpoint> opened = Checkpoint::open(kModels + name);
  EXPECT_TRUE(opened.ok()) << opened.status().message();
  return opened.ok() ? std::move(*opened) : Checkpoint::make({}).value();
}

TEST(Checkpoint, kinds_and_templates_come_from_the_files) {
  EXPECT_EQ(model("lfm2-f32").kind(), CheckpointKind::hf);
  EXPECT_EQ(model("lfm2-mlx-4bit").kind(), CheckpointKind::mlx);
  EXPECT_EQ(model("lfm2-gguf-q8_0.gguf").kind(), CheckpointKind::gguf);
  EXPECT_EQ(model("lfm2-f32").chat_templates()[0].source, "chat_template.jinja");
  EXPECT_EQ(model("lfm2-bf16").chat_templates()[0].source, "tokenizer_config.json");
  EXPECT_EQ(model("lfm2-gguf-q8_0.gguf").chat_template(), model("lfm2-f32").chat_template());
  EXPECT_FALSE(model("lfm2-f32").chat_template().empty());
}

TEST(Checkpoint, a_wrapper_prefix_is_dropped_from_names_and_overrides) {
  const Checkpoint c = model("lfm2-mlx-prefix");
  ASSERT_NE(c.find("model.embed_tokens.scales"), nullptr);
  EXPECT_EQ(c.find("language_model.model.embed_tokens.scales"), nullptr);
  EXPECT_EQ(c.matrix("model.embed_tokens.weight", 288, 128)->form().text(), "6 bits, groups of 64, offset, bf16 scales (affine)");
  EXPECT_EQ(c.matrix("model.layers.0.conv.in_proj.weight", 384, 128)->form().text(), "4 bits, groups of 128, offset, bf16 scales (affine)");
  EXPECT_EQ(c.matrix("model.layers.0.conv.out_proj.weight", 128, 128)->form().kind, MatrixForm::Kind::floats);
}

TEST(Checkpoint, conv_kernels_read_alike_in_both_layouts) {
  const uint64_t shape[] = {64, 3};
  EXPECT_EQ(model("lfm2-mlx-4bit").find("model.layers.0.conv.conv.weight")->shape, (std::vector<uint64_t>{64, 3, 1}));
  EXPECT_EQ(model("lfm2-mlx-4bit").floats("model.layers.0.conv.conv.weight", shape)->size(), 192u);
  EXPECT_TRUE(model("lfm2-f32").floats("model.layers.0.conv.conv.weight", shape).ok());
  EXPECT_TRUE(model("lfm2-gguf-f16.gguf").floats("blk.0.shortconv.conv.weight", shape).ok());
  const uint64_t turned[] = {3, 64};
  EXPECT_FALSE(model("lfm2-f32").floats("model.layers.0.conv.conv.weight", turned).ok());
}

TEST(Checkpoint, any_part_of_a_split_set_opens_all_of_it) {
  const Checkpoint first = model("qwen3-gguf-shards-f16-00001-of-00003.gguf"), last = model("qwen3-gguf-shards-f16-00003-of-00003.gguf");
  EXPECT_EQ(first.tensors().size(), last.tensors().size());
  EXPECT_EQ(first.files().size(), 3u);
  EXPECT_EQ(first.config(), last.config());
  EXPECT_NE(first.config().find("general.architecture"), nullptr);
}

TEST(Checkpoint, missing_tensors_and_wrong_shapes_are_named) {
  const Checkpoint c = model("lfm2-f32");
  EXPECT_SAYS(c.matrix("model.nope.weight", 1, 1).status().message(), "tensor model.nope.weight is missing");
  EXPECT_SAYS(c.matrix("model.embed_tokens.weight", 288, 63).status().message(), "tensor model.embed_tokens.weight: expected (288, 63), found (288, 64) f32");
  EXPECT_SAYS(c.vector("model.embedding_norm.weight", 65).status().message(), "expected (65)");
}

// ---- folders made here ----

constexpr char kConfig[] = R"({"model_type":"test"})";

// A folder that opens; each test breaks one thing.
struct SmallModel : TempFolder {
  SmallModel() {
    write("config.json", kConfig);
    write("tokenizer.json", R"({"model":{"type":"BPE"}})");
    write("model.safetensors", small_safetensors());
  }
};

TEST(Checkpoint, an_index_must_use_plain_names_L07) {
  TempFolder folder;
  folder.write("config.json", kConfig);
  folder.write("m/config.json", kConfig);
  folder.write("x.safetensors", small_safetensors());
  const std::string outside = folder / "x.safetensors";
  const auto index = [&](const std::string& file) {
    Value map = Value::object(), json = Value::object();
    map.set("w", Value(file));
    json.set("weight_map", std::move(map));
    folder.write("m/model.safetensors.index.json", to_json(json));
    return failure(folder / "m").message();
  };
  for (const std::string& file : {std::string("../x.safetensors"), outside, std::string("a/b.safetensors"), std::string(".."), std::string(""), std::string("a\\b.safetensors")})
    EXPECT_SAYS(index(file), "expected the plain name of a file inside the model's folder");
  EXPECT_SAYS(index("x.bin"), "no .safetensors file");
  EXPECT_SAYS(index("x.safetensors"), "shard x.safetensors is missing");
  fs::create_symlink(outside, folder / "m/x.safetensors");
  EXPECT_SAYS(index("x.safetensors"), "a symbolic link that does not lead from a hub cache's snapshot into its blobs");
  fs::remove(folder / "m/x.safetensors");
  fs::create_hard_link(outside, folder / "m/x.safetensors");
  EXPECT_EQ(index("x.safetensors"), "");
}

TEST(Checkpoint, links_of_a_hub_cache_snapshot_are_followed_into_its_blobs_only) {
  TempFolder hub;
  const std::string root = hub / "models--a--b";
  hub.write("models--a--b/blobs/1", small_safetensors());
  hub.write("models--a--b/blobs/2", kConfig);
  hub.write("secret.json", kConfig);
  fs::create_directories(root + "/snapshots/rev/4bit");
  for (const std::string& inside : {root + "/snapshots/rev", root + "/snapshots/rev/4bit"}) {
    const std::string up = inside.ends_with("4bit") ? "../../../" : "../../";
    fs::create_symlink(up + "blobs/1", inside + "/model.safetensors");
    fs::create_symlink(up + "blobs/2", inside + "/config.json");
    EXPECT_EQ(failure(inside).message(), "");
    fs::remove(inside + "/config.json");
    fs::create_symlink(hub / "secret.json", inside + "/config.json");
    EXPECT_SAYS(failure(inside).message(), "symbolic link");
    fs::remove(inside + "/config.json");
    fs::create_symlink(up + "blobs/../../secret.json", inside + "/config.json");
    EXPECT_SAYS(failure(inside).message(), "symbolic link");
    fs::remove(inside + "/config.json");
    fs::create_symlink("loop", inside + "/loop");
    fs::create_symlink("loop", inside + "/config.json");
    EXPECT_SAYS(failure(inside).message(), "symbolic link");
  }
}

TEST(Checkpoint, index_and_shards_must_agree) {
  TempFolder folder;
  folder.write("config.json", kConfig);
  folder.write("a.safetensors", small_safetensors(4, "w"));
  folder.write("b.safetensors", small_safetensors(4, "v"));
  const auto index = [&](const char* map) {
    folder.write("model.safetensors.index.json", std::string("{\"weight_map\":") + map + "}");
    return failure(folder.path()).message();
  };
  EXPECT_EQ(index(R"({"w":"a.safetensors","v":"b.safetensors"})"), "");
  EXPECT_SAYS(index(R"({"w":"a.safetensors","v":"b.safetensors","u":"b.safetensors"})"), "promises tensor u in b.safetensors");
  EXPECT_SAYS(index(R"({"w":"a.safetensors","u":"a.safetensors","v":"b.safetensors"})"), "promises tensor u in a.safetensors");
  folder.write("b.safetensors", small_safetensors(4, "w"));
  EXPECT_SAYS(index(R"({"w":"a.safetensors","v":"b.safetensors"})"), "promises tensor v");
  EXPECT_SAYS(index("{}"), "weight_map is empty");
  EXPECT_SAYS(index("[]"), "expected an object weight_map");
  EXPECT_SAYS(index(R"({"w":5})"), "expected a file name");
  folder.write("model.safetensors", small_safetensors());
  EXPECT_SAYS(index(R"({"w":"a.safetensors"})"), "holds both");
}

TEST(Checkpoint, L05_spare_bytes_are_refused_on_every_path) {
  SmallModel folder;
  EXPECT_EQ(failure(folder.path()).message(), "");
  folder.write("model.safetensors", small_safetensors() + std::string(16, 'x'));
  const std::string single = failure(folder.path()).message();
  EXPECT_SAYS(single, "16 bytes are left over");
  folder.write("model.safetensors.index.json", R"({"weight_map":{"w":"model.safetensors"}})");
  EXPECT_EQ(failure(folder.path()).message(), single);
}

TEST(Checkpoint, folders_without_usable_weights_say_what_they_are) {
  TempFolder folder;
  folder.write("config.json", kConfig);
  EXPECT_SAYS(failure(folder.path()).message(), "no weights found: expected model.safetensors");
  folder.write("pytorch_model.bin", "x");
  EXPECT_SAYS(failure(folder.path()).message(), "pickle");
  folder.write("m.gguf", "x");
  EXPECT_SAYS(failure(folder.path()).message(), "GGUF files (m.gguf): name the file itself");
  folder.write("adapter_model.safetensors", "x");
  EXPECT_SAYS(failure(folder.path()).message(), "LoRA adapter");
  EXPECT_SAYS(failure(folder / "nothing").message(), "expected a model folder or a .gguf file");
  TempFolder bare;
  bare.write("model.safetensors", small_safetensors());
  EXPECT_SAYS(failure(bare.path()).message(), "config.json is missing");
  EXPECT_SAYS(failure(bare / "model.safetensors").message(), "name the folder");
}

TEST(Checkpoint, pipes_and_folders_in_the_place_of_files_are_refused_without_waiting) {
  SmallModel folder;
  fs::remove(folder / "model.safetensors");
  ASSERT_EQ(::mkfifo((folder / "model.safetensors").c_str(), 0600), 0);
  EXPECT_SAYS(failure(folder.path()).message(), "expected a regular file, found a named pipe");
  fs::remove(folder / "model.safetensors");
  fs::create_directory(folder / "model.safetensors");
  EXPECT_SAYS(failure(folder.path()).message(), "expected a regular file, found a folder");
  ASSERT_EQ(::mkfifo((folder / "m.gguf").c_str(), 0600), 0);
  EXPECT_SAYS(failure(folder / "m.gguf").message(), "named pipe");
}

TEST(Checkpoint, other_kinds_of_files_are_refused_by_name) {
  const auto with = [](const std::string& config, const std::string& tensor) {
    SmallModel folder;
    folder.write("config.json", config);
    folder.write("model.safetensors", small_safetensors(4, tensor));
    const Status status = failure(folder.path());
    if (!status.ok()) {
      EXPECT_EQ(status.code(), Code::unsupported);
    }
    return status.message();
  };
  EXPECT_EQ(with(R"({"model_type":"x","num_experts":1})", "w"), "");
  EXPECT_SAYS(with(R"({"model_type":"x_moe","num_experts":32})", "w"), "a mixture of experts (architecture x_moe, num_experts)");
  EXPECT_SAYS(with(kConfig, "model.layers.0.feed_forward.experts.0.w1.weight"), "a mixture of experts");
  EXPECT_SAYS(with(kConfig, "model.vision_tower.x.weight"), "vision");
  EXPECT_SAYS(with(kConfig, "base_model.model.q_proj.lora_A.weight"), "LoRA adapter");
  EXPECT_SAYS(with(R"({"quantization_config":{"quant_method":"gptq"}})", "w"), "quantisation by gptq");
  const auto gguf = [](GgufBytes g) {
    TempFolder folder;
    g.tensor("w", {8}, 0, 0);
    return failure(folder.write("m.gguf", g.bytes(std::string(32, '\0')))).message();
  };
  EXPECT_EQ(gguf(GgufBytes().string("general.architecture", "x")), "");
  EXPECT_SAYS(gguf(GgufBytes().string("general.architecture", "clip")), "vision projector (mmproj)");
  EXPECT_SAYS(gguf(GgufBytes().string("general.architecture", "x").string("general.type", "mmproj")), "vision projector (mmproj)");
  EXPECT_SAYS(gguf(GgufBytes().string("general.architecture", "x").string("general.type", "adapter")), "LoRA adapter");
  EXPECT_SAYS(gguf(GgufBytes().string("general.architecture", "xmoe").u32("xmoe.expert_count", 32)), "mixture of experts (architecture xmoe");
}

TEST(Checkpoint, tensor_types_that_are_not_read_are_refused_by_name) {
  for (const auto& [number, name, bytes] : {std::tuple{16u, "iq2_xxs", 66}, {39u, "mxfp4", 17 * 8}, {10u, "q2_k", 84}, {11u, "q3_k", 110}, {34u, "tq1_0", 54}}) {
    TempFolder folder;
    GgufBytes g;
    g.string("general.architecture", "x").tensor("blk.0.w", {256}, number, 0);
    const Status status = failure(folder.write("m.gguf", g.bytes(std::string(static_cast<size_t>(bytes), '\0'))));
    EXPECT_EQ(status.code(), Code::unsupported);
    EXPECT_SAYS(status.message(), std::string("tensor blk.0.w: the type ") + name + " is not read");
  }
  SmallModel folder;
  folder.write("model.safetensors", test::safetensors(R"({"w":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4]}})", "xxxx"));
  EXPECT_SAYS(failure(folder.path()).message(), "f8_e4m3");
}

TEST(Checkpoint, a_folder_that_names_its_own_code_is_only_data_L09) {
  SmallModel folder;
  folder.write("config.json", R"({"model_type":"test","auto_map":{"AutoModel":"modeling.X"},"model_file":"modeling.py"})");
  folder.write("modeling.py", "import os; os.system('touch executed')");
  EXPECT_EQ(failure(folder.path()).message(), "");
  EXPECT_FALSE(fs::exists(folder / "executed"));
}

TEST(Checkpoint, templates_are_found_where_tools_put_them_L08) {
  SmallModel folder;
  folder.write("tokenizer_config.json", R"({"tokenizer_class":"TokenizersBackend","chat_template":[{"name":"default","template":"D"},{"name":"tool_use","template":"T"}]})");
  Result<Checkpoint> c = Checkpoint::open(folder.path());
  ASSERT_TRUE(c.ok()) << c.status().message();
  EXPECT_EQ(c->chat_template(), "D");
  EXPECT_EQ(c->chat_templates()[1].name, "tool_use");
  folder.write("chat_template.json", R"({"chat_template":"J"})");
  EXPECT_EQ(Checkpoint::open(folder.path())->chat_template(), "J");
  folder.write("chat_template.jinja", "own file");
  folder.write("additional_chat_templates/rag.jinja", "R");
  c = Checkpoint::open(folder.path());
  EXPECT_EQ(c->chat_template(), "own file");
  ASSERT_EQ(c->chat_templates().size(), 3u);
  EXPECT_EQ(c->chat_templates()[1].text, "R");
  SmallModel none;
  EXPECT_EQ(Checkpoint::open(none.path())->chat_template(), "");
  none.write("tokenizer_config.json", R"({"chat_template":5})");
  EXPECT_SAYS(failure(none.path()).message(), "expected a string or a list");
}

TEST(Checkpoint, broken_json_names_file_and_place) {
  SmallModel folder;
  folder.write("config.json", "{\"a\":\n}");
  EXPECT_SAYS(failure(folder.path()).message(), "config.json: not valid JSON at line 2");
  folder.write("config.json", "[1]");
  EXPECT_SAYS(failure(folder.path()).message(), "config.json: expected an object, found an array");
}

TEST(Checkpoint, gguf_metadata_gives_generation_settings_and_named_templates) {
  TempFolder folder;
  GgufBytes g;
  g.string("general.architecture", "x").key("general.sampling.temp", 6, raw(0.25f)).key("general.sampling.top_k", 5, raw(int32_t{50}));
  g.u32("tokenizer.ggml.bos_token_id", 1).u32("tokenizer.ggml.eos_token_id", 7).u32("tokenizer.ggml.eot_token_id", 9).u32("tokenizer.ggml.eom_token_id", 7);
  g.string("tokenizer.chat_template", "D").string("tokenizer.chat_template.tool_use", "T").tensor("w", {8}, 0, 0);
  Result<Checkpoint> c = Checkpoint::open(folder.write("m.gguf", g.bytes(std::string(32, '\0'))));
  ASSERT_TRUE(c.ok()) << c.status().message();
  EXPECT_EQ(to_json(c->generation_config()), R"({"temperature":0.25,"top_k":50,"bos_token_id":1,"eos_token_id":[7,9]})");
  EXPECT_EQ(c->chat_template(), "D");
  EXPECT_EQ(c->chat_templates()[1].name, "tool_use");
  EXPECT_TRUE(c->has_gguf_metadata());
}

TEST(Checkpoint, split_sets_that_do_not_fit_together_are_refused) {
  TempFolder folder;
  const auto part = [](uint32_t no, const char* tensor) {
    GgufBytes g;
    g.string("general.architecture", "x").u32("split.no", no).u32("split.count", 2).u32("split.tensors.count", 2).tensor(tensor, {8}, 0, 0);
    return g.bytes(std::string(32, '\0'));
  };
  const std::string first = folder.write("m-00001-of-00002.gguf", part(0, "a"));
  EXPECT_SAYS(failure(first).message(), "part m-00002-of-00002.gguf is missing");
  folder.write("m-00002-of-00002.gguf", part(0, "b"));
  EXPECT_SAYS(failure(first).message(), "says that it is part 1 of 2");
  folder.write("m-00002-of-00002.gguf", part(1, "a"));
  EXPECT_SAYS(failure(first).message(), "tensor a is there twice");
  folder.write("m-00002-of-00002.gguf", part(1, "b"));
  EXPECT_EQ(failure(first).message(), "");
  EXPECT_SAYS(failure(folder.write("renamed.gguf", part(0, "a"))).message(), "one of 2 parts");
}

TEST(Checkpoint, a_tokenizer_alone_is_enough_when_only_it_is_asked_for) {
  TempFolder folder;
  folder.write("tokenizer.json", "{}");
  EXPECT_SAYS(failure(folder.path()).message(), "no weights found");
  Result<Checkpoint> c = Checkpoint::open_tokenizer_only(folder.path());
  ASSERT_TRUE(c.ok()) << c.status().message();
  EXPECT_EQ(c->kind(), CheckpointKind::tokenizer_only);
  TempFolder empty;
  EXPECT_SAYS(Checkpoint::open_tokenizer_only(empty.path()).status().message(), "no tokenizer found");
  EXPECT_TRUE(Checkpoint::open_tokenizer_only(kModels + "lfm2-gguf-f16.gguf").ok());
  const std::string vocabulary = folder.write("v.gguf", GgufBytes().string("general.architecture", "x").string("tokenizer.ggml.model", "gpt2").bytes());
  EXPECT_SAYS(failure(vocabulary).message(), "no weights found");
  EXPECT_TRUE(Checkpoint::open_tokenizer_only(vocabulary).ok());
}

TEST(Checkpoint, affine_settings_come_from_the_config_with_overrides) {
  using Bytes = std::vector<std::byte>;
  const auto form = [](const char* config) -> std::string {
    CheckpointParts parts;
    parts.config = parse_json(config).value();
    const auto add = [&](const char* name, StorageType type, std::vector<uint64_t> shape) {
      parts.buffers.push_back(std::make_unique<Bytes>(tensor_bytes(type, shape).value()));
      parts.tensors.push_back({name, type, std::move(shape), *parts.buffers.back()});
    };
    add("language_model.m.weight", StorageType::u32, {2, 24});
    add("language_model.m.scales", StorageType::bf16, {2, 2});
    add("language_model.m.biases", StorageType::bf16, {2, 2});
    const Checkpoint c = Checkpoint::make(std::move(parts)).value();
    Result<std::pair<uint64_t, uint64_t>> shape = c.matrix_shape("m.weight");
    if (!shape.ok()) return shape.status().message();
    Result<SourceMatrix> m = c.matrix("m.weight", shape->first, shape->second);
    return m.ok() ? m->form().text() : m.status().message();
  };
  const std::string six = "6 bits, groups of 64, offset, bf16 scales (affine)";
  EXPECT_EQ(form(R"({"quantization":{"bits":6,"group_size":64}})"), six);
  EXPECT_EQ(form(R"({"quantization_config":{"bits":6,"group_size":64,"mode":"affine"}})"), six);
  EXPECT_EQ(form(R"({"quantization":{"bits":4,"group_size":64,"m":{"bits":6}}})"), six);
  EXPECT_EQ(form(R"({"quantization":{"bits":4,"group_size":32,"language_model.m":{"bits":6,"group_size":64}}})"), six);
  EXPECT_SAYS(form(R"({"quantization":{"bits":6,"group_size":64,"m":false}})"), "m is false, and tensor m.scales is there");
  EXPECT_SAYS(form(R"({"quantization":{"bits":4,"group_size":32,"mode":"mxfp4"}})"), "mode mxfp4 (module m) is not read");
  EXPECT_SAYS(form(R"({"quantization":{"bits":6,"group_size":64,"m":{"mode":"nvfp4"}}})"), "mode nvfp4");
  EXPECT_SAYS(form(R"({"quantization":{"group_size":64}})"), "bits: expected an integer from 2 to 8");
  EXPECT_SAYS(form(R"({"quantization":{"bits":5,"group_size":64}})"), "no whole number of 5-bit codes");
  EXPECT_SAYS(form("{}"), "config.json has no quantization");
}

TEST(Checkpoint, names_that_collide_without_their_prefix_are_refused) {
  SmallModel folder;
  folder.write("model.safetensors", test::safetensors(
      R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"language_model.a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", "xy"));
  EXPECT_SAYS(failure(folder.path()).message(), "tensor a is there twice");
}

// ---- identity ----

TEST(Identity, changes_with_size_time_and_header_only) {
  SmallModel folder;
  const auto identity = [&] { return to_json(source_identity(Checkpoint::open(folder.path()).value())); };
  const std::string before = identity();
  EXPECT_SAYS(before, "\"name\":\"model.safetensors\"");
  EXPECT_SAYS(before, "\"name\":\"config.json\"");
  EXPECT_EQ(identity(), before);
  const struct timespec times[2] = {{1000, 5}, {1000, 7}};
  ASSERT_EQ(::utimensat(AT_FDCWD, (folder / "model.safetensors").c_str(), times, 0), 0);
  const std::string touched = identity();
  EXPECT_SAYS(touched, "\"mtime_ns\":1000000000007");
  folder.write("model.safetensors", small_safetensors(4, "v"));
  ASSERT_EQ(::utimensat(AT_FDCWD, (folder / "model.safetensors").c_str(), times, 0), 0);
  EXPECT_NE(identity(), touched);
}

TEST(Identity, contents_are_hashed_whole) {
  SmallModel folder;
  const std::string bytes = small_safetensors();
  EXPECT_SAYS(to_json(content_hashes(Checkpoint::open(folder.path()).value())), sha256_hex(test::bytes_of(bytes)));
  EXPECT_EQ(sha256_hex(test::bytes_of("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex({}), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

// ---- packed folders ----

TEST(Checkpoint, a_packed_folder_is_a_model) {
  TempFolder folder;
  folder.write("config.json", kConfig);
  {
    ContainerWriter w =
        ContainerWriter::create(FileLock::acquire(folder / "model.espalier").value(), {{"w", StorageType::u8, {5}}}, 100).value();
    ASSERT_TRUE(w.append(test::bytes_of("hello")).ok());
    ASSERT_TRUE(w.finish({{"espalier.format", "1"}}).ok());
  }
  Result<Checkpoint> c = Checkpoint::open(folder.path());
  ASSERT_TRUE(c.ok()) << c.status().message();
  EXPECT_EQ(c->kind(), CheckpointKind::packed);
  ASSERT_EQ(c->tensors().size(), 1u);
  EXPECT_EQ(c->container_metadata()[0].second, "1");
  EXPECT_EQ(std::memcmp(c->find("w")->data.data(), "hello", 5), 0);
  folder.write("model.safetensors", small_safetensors());
  EXPECT_SAYS(failure(folder.path()).message(), "holds both");
}

}  // namespace
}  // namespace espalier
