// The interpreter against jinja2: fixtures from tools/oracle/chat_render.py.
#include "text/template.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>

#include "base/json.h"

namespace espalier {
namespace {

std::string fixture(const std::string& name) {
  std::ifstream in(std::string(ESPALIER_SOURCE_DIR) + "/tests/fixtures/chat/" + name, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  EXPECT_FALSE(text.str().empty()) << name;
  return text.str();
}

std::vector<Value> lines(const std::string& name) {
  std::vector<Value> out;
  std::istringstream in(fixture(name));
  for (std::string line; std::getline(in, line);) {
    Result<Value> v = parse_json(line);
    EXPECT_TRUE(v.ok()) << (v.ok() ? "" : v.status().message());
    if (v.ok()) out.push_back(std::move(v).value());
  }
  return out;
}

std::string fnv(const std::string& text) {
  uint64_t h = 0xcbf29ce484222325;
  for (unsigned char c : text) h = (h ^ c) * 0x100000001b3;
  char buffer[20];
  std::snprintf(buffer, sizeof buffer, "%016llx", static_cast<unsigned long long>(h));
  return buffer;
}

constexpr CivilTime kNow = {2025, 3, 9, 14, 5, 7};

std::string outcome(const Result<MarkedText>& r) { return r.ok() ? r->text() : "error: " + r.status().message(); }

Result<MarkedText> render(const std::string& source, const Value& kwargs = {}) {
  Result<ChatTemplate> t = ChatTemplate::parse(source);
  if (!t.ok()) return t.status();
  ChatInput in;
  in.kwargs = kwargs;
  in.now = kNow;
  return t->render(in);
}

// What the two differ in on purpose: texts of functions and of jinja2's own objects (here an error), what this
// interpreter leaves out, and a slice of a constant that jinja2 folds with other rules than it runs.
bool known_difference(const std::string& source) {
  static constexpr const char* kKnown[] = {
      "{{ d.items }}",       "{{ d['items'] }}", "{{ s.upper }}",  "{{ d|attr('keys') }}", "{{ s|attr('upper') }}",
      "{{ 'a'.join }}",      "{{ s.format }}",   "{{ range }}",    "{{ dict }}",           "{{ namespace }}",
      "{{ s.encode() }}",    "{{ self }}",       "{{ none[1:] }}", "{{ messages }}",       "{{ lipsum is defined }}",
  };
  for (const char* k : kKnown)
    if (source == k) return true;
  return false;
}

TEST(Template, every_snippet_prints_what_jinja2_prints) {
  const std::vector<Value> all = lines("snippets.jsonl");
  ASSERT_GT(all.size(), 900u);
  const Value context = *all[0].find("context");
  size_t same = 0, refused = 0;
  for (size_t i = 1; i < all.size(); ++i) {
    const std::string& source = all[i].find("source")->as_string();
    if (known_difference(source)) continue;
    const Result<MarkedText> r = render(source, context);
    if (const Value* text = all[i].find("text")) {
      EXPECT_EQ(outcome(r), text->as_string()) << source;
      ++same;
    } else {
      EXPECT_FALSE(r.ok()) << source << "\n printed: " << outcome(r) << "\n jinja2: " << all[i].find("error")->as_string();
      if (!r.ok()) {
        EXPECT_NE(r.status().message().find("line "), std::string::npos) << source;
      }
      ++refused;
    }
  }
  EXPECT_GT(same, 600u);
  EXPECT_GT(refused, 150u);
}

TEST(Template, every_family_renders_every_conversation_as_jinja2) {
  const Result<Value> conversations = parse_json(fixture("conversations.json"));
  ASSERT_TRUE(conversations.ok());
  std::map<std::string, ChatTemplate> templates;
  size_t same = 0, refused = 0;
  for (const Value& line : lines("renders.jsonl")) {
    const std::string& name = line.find("template")->as_string();
    if (!templates.contains(name)) {
      Result<ChatTemplate> t = ChatTemplate::parse(fixture("templates/" + name + ".jinja"));
      ASSERT_TRUE(t.ok()) << name << ": " << t.status().message();
      templates.emplace(name, std::move(t).value());
    }
    const std::string& conversation = line.find("conversation")->as_string();
    const Value* body = conversations->find(conversation);
    ASSERT_NE(body, nullptr);
    ChatInput in;
    in.messages = *body->find("messages");
    if (const Value* tools = body->find("tools")) in.tools = *tools;
    in.bos_token = "<s>";
    in.eos_token = "</s>";
    in.now = kNow;
    for (const auto& [k, v] : line.find("kwargs")->as_object()) {
      if (k == "add_generation_prompt") in.add_generation_prompt = v.as_bool();
      else in.kwargs.set(k, v);
    }
    const Result<MarkedText> r = templates.at(name).render(in);
    const std::string where = name + " / " + conversation + " / " + to_json(*line.find("kwargs"));
    if (const Value* error = line.find("error")) {
      EXPECT_FALSE(r.ok()) << where << "\n jinja2: " << error->as_string();
      ++refused;
    } else if (const Value* text = line.find("text")) {
      EXPECT_EQ(outcome(r), text->as_string()) << where;
      ++same;
    } else {
      EXPECT_EQ(fnv(outcome(r)), line.find("fnv")->as_string()) << where << "\n" << outcome(r);
      ++same;
    }
  }
  EXPECT_GT(same, 500u);
  EXPECT_GT(refused, 50u);
}

}  // namespace
}  // namespace espalier
