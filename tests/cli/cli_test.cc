// Runs the program and looks at exit code, stdout and stderr.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/json.h"
#include "run_program.h"

namespace espalier::test {
namespace {

TEST(Cli, help_and_version_go_to_stdout) {
  const Ran version = run({"--version"});
  EXPECT_EQ(version.code, 0);
  EXPECT_EQ(version.out, "espalier 0.1.0\n");
  EXPECT_TRUE(has(run({"--help"}).out, "usage: espalier"));
  const Ran help = run({"run", "--help"});
  EXPECT_EQ(help.code, 0);
  for (const char* word : {"--temperature X", "--top-k K", "--min-p", "--logit-bias ID:X", "--unit NAME", "--messages FILE"})
    EXPECT_TRUE(has(help.out, word)) << word;
}

TEST(Cli, wrong_usage_exits_2_and_names_the_nearest) {
  const auto says = [](std::vector<std::string> words, const std::string& part) {
    const Ran ran = run(words);
    EXPECT_EQ(ran.code, 2) << ran.err;
    EXPECT_TRUE(ran.err.starts_with("espalier: ")) << ran.err;
    EXPECT_TRUE(has(ran.err, part)) << ran.err;
    EXPECT_EQ(ran.out, "");
  };
  says({"rnu"}, "did you mean run?");
  says({"run", kModel, "--temprature", "0", "x"}, "did you mean --temperature?");
  says({"run", kModel, "--max_tokens=4", "x"}, "did you mean --max-tokens?");
  says({"run", kModel, "x", "--rows", "1"}, "bench has");
  says({"run", kModel, "x", "--temperature", "hot"}, "--temperature: expected a number, found \"hot\"");
  says({"run", kModel, "x", "--top-k", "1.5"}, "expected a whole number");
  says({"run", kModel, "x", "--logit-bias", "5"}, "ID:X");
  says({"run", kModel, "x", "--seed", "1", "--seed", "2"}, "given twice");
  says({"run", kModel, "x", "y"}, "one too many");
  says({"run", kModel, "x", "--special"}, "--special needs --raw");
  says({"run", kModel, "x", "--messages", "f"}, "cannot be given together");
  says({"convert", kModel}, "too few");
  says({"cache", "burn"}, "list | clear");
  EXPECT_EQ(run({}).code, 2);
}

TEST(Cli, refused_input_exits_1_with_a_sentence_and_with_json_an_object) {
  const auto field = [](std::vector<std::string> words, const std::string& input = {}) {
    words.push_back("--json");
    const Ran ran = run(words, input);
    EXPECT_EQ(ran.code, 1) << ran.err;
    EXPECT_TRUE(ran.err.starts_with("espalier: ")) << ran.err;
    const Value v = json(ran);
    const Value* error = v.find("error");
    if (error == nullptr) return std::string("no error object");
    EXPECT_EQ(error->as_object().size(), 2u);
    EXPECT_TRUE(has(ran.err, error->find("message")->as_string()));
    return error->find("field")->is_null() ? std::string() : error->find("field")->as_string();
  };
  EXPECT_EQ(field({"run", kModel, "x", "--quiet", "--temperature", "-1"}), "temperature");
  EXPECT_EQ(field({"run", kModel, "x", "--quiet", "--top-p", "0"}), "top_p");
  EXPECT_EQ(field({"run", kModel, "x", "--quiet", "--max-tokens", "0"}), "max_tokens");
  EXPECT_EQ(field({"run", kModel, "x", "--quiet", "--logit-bias", "99999:1"}), "logit_bias");
  EXPECT_EQ(field({"run", kModel, "x", "--quiet", "--stop", ""}), "stop");
  EXPECT_EQ(field({"run", kModel, "x", "--quiet", "--logprobs", "101"}), "logprobs");
  EXPECT_EQ(field({"run", kModel, "x", "--quiet", "--unit", "abacus"}), "unit");
  EXPECT_EQ(field({"run", kModel, "x", "--quiet", "--kv", "fp8"}), "kv");
  EXPECT_EQ(field({"run", kModel, "x", "--quiet", "--unit", "static", "--buckets", "96,64"}), "buckets");
  EXPECT_EQ(field({"run", kModel, "x", "--quiet", "--weights", "int2"}), "weights");
  EXPECT_EQ(field({"run", kModel, "x", "--quiet", "--speculate", "chain:0"}), "speculate");
  EXPECT_EQ(field({"run", kModel, "x", "--quiet", "--drafter", "./no/such/drafter"}), "drafter");
  EXPECT_EQ(field({"run", kModel, "--quiet", "--jsonl", "-", "--sequences", "0"}), "sequences");
  EXPECT_EQ(field({"run", kModel, "x", "--quiet", "--context", "4000000"}), "context");
  EXPECT_EQ(field({"run", kModel, "--quiet", "--messages", "-"}, "{\"messages\":7}"), "messages");
  EXPECT_EQ(field({"run", kModel, "--quiet", "--messages", "-"}, "{"), "messages");
  EXPECT_EQ(field({"run", "./no/such/model", "x"}), "");
  EXPECT_EQ(field({"score", kModel, "--quiet"}, ""), "text");
  EXPECT_EQ(field({"render", kModel}, "[]"), "messages");
}

TEST(Cli, run_streams_what_json_says) {
  const std::vector<std::string> words = {"run", kModel, "hello", "--raw", "--temperature", "0", "--max-tokens", "20", "--quiet"};
  const Ran plain = run(words);
  EXPECT_EQ(plain.code, 0);
  EXPECT_EQ(plain.err, "");
  auto with_json = words;
  with_json.push_back("--json");
  const Value v = json(run(with_json));
  EXPECT_EQ(plain.out, v.find("text")->as_string() + "\n");
  EXPECT_EQ(v.find("token_ids")->as_array().size(), 20u);
  EXPECT_EQ(v.find("finish_reason")->as_string(), "length");
  EXPECT_EQ(v.find("unit")->as_string(), "cpu");
  auto from_stdin = words;
  from_stdin[2] = "-";
  EXPECT_EQ(run(from_stdin, "hello").out, plain.out);
}

TEST(Cli, every_option_of_run_reaches_the_engine) {
  const Ran ran = run({"run", kModel, "hello", "--system", "be kind", "--temperature", "0.8", "--top-k", "40", "--top-p", "0.9", "--min-p", "0.01",
                       "--repetition-penalty", "1.1", "--presence-penalty", "0.2", "--frequency-penalty=-0.1", "--logit-bias", "5:-3", "--logit-bias",
                       "6:2.5", "--max-tokens", "9", "--stop", "zz", "--stop", "yy", "--seed", "11", "--logprobs", "2", "--context", "128", "--weights",
                       "int4", "--kv", "int8", "--unit", "cpu", "--threads", "1", "--speculate", "tree:12", "--stats", "--no-cache", "--json"});
  ASSERT_EQ(ran.code, 0) << ran.err;
  const Value v = json(ran);
  EXPECT_EQ(v.find("seed")->as_int(), 11);
  EXPECT_EQ(v.find("kv")->as_string(), "int8");
  EXPECT_TRUE(has(v.find("weights")->as_string(), "int4"));
  EXPECT_EQ(v.find("logprobs")->as_array().at(0).find("top")->as_array().size(), 2u);
  EXPECT_EQ(v.find_path("speculation.mode")->as_string(), "tree:12");
  EXPECT_TRUE(has(ran.err, "prefill"));
  EXPECT_TRUE(has(ran.err, "tree:12: 8 cycles"));
  const Value again = json(run({"run", kModel, "hello", "--raw", "--temperature", "0", "--max-tokens", "3", "--logit-bias", "70:100", "--quiet", "--json"}));
  for (const Value& id : again.find("token_ids")->as_array()) EXPECT_EQ(id.as_int(), 70);
}

TEST(Cli, tools_come_as_an_array_or_in_a_body_to_run_and_to_chat) {
  const std::string array = R"([{"type":"function","function":{"name":"ping"}}])", model = temporary_folder() + "/tools";
  std::filesystem::copy(kModel, model, std::filesystem::copy_options::recursive);
  std::ofstream(model + "/chat_template.jinja") << "{{ tools | tojson }}{% for m in messages %}{{ m.content }}{% endfor %}";
  const std::string alone = write_file("tools.json", array), body = write_file("tools-body.json", "{\"tools\":" + array + "}");
  const std::vector<std::string> options = {"--temperature", "0", "--max-tokens", "3", "--quiet", "--tools"};
  const auto with = [&](std::vector<std::string> words, const std::string& file) {
    words.insert(words.end(), options.begin(), options.end());
    words.push_back(file);
    return run(words, "hi\n");
  };
  for (const std::vector<std::string>& words : {std::vector<std::string>{"run", model, "hi"}, {"chat", model}}) {
    const Ran a = with(words, alone), b = with(words, body);
    EXPECT_EQ(a.code, 0) << a.err;
    EXPECT_EQ(b.code, 0) << b.err;
    EXPECT_EQ(a.out, b.out);
    EXPECT_EQ(with(words, write_file("no-tools.json", "5")).code, 1);
  }
}

TEST(Cli, messages_and_jsonl_answer_openai_bodies) {
  const std::string body = R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":4,"temperature":0})";
  const Value one = json(run({"run", kModel, "--messages", write_file("body.json", body), "--quiet", "--json"}));
  EXPECT_EQ(one.find("token_ids")->as_array().size(), 4u);
  const Value fewer = json(run({"run", kModel, "--messages", "-", "--max-tokens", "2", "--quiet", "--json"}, body));
  EXPECT_EQ(fewer.find("token_ids")->as_array().size(), 2u);
  const Ran lines = run({"run", kModel, "--jsonl", "-", "--quiet"}, body + "\n\n[]\n" + body + "\n");
  EXPECT_EQ(lines.code, 1);
  std::vector<Value> results;
  std::istringstream text(lines.out);
  for (std::string line; std::getline(text, line);) results.push_back(*parse_json(line));
  ASSERT_EQ(results.size(), 3u);
  EXPECT_EQ(*results[0].find("token_ids"), *one.find("token_ids"));
  EXPECT_EQ(results[1].find("error")->find("field")->as_string(), "messages");
  EXPECT_EQ(*results[2].find("token_ids"), *one.find("token_ids"));
  EXPECT_TRUE(has(lines.err, "line 3"));
}

TEST(Cli, L49_a_prompt_over_the_context_is_an_error_with_both_numbers) {
  const Ran ran = run({"run", kModel, std::string(3000, 'x'), "--raw", "--context", "100", "--quiet"});
  EXPECT_EQ(ran.code, 1);
  EXPECT_TRUE(has(ran.err, "3001 tokens") || has(ran.err, "3000 tokens")) << ran.err;
  EXPECT_TRUE(has(ran.err, "100"));
}

TEST(Cli, L48_ten_megabytes_are_refused_or_answered_and_never_crash) {
  const std::string body = R"({"messages":[{"role":"user","content":")" + std::string(10'000'000, 'a') + "\"}]}";
  const Ran ran = run({"run", kModel, "--messages", "-", "--quiet", "--json"}, body);
  EXPECT_EQ(ran.code, 1);
  EXPECT_EQ(json(ran).find("error")->find("field")->as_string(), "messages");
}

TEST(Cli, ctrl_c_gives_the_partial_answer_and_130) {
  const Ran ran = run({"run", kModel, "hello", "--raw", "--temperature", "0", "--unit", "reference", "--max-tokens", "1000", "--quiet",
                       "--logit-bias", "70:100"}, {}, 5);
  EXPECT_EQ(ran.code, 130);
  EXPECT_GE(ran.out.size(), 5u);
  EXPECT_LT(ran.out.size(), 1000u);
}

TEST(Cli, ctrl_c_in_chat_stops_the_answer_and_not_the_program) {
  const Ran ran = run({"chat", kModel, "--temperature", "0", "--unit", "reference", "--max-tokens", "900", "--quiet", "--logit-bias", "70:100"},
                      "one\n/messages\n/exit\n", 5);
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_TRUE(has(ran.out, R"("role":"assistant")")) << ran.out;
  EXPECT_LT(ran.out.size(), 1500u);
}

TEST(Cli, score_gives_a_log_probability_for_every_token_but_the_first) {
  const Value v = json(run({"score", kModel, "--logprobs", "3", "--json", "--quiet"}, "hello world"));
  const auto& entries = v.find("logprobs")->as_array();
  EXPECT_EQ(entries.size() + 1, v.find("token_ids")->as_array().size());
  double sum = 0;
  for (const Value& e : entries) sum += e.find("logprob")->as_double();
  EXPECT_EQ(entries[0].find("top")->as_array().size(), 3u);
  const Ran text = run({"score", kModel, "--quiet"}, "hello world");
  ASSERT_TRUE(text.out.starts_with("perplexity ")) << text.out;
  const double expected = std::exp(-sum / static_cast<double>(entries.size()));
  EXPECT_NEAR(std::stod(text.out.substr(11)), expected, 1e-6 * expected + 1e-4) << text.out;  // JSON's numbers have fewer digits
}

TEST(Cli, tokenize_goes_there_and_back) {
  const std::string text = "Hello  world, caf\xc3\xa9 \xf0\x9f\x98\x8a\n";
  const Ran ids = run({"tokenize", kModel}, text);
  EXPECT_EQ(ids.code, 0);
  EXPECT_EQ(run({"tokenize", kModel, "--decode"}, ids.out).out, text);
  const Value v = json(run({"tokenize", kModel, "--json"}, text));
  EXPECT_EQ(json(run({"tokenize", kModel, "--decode", "--json"}, to_json(*v.find("token_ids")))).find("text")->as_string(), text);
  const Ran lines = run({"tokenize", kModel, "--jsonl"}, "\"a b\"\n\"\\u00e9\"\n");
  EXPECT_EQ(std::count(lines.out.begin(), lines.out.end(), '\n'), 2);
  EXPECT_EQ(run({"tokenize", kModel, "--jsonl", "--decode"}, lines.out).out, "\"a b\"\n\"\xc3\xa9\"\n");
  EXPECT_EQ(run({"tokenize", kModel}, "\xff\xfe").code, 1);
  EXPECT_EQ(run({"tokenize", kModel, "--decode"}, "1 x").code, 1);
}

TEST(Cli, special_reads_control_tokens_in_raw_text_only_when_asked) {
  const Value plain = json(run({"tokenize", kModel, "--json"}, "<|im_end|>"));
  const Value special = json(run({"tokenize", kModel, "--json", "--special"}, "<|im_end|>"));
  EXPECT_GT(plain.find("token_ids")->as_array().size(), 1u);
  EXPECT_EQ(special.find("token_ids")->as_array().size(), 1u);
}

TEST(Cli, render_prints_the_prompt) {
  const Ran ran = run({"render", kModel}, R"([{"role":"user","content":"hi"}])");
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_TRUE(has(ran.out, "hi"));
  EXPECT_EQ(json(run({"render", kModel, "--json"}, R"({"messages":[{"role":"user","content":"hi"}]})")).find("text")->as_string(), ran.out);
}

TEST(Cli, chat_through_a_pipe_answers_a_line_a_turn) {
  const Ran ran = run({"chat", kModel, "--temperature", "0", "--max-tokens", "3", "--stats"}, "one\ntwo\n/messages\n/exit\nthree\n");
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_TRUE(has(ran.out, R"([{"role":"user","content":"one"})")) << ran.out;
  EXPECT_FALSE(has(ran.out, "three"));
  EXPECT_TRUE(has(ran.err, " reused"));
  EXPECT_FALSE(has(ran.err.substr(ran.err.rfind("prefill")), " 0 reused")) << ran.err;
}

TEST(Cli, inspect_names_forms_and_prints_the_program) {
  const Value v = json(run({"inspect", kModel, "--json", "--verify"}));
  EXPECT_EQ(v.find("layers")->as_int() > 0, true);
  EXPECT_FALSE(v.find("tensors")->as_array().empty());
  EXPECT_FALSE(v.find("verified")->as_array().empty());
  EXPECT_TRUE(has(run({"inspect", kModel, "--program"}).out, "rms_norm"));
}

TEST(Cli, a_converted_folder_is_a_model_with_the_same_answers) {
  const std::string folder = temporary_folder() + "/converted";
  const Ran converted = run({"convert", kModel, folder, "--quiet"});
  ASSERT_EQ(converted.code, 0) << converted.err;
  const std::vector<std::string> rest = {"hello", "--temperature", "0", "--max-tokens", "16", "--quiet"};
  std::vector<std::string> a = {"run", kModel}, b = {"run", folder};
  a.insert(a.end(), rest.begin(), rest.end());
  b.insert(b.end(), rest.begin(), rest.end());
  EXPECT_EQ(run(a).out, run(b).out);
  EXPECT_EQ(run({"inspect", folder, "--verify"}).code, 0);
  EXPECT_EQ(run({"convert", kModel, folder}).code, 1);  // not over something that is there
}

TEST(Cli, fidelity_compares_and_its_exit_code_says_whether_enough_agrees) {
  const std::string lines = write_file("fidelity.jsonl", "{\"prompt_ids\":[5,6,7,8,9,10],\"ids\":[11,12,13,14,15,16,17,18,19,20]}\n");
  const std::vector<std::string> words = {"fidelity", kModel, "--against", kModel, "--text", lines, "--quiet"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), words.begin(), words.end());
    return run(more);
  };
  const Ran same = with({"--unit", "reference", "--fail-below", "100", "--json"});
  EXPECT_EQ(same.code, 0) << same.err;
  const Value v = json(same);
  EXPECT_EQ(v.find_path("assistant.positions")->as_int(), 10);
  EXPECT_EQ(v.find_path("all.positions")->as_int(), 15);
  EXPECT_EQ(v.find_path("assistant.agreement_percent")->as_double(), 100);
  EXPECT_EQ(v.find_path("reference.unit")->as_string(), "reference");
  const Ran coarse = with({"--unit", "static", "--buckets", "64", "--weights", "palette2", "--fail-below", "100"});
  EXPECT_EQ(coarse.code, 1);
  EXPECT_TRUE(has(coarse.out, "assistant")) << coarse.out;
  EXPECT_TRUE(has(coarse.err, "below 100")) << coarse.err;
  EXPECT_EQ(with({"--unit", "static", "--buckets", "64", "--activations", "int8"}).code, 0);
  EXPECT_EQ(run({"fidelity", kModel, "--text", lines}).code, 2);
  EXPECT_EQ(with({"--fail-below", "101"}).code, 1);
  EXPECT_EQ(with({"--positions", "0"}).code, 1);
  EXPECT_EQ(with({"--against-unit", "abacus"}).code, 1);
  EXPECT_EQ(with({"--activations", "int8"}).code, 1);  // the CPU unit has its own
}

