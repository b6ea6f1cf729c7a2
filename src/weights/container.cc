#include "weights/container.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <unordered_set>

#include "base/check.h"
#include "base/json.h"

namespace espalier {
namespace {

constexpr char kTrailerName[] = "__trailer__";
constexpr char kTrailerMagic[8] = {'E', 'S', 'P', 'T', 'R', 'L', 'R', '1'};
constexpr uint64_t kTrailerFixed = 8 + 8 + 8 + 8 + 8;  // magic, size, header, count, own checksum

uint64_t hash(const void* data, uint64_t size) { return XXH3_64bits(data, static_cast<size_t>(size)); }
uint64_t hash(std::span<const std::byte> bytes) { return hash(bytes.data(), bytes.size()); }

uint64_t round_up(uint64_t n) { return (n + kContainerAlign - 1) / kContainerAlign * kContainerAlign; }

bool is_internal(std::string_view name) { return name.starts_with("__"); }

Status io_failure(const std::string& path, const char* doing) {
  const int error = errno;
  const std::string hint = error == ENOSPC || error == EDQUOT ? " (the disk is full)" : "";
  return {Code::io, path + ": cannot be " + doing + ": " + std::strerror(error) + hint};
}

Status write_all(int fd, const std::string& path, const void* data, uint64_t size, uint64_t offset) {
  const char* from = static_cast<const char*>(data);
  while (size != 0) {
    const ssize_t n = ::pwrite(fd, from, static_cast<size_t>(std::min<uint64_t>(size, 1u << 30)), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return io_failure(path, "written");
    from += n;
    offset += static_cast<uint64_t>(n);
    size -= static_cast<uint64_t>(n);
  }
  return {};
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}
std::string file_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// Left by a writer that died; nobody else writes while the lock is held.
void remove_stale(const std::string& path) {
  const std::string folder = folder_of(path), stem = file_of(path) + ".tmp-";
  DIR* dir = ::opendir(folder.c_str());
  if (dir == nullptr) return;
  while (const dirent* entry = ::readdir(dir)) {
    if (std::string_view(entry->d_name).starts_with(stem)) ::unlink((folder + "/" + entry->d_name).c_str());
  }
  ::closedir(dir);
}

Value tensor_entry(const ContainerTensor& tensor, uint64_t begin, uint64_t end) {
  Value entry = Value::object(), shape = Value::array(), offsets = Value::array();
  for (uint64_t dim : tensor.shape) shape.push(Value(dim));
  offsets.push(Value(begin));
  offsets.push(Value(end));
  entry.set("dtype", Value(info(tensor.type).safetensors));
  entry.set("shape", std::move(shape));
  entry.set("data_offsets", std::move(offsets));
  return entry;
}

struct Placed {
  ContainerTensor tensor;
  uint64_t begin, end;  // from the first data byte
};

Status check_declared(const ContainerTensor& tensor) {
  if (is_internal(tensor.name)) return invalid("tensor " + tensor.name + ": names that begin with __ are the container's own");
  if (info(tensor.type).safetensors.empty() || !tensor_bytes(tensor.type, tensor.shape))
    return invalid("tensor " + tensor.name + ": " + std::string(name_of(tensor.type)) + " " + shape_text(tensor.shape) + " cannot be stored");
  return {};
}

// All tensors with pads between them and the trailer at the end, each with its place.
Result<std::vector<Placed>> lay_out(std::vector<ContainerTensor> tensors) {
  std::vector<Placed> placed;
  std::unordered_set<std::string> seen;
  uint64_t at = 0;
  const auto put = [&](ContainerTensor tensor, uint64_t size) {
    placed.push_back({std::move(tensor), at, at + size});
    at += size;
  };
  for (ContainerTensor& tensor : tensors) {
    ESPALIER_TRY(check_declared(tensor));
    if (!seen.insert(tensor.name).second) return invalid("tensor " + tensor.name + " is declared twice");
    const uint64_t size = *tensor_bytes(tensor.type, tensor.shape);
    if (size > (uint64_t{1} << 50) || at > (uint64_t{1} << 50)) return invalid("tensor " + tensor.name + " is too large to store");
    put(std::move(tensor), size);
    if (const uint64_t pad = round_up(at) - at; pad != 0)
      put({"__pad_" + std::to_string(placed.size()) + "__", StorageType::u8, {pad}}, pad);
  }
  const uint64_t trailer = kTrailerFixed + 8 * placed.size();
  put({kTrailerName, StorageType::u8, {trailer}}, trailer);
  return placed;
}

std::string header_json(const std::vector<Placed>& placed, const ContainerWriter::Metadata& metadata) {
  Value header = Value::object(), texts = Value::object();
  for (const auto& [key, text] : metadata) texts.set(key, Value(text));
  Value::Object& members = header.as_object();
  members.emplace_back("__metadata__", std::move(texts));
  for (const Placed& p : placed) members.emplace_back(p.tensor.name, tensor_entry(p.tensor, p.begin, p.end));
  return to_json(header);
}

void put_u64(std::vector<std::byte>& out, uint64_t n) {
  const std::byte* bytes = reinterpret_cast<const std::byte*>(&n);
  out.insert(out.end(), bytes, bytes + 8);
}

}  // namespace

struct ContainerWriter::State {
  explicit State(FileLock l) : lock(std::move(l)), path(lock.path()), temporary(path + ".tmp-" + std::to_string(::getpid())) {}
  ~State() {
    if (fd >= 0) ::close(fd);
    if (!finished) ::unlink(temporary.c_str());
    XXH3_freeState(running);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  Status open_temporary();
  void close_tensors();  // ends every tensor that is complete, writing pads into `pad`
  // Gives the disk space back at once; every later call repeats the reason.
  Status fail(Status why) {
    if (!finished) ::unlink(temporary.c_str());
    finished = true;
    failed = why;
    return why;
  }

  FileLock lock;
  std::string path, temporary;
  int fd = -1;
  bool finished = false;  // the temporary file is gone: renamed or removed
  std::optional<Status> failed;
  std::vector<Placed> placed;
  std::vector<uint64_t> checksums;  // of placed[0 .. size), the last being the one before `current`
  size_t current = 0;               // tensor that the next byte belongs to
  uint64_t at = 0;                  // of the data
  uint64_t header_bytes = 0;        // length field included
  XXH3_state_t* running = XXH3_createState();
};

Status ContainerWriter::State::open_temporary() {
  remove_stale(path);
  fd = ::open(temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (fd < 0) {
    finished = true;  // not ours to remove
    return io_failure(temporary, "made");
  }
  const uint64_t size = header_bytes + placed.back().end;
#ifdef __linux__
  // Where the file system can't reserve, a full disk shows while writing.
  if (::fallocate(fd, 0, 0, static_cast<off_t>(size)) != 0 && errno != EOPNOTSUPP && errno != ENOSYS && errno != EINVAL)
    return io_failure(temporary, ("given " + std::to_string(size) + " bytes").c_str());
#endif
  return {};
}

ContainerWriter::ContainerWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
ContainerWriter::ContainerWriter(ContainerWriter&&) noexcept = default;
ContainerWriter& ContainerWriter::operator=(ContainerWriter&&) noexcept = default;
ContainerWriter::~ContainerWriter() = default;

Result<ContainerWriter> ContainerWriter::create(FileLock lock, std::vector<ContainerTensor> tensors, uint64_t metadata_bytes) {
  if (tensors.empty()) return invalid(lock.path() + ": a container without tensors");
  auto state = std::make_unique<State>(std::move(lock));
  ESPALIER_ASSIGN(state->placed, lay_out(std::move(tensors)));
  state->header_bytes = round_up(8 + header_json(state->placed, {}).size() + metadata_bytes);
  if (state->header_bytes - 8 > kSafetensorsHeaderMax)
    return invalid(state->path + ": a header of " + std::to_string(state->header_bytes) + " bytes is too long");
  ESPALIER_TRY(state->open_temporary());
  XXH3_64bits_reset(state->running);
  return ContainerWriter(std::move(state));
}

uint64_t ContainerWriter::file_bytes() const { return state_->header_bytes + state_->placed.back().end; }

void ContainerWriter::State::close_tensors() {
  // Zero pads need no write: the file is extended over them, and reads as zero there.
  static constexpr char kZeros[kContainerAlign] = {};
  while (current + 1 < placed.size()) {  // the trailer is no tensor to be appended
    const Placed& p = placed[current];
    if (is_internal(p.tensor.name)) {
      XXH3_64bits_update(running, kZeros, static_cast<size_t>(p.end - at));
      at = p.end;
    }
    if (at != p.end) return;
    checksums.push_back(XXH3_64bits_digest(running));
    XXH3_64bits_reset(running);
    ++current;
  }
}

Status ContainerWriter::append(std::span<const std::byte> bytes) {
  State& s = *state_;
  if (s.failed) return *s.failed;
  while (!bytes.empty()) {
    s.close_tensors();
    if (s.current + 1 >= s.placed.size()) {
      return s.fail(invalid(s.path + ": " + std::to_string(bytes.size()) + " bytes more than the declared tensors hold"));
    }
    const uint64_t n = std::min<uint64_t>(bytes.size(), s.placed[s.current].end - s.at);
    if (Status written = write_all(s.fd, s.temporary, bytes.data(), n, s.header_bytes + s.at); !written.ok())
      return s.fail(std::move(written));
    XXH3_64bits_update(s.running, bytes.data(), static_cast<size_t>(n));
    s.at += n;
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return {};
}

Status ContainerWriter::finish(const Metadata& metadata) {
  State& s = *state_;
  if (s.failed) return *s.failed;
  s.close_tensors();
  if (s.current + 1 != s.placed.size()) {
    const Placed& p = s.placed[s.current];
    return s.fail(invalid(s.path + ": tensor " + p.tensor.name + ": expected " + std::to_string(p.end - p.begin) +
                          " bytes, found " + std::to_string(s.at - p.begin)));
  }
  std::string json = header_json(s.placed, metadata);
  if (8 + json.size() > s.header_bytes) {
    return s.fail(invalid(s.path + ": the metadata needs " + std::to_string(8 + json.size() - s.header_bytes) +
                          " bytes more than were reserved"));
  }
  json.resize(static_cast<size_t>(s.header_bytes - 8), ' ');
  std::vector<std::byte> header;
  put_u64(header, json.size());
  const std::byte* text = reinterpret_cast<const std::byte*>(json.data());
  header.insert(header.end(), text, text + json.size());

  std::vector<std::byte> trailer;
  const std::byte* magic = reinterpret_cast<const std::byte*>(kTrailerMagic);
  trailer.insert(trailer.end(), magic, magic + sizeof kTrailerMagic);
  put_u64(trailer, file_bytes());
  put_u64(trailer, hash(header));
  put_u64(trailer, s.checksums.size());
  for (uint64_t checksum : s.checksums) put_u64(trailer, checksum);
  put_u64(trailer, hash(trailer));

  // Data must be on the disk before the trailer says that it is.
  if (Status w = write_all(s.fd, s.temporary, header.data(), header.size(), 0); !w.ok()) return s.fail(std::move(w));
  if (::fsync(s.fd) != 0) return s.fail(io_failure(s.temporary, "synced"));
  if (Status w = write_all(s.fd, s.temporary, trailer.data(), trailer.size(), s.header_bytes + s.placed.back().begin); !w.ok())
    return s.fail(std::move(w));
  if (::fsync(s.fd) != 0) return s.fail(io_failure(s.temporary, "synced"));
  if (::rename(s.temporary.c_str(), s.path.c_str()) != 0) return s.fail(io_failure(s.path, "renamed to"));
  s.finished = true;
  s.failed = invalid(s.path + ": finish was called before");
  const int folder = ::open(folder_of(s.path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder >= 0) {
    ::fsync(folder);  // some file systems cannot; the file itself is safe by then
    ::close(folder);
  }
  return {};
}

namespace {

struct Trailer {
  std::vector<uint64_t> checksums;
};

uint64_t u64_at(std::span<const std::byte> bytes, uint64_t at) {
  uint64_t n;
  std::memcpy(&n, bytes.data() + at, sizeof n);
  return n;
}

Status damaged(const std::string& what) { return corrupt("the packed file is damaged or not complete: " + what); }

Status read_trailer(std::span<const std::byte> file, const Safetensors& parsed, Trailer* out) {
  if (parsed.tensors.back().name != kTrailerName) return damaged("it does not end in a trailer");
  const std::span<const std::byte> t = parsed.tensors.back().data;
  const uint64_t count = parsed.tensors.size() - 1;
  if (t.size() != kTrailerFixed + 8 * count) {
    return damaged("expected a trailer of " + std::to_string(kTrailerFixed + 8 * count) + " bytes, found " + std::to_string(t.size()));
  }
  if (std::memcmp(t.data(), kTrailerMagic, sizeof kTrailerMagic) != 0) return damaged("the trailer is blank or of another kind");
  if (u64_at(t, t.size() - 8) != hash(t.first(t.size() - 8))) return damaged("the trailer's checksum differs");
  if (u64_at(t, 8) != file.size())
    return damaged("expected " + std::to_string(u64_at(t, 8)) + " bytes, found " + std::to_string(file.size()));
  if (u64_at(t, 16) != hash(file.first(parsed.header_bytes))) return damaged("the header's checksum differs");
  if (u64_at(t, 24) != count)
    return damaged("expected " + std::to_string(u64_at(t, 24)) + " tensors, found " + std::to_string(count));
  for (uint64_t i = 0; i < count; ++i) out->checksums.push_back(u64_at(t, 32 + 8 * i));
  return {};
}

}  // namespace

Result<Container> parse_container(std::span<const std::byte> file) {
  ESPALIER_ASSIGN(Safetensors parsed, parse_safetensors(file));
  Trailer trailer;
  ESPALIER_TRY(read_trailer(file, parsed, &trailer));
  if (parsed.header_bytes % kContainerAlign != 0) return damaged("its data is not aligned");
  Container out;
  out.header_bytes = parsed.header_bytes;
  out.metadata = std::move(parsed.metadata);
  for (TensorView& tensor : parsed.tensors) {
    if (is_internal(tensor.name)) continue;
    if (static_cast<uint64_t>(tensor.data.data() - file.data()) % kContainerAlign != 0)
      return damaged("tensor " + tensor.name + " is not aligned");
    out.tensors.push_back(std::move(tensor));
  }
  return out;
}

Status verify_container(std::span<const std::byte> file) {
  ESPALIER_ASSIGN(const Safetensors parsed, parse_safetensors(file));
  Trailer trailer;
  ESPALIER_TRY(read_trailer(file, parsed, &trailer));
  for (size_t i = 0; i < trailer.checksums.size(); ++i) {
    if (hash(parsed.tensors[i].data) != trailer.checksums[i])
      return damaged("the checksum of tensor " + parsed.tensors[i].name + " differs");
  }
  return {};
}

}  // namespace espalier
