// Each rule of the lint against a program that keeps all of them, broken in one place.
#include "lower/lint.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "lower/lower.h"
#include "program/builder.h"

namespace espalier {
namespace {

// One conv layer and one attention layer, shaped so that every rule holds.
Program small_program() {
  ProgramBuilder b("small", 2, 64, 4096);
  b.function(Role::step);
  ValueId h = b.embed(b.matrix("embed", 4096, 64));
  b.layer(0);
  const ValueId p = b.linear(b.rms_norm(h, b.vector("norm0", 64), 1e-5f), b.matrix("in", 192, 64));
  h = b.add(h, b.short_conv(p, b.taps("taps", 64, 3), kNone, b.frames_state(0, 2, 64), 3, false));
  b.layer(1);
  const ValueId n = b.rms_norm(h, b.vector("norm1", 64), 1e-5f);
  const ValueId q = b.linear(n, b.matrix("q", 64, 64)), k = b.linear(n, b.matrix("k", 32, 64)), v = b.linear(n, b.matrix("v", 32, 64));
  const auto qk = b.qk_norm_rope({q, k}, b.vector("qn", 32), b.vector("kn", 32), {2, 1, 32, 1e-5f, 0.25f, b.rope({10000.0, 32})});
  h = b.add(h, b.attention(qk, v, b.kv_state(1, 1, 32), {2, 1, 32, MaskKind::ancestors, true}));
  b.output("layer.1", h);
  b.layer(kNone);
  b.head(b.rms_norm(h, b.vector("norm", 64), 1e-5f), b.matrix("head", 4096, 64));
  return std::move(b).finish().value();
}

LowerOptions options_of(KvForm kv) {
  LowerOptions o;
  o.kv = kv;
  o.weights = ScalarType::i8;
  o.functions = {{Role::step, 64, 128, HeadRows::none, HeadForm::maxima}, {Role::step, 64, 128, HeadRows::chosen, HeadForm::maxima}, {Role::step, 64, 256, HeadRows::all, HeadForm::logits}};
  return o;
}

LoweredProgram lowered(KvForm kv = KvForm::place) { return lower(small_program(), options_of(kv)).value(); }

PrimitiveOp& first(LoweredFunction& f, Primitive kind) {
  for (PrimitiveOp& op : f.ops)
    if (op.kind == kind) return op;
  ADD_FAILURE() << "no op " << kPrimitiveNames[static_cast<size_t>(kind)];
  return f.ops[0];
}

TEST(Lint, a_lowered_program_keeps_all_rules) {
  for (KvForm kv : {KvForm::place, KvForm::delta, KvForm::dynamic}) {
    const LoweredProgram p = lowered(kv);
    ASSERT_TRUE(verify(p).ok()) << verify(p).message();
    for (const LintFinding& f : lint(p)) ADD_FAILURE() << kv_form_name(kv) << ": " << text(f);
  }
}

struct Fault {
  const char* rule;
  KvForm kv;
  std::function<void(LoweredProgram&, LintOptions&)> break_it;
};

const std::vector<Fault>& faults() {
  static const std::vector<Fault> list = {
      {"rank", KvForm::place, [](LoweredProgram& p, LintOptions&) { p.functions[0].values[static_cast<size_t>(first(p.functions[0], Primitive::conv1x1).out)].shape = {1, 1, 192, 1, 1, 64}; }},
      {"batch", KvForm::place, [](LoweredProgram& p, LintOptions&) { p.functions[0].values[static_cast<size_t>(first(p.functions[0], Primitive::conv1x1).out)].shape = {2, 96, 1, 64}; }},
      {"type", KvForm::place, [](LoweredProgram& p, LintOptions&) { p.functions[0].values[static_cast<size_t>(first(p.functions[0], Primitive::add).out)].type = ScalarType::i8; }},
      {"last-axis", KvForm::place, [](LoweredProgram& p, LintOptions&) {
         LowerOptions o = options_of(KvForm::place);
         o.functions[0].rows = 60;
         p = lower(small_program(), o).value();
       }},
      {"axis-limit", KvForm::place, [](LoweredProgram&, LintOptions& o) { o.axis_limit = 180; }},
      {"sub-range", KvForm::place, [](LoweredProgram& p, LintOptions&) {
         LowerOptions o = options_of(KvForm::place);
         o.subrange = 2001;
         p = lower(small_program(), o).value();
       }},
      {"linear-as-conv", KvForm::place, [](LoweredProgram& p, LintOptions&) { first(p.functions[0], Primitive::conv1x1).kind = Primitive::matmul; }},
      {"int8-scales", KvForm::place, [](LoweredProgram& p, LintOptions&) {
         for (LoweredWeight& w : p.weights)
           if (w.name == "q.scale") w.rows = 32;
       }},
      {"literal", KvForm::place, [](LoweredProgram& p, LintOptions&) { first(p.functions[0], Primitive::literal).value = 1e-9f; }},
      {"last-axis-slice", KvForm::place, [](LoweredProgram& p, LintOptions& o) {
         o.exact_last_axis_slices = false;
         PrimitiveOp& op = first(p.functions[0], Primitive::slice);
         op.axis = 3;
         op.begin = 32;
       }},
      {"argmax", KvForm::place, [](LoweredProgram&, LintOptions& o) { o.native_argmax = false; }},
      {"aligned-offset", KvForm::dynamic, [](LoweredProgram& p, LintOptions&) {
         LowerOptions o = options_of(KvForm::dynamic);
         o.functions[0].rows = 40;
         p = lower(small_program(), o).value();
       }},
      {"one-sequence", KvForm::dynamic, [](LoweredProgram&, LintOptions& o) { o.sequences = 2; }},
      {"mask", KvForm::place, [](LoweredProgram& p, LintOptions&) {
         LoweredFunction& f = p.functions[0];
         PrimitiveOp& softmax = first(f, Primitive::softmax);
         for (const PrimitiveOp& op : f.ops)
           if (op.out == softmax.in[0]) softmax.in[0] = op.in[0];
       }},
      {"head-indices", KvForm::place, [](LoweredProgram& p, LintOptions&) { p.functions[2].outputs.push_back({"head.max", p.functions[2].outputs.back().value}); }},
  };
  return list;
}

TEST(Lint, a_seeded_fault_of_each_rule_is_named) {
  std::set<std::string> tried;
  for (const Fault& fault : faults()) {
    LoweredProgram p = lowered(fault.kv);
    LintOptions options;
    fault.break_it(p, options);
    bool named = false;
    for (const LintFinding& f : lint(p, options)) named = named || (f.rule == std::string(fault.rule) && !f.op.empty() && !f.what.empty());
    EXPECT_TRUE(named) << fault.rule;
    tried.insert(fault.rule);
  }
  for (const LintRule& rule : lint_rules()) EXPECT_TRUE(tried.count(rule.name)) << rule.name << " has no seeded fault";
}

TEST(Lint, a_finding_names_the_function_and_the_op_of_the_original_program) {
  LoweredProgram p = lowered();
  PrimitiveOp& literal = first(p.functions[1], Primitive::literal);
  literal.value = 1e6f;
  const std::vector<LintFinding> found = lint(p);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].function, "step_64_128_chosen_maxima");
  EXPECT_NE(found[0].op.find("layer 0 rms_norm"), std::string::npos) << found[0].op;
}

