#include <gtest/gtest.h>

#include <sys/resource.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "../../tests/foundation/tiny_models.h"
#include "convert/convert.h"
#include "convert/inspect.h"
#include "units/cpu/cpu_unit.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;
using test::TinyModel;

class Convert : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "espalier-convert-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    setenv("ESPALIER_CACHE", (folder_ / "cache").c_str(), 1);
  }
  void TearDown() override {
    unsetenv("ESPALIER_CACHE");
    std::error_code error;
    fs::permissions(folder_ / "cache", fs::perms::owner_all, error);
    fs::remove_all(folder_, error);
  }
  Result<PackedModel> packed(const TinyModel& tiny, WeightsForm form = WeightsForm::automatic) {
    return packed_model(*tiny.checkpoint, tiny.plan, form, team_, {});
  }
  std::vector<float> logits(const TinyModel& tiny, PackedWeights weights) {
    std::unique_ptr<CpuUnit> unit = std::move(CpuUnit::make({1, KvType::f16, {}})).value();
    std::unique_ptr<Model> model = std::move(unit->compile_packed(tiny.plan.program, std::move(weights))).value();
    std::unique_ptr<State> state = std::move(model->make_state()).value();
    return test::run_chain(*model, *state, test::random_tokens(1, 12, tiny.plan.program.vocabulary));
  }
  // A copy of a fixture's folder that a test may change.
  TinyModel copied(const std::string& name) {
    const TinyModel original = test::load_tiny(name);
    fs::copy(original.path, folder_ / name, fs::copy_options::recursive);
    return reopened(name);
  }
  TinyModel reopened(const std::string& name) {
    TinyModel out;
    out.checkpoint = std::make_unique<Checkpoint>(std::move(Checkpoint::open((folder_ / name).string())).value());
    out.plan = std::move(plan_model(*out.checkpoint)).value();
    return out;
  }
  std::vector<fs::path> cache_files() {
    std::vector<fs::path> out;
    std::error_code error;
    for (const auto& f : fs::directory_iterator(folder_ / "cache" / "weights", error)) out.push_back(f.path());
    return out;
  }

  fs::path folder_;
  ThreadTeam team_{2};
};

TEST_F(Convert, the_second_start_takes_what_the_first_one_made_with_the_same_bits) {
  for (const std::string& name : test::all_tiny_models()) {
    const TinyModel tiny = test::load_tiny(name);
    Result<PackedModel> first = packed(tiny), second = packed(tiny);
    ASSERT_TRUE(first.ok()) << name << ": " << first.status().message();
    ASSERT_TRUE(second.ok()) << second.status().message();
    EXPECT_FALSE(first->from_cache) << name;
    EXPECT_TRUE(second->from_cache) << name;
    Result<PackedModel> memory = packed_model(*tiny.checkpoint, tiny.plan, WeightsForm::automatic, team_, {}, false);
    EXPECT_EQ(logits(tiny, second->weights), logits(tiny, memory->weights)) << name;
  }
}

TEST_F(Convert, a_converted_folder_is_a_model_with_the_same_bits) {
  for (const std::string& name : test::all_tiny_models()) {
    const TinyModel tiny = test::load_tiny(name);
    const std::string out = (folder_ / ("out-" + name)).string();
    Status s = convert_model(*tiny.checkpoint, tiny.plan, WeightsForm::automatic, out, team_, {});
    ASSERT_TRUE(s.ok()) << name << ": " << s.message();
    const TinyModel again = reopened("out-" + name);
    EXPECT_EQ(program_hash(again.plan.program), program_hash(tiny.plan.program)) << name;
    EXPECT_EQ(again.plan.context_length, tiny.plan.context_length);
    Result<PackedModel> model = packed(again);
    ASSERT_TRUE(model.ok()) << name << ": " << model.status().message();
    EXPECT_EQ(logits(again, model->weights), logits(tiny, packed(tiny)->weights)) << name;
    EXPECT_TRUE(float_weights(again.plan, *again.checkpoint).ok());
    Result<std::vector<std::string>> verified = verify_converted(*again.checkpoint);
    EXPECT_TRUE(verified.ok()) << verified.status().message();
  }
}