TEST(Cli, a_folder_converted_for_npus_is_a_model_on_every_unit) {
  const std::string folder = temporary_folder() + "/npu", text = write_file("calibration.jsonl", "{\"prompt_ids\":[5,6,7,8,9,10,11,12]}\n");
  const Ran converted = run({"convert", kModel, folder, "--for", "npu", "--calibrate", text, "--quiet", "--json"});
  ASSERT_EQ(converted.code, 0) << converted.err;
  EXPECT_EQ(json(converted).find_path("report.positions")->as_int(), 8);
  EXPECT_FALSE(json(converted).find_path("report.layers")->as_array().empty());
  for (const char* unit : {"cpu", "reference", "static"}) EXPECT_EQ(run({"run", folder, "hello", "--max-tokens", "4", "--unit", unit, "--quiet"}).code, 0) << unit;
  EXPECT_EQ(run({"inspect", folder, "--verify"}).code, 0);
  EXPECT_TRUE(has(run({"inspect", folder}).out, "int8, one scale an output"));
  EXPECT_EQ(run({"convert", kModel, folder + "2", "--for", "gpu"}).code, 1);
  EXPECT_EQ(run({"convert", kModel, folder + "2", "--calibrate", text}).code, 2);
  EXPECT_EQ(run({"convert", kModel, folder + "2", "--for", "npu", "--weights", "int4"}).code, 1);
}