TEST(Lowered, the_verifier_names_a_wrong_shape_an_early_read_and_a_second_write) {
  LoweredProgram p = lowered();
  p.functions[0].values[static_cast<size_t>(first(p.functions[0], Primitive::conv1x1).out)].shape[1] += 1;
  EXPECT_NE(verify(p).message().find("conv1x1 (layer 0 linear): value conv1x1 is declared as"), std::string::npos) << verify(p).message();
  p = lowered();
  std::swap(p.functions[0].ops[0], p.functions[0].ops[5]);
  EXPECT_FALSE(verify(p).ok());
  p = lowered();
  p.functions[0].ops.push_back(p.functions[0].ops.back());
  EXPECT_NE(verify(p).message().find("is written twice"), std::string::npos) << verify(p).message();
}

TEST(Lowered, a_prefill_chunk_without_taps_drops_what_follows_the_last_kept_rows) {
  LowerOptions o = options_of(KvForm::place);
  o.taps = std::vector<std::string>();
  const LoweredProgram p = lower(small_program(), o).value();
  EXPECT_LT(p.functions[0].ops.size() + 20, lowered().functions[0].ops.size());
  EXPECT_TRUE(p.functions[0].outputs.empty());
  for (const PrimitiveOp& op : p.functions[0].ops) EXPECT_NE(op.kind, Primitive::softmax);
}

TEST(Lowered, functions_share_the_weights_and_the_text_names_them) {
  const LoweredProgram p = lowered();
  std::set<std::string> names;
  for (const LoweredWeight& w : p.weights) EXPECT_TRUE(names.insert(w.name).second) << w.name;
  EXPECT_TRUE(names.count("head[2000]"));
  EXPECT_NE(dump(p).find("function step_64_128_none"), std::string::npos);
  EXPECT_NE(dump(p).find("i8(64, 64, 1, 1) = weight q   ; layer 1 linear"), std::string::npos) << dump(p).substr(0, 4000);
}

}  // namespace
}  // namespace espalier