TEST_F(Convert, a_folder_that_exists_is_never_written_into) {
  const TinyModel tiny = test::load_tiny("lfm2-f32");
  fs::create_directories(folder_ / "out");
  std::ofstream(folder_ / "out" / "mine.txt") << "x";
  EXPECT_FALSE(convert_model(*tiny.checkpoint, tiny.plan, WeightsForm::int8, (folder_ / "out").string(), team_, {}).ok());
  EXPECT_TRUE(fs::exists(folder_ / "out" / "mine.txt"));
}

TEST_F(Convert, a_name_that_cannot_be_made_is_refused_before_any_work) {
  const TinyModel tiny = test::load_tiny("lfm2-f32");
  const auto refused = [&](const std::string& out) {
    return convert_model(*tiny.checkpoint, tiny.plan, WeightsForm::int8, out, team_, [](uint64_t, uint64_t) {
      ADD_FAILURE() << "it packs already";
      return true;
    }).message();
  };
  EXPECT_EQ(refused(""), "the name of the new folder is empty");
  std::ofstream(folder_ / "file") << "x";
  EXPECT_NE(refused((folder_ / "file" / "out").string()).find("file/out: the folder cannot be made: "), std::string::npos);
}

TEST_F(Convert, a_cancelled_conversion_leaves_nothing) {
  const TinyModel tiny = test::load_tiny("lfm2-f32");
  const std::string out = (folder_ / "out").string();
  EXPECT_EQ(convert_model(*tiny.checkpoint, tiny.plan, WeightsForm::int8, out, team_, [](uint64_t, uint64_t) { return false; }).code(), Code::cancelled);
  EXPECT_TRUE(fs::is_empty(folder_));
  EXPECT_EQ(packed_model(*tiny.checkpoint, tiny.plan, WeightsForm::int8, team_, [](uint64_t, uint64_t) { return false; }).status().code(), Code::cancelled);
  EXPECT_TRUE(cache_files().empty());
}

TEST_F(Convert, a_changed_model_replaces_its_artifact) {
  TinyModel tiny = copied("lfm2-f32");
  ASSERT_TRUE(packed(tiny).ok());
  ASSERT_TRUE(packed(tiny)->from_cache);
  fs::last_write_time(folder_ / "lfm2-f32" / "model.safetensors", fs::file_time_type::clock::now() + std::chrono::seconds(5));
  tiny = reopened("lfm2-f32");
  Result<PackedModel> again = packed(tiny);
  ASSERT_TRUE(again.ok());
  EXPECT_FALSE(again->from_cache);
  ASSERT_EQ(again->notices.size(), 1u);
  EXPECT_NE(again->notices[0].find("changed"), std::string::npos) << again->notices[0];
  EXPECT_EQ(cache_files().size(), 1u) << "it replaces the old one";
}

TEST_F(Convert, a_damaged_artifact_is_made_again_wherever_the_damage_is) {
  const TinyModel tiny = test::load_tiny("lfm2-gguf-q4_0");
  const std::vector<float> expected = logits(tiny, packed(tiny)->weights);
  const fs::path file = cache_files()[0];
  const uint64_t size = fs::file_size(file);
  for (const uint64_t at : {uint64_t{0}, uint64_t{9}, uint64_t{900}, size / 2, size - 300, size - 1}) {
    std::fstream f(file, std::ios::in | std::ios::out | std::ios::binary);
    f.seekg(static_cast<std::streamoff>(at));
    const char c = static_cast<char>(f.get() ^ 0x10);
    f.seekp(static_cast<std::streamoff>(at));
    f.put(c);
    f.close();
    Result<PackedModel> again = packed(tiny);
    ASSERT_TRUE(again.ok()) << again.status().message();
    EXPECT_FALSE(again->from_cache) << "byte " << at << " of " << size;
    EXPECT_EQ(logits(tiny, again->weights), expected);
    EXPECT_TRUE(packed(tiny)->from_cache);
  }
  fs::resize_file(file, size / 3);
  EXPECT_FALSE(packed(tiny)->from_cache) << "cut short";
}

