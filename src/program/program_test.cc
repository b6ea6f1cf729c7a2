#include <gtest/gtest.h>

#include <set>

#include "program/builder.h"
#include "program/cut.h"
#include "program/memory_plan.h"

namespace espalier {
namespace {

// Two layers: a convolution, then attention; tied head.
Program small() {
  ProgramBuilder b("small", 2, 8, 16);
  b.function(Role::step);
  const WeightId table = b.matrix("embed", 16, 8);
  const int32_t rope = b.rope({10000.0, 4});
  ValueId h = b.embed(table);
  b.layer(0);
  // One declaration a statement: arguments are evaluated in any order.
  const ValueId n = b.rms_norm(h, b.vector("norm.0", 8), 1e-5f);
  const ValueId p = b.linear(n, b.matrix("in", 24, 8));
  const WeightId taps = b.taps("taps", 8, 3);
  const ValueId conv = b.short_conv(p, taps, kNone, b.frames_state(0, 2, 8), 3, false);
  h = b.add(h, b.linear(conv, b.matrix("out", 8, 8)));
  b.output("layer.0", h);
  b.layer(1);
  const ValueId a = b.rms_norm(h, b.vector("norm.1", 8), 1e-5f);
  const ValueId q = b.linear(a, b.matrix("q", 8, 8)), k = b.linear(a, b.matrix("k", 4, 8)), v_weight = b.matrix("v", 4, 8);
  const ValueId v = b.linear(a, v_weight, b.vector("v.bias", 4));
  const auto qk = b.qk_norm_rope({q, k}, kNone, kNone, {2, 1, 4, 1e-5f, 0.5f, rope});
  const ValueId o = b.attention(qk, v, b.kv_state(1, 1, 4), {2, 1, 4, MaskKind::ancestors, true});
  h = b.add(h, b.linear(o, b.matrix("o", 8, 8)));
  b.output("layer.1", h);
  b.layer(kNone);
  b.head(b.rms_norm(h, b.vector("norm", 8), 1e-5f), table);
  Result<Program> program = std::move(b).finish();
  EXPECT_TRUE(program.ok()) << program.status().message();
  return std::move(program).value();
}

TEST(Program, the_dump_is_the_one_that_was_reviewed) {
  const char* expected = R"(program small layers 2 hidden 8 vocabulary 16
weight embed (16, 8)
weight norm.0 (8)
weight in (24, 8)
weight taps (8, 3)
weight out (8, 8)
weight norm.1 (8)
weight q (8, 8)
weight k (4, 8)
weight v (4, 8)
weight v.bias (4)
weight o (8, 8)
weight norm (8)
state layer.0.frames frames 2 of 8
state layer.1.kv kv heads 1 of 4
rope 0 theta 10000 head_dim 4 half-split
function step
  %0:h (8) = embed embed
  %1:n.0 (8) = rms_norm %0:h norm.0 eps 1e-05
  %2:y.0 (24) = linear %1:n.0 in
  %3:conv.0 (8) = short_conv %2:y.0 taps @layer.0.frames kernel 3
  %4:y.0 (8) = linear %3:conv.0 out
  %5:h.0 (8) = add %0:h %4:y.0
  %6:n.1 (8) = rms_norm %5:h.0 norm.1 eps 1e-05
  %7:y.1 (8) = linear %6:n.1 q
  %8:y.1 (4) = linear %6:n.1 k
  %9:y.1 (4) = linear %6:n.1 v v.bias
  %10:q.1 (8), %11:k.1 (4) = qk_norm_rope %7:y.1 %8:y.1 heads 2/1 of 4 eps 1e-05 rope 0 q_scale 0.5
  %12:o.1 (8) = attention %10:q.1 %11:k.1 %9:y.1 @layer.1.kv heads 2/1 of 4 ancestors keep
  %13:y.1 (8) = linear %12:o.1 o
  %14:h.1 (8) = add %5:h.0 %13:y.1
  %15:n (8) = rms_norm %14:h.1 norm eps 1e-05
  head %15:n embed
  output layer.0 = %5:h.0 segment 0
  output layer.1 = %14:h.1 segment 0
)";
  EXPECT_EQ(dump(small()), expected);
}

TEST(Program, the_hash_sees_numbers_that_the_dump_rounds) {
  Program a = small(), b = small();
  EXPECT_EQ(program_hash(a), program_hash(b));
  b.ropes[0].theta += 1e-9;
  EXPECT_NE(program_hash(a), program_hash(b));
  Program c = small();
  std::get<RmsNormAttr>(c.functions[0].ops[1].attr).eps = 1.0000001e-5f;
  EXPECT_NE(program_hash(a), program_hash(c));
}

struct Fault {
  const char* name;
  void (*break_it)(Program&);
  const char* named;  // what the message must name
};

TEST(Verify, names_each_seeded_fault) {
  const Fault faults[] = {
      {"matrix inputs", [](Program& p) { p.weights[2].cols = 7; }, "matrix inputs"},
      {"matrix outputs", [](Program& p) { p.weights[2].rows = 23; }, "output width"},
      {"norm length", [](Program& p) { p.weights[1].cols = 9; }, "weight of length"},
      {"taps", [](Program& p) { p.weights[3].cols = 4; }, "taps"},
      {"frames", [](Program& p) { p.states[0].frame_count = 1; }, "frames"},
      {"state kind", [](Program& p) { p.functions[0].ops[3].state = 1; }, "must be frames"},
      {"state shape", [](Program& p) { p.states[1].head_dim = 2; }, "head size"},
      {"heads", [](Program& p) { std::get<AttentionAttr>(p.functions[0].ops[11].attr).n_kv_heads = 3; }, "multiple of K/V heads"},
      {"rope", [](Program& p) { p.ropes[0].head_dim = 8; }, "rope of head size"},
      {"written twice", [](Program& p) { p.functions[0].ops[5].out[0] = 4; }, "written twice"},
      {"read early", [](Program& p) { p.functions[0].ops[1].in[0] = 14; }, "read before it is written"},
      {"no such value", [](Program& p) { p.functions[0].ops[1].in[0] = 99; }, "not a value"},
      {"no such weight", [](Program& p) { p.functions[0].ops[2].weights[0] = 99; }, "not declared"},
      {"no such state", [](Program& p) { p.functions[0].ops[3].state = 9; }, "not declared"},
      {"missing input", [](Program& p) { p.functions[0].ops[5].in[1] = kNone; }, "is missing"},
      {"too few inputs", [](Program& p) { p.functions[0].ops[5].in.pop_back(); }, "inputs"},
      {"vocabulary", [](Program& p) { p.vocabulary = 15; }, "table rows"},
      {"output", [](Program& p) { p.functions[0].outputs[0].value = 99; }, "layer.0"},
      {"width", [](Program& p) { p.functions[0].values[0].width = 0; }, "width 0"},
      {"empty", [](Program& p) { p.functions.clear(); }, "no functions"},
      {"segment", [](Program& p) { p.functions[0].ops[4].segment = 1; }, "segment"},
      {"crossing", [](Program& p) { p.functions[0].segment_count = 2; for (size_t i = 4; i < p.functions[0].ops.size(); ++i) p.functions[0].ops[i].segment = 1; }, "crosses a cut"},
      {"state twice", [](Program& p) { Function& f = p.functions[0]; f.values.push_back({"x", 8}); Op op = f.ops[3]; op.out[0] = static_cast<ValueId>(f.values.size() - 1); f.ops.insert(f.ops.begin() + 4, op); }, "used by two ops"},
  };
  for (const Fault& fault : faults) {
    Program p = small();
    fault.break_it(p);
    const Status s = verify(p);
    EXPECT_FALSE(s.ok()) << fault.name;
    EXPECT_NE(s.message().find(fault.named), std::string::npos) << fault.name << ": " << s.message();
  }
  EXPECT_TRUE(verify(small()).ok());
}

TEST(Cut, edges_carry_exactly_what_crosses) {
  const int32_t layer = 0;
  Result<Program> cut = cut_after_layers(small(), std::span(&layer, 1));
  ASSERT_TRUE(cut.ok());
  const Function& f = cut->functions[0];
  ASSERT_EQ(f.segment_count, 2);
  ASSERT_EQ(f.inputs.size(), 1u);
  EXPECT_EQ(f.inputs[0].value, 5);  // the residual stream alone
  EXPECT_EQ(f.inputs[0].segment, 1);
  EXPECT_EQ(f.outputs.back().name, f.inputs[0].name);
  EXPECT_EQ(f.outputs.back().segment, 0);
  EXPECT_EQ(f.outputs[1].segment, 1) << "a tap belongs to the segment that writes it";
}

TEST(Cut, refuses_layers_out_of_order_or_range_and_a_second_cut) {
  const int32_t last[] = {1}, twice[] = {0, 0}, negative[] = {-1}, good[] = {0};
  for (std::span<const int32_t> bad : {std::span<const int32_t>(last), std::span<const int32_t>(twice), std::span<const int32_t>(negative)})
    EXPECT_FALSE(cut_after_layers(small(), bad).ok());
  Program cut = cut_after_layers(small(), good).value();
  EXPECT_FALSE(cut_round_attention(cut).ok());
}

TEST(MemoryPlan, values_that_live_at_once_never_share_a_slot) {
  for (const Program& program : {small(), cut_round_attention(small()).value()}) {
    const Function& f = program.functions[0];
    for (int32_t segment = kNone; segment < f.segment_count; ++segment) {
      const MemoryPlan plan = plan_memory(f, segment);
      // Replays the ops: what a slot holds must be the value that is read.
      std::vector<ValueId> holds(plan.slot_width.size(), kNone);
      for (const Port& in : f.inputs)
        if (segment == kNone || in.segment == segment)
          if (plan.slot[static_cast<size_t>(in.value)] != kNone) holds[static_cast<size_t>(plan.slot[static_cast<size_t>(in.value)])] = in.value;
      for (const Op& op : f.ops) {
        if (segment != kNone && op.segment != segment) continue;
        for (ValueId v : op.in) {
          if (v == kNone) continue;
          EXPECT_EQ(holds[static_cast<size_t>(plan.slot[static_cast<size_t>(v)])], v) << f.values[static_cast<size_t>(v)].name;
        }
        for (ValueId v : op.out) {
          if (v == kNone) continue;
          const size_t slot = static_cast<size_t>(plan.slot[static_cast<size_t>(v)]);
          EXPECT_GE(plan.slot_width[slot], f.values[static_cast<size_t>(v)].width);
          holds[slot] = v;
        }
      }
      for (const Port& out : f.outputs) {
        if (segment == kNone || out.segment != segment || !out.name.starts_with("edge.")) continue;
        EXPECT_EQ(holds[static_cast<size_t>(plan.slot[static_cast<size_t>(out.value)])], out.value);
      }
      if (segment == kNone) {
        int64_t all = 0;
        for (const ValueDecl& v : f.values) all += v.width;
        EXPECT_LT(plan.width(), all) << "slots are shared";
      }
    }
  }
}

}  // namespace
}  // namespace espalier
