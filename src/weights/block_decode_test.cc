#include <gtest/gtest.h>

#include <bit>
#include <cstdio>
#include <cstring>
#include <map>
#include <set>
#include <string>

#include "base/file_map.h"
#include "weights/gguf.h"
#include "weights/safetensors.h"
#include "weights/source_matrix.h"

namespace espalier {
namespace {

const std::string kFolder = std::string(ESPALIER_SOURCE_DIR) + "/tests/fixtures/weights/";

FileMap map_or_die(const std::string& name) {
  Result<FileMap> map = FileMap::open(kFolder + name);
  EXPECT_TRUE(map.ok()) << map.status().message();
  return map.ok() ? std::move(*map) : FileMap();
}

std::map<std::string, TensorView> by_name(std::vector<TensorView> tensors) {
  std::map<std::string, TensorView> out;
  for (TensorView& t : tensors) out.emplace(t.name, std::move(t));
  return out;
}

std::map<std::string, TensorView> safetensors_of(const FileMap& map) {
  Result<Safetensors> parsed = parse_safetensors(map.bytes());
  EXPECT_TRUE(parsed.ok()) << parsed.status().message();
  return by_name(parsed.ok() ? std::move(parsed->tensors) : std::vector<TensorView>());
}

void expect_same_bits(const std::vector<float>& found, const std::vector<float>& expected, const std::string& name) {
  ASSERT_EQ(found.size(), expected.size()) << name;
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(found[i]), std::bit_cast<uint32_t>(expected[i]))
        << name << " element " << i << ": " << found[i] << " instead of " << expected[i];
  }
}

std::vector<float> all_rows(const SourceMatrix& m) {
  std::vector<float> out(m.rows() * m.cols());
  m.dequantize(0, m.rows(), out.data());
  return out;
}

// The matrix from its codes by the formula that source_matrix.h states.
std::vector<float> from_codes(const SourceMatrix& m) {
  std::vector<float> out;
  std::vector<uint8_t> q(m.cols());
  std::vector<float> scale(m.groups()), offset(m.groups());
  for (uint64_t r = 0; r < m.rows(); ++r) {
    m.codes(r, q.data(), scale.data(), m.form().has_offset ? offset.data() : nullptr);
    for (uint64_t i = 0; i < m.cols(); ++i) {
      EXPECT_LT(q[i], 1u << m.form().bits);
      const uint64_t g = i / m.form().group;
      const float code = static_cast<float>(static_cast<int>(q[i]) - static_cast<int>(m.form().zero));
      const float product = scale[g] * code;
      out.push_back(m.form().has_offset ? product + offset[g] : product);
    }
  }
  return out;
}

TEST(Blocks, every_gguf_type_equals_the_gguf_package_to_the_bit) {
  const FileMap file = map_or_die("blocks.gguf"), answers = map_or_die("blocks.expect.safetensors");
  Result<Gguf> parsed = parse_gguf(file.bytes());
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  const auto expected = safetensors_of(answers);
  ASSERT_EQ(parsed->tensors.size(), 16u);
  ASSERT_EQ(expected.size(), parsed->tensors.size());
  std::set<StorageType> seen;
  for (const TensorView& t : parsed->tensors) {
    Result<SourceMatrix> m = SourceMatrix::make(t, 3, 512);
    ASSERT_TRUE(m.ok()) << m.status().message();
    const std::vector<float> answer = *read_floats(expected.at(t.name), t.shape);
    expect_same_bits(all_rows(*m), answer, t.name);
    if (m->form().kind == MatrixForm::Kind::codes) expect_same_bits(from_codes(*m), answer, t.name + " from codes");
    std::vector<float> last(512);
    m->dequantize(2, 1, last.data());
    expect_same_bits(last, std::vector<float>(answer.end() - 512, answer.end()), t.name + " row 2");
    seen.insert(t.type);
  }
  for (int i = 0; i < kStorageTypes; ++i) {
    const StorageInfo& layout = info(static_cast<StorageType>(i));
    if (layout.is_float || layout.is_blocks) {
      EXPECT_TRUE(seen.contains(layout.type)) << layout.name << " has no fixture";
    }
  }
}