TEST(Cli, a_model_is_exported_for_apple_s_units) {
  const std::string folder = temporary_folder();
  const Ran ran = run({"export", kModel, folder + "/a.mlpackage", "--buckets", "64,128", "--json"});
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(json(ran).find("functions")->as_int(), 10);
  EXPECT_TRUE(std::filesystem::exists(folder + "/a.mlpackage/Data/com.apple.CoreML/weights/weight.bin"));
  EXPECT_EQ(run({"export", kModel, folder + "/b.coreai", "--weights", "fp16", "--kv-writes", "delta", "--quiet"}).code, 0);
  EXPECT_TRUE(std::filesystem::exists(folder + "/b.coreai/program.mlir"));
  EXPECT_TRUE(has(run({"export", kModel, folder + "/a.mlpackage"}).err, "exists"));
  EXPECT_TRUE(has(run({"export", kModel, folder + "/c.onnx"}).err, ".mlpackage"));
  EXPECT_TRUE(has(run({"export", kModel, folder + "/c.mlpackage", "--kv-writes", "append"}).err, "found \"append\""));
  EXPECT_TRUE(has(run({"export", kModel, folder + "/c.mlpackage", "--buckets", "32"}).err, "bucket 32"));
  EXPECT_FALSE(std::filesystem::exists(folder + "/c.mlpackage"));
}