TEST_F(Convert, a_full_disk_leaves_no_half_file_and_runs_from_memory) {
  const TinyModel tiny = test::load_tiny("lfm2-f32");
  const std::vector<float> expected = logits(tiny, packed_model(*tiny.checkpoint, tiny.plan, WeightsForm::automatic, team_, {}, false)->weights);
  // RLIMIT_FSIZE makes writes fail as a full disk does.
  struct rlimit before, small;
  getrlimit(RLIMIT_FSIZE, &before);
  small = before;
  small.rlim_cur = 20000;
  std::signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  Result<PackedModel> model = packed(tiny);
  setrlimit(RLIMIT_FSIZE, &before);
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_FALSE(model->from_cache);
  ASSERT_EQ(model->notices.size(), 1u);
  EXPECT_NE(model->notices[0].find("memory"), std::string::npos);
  EXPECT_EQ(logits(tiny, model->weights), expected);
  for (const fs::path& f : cache_files()) EXPECT_TRUE(f.string().ends_with(".lock")) << f;
}

TEST_F(Convert, a_cache_that_cannot_be_made_is_a_notice) {
  std::ofstream(folder_ / "cache") << "a file where the folder should be";
  Result<PackedModel> model = packed(test::load_tiny("lfm2-f32"));
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(model->notices.size(), 1u);
  setenv("ESPALIER_CACHE", "relative/path", 1);
  model = packed(test::load_tiny("lfm2-f32"));
  ASSERT_TRUE(model.ok());
  EXPECT_NE(model->notices[0].find("absolute"), std::string::npos);
  fs::remove(folder_ / "cache");
}

TEST_F(Convert, forms_live_side_by_side_and_the_cache_lists_and_clears_them) {
  const TinyModel tiny = test::load_tiny("lfm2-f32");
  ASSERT_TRUE(packed(tiny, WeightsForm::int8).ok());
  ASSERT_TRUE(packed(tiny, WeightsForm::int4).ok());
  Result<std::vector<CacheEntry>> all = list_cache();
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(all->size(), 2u);
  EXPECT_NE((*all)[0].source.find("lfm2-f32"), std::string::npos);
  EXPECT_TRUE(packed(tiny, WeightsForm::int8)->from_cache);
  EXPECT_TRUE(packed(tiny, WeightsForm::int4)->from_cache);
  Result<std::vector<CacheEntry>> gone = clear_cache();
  ASSERT_TRUE(gone.ok()) << gone.status().message();
  EXPECT_EQ(gone->size(), 2u);
  EXPECT_TRUE(list_cache()->empty());
}

TEST_F(Convert, inspect_tells_the_form_of_every_tensor_before_and_after) {
  const TinyModel tiny = test::load_tiny("lfm2-gguf-k");  // Q4_K and Q5_K are kept, Q6_K is not
  Result<Value> before = inspect_model(*tiny.checkpoint, tiny.plan, WeightsForm::automatic);
  ASSERT_TRUE(before.ok()) << before.status().message();
  ASSERT_EQ(before->find("tensors")->as_array().size(), tiny.plan.program.weights.size());
  const std::string text = inspect_text(*before);
  EXPECT_NE(text.find("q4_k"), std::string::npos) << text;
  EXPECT_NE(text.find("q6_k"), std::string::npos);
  ASSERT_TRUE(convert_model(*tiny.checkpoint, tiny.plan, WeightsForm::automatic, (folder_ / "out").string(), team_, {}).ok());
  const TinyModel again = reopened("out");
  Result<Value> after = inspect_model(*again.checkpoint, again.plan, WeightsForm::automatic);
  ASSERT_TRUE(after.ok()) << after.status().message();
  int with_error = 0;
  for (size_t i = 0; i < tiny.plan.program.weights.size(); ++i) {
    EXPECT_EQ(*before->find("tensors")->as_array()[i].find("packed"), *after->find("tensors")->as_array()[i].find("packed"));
    with_error += after->find("tensors")->as_array()[i].find("error")->is_double();
  }
  EXPECT_GT(with_error, 0) << "what was requantised states its error";
  EXPECT_EQ(*before->find("packed_bytes"), *after->find("packed_bytes"));
}

TEST_F(Convert, a_converted_folder_refuses_another_form_by_name) {
  const TinyModel tiny = test::load_tiny("lfm2-f32");
  ASSERT_TRUE(convert_model(*tiny.checkpoint, tiny.plan, WeightsForm::int8, (folder_ / "out").string(), team_, {}).ok());
  const TinyModel again = reopened("out");
  Result<PackedModel> model = packed(again, WeightsForm::int4);
  ASSERT_FALSE(model.ok());
  EXPECT_NE(model.status().message().find("convert the original again"), std::string::npos);
}

}  // namespace
}  // namespace espalier