TEST(Blocks, forms_say_what_can_be_kept) {
  const FileMap file = map_or_die("blocks.gguf");
  Result<Gguf> parsed = parse_gguf(file.bytes());
  ASSERT_TRUE(parsed.ok());
  const auto tensors = by_name(std::move(parsed->tensors));
  const auto form = [&](const char* name) { return SourceMatrix::make(tensors.at(name), 3, 512)->form(); };
  EXPECT_EQ(form("q8_0.weight").text(), "8 bits, groups of 32, symmetric, f16 scales (q8_0)");
  EXPECT_EQ(form("q4_0.weight").text(), "4 bits, groups of 32, symmetric, f16 scales (q4_0)");
  EXPECT_EQ(form("q4_1.weight").text(), "4 bits, groups of 32, offset, f16 scales (q4_1)");
  EXPECT_EQ(form("q5_0.weight").text(), "5 bits, groups of 32, symmetric, f16 scales (q5_0)");
  EXPECT_EQ(form("q5_1.weight").text(), "5 bits, groups of 32, offset, f16 scales (q5_1)");
  EXPECT_EQ(form("q4_k.random.weight").text(), "4 bits, groups of 32, offset, f32 scales (q4_k)");
  EXPECT_EQ(form("q5_k.random.weight").text(), "5 bits, groups of 32, offset, f32 scales (q5_k)");
  EXPECT_EQ(form("q6_k.random.weight").kind, MatrixForm::Kind::opaque);
  EXPECT_EQ(form("bf16.weight").text(), "bf16");
  EXPECT_EQ(form("q8_0.weight").zero, 128u);
  EXPECT_EQ(form("q4_0.weight").zero, 8u);
  EXPECT_EQ(form("q5_0.weight").zero, 16u);
}

TEST(Affine, every_group_and_width_equals_mlx_to_the_bit) {
  const FileMap file = map_or_die("affine.safetensors"), answers = map_or_die("affine.expect.safetensors");
  const auto tensors = safetensors_of(file), expected = safetensors_of(answers);
  int cases = 0;
  for (const auto& [name, answer] : expected) {
    unsigned group, bits;
    if (name.ends_with(".codes")) continue;
    ASSERT_EQ(std::sscanf(name.c_str(), "g%u_b%u_", &group, &bits), 2);
    const AffineTensors parts{&tensors.at(name + ".weight"), &tensors.at(name + ".scales"), &tensors.at(name + ".biases"), bits, group};
    Result<SourceMatrix> m = SourceMatrix::make(parts, 3, 256);
    ASSERT_TRUE(m.ok()) << m.status().message();
    EXPECT_EQ(name_of(m->form().scale_type), name.substr(name.rfind('_') + 1));
    const std::vector<float> floats = *read_floats(answer, answer.shape);
    expect_same_bits(all_rows(*m), floats, name);
    expect_same_bits(from_codes(*m), floats, name + " from codes");
    std::vector<uint8_t> q(256);
    std::vector<float> s(m->groups());
    m->codes(1, q.data(), s.data(), nullptr);
    EXPECT_EQ(std::memcmp(q.data(), expected.at(name + ".codes").data.data() + 256, 256), 0) << name;
    ++cases;
  }
  EXPECT_EQ(cases, 18);
}

TEST(SourceMatrix, a_row_order_is_a_view_and_composes) {
  const FileMap file = map_or_die("blocks.gguf");
  Result<Gguf> parsed = parse_gguf(file.bytes());
  ASSERT_TRUE(parsed.ok());
  for (const TensorView& t : parsed->tensors) {
    const SourceMatrix m = *SourceMatrix::make(t, 3, 512);
    const SourceMatrix turned = m.with_row_order({2, 0, 1});
    const SourceMatrix twice = turned.with_row_order({2, 0, 1});
    std::vector<float> a(512), b(512), c(512);
    for (uint64_t r = 0; r < 3; ++r) {
      turned.dequantize(r, 1, a.data());
      m.dequantize((r + 2) % 3, 1, b.data());
      twice.dequantize(r, 1, c.data());
      expect_same_bits(a, b, t.name);
      m.dequantize((r + 1) % 3, 1, b.data());
      expect_same_bits(c, b, t.name);
    }
  }
}

TEST(SourceMatrix, interleaved_rows_are_put_back_into_halves) {
  // Rows of one head as such a file has them: 0, 4, 1, 5, 2, 6, 3, 7 for a head of 8.
  const std::vector<uint32_t> order = interleaved_row_order(2, 8);
  const uint32_t file_rows[8] = {0, 4, 1, 5, 2, 6, 3, 7};
  for (uint32_t h = 0; h < 2; ++h)
    for (uint32_t i = 0; i < 8; ++i) EXPECT_EQ(file_rows[order[h * 8 + i] - h * 8], i);
}

TensorView zeros(const char* name, StorageType type, std::vector<uint64_t> shape, std::vector<std::byte>& storage) {
  storage.assign(tensor_bytes(type, shape).value(), std::byte{0});
  return {name, type, std::move(shape), storage};
}

