#include "weights/config_reader.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace espalier {
namespace {

Value json(const char* text) { return parse_json(text).value(); }

TEST(ConfigReader, reads_typed_values_and_remembers_them) {
  const Value config = json(R"({"hidden_size":64,"eps":1e-5,"tie":true,"act":"silu","layers":[1,0,2],"kinds":["a","b"],
                                "float_int":32.0,"nothing":null,"extra":1,"auto_map":{"x":"y"}})");
  ConfigReader r(config, "config.json");
  EXPECT_EQ(*r.required_int("hidden_size", 1, 1 << 20), 64);
  EXPECT_EQ(*r.required_int("float_int", 1, 64), 32);
  EXPECT_EQ(*r.required_number("eps", 0, 1), 1e-5);
  EXPECT_EQ(*r.required_number("hidden_size", 0, 100), 64.0);
  EXPECT_EQ(*r.required_bool("tie"), true);
  EXPECT_EQ(*r.required_string("act"), "silu");
  EXPECT_EQ(*r.required_ints("layers", 3, 0, 9), (std::vector<int64_t>{1, 0, 2}));
  EXPECT_EQ(*r.required_ints("hidden_size", 2, 0, 99, true), (std::vector<int64_t>{64, 64}));
  EXPECT_EQ(**r.optional_strings("kinds", 0), (std::vector<std::string>{"a", "b"}));
  EXPECT_FALSE(r.optional_int("absent", 0, 1)->has_value());
  EXPECT_FALSE(r.optional_bool("nothing")->has_value());
  EXPECT_EQ(r.unread(), (std::vector<std::string>{"extra", "auto_map"}));
  const char* const ignored[] = {"auto*"};
  r.ignore(ignored);
  EXPECT_EQ(r.unread(), (std::vector<std::string>{"extra"}));
}

TEST(ConfigReader, errors_name_file_key_range_and_value) {
  const Value config = json(R"({"h":0,"s":"x","f":1.5,"b":1,"l":[1,"z"],"big":1e300,"o":3})");
  ConfigReader r(config, "config.json");
  EXPECT_EQ(r.required_int("h", 1, 8).status().message(), "config.json: h: expected an integer from 1 to 8, found 0");
  EXPECT_EQ(r.required_int("s", 1, 8).status().message(), "config.json: s: expected an integer from 1 to 8, found the string \"x\"");
  EXPECT_EQ(r.required_int("f", 1, 8).status().message(), "config.json: f: expected an integer from 1 to 8, found 1.5");
  EXPECT_EQ(r.required_int("m", 1, 8).status().message(), "config.json: m: expected an integer from 1 to 8, and it is missing");
  EXPECT_EQ(r.required_int("big", 1, 8).status().field(), "big");
  EXPECT_EQ(r.required_bool("b").status().message(), "config.json: b: expected true or false, found 1");
  EXPECT_EQ(r.required_ints("l", 2, 0, 9).status().message(),
            "config.json: l: expected a list of 2 of integers from 0 to 9, found the string \"z\" at index 1");
  EXPECT_FALSE(r.required_ints("l", 3, 0, 9).ok());
  EXPECT_FALSE(r.optional_object("o").ok());
  EXPECT_FALSE(r.required_number("s", 0, 1).ok());
}

TEST(ConfigReader, a_prefix_reads_one_family_of_keys_and_lists_only_those) {
  const Value metadata = json(R"({"general.name":"x","arch.block_count":2,"arch.new_thing":1})");
  ConfigReader r(metadata, "m.gguf", "arch.");
  EXPECT_EQ(*r.required_int("block_count", 1, 10), 2);
  EXPECT_EQ(r.unread(), (std::vector<std::string>{"arch.new_thing"}));
  EXPECT_EQ(r.required_int("head", 1, 10).status().field(), "arch.head");
}

TEST(ConfigReader, keys_that_change_the_maths_are_refused_unless_harmless) {
  const RefusedKey table[] = {{"sliding_window", Value(), "sliding-window attention is not implemented"},
                              {"*softcap*", Value(), "soft-capping is not implemented"},
                              {"partial_rotary_factor", Value(1.0), "partial rotary embedding is not implemented"},
                              {"use_sliding_window", Value(false), "sliding-window attention is not implemented"}};
  const auto check = [&](const char* text) {
    const Value config = json(text);
    ConfigReader r(config, "config.json");
    Status status = r.refuse_if_present(table);
    if (status.ok()) {
      EXPECT_TRUE(r.unread().empty());
    }
    return status.message();
  };
  EXPECT_EQ(check(R"({"sliding_window":null,"partial_rotary_factor":1,"use_sliding_window":false})"), "");
  EXPECT_EQ(check(R"({"sliding_window":4096})"), "config.json: sliding_window is 4096: sliding-window attention is not implemented");
  EXPECT_EQ(check(R"({"attn_logit_softcapping":50.0})"), "config.json: attn_logit_softcapping is 50: soft-capping is not implemented");
  EXPECT_NE(check(R"({"partial_rotary_factor":0.5})"), "");
  EXPECT_NE(check(R"({"use_sliding_window":true})"), "");
}

TEST(ConfigReader, nested_objects_and_spellings) {
  const Value config = json(R"({"rope_parameters":{"rope_theta":1e6,"rope_type":"default"},"theta":5})");
  ConfigReader r(config, "config.json");
  EXPECT_EQ(r.first_of({"rope_theta", "theta"}), "theta");
  EXPECT_EQ(r.first_of({"a", "b"}), "a");
  Result<std::optional<ConfigReader>> rope = r.optional_object("rope_parameters");
  ASSERT_TRUE(rope.ok() && rope->has_value());
  EXPECT_EQ(*(*rope)->required_number("rope_theta", 1, 1e9), 1e6);
  EXPECT_EQ((*rope)->unread(), (std::vector<std::string>{"rope_type"}));
  EXPECT_EQ((*rope)->required_int("x", 0, 1).status().message(),
            "config.json: rope_parameters: x: expected an integer from 0 to 1, and it is missing");
}

TEST(ConfigReader, anything_but_an_object_reads_as_an_empty_one) {
  const Value list = Value::array();
  ConfigReader r(list, "config.json");
  EXPECT_FALSE(r.required_int("a", 0, 1).ok());
  EXPECT_TRUE(r.unread().empty());
}

}  // namespace
}  // namespace espalier
