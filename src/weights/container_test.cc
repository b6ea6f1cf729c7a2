#include "weights/container.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <optional>

#include "base/file_map.h"
#include "weights/test_files.h"

namespace espalier {
namespace {

using test::bytes_of;
using test::read_file;
using test::TempFolder;

#define EXPECT_SAYS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

std::vector<ContainerTensor> declared() {
  using enum StorageType;
  return {{"a", u8, {100}}, {"empty", f32, {0}}, {"b", f32, {16, 2}}, {"c", bf16, {3, 5}}};
}
constexpr size_t kDeclaredBytes = 100 + 128 + 30;

std::string sample_bytes() {
  std::string bytes;
  for (size_t i = 0; i < kDeclaredBytes; ++i) bytes += static_cast<char>(i * 7 + 1);
  return bytes;
}

Result<ContainerWriter> begin(const std::string& path) {
  Result<FileLock> lock = FileLock::acquire(path);
  if (!lock.ok()) return std::move(lock).status();
  return ContainerWriter::create(std::move(*lock), declared(), 200);
}

// Writes the sample in pieces of `piece` bytes; `before_step` may end the process.
Status write_sample(const std::string& path, size_t piece, const std::function<void(int)>& before_step = [](int) {}) {
  int step = 0;
  before_step(step++);
  Result<ContainerWriter> w = begin(path);
  if (!w.ok()) return std::move(w).status();
  const std::string bytes = sample_bytes();
  for (size_t at = 0; at < bytes.size(); at += piece) {
    before_step(step++);
    ESPALIER_TRY(w->append(bytes_of(bytes).subspan(at, std::min(piece, bytes.size() - at))));
  }
  before_step(step++);
  return w->finish({{"k", "v\"\n"}, {"source", "x"}});
}

TEST(Container, is_a_strict_safetensors_file_with_aligned_tensors) {
  TempFolder folder;
  ASSERT_TRUE(write_sample(folder / "m", 17).ok());
  EXPECT_EQ(folder.list(), std::vector<std::string>{"m"});
  const FileMap map = FileMap::open(folder / "m").value();
  Result<Safetensors> strict = parse_safetensors(map.bytes());
  ASSERT_TRUE(strict.ok()) << strict.status().message();
  EXPECT_EQ(strict->tensors.back().name, "__trailer__");
  Result<Container> c = parse_container(map.bytes());
  ASSERT_TRUE(c.ok()) << c.status().message();
  ASSERT_EQ(c->tensors.size(), 4u);
  EXPECT_EQ(c->metadata[0], (std::pair<std::string, std::string>("k", "v\"\n")));
  std::string joined;
  for (const TensorView& t : c->tensors) {
    EXPECT_EQ((t.data.data() - map.bytes().data()) % 64, 0) << t.name;
    joined.append(reinterpret_cast<const char*>(t.data.data()), t.data.size());
  }
  EXPECT_EQ(joined, sample_bytes());
  EXPECT_TRUE(verify_container(map.bytes()).ok());
}

TEST(Container, bytes_do_not_depend_on_the_pieces) {
  TempFolder folder;
  ASSERT_TRUE(write_sample(folder / "a", 1).ok());
  ASSERT_TRUE(write_sample(folder / "b", 1000).ok());
  EXPECT_EQ(read_file(folder / "a"), read_file(folder / "b"));
}

TEST(Container, every_changed_bit_is_found) {
  TempFolder folder;
  ASSERT_TRUE(write_sample(folder / "m", 64).ok());
  const std::string good = read_file(folder / "m");
  // Mapped files are aligned; a copy must be as well.
  alignas(64) static char copy[8192];
  ASSERT_LE(good.size(), sizeof copy);
  const std::span<const std::byte> file(reinterpret_cast<const std::byte*>(copy), good.size());
  for (size_t i = 0; i < good.size(); ++i) {
    std::memcpy(copy, good.data(), good.size());
    copy[i] = static_cast<char>(copy[i] ^ (1 << i % 8));
    EXPECT_FALSE(verify_container(file).ok()) << "byte " << i;
  }
  std::memcpy(copy, good.data(), good.size());
  EXPECT_TRUE(verify_container(file).ok());
  for (size_t n = 0; n < good.size(); ++n) EXPECT_FALSE(parse_container(file.first(n)).ok()) << n;
}

TEST(Container, a_damaged_tensor_is_named_by_verify_and_cheap_open_misses_only_that) {
  TempFolder folder;
  ASSERT_TRUE(write_sample(folder / "m", 64).ok());
  std::string bytes = read_file(folder / "m");
  const FileMap before = FileMap::open(folder / "m").value();
  const TensorView b = parse_container(before.bytes())->tensors[2];
  bytes[static_cast<size_t>(b.data.data() - before.bytes().data()) + 9] ^= 4;
  folder.write("n", bytes);
  const FileMap map = FileMap::open(folder / "n").value();
  EXPECT_TRUE(parse_container(map.bytes()).ok());
  EXPECT_SAYS(verify_container(map.bytes()).message(), "the checksum of tensor b differs");
}

TEST(Container, an_ordinary_safetensors_file_is_not_taken_for_one) {
  const std::string file = test::small_safetensors();
  EXPECT_SAYS(parse_container(bytes_of(file)).status().message(), "does not end in a trailer");
}

TEST(ContainerWriter, wrong_use_is_an_error_and_leaves_nothing) {
  TempFolder folder;
  const std::string path = folder / "m";
  {
    ContainerWriter w = begin(path).value();
    EXPECT_SAYS(w.finish({}).message(), "tensor a: expected 100 bytes, found 0");
    EXPECT_FALSE(w.append(bytes_of("x")).ok()) << "a failed writer stays failed";
  }
  {
    ContainerWriter w = begin(path).value();
    EXPECT_SAYS(w.append(bytes_of(sample_bytes() + "x")).message(), "more than the declared tensors hold");
  }
  {
    ContainerWriter w = begin(path).value();
    ASSERT_TRUE(w.append(bytes_of(sample_bytes())).ok());
    EXPECT_SAYS(w.finish({{"k", std::string(5000, 'x')}}).message(), "more than were reserved");
  }
  { ContainerWriter w = begin(path).value(); }  // given up
  const auto create = [&](std::vector<ContainerTensor> tensors) {
    return ContainerWriter::create(FileLock::acquire(path).value(), std::move(tensors), 0).status().message();
  };
  EXPECT_SAYS(create({}), "without tensors");
  EXPECT_SAYS(create({{"a", StorageType::u8, {1}}, {"a", StorageType::u8, {1}}}), "declared twice");
  EXPECT_SAYS(create({{"__pad_1__", StorageType::u8, {1}}}), "container's own");
  EXPECT_SAYS(create({{"a", StorageType::q4_0, {32}}}), "cannot be stored");
  EXPECT_TRUE(folder.list().empty());
  EXPECT_SAYS(FileLock::acquire(folder / "no/m").status().message(), "cannot be made");
}

// Runs `body` in a child; the exit code, or -1 when a signal ended it.
int in_child(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(ContainerWriter, a_kill_at_any_step_leaves_the_old_file_and_the_next_writer_cleans_up) {
  TempFolder folder;
  const std::string path = folder / "m";
  folder.write("m", "old");
  constexpr size_t kPiece = 50;
  const int steps = 2 + static_cast<int>((kDeclaredBytes + kPiece - 1) / kPiece);
  for (int fatal = 0; fatal < steps; ++fatal) {
    const int rc = in_child([&] {
      static_cast<void>(write_sample(path, kPiece, [&](int step) {
        if (step == fatal) ::kill(::getpid(), SIGKILL);
      }));
      return 0;
    });
    EXPECT_EQ(rc, -1) << fatal;
    EXPECT_EQ(read_file(path), "old") << fatal;
  }
  ASSERT_TRUE(write_sample(path, kPiece).ok());
  EXPECT_EQ(folder.list(), std::vector<std::string>{"m"}) << "stale temporary and lock files must go";
  EXPECT_TRUE(verify_container(FileMap::open(path)->bytes()).ok());
}

TEST(ContainerWriter, a_write_that_fails_anywhere_leaves_the_old_file_and_no_other) {
  TempFolder folder;
  const std::string path = folder / "m";
  uint64_t size = 0;
  {
    ContainerWriter w = begin(path).value();
    size = w.file_bytes();
  }
  folder.write("m", "old");
  // A file size limit fails writes as a full disk does, at each place: in create, in the data, in the trailer.
  for (uint64_t limit = 0; limit < size; limit += 67) {
    for (const bool reserve : {true, false}) {
      const int rc = in_child([&] {
        ::signal(SIGXFSZ, SIG_IGN);
        const rlimit low{limit, limit};
        if (reserve) ::setrlimit(RLIMIT_FSIZE, &low);
        Result<ContainerWriter> w = begin(path);
        if (reserve) return w.ok() ? 1 : 0;
        ::setrlimit(RLIMIT_FSIZE, &low);
        return w->append(bytes_of(sample_bytes())).ok() && w->finish({}).ok() ? 1 : 0;
      });
      ASSERT_EQ(rc, 0) << limit;
      ASSERT_EQ(read_file(path), "old") << limit;
      ASSERT_EQ(folder.list().size(), 1u) << limit;
    }
  }
}

TEST(FileLock, one_holder_at_a_time_between_processes) {
  TempFolder folder;
  const std::string path = folder / "m";
  const auto child_gets_it = [&] {
    return in_child([&] {
      Result<std::optional<FileLock>> lock = FileLock::try_acquire(path);
      return lock.ok() && lock->has_value() ? 1 : 0;
    });
  };
  {
    Result<FileLock> held = FileLock::acquire(path);
    ASSERT_TRUE(held.ok());
    EXPECT_EQ(child_gets_it(), 0);
    FileLock moved = std::move(*held);
    EXPECT_EQ(child_gets_it(), 0);
  }
  EXPECT_EQ(child_gets_it(), 1);
  EXPECT_TRUE(folder.list().empty());
}

TEST(FileLock, a_waiter_holds_a_file_that_others_can_see) {
  TempFolder folder;
  const std::string path = folder / "m";
  int ready[2], finish[2];
  ASSERT_TRUE(::pipe(ready) == 0 && ::pipe(finish) == 0);
  std::optional<FileLock> held = FileLock::acquire(path).value();
  const pid_t waiter = ::fork();
  if (waiter == 0) {
    // The copy of `held` belongs to the parent: the child only ends by _exit, which removes nothing.
    ::close(finish[1]);
    const FileLock lock = FileLock::acquire(path).value();
    char byte = 1;
    if (::write(ready[1], &byte, 1) != 1 || ::read(finish[0], &byte, 1) < 0) ::_exit(1);
    ::_exit(0);
  }
  ::usleep(50'000);  // so that it waits on the file that is removed now
  held.reset();
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_FALSE(FileLock::try_acquire(path).value().has_value());
  ::close(finish[1]);
  int status = 0;
  ::waitpid(waiter, &status, 0);
  EXPECT_TRUE(FileLock::try_acquire(path).value().has_value()) << "the kernel frees the lock of a process that ended";
}

TEST(FileLock, two_starts_write_once) {
  TempFolder folder;
  const std::string path = folder / "m";
  constexpr int kStarts = 6;
  std::vector<pid_t> children;
  for (int i = 0; i < kStarts; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {  // what a start does: wait, look again, write only if nobody did
      Result<FileLock> lock = FileLock::acquire(path);
      if (!lock.ok()) ::_exit(100);
      if (::access(path.c_str(), F_OK) == 0) ::_exit(0);
      Result<ContainerWriter> w = ContainerWriter::create(std::move(*lock), declared(), 200);
      ::usleep(20'000);
      ::_exit(w.ok() && w->append(bytes_of(sample_bytes())).ok() && w->finish({}).ok() ? 1 : 100);
    }
    children.push_back(child);
  }
  int wrote = 0;
  for (pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) <= 1);
    wrote += WEXITSTATUS(status);
  }
  EXPECT_EQ(wrote, 1);
  EXPECT_TRUE(verify_container(FileMap::open(path)->bytes()).ok());
}

}  // namespace
}  // namespace espalier