TEST(SourceMatrix, wrong_shapes_and_types_are_named_with_both) {
  std::vector<std::byte> a, b;
  const TensorView q = zeros("blk.3.attn_q", StorageType::q4_0, {8, 32}, a);
  EXPECT_EQ(SourceMatrix::make(q, 8, 64).status().message(), "tensor blk.3.attn_q: expected (8, 64), found (8, 32) q4_0");
  EXPECT_EQ(SourceMatrix::make(q, 8, 64).status().field(), "blk.3.attn_q");
  const TensorView i = zeros("x", StorageType::iq2_xxs, {2, 256}, b);
  const Status refused = SourceMatrix::make(i, 2, 256).status();
  EXPECT_EQ(refused.code(), Code::unsupported);
  EXPECT_NE(refused.message().find("iq2_xxs"), std::string::npos);
  EXPECT_EQ(read_vector(q, 64).status().message(), "tensor blk.3.attn_q: expected (64) of f32, f16 or bf16, found (8, 32) q4_0");
}

TEST(SourceMatrix, a_matrix_without_numbers_is_refused_however_long_its_other_side) {
  const uint64_t wide = (uint64_t{1} << 32) + 256;
  const TensorView rows{"none", StorageType::q6_k, {0, wide}, {}}, cols{"none", StorageType::f32, {wide, 0}, {}};
  EXPECT_EQ(SourceMatrix::make(rows, 0, wide).status().message(), "tensor none: expected a matrix with numbers in it, found (0, 4294967552)");
  EXPECT_EQ(SourceMatrix::make(cols, wide, 0).status().code(), Code::corrupt);
  const TensorView w{"w", StorageType::u32, {0, 16}, {}}, s{"s", StorageType::f16, {0, 2}, {}};
  EXPECT_EQ(SourceMatrix::make(AffineTensors{&w, &s, &s, 4, 64}, 0, 128).status().code(), Code::corrupt);
}

TEST(SourceMatrix, affine_parts_that_do_not_fit_are_refused) {
  std::vector<std::byte> a, b, c, d;
  const TensorView w = zeros("m.weight", StorageType::u32, {4, 16}, a);
  const TensorView s = zeros("m.scales", StorageType::f16, {4, 2}, b), z = zeros("m.biases", StorageType::f16, {4, 2}, c);
  const TensorView other = zeros("m.biases", StorageType::bf16, {4, 2}, d);
  EXPECT_TRUE(SourceMatrix::make(AffineTensors{&w, &s, &z, 4, 64}, 4, 128).ok());
  const auto message = [&](AffineTensors t, uint64_t cols) { return SourceMatrix::make(t, 4, cols).status().message(); };
  EXPECT_EQ(message({&w, &s, &other, 4, 64}, 128), "tensor m.biases: expected (4, 2) f16, found (4, 2) bf16");
  EXPECT_EQ(message({&w, &s, &z, 8, 64}, 128), "tensor m.weight: expected (4, 32) u32 ((4, 128) in 8 bits), found (4, 16) u32");
  EXPECT_EQ(message({&w, &s, &z, 4, 32}, 128), "tensor m.scales: expected (4, 4) of f32, f16 or bf16, found (4, 2) f16");
  EXPECT_NE(message({&w, &s, &z, 4, 64}, 96).find("no whole groups of 64"), std::string::npos);
  EXPECT_NE(message({&w, &s, &z, 9, 64}, 128).find("2 to 8 bits"), std::string::npos);
  EXPECT_NE(message({&w, &s, &z, 4, 48}, 128).find("groups of 32, 64 or 128"), std::string::npos);
  EXPECT_NE(message({&w, nullptr, &z, 4, 64}, 128).find("missing"), std::string::npos);
}

TEST(TensorBytes, refuses_what_cannot_be_counted) {
  using enum StorageType;
  const auto bytes = [](StorageType type, std::vector<uint64_t> shape) { return tensor_bytes(type, shape); };
  EXPECT_EQ(bytes(f32, {}), 4u);
  EXPECT_EQ(bytes(q4_0, {3, 64}), 3u * 36);
  EXPECT_EQ(bytes(q4_0, {3, 48}), std::nullopt);
  EXPECT_EQ(bytes(f32, {uint64_t{1} << 62, 2}), std::nullopt);
  EXPECT_EQ(bytes(f32, {uint64_t{1} << 32, uint64_t{1} << 32}), std::nullopt);
  EXPECT_EQ(bytes(q6_k, {uint64_t{1} << 50, 256 * 64}), std::nullopt);
  EXPECT_EQ(bytes(f32, {0, 1000}), 0u);
}

}  // namespace
}  // namespace espalier
