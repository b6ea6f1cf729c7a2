// Each primitive in Apple's runtime against the evaluator's coreai mode, bit for bit, one function an op; and what goes wrong in words.
// Needs ESPALIER_COREAI_PYTHON: tools/with-apple-python sets it.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>

#include "base/half.h"
#include "lower/lower_builder.h"
#include "../../../tests/foundation/tiny_models.h"
#include "units/coreai/coreai_backend.h"

namespace espalier {
namespace {

using lowering::PrimitiveBuilder;
using P = Primitive;
using test::Random;

enum class Inputs {
  ordinary,  // a few units large
  positive,  // 2^-14 to 2^6
  wild,      // any finite fp16, zeros of both signs and subnormals among them
  integers,  // small whole numbers: many equal ones
};

float drawn(Random& r, Inputs kind) {
  switch (kind) {
    case Inputs::ordinary: return r.number() * 4;
    case Inputs::positive: return std::exp2(r.number() * 10 - 4);
    case Inputs::integers: return static_cast<float>(r.next() % 5) - 2.0f;
    case Inputs::wild: break;
  }
  const uint16_t bits = static_cast<uint16_t>(r.next());
  return f16_to_f32((bits & 0x7c00u) == 0x7c00u ? static_cast<uint16_t>(bits & 0x83ffu) : bits);
}

using Build = std::function<ValueId(PrimitiveBuilder&)>;
struct Case {
  const char* name;
  Inputs inputs;
  Build build;
};

const Build binary(P kind, Shape a, Shape b) {
  return [=](PrimitiveBuilder& p) {
    const ValueId x = p.input("a", a), y = p.input("b", b);
    return p.binary(kind, x, y);
  };
}
const Build unary(P kind, Shape a) {
  return [=](PrimitiveBuilder& p) { return p.unary(kind, p.input("a", a)); };
}
const Build along(P kind, Shape a, int32_t axis) {
  return [=](PrimitiveBuilder& p) { return p.along(kind, p.input("a", a), axis); };
}

std::vector<Case> cases() {
  const Shape rows = {1, 48, 1, 64}, heads = {1, 2, 32, 64};
  return {
      {"add", Inputs::wild, binary(P::add, rows, rows)},
      {"add a column", Inputs::wild, binary(P::add, rows, {1, 48, 1, 1})},
      {"sub", Inputs::wild, binary(P::sub, heads, heads)},
      {"mul", Inputs::wild, binary(P::mul, rows, rows)},
      {"mul a row", Inputs::wild, binary(P::mul, heads, {1, 1, 32, 64})},
      {"mul a number", Inputs::wild, [=](PrimitiveBuilder& p) { return p.binary(P::mul, p.input("a", rows), p.literal(0.123f)); }},
      {"div", Inputs::wild, binary(P::div, rows, rows)},
      {"div by a row", Inputs::ordinary, binary(P::div, {1, 1, 32, 64}, {1, 1, 1, 64})},
      {"one over", Inputs::positive, [=](PrimitiveBuilder& p) { return p.binary(P::div, p.literal(1.0f), p.input("a", {1, 1, 1, 64})); }},
      {"maximum", Inputs::wild, binary(P::maximum, rows, rows)},
      {"maximum of zeros", Inputs::integers, binary(P::maximum, rows, {1, 1, 1, 1})},
      {"sigmoid", Inputs::ordinary, unary(P::sigmoid, {1, 512, 1, 64})},
      {"sigmoid of anything", Inputs::wild, unary(P::sigmoid, {1, 512, 1, 64})},
      {"exp", Inputs::ordinary, unary(P::exp, {1, 512, 1, 64})},
      {"exp of anything", Inputs::wild, unary(P::exp, {1, 512, 1, 64})},
      {"rsqrt", Inputs::positive, unary(P::rsqrt, {1, 512, 1, 64})},
      {"rsqrt of anything", Inputs::wild, unary(P::rsqrt, {1, 512, 1, 64})},
      {"softmax", Inputs::ordinary, along(P::softmax, {1, 2, 200, 64}, 2)},
      {"softmax of anything", Inputs::wild, along(P::softmax, {1, 1, 96, 64}, 2)},
      {"reduce_sum", Inputs::ordinary, along(P::reduce_sum, {1, 300, 1, 64}, 1)},
      {"reduce_sum of anything", Inputs::wild, along(P::reduce_sum, {1, 1, 96, 64}, 2)},
      {"reduce_mean", Inputs::ordinary, along(P::reduce_mean, {1, 300, 1, 64}, 1)},
      {"reduce_mean of a head", Inputs::positive, along(P::reduce_mean, heads, 2)},
      {"reduce_mean of 256", Inputs::ordinary, along(P::reduce_mean, {1, 256, 1, 64}, 1)},
      {"reduce_max", Inputs::wild, along(P::reduce_max, {1, 500, 1, 64}, 1)},
      {"argmax", Inputs::wild, along(P::argmax, {1, 500, 1, 64}, 1)},
      {"argmax of equals", Inputs::integers, along(P::argmax, {1, 500, 1, 64}, 1)},
      {"conv1x1", Inputs::ordinary, [](PrimitiveBuilder& p) {
         const ValueId x = p.input("a", {1, 256, 1, 64});
         return p.binary(P::conv1x1, x, p.input("b", {96, 256, 1, 1}));
       }},
      {"conv1x1 of anything", Inputs::wild, [](PrimitiveBuilder& p) {
         const ValueId x = p.input("a", {1, 40, 1, 32});
         return p.binary(P::conv1x1, x, p.input("b", {33, 40, 1, 1}));
       }},
      {"matmul", Inputs::ordinary, binary(P::matmul, {1, 1, 160, 64}, {1, 1, 64, 32})},
      {"matmul of heads", Inputs::ordinary, binary(P::matmul, {1, 2, 96, 32}, {1, 2, 32, 64})},
      {"matmul by one matrix", Inputs::ordinary, binary(P::matmul, {1, 1, 64, 96}, {1, 1, 96, 32})},
      {"matmul, channels first", Inputs::ordinary, binary(P::matmul, {1, 128, 1, 96}, {1, 1, 96, 64})},
      {"matmul of anything", Inputs::wild, binary(P::matmul, {1, 1, 50, 40}, {1, 1, 40, 32})},
      {"matmul of few rows", Inputs::ordinary, binary(P::matmul, {1, 1, 3, 200}, {1, 1, 200, 5})},
      {"reshape", Inputs::wild, [](PrimitiveBuilder& p) { return p.reshape(p.input("a", {1, 64, 1, 32}), {1, 2, 32, 32}); }},
      {"transpose", Inputs::wild, [](PrimitiveBuilder& p) { return p.transpose(p.input("a", {1, 2, 32, 64}), {0, 1, 3, 2}); }},
      {"transpose of five axes", Inputs::wild, [](PrimitiveBuilder& p) { return p.transpose(p.input("a", {1, 2, 4, 8, 32}), {0, 3, 1, 2, 4}); }},
      {"slice", Inputs::wild, [](PrimitiveBuilder& p) { return p.slice(p.input("a", {1, 96, 1, 32}), 1, 32, 40); }},
      {"concat", Inputs::wild, [](PrimitiveBuilder& p) {
         const ValueId a = p.input("a", {1, 8, 1, 32});
         return p.concat({a, p.input("b", {1, 8, 1, 64})}, 3);
       }},
      {"argmax, concatenated", Inputs::wild, [](PrimitiveBuilder& p) {
         const ValueId a = p.input("a", {1, 100, 1, 32}), b = p.input("b", {1, 60, 1, 32});
         const ValueId i = p.along(P::argmax, a, 1);
         return p.concat({i, p.along(P::argmax, b, 1)}, 1);
       }},
      {"update_block", Inputs::wild, [](PrimitiveBuilder& p) {
         const ValueId a = p.input("a", {1, 8, 1, 128}), b = p.input("b", {1, 8, 1, 32});
         return p.update_block(a, b, p.input("offset", {1, 1, 1, 1}, ScalarType::i32), 3);
       }},
      {"two reads of a state and a write", Inputs::wild, [](PrimitiveBuilder& p) {
         const ValueId sum = p.binary(P::add, p.read_state(0), p.input("a", {1, 8, 1, kFrameSlots}));
         p.write_state(0, sum);
         return p.binary(P::mul, p.read_state(0), sum);
       }},
      {"a state that is only read", Inputs::wild, [](PrimitiveBuilder& p) { return p.binary(P::add, p.read_state(0), p.input("a", {1, 8, 1, kFrameSlots})); }},
      {"a state that is only written", Inputs::wild, [](PrimitiveBuilder& p) {
         const ValueId a = p.input("a", {1, 8, 1, kFrameSlots});
         p.write_state(0, a);
         return p.binary(P::add, a, a);
       }},
  };
}

// Function i computes case i.
LoweredProgram program_of(const std::vector<Case>& all) {
  LoweredProgram p;
  p.family = "ops";
  p.states.push_back({"frames", 0, false, 8});
  for (size_t i = 0; i < all.size(); ++i) {
    LoweredFunction f;
    f.spec = {Role::step, 32, static_cast<int32_t>(i + 1), HeadRows::none, HeadForm::maxima};
    PrimitiveBuilder b(p, f);
    b.output("out", all[i].build(b));
    const Status built = b.finish();
    EXPECT_TRUE(built.ok()) << all[i].name << ": " << built.message();
    p.functions.push_back(std::move(f));
  }
  return p;
}

std::vector<NamedValues> inputs_of(const LoweredFunction& f, Inputs kind, uint64_t seed) {
  Random random(seed);
  std::vector<NamedValues> out;
  for (const LoweredPort& port : f.inputs) {
    const LoweredValue& value = f.values[static_cast<size_t>(port.value)];
    NamedValues v{port.name, std::vector<float>(static_cast<size_t>(elements(value.shape)))};
    for (float& x : v.data) x = value.type == ScalarType::i32 ? 32.0f : f16_to_f32(f32_to_f16(drawn(random, kind)));
    out.push_back(std::move(v));
  }
  return out;
}

// How many values differ in their bits, and the first that does; NaN equals NaN.
std::string difference(const std::vector<float>& found, const std::vector<float>& expected) {
  if (found.size() != expected.size()) return std::to_string(found.size()) + " values, expected " + std::to_string(expected.size());
  size_t count = 0, first = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    if (std::memcmp(&found[i], &expected[i], sizeof(float)) == 0 || (std::isnan(found[i]) && std::isnan(expected[i]))) continue;
    if (count++ == 0) first = i;
  }
  if (count == 0) return {};
  return std::to_string(count) + " of " + std::to_string(found.size()) + " differ, the first at " + std::to_string(first) + ": " + std::to_string(found[first]) + ", expected " + std::to_string(expected[first]);
}

std::unique_ptr<StaticBackend> backend(const LoweredProgram& lowered) {
  const Result<std::string> python = coreai_python();
  if (!python.ok()) {
    ADD_FAILURE() << python.status().message();
    return nullptr;
  }
  Result<std::unique_ptr<StaticBackend>> made = coreai_backend(*python)(lowered, Program(), WeightSet());
  if (!made.ok()) {
    ADD_FAILURE() << made.status().message();
    return nullptr;
  }
  return std::move(made).value();
}

TEST(CoreAiOps, each_primitive_has_the_bits_of_the_runtime) {
  const std::vector<Case> all = cases();
  const LoweredProgram lowered = program_of(all);
  const std::unique_ptr<StaticBackend> runtime = backend(lowered);
  ASSERT_NE(runtime, nullptr);
  const LoweredTensors none;
  Evaluator evaluator(lowered, none, {Arithmetic::coreai, 0, 1});
  for (size_t i = 0; i < all.size(); ++i) {
    const int32_t id = static_cast<int32_t>(i);
    const std::vector<NamedValues> inputs = inputs_of(lowered.functions[i], all[i].inputs, 7 + i);
    Random random(5);
    std::vector<std::vector<float>> expected_states(1, std::vector<float>(8 * kFrameSlots));
    for (float& x : expected_states[0]) x = drawn(random, Inputs::wild);
    std::vector<std::vector<float>> found_states = expected_states;
    std::vector<NamedValues> found, expected;
    const Status ran = runtime->run(id, inputs, found_states, found);
    ASSERT_TRUE(evaluator.run(id, inputs, expected_states, expected).ok()) << all[i].name;
    EXPECT_TRUE(ran.ok()) << all[i].name << ": " << ran.message();
    if (!ran.ok()) continue;
    EXPECT_EQ(difference(found[0].data, expected[0].data), "") << all[i].name;
    EXPECT_EQ(difference(found_states[0], expected_states[0]), "") << all[i].name << ", state";
  }
}

// The comparison would see it: with sums in fp32 the products of matrices have other bits, and nothing else has.
TEST(CoreAiOps, sums_in_fp32_differ_in_matmul_only) {
  const std::vector<Case> all = cases();
  const LoweredProgram lowered = program_of(all);
  const LoweredTensors none;
  Evaluator runtime(lowered, none, {Arithmetic::coreai, 0, 1}), plain(lowered, none, {Arithmetic::f16, 0, 1});
  for (size_t i = 0; i < all.size(); ++i) {
    const std::vector<NamedValues> inputs = inputs_of(lowered.functions[i], all[i].inputs, 7 + i);
    std::vector<std::vector<float>> states(1, std::vector<float>(8 * kFrameSlots)), other = states;
    std::vector<NamedValues> a, b;
    ASSERT_TRUE(runtime.run(static_cast<int32_t>(i), inputs, states, a).ok());
    ASSERT_TRUE(plain.run(static_cast<int32_t>(i), inputs, other, b).ok());
    const bool is_matmul = lowered.functions[i].ops[0].kind == P::matmul;
    EXPECT_EQ(difference(a[0].data, b[0].data).empty(), !is_matmul) << all[i].name;
  }
}

TEST(CoreAiOps, what_a_call_lacks_is_named) {
  const std::vector<Case> all = cases();
  const LoweredProgram lowered = program_of({all[0], all.back()});
  const std::unique_ptr<StaticBackend> runtime = backend(lowered);
  ASSERT_NE(runtime, nullptr);
  std::vector<std::vector<float>> states(1, std::vector<float>(8 * kFrameSlots)), short_states(1, std::vector<float>(7));
  std::vector<NamedValues> inputs = inputs_of(lowered.functions[0], Inputs::ordinary, 1), outputs;
  const std::vector<NamedValues> right = inputs, state_input = inputs_of(lowered.functions[1], Inputs::ordinary, 1);
  inputs[1].name = "c";
  EXPECT_NE(runtime->run(0, inputs, states, outputs).message().find("input b is missing"), std::string::npos);
  inputs[1] = {"b", {1, 2}};
  EXPECT_NE(runtime->run(0, inputs, states, outputs).message().find("input b has 2 values"), std::string::npos);
  EXPECT_NE(runtime->run(1, state_input, short_states, outputs).message().find("state frames has 7 values"), std::string::npos);
  EXPECT_NE(runtime->run(2, right, states, outputs).message().find("function 2 of 2"), std::string::npos);
  EXPECT_TRUE(runtime->run(0, right, states, outputs).ok());
}

TEST(CoreAiOps, a_program_that_the_runtime_refuses_is_an_error_in_its_words) {
  LoweredProgram lowered = program_of({cases()[0]});
  lowered.functions[0].ops[0].kind = P::matmul;
  const Result<std::unique_ptr<StaticBackend>> made = coreai_backend(coreai_python().value())(lowered, Program(), WeightSet());
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.status().message().find("Core AI: "), std::string::npos) << made.status().message();
}

}  // namespace
}  // namespace espalier