TEST(Cli, the_cache_is_listed_and_cleared) {
  ASSERT_EQ(run({"run", kModel, "x", "--max-tokens", "1", "--quiet"}).code, 0);
  EXPECT_FALSE(json(run({"cache", "list", "--json"})).find("entries")->as_array().empty());
  EXPECT_EQ(run({"cache", "clear"}).code, 0);
  EXPECT_TRUE(json(run({"cache", "list", "--json"})).find("entries")->as_array().empty());
}

TEST(Cli, verify_finds_both_ways_equal) {
  for (const char* unit : {"cpu", "reference", "static"}) {
    const Ran ran = run({"verify", kModel, "--unit", unit, "--quiet", "--json"});
    EXPECT_EQ(ran.code, 0) << ran.err;
    EXPECT_TRUE(json(ran).find("equal")->as_bool());
    EXPECT_TRUE(json(ran).find("same_bits")->as_bool()) << unit;
  }
}

TEST(Cli, buckets_of_the_static_unit_end_its_context) {
  const Ran ran = run({"run", kModel, "hello", "--raw", "--unit", "static", "--buckets", "64,96", "--temperature", "0", "--logit-bias", "70:100", "--quiet", "--json"});
  ASSERT_EQ(ran.code, 0) << ran.err;
  const Value v = json(ran);
  EXPECT_EQ(v.find("prompt_token_ids")->as_array().size() + v.find("token_ids")->as_array().size(), 96u);
  EXPECT_EQ(v.find("unit")->as_string(), "static");
}

TEST(Cli, units_are_listed) {
  const Value v = json(run({"units", "--json"}));
  const Value::Array& units = v.find("units")->as_array();
  ASSERT_EQ(units.size(), 4u);
  // There, or why not and what to do.
  EXPECT_EQ(units[3].find("name")->as_string(), "static:coreai");
  EXPECT_EQ(units[3].find("available")->as_bool(), units[3].find("reason")->is_null());
  if (!units[3].find("available")->as_bool()) {
    EXPECT_TRUE(has(units[3].find("reason")->as_string(), "coreai-core"));
  }
  EXPECT_TRUE(has(run({"units"}).out, "reference"));
}

TEST(Cli, a_closed_pipe_ends_it_quietly) {
  const std::string command = std::string(ESPALIER_PROGRAM) + " run " + kModel +
                              " hello --raw --temperature 0 --max-tokens 900 --no-cache --quiet --logit-bias 70:100 2>&1 | head -c 1 >/dev/null; exit ${PIPESTATUS[0]}";
  const int status = std::system(("bash -c '" + command + "'").c_str());
  EXPECT_EQ(WEXITSTATUS(status), 141);
}

}  // namespace
}  // namespace espalier::test
